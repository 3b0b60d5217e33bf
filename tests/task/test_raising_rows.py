"""Rows on which a function raises cost themselves, not their neighbours.

Counted in calls: a function of rows is called once for each, whatever happens next to it.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.task import flow, python_steps
from headrace.testing import drive

N = 10_000
SCHEMA = "k string, v bigint"
BAD = {0, 1, 17, 3_999, 4_000, N - 1}


def _run(tmp_path: Path, build: Any) -> tuple[list[int], set[int]]:
    """The values that came out, and those of the records that are dead; nothing is lost."""
    job = hr.Job("raising")
    rows = [{"k": f"k{i % 7}", "v": i} for i in range(N)]
    build(job.read(hr.rows(rows, SCHEMA), name="rows")).write("collect:", name="out")
    driver = drive(job, tmp_path)
    assert driver.manifest is not None
    counts = driver.manifest.counts["rows"]
    assert counts["read"] == N == counts["used"] + counts["dead"] + counts["filtered"]
    letters = hr.read_output(tmp_path / "dead").to_pylist()
    assert len({r["offset"] for r in letters}) == len(letters) == counts["dead"]
    return [r["v"] for r in driver.output("out").to_pylist()], {r["offset"] for r in letters}


class Calls:
    """How often a function was called for each row."""

    def __init__(self) -> None:
        self.of: Counter[int] = Counter()

    def see(self, row: Any) -> None:
        self.of[row.v] += 1
        if row.v in BAD:
            raise ValueError(f"no {row.v}")

    def map(self, row: Any) -> dict[str, Any]:
        self.see(row)
        return {"k": row.k, "v": row.v}

    def flat_map(self, row: Any) -> Any:
        yield {"k": row.k, "v": row.v}
        self.see(row)
        yield {"k": row.k, "v": row.v}

    def filter(self, row: Any) -> bool:
        self.see(row)
        return True

    def tap(self, row: Any) -> None:
        self.see(row)


@pytest.mark.parametrize(
    "build",
    [
        lambda s, calls: s.map(calls.map, schema=SCHEMA),
        lambda s, calls: s.filter(calls.filter),
        lambda s, calls: s.tap(calls.tap),
        lambda s, calls: s.map(lambda row: row, schema=SCHEMA).map(calls.map, schema=SCHEMA),
        lambda s, calls: s.map(calls.map, schema=SCHEMA).map(lambda row: row, schema=SCHEMA),
    ],
)
def test_a_function_is_called_once_for_each_row(tmp_path, build):
    calls = Calls()

    out, dead = _run(tmp_path, lambda s: build(s, calls))

    assert dead == BAD
    assert out == [v for v in range(N) if v not in BAD]
    assert calls.of == Counter(range(N))


def test_a_flat_map_that_fails_half_way_gives_nothing_of_that_row(tmp_path):
    calls = Calls()

    out, dead = _run(tmp_path, lambda s: s.flat_map(calls.flat_map, schema=SCHEMA))

    assert dead == BAD
    assert out == [v for v in range(N) if v not in BAD for _ in range(2)]
    assert calls.of == Counter(range(N))


def test_a_record_of_which_one_row_fails_later_is_dead_as_a_whole(tmp_path):
    def twice(row: Any) -> Any:
        return [{"k": "first", "v": row.v}, {"k": "second", "v": row.v}]

    def second(row: Any) -> Any:
        if row.k == "second" and row.v in BAD:
            raise ValueError("no")
        return row

    out, dead = _run(
        tmp_path, lambda s: s.flat_map(twice, schema=SCHEMA).map(second, schema=SCHEMA)
    )

    assert dead == BAD
    assert out == [v for v in range(N) if v not in BAD for _ in range(2)]


def test_results_that_do_not_fit_are_found_without_calling_again(tmp_path):
    calls: Counter[int] = Counter()

    def odd(row: Any) -> Any:
        calls[row.v] += 1
        return {"k": row.k, "v": "odd" if row.v in BAD else row.v}

    out, dead = _run(tmp_path, lambda s: s.map(odd, schema=SCHEMA))

    assert dead == BAD
    assert out == [v for v in range(N) if v not in BAD]
    assert calls == Counter(range(N))


def test_raising_stop_iteration_loses_no_row(tmp_path):
    def stops(row: Any) -> Any:
        return next(iter(())) if row.v in BAD else row

    out, dead = _run(tmp_path, lambda s: s.map(stops, schema=SCHEMA))

    assert dead == BAD
    assert out == [v for v in range(N) if v not in BAD]


def test_rows_that_raise_make_no_more_tables(tmp_path, monkeypatch):
    """One in a thousand made every row of its slice a table of its own."""
    made = Counter[str]()
    whole = python_steps.table_of

    def counted(rows: Any, schema: pa.Schema, made_of: Any = None) -> pa.Table:
        made["tables"] += 1
        return whole(rows, schema, made_of)

    monkeypatch.setattr(python_steps, "table_of", counted)
    calls = Calls()

    _run(tmp_path, lambda s: s.map(calls.map, schema=SCHEMA))

    assert made["tables"] == -(-N // 4_000)


def _doubled(calls: list[int]) -> Any:
    def doubled(table: pa.Table) -> pa.Table:
        calls.append(table.num_rows)
        if pc.any(pc.is_in(table["v"], pa.array(sorted(BAD)))).as_py():
            raise ValueError("no")
        return table

    return doubled


def test_rows_on_which_a_function_of_tables_fails_are_found_by_halving(tmp_path):
    calls: list[int] = []

    out, dead = _run(tmp_path, lambda s: s.map_batches(_doubled(calls), schema=SCHEMA))

    assert dead == BAD
    assert sorted(out) == [v for v in range(N) if v not in BAD]
    assert len(calls) <= 2 * 14 * len(BAD)


def test_a_function_of_tables_that_always_fails_is_not_tried_for_every_row(tmp_path, monkeypatch):
    monkeypatch.setattr(flow, "_TRIES", 20)
    calls: list[int] = []

    def never(table: pa.Table) -> pa.Table:
        calls.append(table.num_rows)
        raise ValueError("no")

    out, dead = _run(tmp_path, lambda s: s.map_batches(never, schema=SCHEMA))

    assert out == []
    assert dead == set(range(N))
    assert len(calls) < 100


@pytest.mark.parametrize(
    "fn",
    [
        lambda t: t.slice(0, 2),
        lambda t: t.filter(pc.greater(t["v"], 5)),
        lambda t: pa.concat_tables([t, t]),
        lambda t: t.slice(0, 0),
    ],
    ids=["first rows", "filter", "twice", "none"],
)
def test_a_function_of_tables_must_return_a_row_for_each_row_that_has_an_event_time(tmp_path, fn):
    rows = [("a", v) for v in range(10)]
    job = hr.Job("j")
    stream = job.read(hr.rows(rows, schema=SCHEMA), time=hr.ingestion())
    stream.map_batches(fn, name="some").write("collect:", name="out")

    with pytest.raises(hr.StepError, match=r"HR-STEP-003 step 'some'.* rows for 10"):
        drive(job, tmp_path)


def test_a_function_of_tables_may_return_other_rows_where_there_is_no_event_time(tmp_path):
    job = hr.Job("j")
    stream = job.read(hr.rows([("a", v) for v in range(10)], schema=SCHEMA))
    stream.map_batches(lambda t: t.slice(0, 2)).write("collect:", name="out")

    assert drive(job, tmp_path).output("out").num_rows == 2


CALLS = Calls()


def test_a_process_function_is_called_twice_for_a_row_at_most(tmp_path):
    class Process(hr.KeyedProcess):
        output = SCHEMA

        def on_row(self, row: Any, ctx: Any) -> Any:
            CALLS.see(row)
            return (ctx.key, row.v)

    out, dead = _run(tmp_path, lambda s: s.key_by("k").process(Process(), unbounded=True))

    assert dead == BAD
    assert sorted(out) == [v for v in range(N) if v not in BAD]
    assert CALLS.of.keys() == set(range(N))
    assert max(CALLS.of.values()) <= 2  # a key's rows again, from what it had stored before
