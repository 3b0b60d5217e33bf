"""What a user's function gives must fit its columns; what does not is one dead letter."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.testing import drive

ROWS = [{"k": "a", "v": i} for i in range(6)]


def _odd_text(row: Any) -> tuple[Any, ...]:
    return (row.k, "three" if row.v == 3 else row.v)


def _bad_sum(state: Any, row: Any) -> Any:
    return "three" if row.v == 3 else state + row.v


class Sum(hr.KeyedProcess):
    total = hr.value(int, default=0)
    output = "k string, total bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.total = "three" if row.v == 3 else self.total + row.v
        return (ctx.key, self.total)


def _run(tmp_path: Path, build: Any) -> tuple[list[Any], list[Any]]:
    job = hr.Job("bad")
    build(job.read(hr.rows(ROWS, "k string, v bigint"), name="rows")).write("collect:", name="out")
    driver = drive(job, tmp_path)
    assert driver.manifest is not None
    counts = driver.manifest.counts["rows"]
    assert (counts["read"], counts["used"], counts["dead"]) == (6, 5, 1)
    letters = hr.read_output(tmp_path / "dead").to_pylist()
    return driver.output("out").to_pylist(), [(r["offset"], r["step"]) for r in letters]


def test_a_mapped_row_that_does_not_fit_is_dead_alone(tmp_path: Path) -> None:
    out, dead = _run(tmp_path, lambda s: s.map(_odd_text, schema="k string, v bigint", name="odd"))
    assert [r["v"] for r in out] == [0, 1, 2, 4, 5] and dead == [(3, "odd")]


def test_a_folded_value_that_does_not_fit_leaves_the_key_as_it_was(tmp_path: Path) -> None:
    out, dead = _run(
        tmp_path,
        lambda s: s.key_by("k").fold(0, _bad_sum, schema=int, unbounded=True, name="sum"),
    )
    assert [r["value"] for r in out] == [0, 1, 3, 7, 12] and dead == [(3, "sum")]


def test_a_process_value_that_does_not_fit_leaves_the_key_as_it_was(tmp_path: Path) -> None:
    out, dead = _run(tmp_path, lambda s: s.key_by("k").process(Sum(), unbounded=True, name="sum"))
    assert [r["total"] for r in out] == [0, 1, 3, 7, 12] and dead == [(3, "sum")]


def test_the_record_of_a_dead_letter_reads_back_as_the_row_it_was(tmp_path):
    schema = "id bigint, body binary, at timestamp, price decimal(9, 2), parts array<binary>"
    at = datetime(2026, 1, 1, 12, 30, 0, 250_000, tzinfo=UTC)
    row = {
        "id": 1,
        "body": b"\x00\xff'",
        "at": at,
        "price": Decimal("9.50"),
        "parts": [b"\x01", None],
    }
    job = hr.Job("writes")
    job.read(hr.rows([row], schema=schema)).map(lambda r: 1 / 0, schema="v bigint").write(
        "collect:", name="out"
    )
    drive(job, tmp_path / "job")
    letters = hr.read_output(tmp_path / "job" / "dead").to_pylist()
    (tmp_path / "again.jsonl").write_bytes(b"\n".join(r["record"] for r in letters) + b"\n")

    again = hr.Job("reads")
    again.read(f"files:{tmp_path}/again.jsonl", schema=schema).write("collect:", name="out")

    assert drive(again, tmp_path / "again").output("out").to_pylist() == [row]


def test_every_letter_of_many_says_why(tmp_path: Path) -> None:
    job = hr.Job("many")
    rows = job.read(hr.rows([{"y": "NA"}] * 120)).with_columns(n="cast(y as int)")
    rows.write("collect:", name="out")
    drive(job, tmp_path)
    letters = hr.read_output(str(tmp_path / "dead"))["error"].to_pylist()
    assert len(letters) == 120 and all("'NA' is not int" in text for text in letters)
