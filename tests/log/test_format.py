"""The format on disk: what version 1 wrote is read, and appended to, by every later one."""

from __future__ import annotations

import base64
import zlib

from headrace.log import EmbeddedLog

SETTINGS = """{
  "format": 1,
  "id": 12648430,
  "partitions": 1,
  "columns": "area string, celsius double",
  "schema": "/////6gAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAIAAABMAAAABAAAAMz///8AAAEDEAAAACAAAAAEAAAAAAAAAAcAAABjZWxzaXVzAAAABgAIAAYABgAAAAAAAgAQABQACAAGAAcADAAAABAAEAAAAAAAAQUQAAAAHAAAAAQAAAAAAAAABAAAAGFyZWEAAAAABAAEAAQAAAA=",
  "key": "area",
  "retention_ms": null,
  "retention_bytes": null,
  "segment_bytes": 134217728,
  "created": 1700000000000,
  "crc": 1985713164
}
"""  # noqa: E501
SEGMENT = """
eNrzCHIyZGBgZOgVcWtiYmBgaGBkQAUZT893A8XYodx3/w/ApdT9j90qYKAM/AeCE0BaBMrnYRBjYGNgZeAAsnhA
AswsDBJAygKugwvI52FgAargAvJygFgAiJmQzGTFYx8PlBaA0pxQWgFKw7yvgaaOAWoHE5p5TGj6QIAFydyMxJyc
xJKSzGQs6hgaTB0oDD4GD3D8MTC0SF2cwIhkARNa/P2HAuT4W6Ao/oXY8JcgEP6MRIY/BxrNhiWckfkcaGGNnjwZ
sdgBMjM5FRjuRXBbD+ByDwBEijIs
"""


def test_a_topic_of_version_1_is_read_and_appended_to(tmp_path):
    folder = tmp_path / "golden" / "00000"
    folder.mkdir(parents=True)
    (tmp_path / "golden" / "topic.json").write_text(SETTINGS)
    (folder / f"{0:020d}.log").write_bytes(zlib.decompress(base64.b64decode(SEGMENT)))

    log = EmbeddedLog(tmp_path)
    assert log.append("golden", [("hall", 0.0)], producer="p", sequence=7) == {0: (0, 2)}
    log.append("golden", [("roof", 5.0)])
    [(_, table)] = log.read("golden", 0, 0, times=True)
    assert table.select(["area", "celsius"]).to_pylist() == [
        {"area": "hall", "celsius": 21.5}, {"area": "attic", "celsius": None},
        {"area": "cellar", "celsius": -3.0}, {"area": "roof", "celsius": 5.0},
    ]  # fmt: skip
    assert table["__append_time"].to_pylist()[:3] == [1_700_000_000_000] * 3
