"""What a user's function gives must fit its columns; what does not is one dead letter."""

from __future__ import annotations

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
