"""Erasing records: their bytes go, all others stay under their offsets, whoever reads them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.errors import LogError
from headrace.log import EmbeddedLog
from headrace.state import faults

SCHEMA = pa.schema(
    [
        ("who", pa.string()),
        ("n", pa.int64()),
        ("ok", pa.bool_()),
        ("price", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("raw", pa.binary()),
        ("names", pa.list_(pa.string())),
        ("by", pa.map_(pa.string(), pa.struct([("x", pa.float64()), ("y", pa.large_string())]))),
        ("pair", pa.list_(pa.int16(), 2)),
        ("code", pa.binary(3)),
    ]
)
PEOPLE = ["anna", "bert", "carl", "dora"]


def row(i: int) -> dict[str, Any]:
    who = PEOPLE[i % len(PEOPLE)]
    return {
        "who": who,
        "n": i,
        "ok": i % 3 == 0,
        "price": Decimal(i) / 4,
        "day": dt.date(2024, 1, 1) + dt.timedelta(i),
        "raw": who.encode() * (i % 3),
        "names": [who] * (i % 5),
        "by": [(who, {"x": i / 2, "y": who.upper()})] * int(i % 3 > 0),
        "pair": [i, i + 1],
        "code": who[:3].encode(),
    }


def is_(who: str) -> Any:
    return lambda table: pc.equal(table["who"], who).to_numpy()


def written(tmp_path: Path, **options: Any) -> tuple[EmbeddedLog, list[tuple[int, int, Any]]]:
    """A topic in several segments and blocks; its records by partition and offset."""
    log = EmbeddedLog(tmp_path)
    log.create("t", 2, schema=SCHEMA, key="n", segment_bytes=1 << 16, **options)
    for start in range(0, 600, 40):
        log.append("t", pa.Table.from_pylist([row(i) for i in range(start, start + 40)], SCHEMA))
    return log, records(log)


def records(log: EmbeddedLog) -> list[tuple[int, int, Any]]:
    earliest, found = log.earliest("t"), []
    for partition in log.latest("t"):
        for _, table in log.read("t", partition, earliest[partition], offsets=True):
            at = table["__offset"].to_pylist()
            rows = table.drop_columns(["__offset"]).to_pylist()
            found += [(partition, o, r) for o, r in zip(at, rows, strict=True)]
    return found


def bytes_of(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file())


def test_their_bytes_go_and_the_others_have_the_offsets_that_they_had(tmp_path):
    log, before = written(tmp_path)
    assert b"carl" in bytes_of(tmp_path) and b"CARL" in bytes_of(tmp_path)
    info = log.describe("t")

    assert log.erase("t", is_("carl"), dry_run=True) == 150
    assert records(log) == before
    assert log.erase("t", is_("carl")) == 150
    assert log.erase("t", is_("carl")) == 0

    left = [r for r in before if r[2]["who"] != "carl"]
    for reader in (log, EmbeddedLog(tmp_path)):
        assert records(reader) == left
        assert reader.describe("t") == info
    data = bytes_of(tmp_path)
    assert b"carl" not in data and b"CARL" not in data and b"car" not in data
    assert b"dora" in data


def test_without_offsets_tables_end_before_what_is_missing(tmp_path):
    log, before = written(tmp_path)
    log.erase("t", is_("anna"))
    got = {
        (p, first + i): r
        for p in (0, 1)
        for first, table in log.read("t", p, 0)
        for i, r in enumerate(table.to_pylist())
    }
    assert got == {(p, o): r for p, o, r in before if r["who"] != "anna"}


def test_a_second_person_and_records_that_come_later(tmp_path):
    log, before = written(tmp_path)
    log.erase("t", is_("anna"))
    log.append("t", pa.Table.from_pylist([row(i) for i in range(600, 640)], SCHEMA))
    before = [r for r in records(log)]
    assert log.erase("t", is_("bert")) == 160
    assert records(log) == [r for r in before if r[2]["who"] != "bert"]
    assert {r[2]["who"] for r in records(log) if r[2]["n"] < 600} == {"carl", "dora"}


def test_empty_values_are_not_taken_for_what_was_erased(tmp_path):
    """What was overwritten is zero: it must not count again, nor hide a record that is zero."""
    log = EmbeddedLog(tmp_path)
    log.create("t", schema="n bigint, who string")
    log.append("t", [{"n": n, "who": w} for n, w in [(1, "a"), (0, ""), (2, "a"), (0, "")]])
    assert log.erase("t", is_("a")) == 2
    assert log.erase("t", is_("")) == 2
    assert log.erase("t", is_("")) == 0
    assert [t for _, t in log.read("t", 0, 0)] == []
    assert log.append("t", [{"n": 3, "who": "b"}]) == {0: (4, 5)}


def test_a_compacted_topic_is_compacted_without_them(tmp_path):
    log, before = written(tmp_path, compact=True)
    assert log.erase("t", is_("carl")) == 150
    assert records(log) == [r for r in before if r[2]["who"] != "carl"]
    assert b"carl" not in bytes_of(tmp_path)


@pytest.mark.parametrize("compact", [False, True])
def test_nor_do_they_stay_behind_the_records_of_other_partitions(tmp_path, compact):
    """A partition's block is a slice, and Arrow pads it with the memory that follows: the next
    partition's records, of which its own erasing knows nothing."""
    log = EmbeddedLog(tmp_path)
    log.create("t", 4, schema="who string, n bigint", key="who", compact=compact)
    people = [f"person-{letter}" for letter in "abcdefghijkl"]
    for first in (0, 12):
        log.append("t", [{"who": who, "n": first + i} for i, who in enumerate(people)])
    before = [r for r in records(log) if not compact or r[2]["n"] >= 12]
    shared = log.spare_blocks("t")
    assert shared and log.erase("t", is_("nobody"), dry_run=True) == 0
    assert log.spare_blocks("t") == shared  # nothing was changed

    for done, who in enumerate(people):
        assert log.erase("t", is_(who)) in (1, 2)
        assert who.encode() not in bytes_of(tmp_path)
        assert records(log) == [r for r in before if r[2]["who"] not in people[: done + 1]]


def test_what_was_erased_without_looking_behind_other_records_is_found(tmp_path):
    """As an earlier version did: the record is gone, and its bytes are not."""
    log = EmbeddedLog(tmp_path)
    log.create("t", 2, schema="who string, n bigint", key="who")
    log.append("t", [{"who": f"person-{i}", "n": i} for i in range(8)])
    before = records(log)
    assert log.spare_blocks("t") == 1
    assert log.erase("t", is_("nobody")) == 0
    assert log.spare_blocks("t") == 0 and log.spare_blocks("t") == 0
    assert records(log) == before == records(EmbeddedLog(tmp_path))


def test_consumers_and_retention_pass_over_them(tmp_path):
    log, before = written(tmp_path)
    with hr.Consumer("t", log=str(tmp_path), group="g") as consumer:
        log.erase("t", is_("carl"))
        got = []
        while (batch := consumer.poll(0)) is not None:
            got += batch.table.to_pylist()
    assert sorted(r["n"] for r in got) == sorted(r["n"] for *_, r in before if r["who"] != "carl")
    latest = log.latest("t")
    assert log.forget("t", latest) > 0
    assert not list((tmp_path / "t").glob("*.erased"))


def test_spared_records_stay(tmp_path):
    log, before = written(tmp_path)
    assert log.erase("t", is_("carl"), spare=20) == len(
        [r for r in before if r[2]["who"] == "carl" and r[1] < log.latest("t")[r[0]] - 20]
    )


class Crash(Exception):
    pass


def test_a_crash_at_any_step_loses_nothing_and_a_second_try_erases(tmp_path):
    passed: list[str] = []
    log, _ = written(tmp_path / "undisturbed")
    with faults.hooked(passed.append):
        log.erase("t", is_("carl"))
    assert {"log.erase.noted", "log.erase.written", "log.erase.counts"} <= set(passed)
    for nth in range(len(passed)):
        folder = tmp_path / str(nth)
        log, before = written(folder)
        left = [r for r in before if r[2]["who"] != "carl"]
        seen: list[str] = []

        def hook(name: str, seen: list[str] = seen, nth: int = nth) -> None:
            seen.append(name)
            if len(seen) == nth + 1:
                raise Crash(name)

        with faults.hooked(hook), pytest.raises(Crash):
            log.erase("t", is_("carl"))
        again = EmbeddedLog(folder)
        found = records(again)
        assert [r for r in found if r[2]["who"] != "carl"] == left and set(map(repr, found)) <= set(
            map(repr, before)
        )
        again.erase("t", is_("carl"))
        assert records(again) == left and b"carl" not in bytes_of(folder), passed[nth]


def test_a_lost_list_of_what_is_erased_is_an_error(tmp_path):
    log, _ = written(tmp_path)
    log.erase("t", is_("carl"))
    (lost, *_) = sorted((tmp_path / "t").glob("*.erased"))
    content = json.loads(lost.read_bytes())
    lost.write_text(json.dumps({**content, "topic": "another"}))
    with pytest.raises(LogError) as refused:
        records(EmbeddedLog(tmp_path))
    assert refused.value.code == "HR-LOG-011"
    lost.unlink()
    with pytest.raises(LogError) as refused:
        records(EmbeddedLog(tmp_path))
    assert refused.value.code == "HR-LOG-011"
