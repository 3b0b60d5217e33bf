"""The format on disk: what version 2 wrote is read, and appended to, by every later one.

Version 1, a folder per partition, was never released and is refused.
"""

from __future__ import annotations

import base64
import json
import zlib

import pytest

from headrace.errors import LogError
from headrace.log import EmbeddedLog
from headrace.log.producers import Seen
from headrace.log.topic import _crc

SETTINGS = """{
  "format": 2,
  "id": "00c0ffee00c0ffee00c0ffee00c0ffee",
  "partitions": 2,
  "columns": "area string, celsius double",
  "schema": "/////6gAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAIAAABMAAAABAAAAMz///8AAAEDEAAAACAAAAAEAAAAAAAAAAcAAABjZWxzaXVzAAAABgAIAAYABgAAAAAAAgAQABQACAAGAAcADAAAABAAEAAAAAAAAQUQAAAAHAAAAAQAAAAAAAAABAAAAGFyZWEAAAAABAAEAAQAAAA=",
  "key": "area",
  "retention_ms": null,
  "retention_bytes": null,
  "segment_bytes": 134217728,
  "created": 1700000000000,
  "crc": 1319686081
}
"""  # noqa: E501
SEGMENT = """
eNrzCAo2Kvj01OTd/wMMlQwQUK2UlFicqmSlYKCjoJSempdalFiSmZ8HFcgvAIqkADmG5gYIAJQoycyFaUrOyU/OhrJT
81KKgcxoINsgFsgvzqxKRRVITQWZHR1by0A68AhyMmIE0rJAPFW5NQbEBvnFgRFNYcbT891AsQNIQgEdsUHsaMoYkegC
Iuz/DwQngLQIlM/DIMbAxsDKwAFk8YAEmFkYJICUAVwHF5DPw8ACVMEF5OUAsQCSvSDAisc+DjSaE0pLoLlfAUoLIOll
QrMH3b/I9ieWlGQmZyTm5CDpxQANpg6g8AfpBoV/4qS36qSEv7jSyhJ6hb8EjcKfBUs4I/M5iAx/ZAAyEynoweGML/3D
2C1SFyfAwh9mMCN6+DMj9JbLzxUZ6PBjo0H4gcxMTs3JSSyC23oAl3sA041lzQ==
"""


def test_a_topic_of_version_2_is_read_and_appended_to(tmp_path):
    folder = tmp_path / "golden"
    folder.mkdir()
    (folder / "topic.json").write_text(SETTINGS)
    (folder / f"{0:020d}.log").write_bytes(zlib.decompress(base64.b64decode(SEGMENT)))

    log = EmbeddedLog(tmp_path)
    before = log.latest("golden")
    assert sum(before.values()) == 3
    log.append("golden", [("hall", 21.5), ("attic", None)], producer="p", sequence=7)
    assert log.latest("golden") == before
    log.append("golden", [("roof", 5.0)])
    tables = [t for p in before for _, t in log.read("golden", p, 0, before[p], times=True)]
    rows = sorted((r for t in tables for r in t.to_pylist()), key=lambda r: r["area"])
    assert [(r["area"], r["celsius"]) for r in rows] == [
        ("attic", None), ("cellar", -3.0), ("hall", 21.5),
    ]  # fmt: skip
    assert {r["__append_time"] for r in rows} == {1_700_000_000_000}
    assert log.describe("golden").id == "00c0ffee" * 4


def test_what_earlier_builds_remembered_of_each_partition_is_of_the_append_as_a_whole():
    dumped = [["p", 0, 0, [4, 1, 2], [[0, 0], [2, 4]]], ["p", 1, 0, [5, 3, 4], [[1, 1], [5, 5]]],
              ["q", 1, 7, [9, 3, 4], [[9, 9]]]]  # fmt: skip
    seen = Seen.load(dumped)
    for loaded in (seen, Seen.load(json.loads(json.dumps(seen.dump())))):
        assert [loaded.answer("p", n) for n in range(7)] == [{}] * 6 + [None]
        assert loaded.answer("q", 8) is None
        with pytest.raises(LogError):
            loaded.answer("q", 6)


def test_a_topic_of_version_1_is_refused(tmp_path):
    (tmp_path / "old").mkdir()
    settings = json.loads(SETTINGS) | {"format": 1, "id": 5}
    del settings["crc"]
    (tmp_path / "old" / "topic.json").write_text(json.dumps({**settings, "crc": _crc(settings)}))
    with pytest.raises(LogError) as caught:
        EmbeddedLog(tmp_path).latest("old")
    assert caught.value.code == "HR-LOG-014"
