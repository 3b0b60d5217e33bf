"""Row windows by example: the end of the input, and what random rows seldom meet."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.ops.row_window_job import BOUNDS, INFO, Job, Listing

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import RunError
from headrace.hashing import hash_keys
from headrace.ops.agg import named as agg
from headrace.ops.row_windows.operator import RowWindowOperator
from headrace.ops.window.by_rows import CountWindow, DeltaWindow, LastRows, LastTime, UntilWindow
from headrace.ops.window.function import FoldRows, WindowedRows, WindowResults


def rows_of(keys: list[Any], values: Any, times: list[int] | None = None, **more: Any) -> pa.Table:
    """A chunk with columns k and x, rows in the order in which they are written."""
    table = pa.table({"k": pa.array(keys), "x": pa.array(values), **more})
    if times is not None:
        table = table.append_column("__t", pa.array(times, pa.int64()))
    order = np.arange(len(keys))
    table = table.append_column("__s", pa.array(order * 0, pa.int32()))
    table = table.append_column("__o", pa.array(order))
    return table.append_column("__h", pa.array(hash_keys([table["k"]])))


def job_of(spec: Any, rows: pa.Table, aggs: Any = None, keys: tuple[str, ...] = ("k",)) -> Job:
    """Windows that collect x, and tell all there is to tell."""
    input = pa.schema([f for f in rows.schema if not f.name.startswith("__")])
    function = aggs or {"all": agg.collect("x")}
    if isinstance(function, dict):
        results = [(n, a.result_type(input)) for n, a in function.items()]
    else:
        results = list(function.schema)
    output = pa.schema([*(input.field(k) for k in keys), *BOUNDS, *INFO, *results])
    return Job(lambda: RowWindowOperator(spec, function, keys, input, output))


def shown(job: Job, rows: pa.Table | None, before: int = 0, after: int = 0) -> list[Any]:
    """(key, what was collected, timing) of the windows of one epoch."""
    (step,) = job.epoch(rows, before, after)
    found = [row for out in step.out for row in out.to_pylist()]
    return [(r["k"], r["all"], r["timing"]) for r in found]


def test_the_end_of_the_input_ends_windows_that_are_not_full() -> None:
    rows = rows_of(["a"] * 5 + ["b"], [1, 2, 3, 4, 5, 6])
    job = job_of(CountWindow(2), rows)

    assert shown(job, rows) == [("a", [1, 2], "on time"), ("a", [3, 4], "on time")]
    assert sorted(shown(job, None, after=MAX_TIME)) == [("a", [5], "end"), ("b", [6], "end")]
    assert shown(job, None, MAX_TIME, MAX_TIME) == []


def test_a_sliding_count_fires_from_the_first_step_on() -> None:
    rows = rows_of(["a"] * 7, [1, 2, 3, 4, 5, 6, 7])
    job = job_of(CountWindow(4, every=2), rows)

    assert [w for _, w, _ in shown(job, rows)] == [[1, 2], [1, 2, 3, 4], [3, 4, 5, 6]]
    assert shown(job, None, after=MAX_TIME) == [("a", [4, 5, 6, 7], "end")]


def test_a_row_that_ends_a_window_is_inside_it_or_the_first_of_the_next() -> None:
    flags = pa.array([True, None, False, True, True])
    rows = rows_of(["a"] * 5, [1, 2, 3, 4, 5], b=flags)

    assert [w for _, w, _ in shown(job_of(UntilWindow("b"), rows), rows)] == [[1], [2, 3, 4], [5]]
    before = job_of(UntilWindow("b", inside=False), rows)
    assert [w for _, w, _ in shown(before, rows)] == [[1, 2, 3], [4]]
    assert shown(before, rows.slice(0, 1)) == [("a", [5], "on time")]  # ended by the next epoch


def test_a_delta_is_measured_from_the_first_or_the_previous_number() -> None:
    rows = rows_of(["a"] * 6, [0, None, 4, 8, 20, 21])

    first = job_of(DeltaWindow("x", 5), rows)
    assert [w for _, w, _ in shown(first, rows)] == [[0, 4], [8]]
    previous = job_of(DeltaWindow("x", 5, "previous"), rows)
    assert [w for _, w, _ in shown(previous, rows)] == [[0, 4, 8]]
    assert shown(previous, rows_of(["a"], [27])) == [("a", [20, 21], "on time")]


@pytest.mark.parametrize("since", ["first", "previous"])
def test_a_delta_of_large_integers_and_decimals_is_exact_enough(since: str) -> None:
    whole = rows_of(["a"] * 4, [2**53, 2**53 + 1, 2**53 + 2, -(2**63)])
    assert [w for _, w, _ in shown(job_of(DeltaWindow("x", 1, since), whole), whole)] == (
        [[2**53, 2**53 + 1], [2**53 + 2]] if since == "first" else [[2**53, 2**53 + 1, 2**53 + 2]]
    )
    wide = rows_of(["a"] * 3, pa.array([0, 2**64 - 1, 2**64 - 3], pa.uint64()))
    job = job_of(DeltaWindow("x", 2, since), wide, {"all": agg.collect("x")})
    assert [w for _, w, _ in shown(job, wide)] == [[0]]
    money = rows_of(["a"] * 3, pa.array([Decimal("0.10"), Decimal("0.30"), Decimal("9")]))
    assert [len(w) for _, w, _ in shown(job_of(DeltaWindow("x", 0.5, since), money), money)] == [2]


def test_a_silent_key_is_not_shown_again_at_the_next_tick() -> None:
    rows = rows_of(["a", "a", "b", "a"], [1, 2, 3, 4], [1, 5, 7, 12])
    job = job_of(LastRows(2, 10), rows)

    (step,) = job.epoch(rows, MIN_TIME, 9)
    assert (step.out, step.next) == ([], 10)
    assert sorted(shown(job, None, 9, 11)) == [("a", [1, 2], "on time"), ("b", [3], "on time")]
    assert shown(job, None, 11, 35) == [("a", [2, 4], "on time")]
    (step,) = job.epoch(None, 35, 90)
    assert (step.out, step.next) == ([], MAX_TIME)


def test_a_late_row_is_one_whose_tick_was_passed() -> None:
    rows = rows_of(["a"] * 3, [1, 2, 3], [19, 20, 25])
    operator = job_of(LastRows(2, 10), rows).operator()
    assert operator.late(0, rows, 27).tolist() == [True, False, False]
    assert operator.late(0, rows, MIN_TIME) is None
    while_ = job_of(LastTime(10, 2), rows).operator()
    assert while_.late(0, rows, 20).tolist() == [True, False, False]
    assert job_of(CountWindow(2), rows).operator().late(0, rows, 27) is None


def test_the_last_while_is_what_had_come_by_then() -> None:
    early = rows_of(["a"] * 2, [1, 2], [10, 20])
    job = job_of(LastTime(10, 2), early)

    assert shown(job, early, MIN_TIME, 12) == [("a", [2], "on time")]
    late = rows_of(["a"] * 2, [3, 4], [13, 19])
    assert shown(job, late, 12, 12) == [("a", [1, 3, 4], "on time")]  # not the one at 20


def test_a_window_that_stays_open_for_many_epochs_is_put_together() -> None:
    rows = rows_of([1, 2], [0, 0], i=[0, 0])
    job = job_of(CountWindow(40), rows, Listing())
    given = []
    for number in range(45):
        keys = [1, 2] if number % 2 else [1]
        part = rows_of(keys, [0] * len(keys), i=[number] * len(keys))
        given += [r for s in job.epoch(part, 0, 0) for out in s.out for r in out.to_pylist()]

    assert [(r["k"], r["rows"]) for r in given] == [(1, list(range(40)))]
    assert job.held("rows").num_rows == 5 + 22
    (step,) = job.epoch(None, 0, MAX_TIME)
    ends = {r["k"]: r["rows"] for r in step.out[0].to_pylist()}
    assert ends == {1: list(range(40, 45)), 2: list(range(1, 45, 2))}
    assert job.held("rows").num_rows == 0


def test_small_epochs_of_a_sliding_count_are_packed_together() -> None:
    rows = rows_of(["a"], [0])
    job = job_of(CountWindow(100, every=1), rows)
    for number in range(250):
        part = rows_of(["a"], [number])
        assert shown(job, part) == [("a", list(range(number + 1))[-100:], "on time")]
        assert job.held("rows").num_rows <= 9


def test_a_users_fold_sees_the_rows_of_each_window() -> None:
    rows = rows_of(["a", "b", "a", "a"], [1, 5, 2, 3])
    row = pa.schema([("k", pa.string()), ("x", pa.int64())])
    value = pa.schema([("all", pa.string())])
    fold = FoldRows(lambda v, r: (f"{v[0]}{r.k}{r.x} ",), lambda: ("",), row, value)

    assert shown(job_of(CountWindow(2), rows, fold), rows) == [("a", "a1 a2 ", "on time")]


class Columns:
    """A function that reads one column, and tells what it was given."""

    columns = ("x",)
    schema = pa.schema([("all", pa.string())])

    def over(self, laid: WindowedRows) -> WindowResults:
        told = [",".join(laid.rows.column_names)] * len(laid)
        return WindowResults(pa.table({"all": told}), np.arange(len(laid)))


def test_a_function_that_says_what_it_reads_is_given_no_more() -> None:
    rows = rows_of(["a"] * 3, [1, 2, 3], s=["long"] * 3)
    job = job_of(CountWindow(2), rows, Columns())

    assert shown(job, rows) == [("a", "x,__s,__o", "on time")]
    assert "[s]" not in job.held("rows").column_names


@pytest.mark.parametrize("spec", [CountWindow(2), CountWindow(3, 2)])
def test_keys_of_any_kind_are_told_apart_by_value(spec: Any) -> None:
    zero, nan, other = 0.0, float("nan"), np.nan
    rows = rows_of([zero, nan, -zero, other, None, None], [1, 2, 3, 4, 5, 6])
    assert sorted(w for _, w, _ in shown(job_of(spec, rows), rows)) == [[1, 3], [2, 4], [5, 6]]

    words = pa.array(["a", "b", "a", "b"]).dictionary_encode()
    plain = rows_of(["a", "b", "a", "b"], [1, 2, 3, 4])
    coded = plain.set_column(0, "k", words)
    assert sorted(shown(job_of(spec, plain), coded)) == [
        ("a", [1, 3], "on time"), ("b", [2, 4], "on time"),
    ]  # fmt: skip


@pytest.mark.parametrize("spec", [CountWindow(2), CountWindow(2, 1), UntilWindow("b")])
def test_windows_over_all_rows_need_no_key(spec: Any) -> None:
    rows = rows_of(["a", "b"], [1, 2], b=[False, True])
    rows = rows.set_column(rows.column_names.index("__h"), "__h", pa.array([0, 0], pa.uint64()))
    (step,) = job_of(spec, rows, keys=()).epoch(rows, 0, 0)
    assert step.out[0].to_pylist()[-1]["all"] == [1, 2]


def test_rows_that_do_not_know_where_they_come_from_stay_as_they_are() -> None:
    rows = rows_of(["a"] * 3, [3, 1, 2]).drop_columns(["__s", "__o"])
    job = job_of(CountWindow(3, 2), rows)
    assert shown(job, rows) == [("a", [3, 1], "on time")]
    assert shown(job, rows.slice(0, 1)) == [("a", [1, 2, 3], "on time")]


@pytest.mark.parametrize("spec", [CountWindow(2), CountWindow(2, 1)])
def test_a_sum_that_does_not_fit_is_named(spec: Any) -> None:
    rows = rows_of(["a"] * 2, [2**62, 2**62])
    with pytest.raises(RunError) as refusal:
        job_of(spec, rows, {"all": agg.sum("x")}).epoch(rows, 0, 0)
    assert "all = sum(x)" in refusal.value.message


def test_many_rows_agree_with_numpy() -> None:
    random = np.random.default_rng(7)
    keys, values = random.integers(0, 500, 120_000), random.normal(0, 10, 120_000)
    job, slides = (
        job_of(
            spec, rows_of([0], [0.5]), {"n": agg.count(), "top": agg.max("x"), "all": agg.sum("x")}
        )
        for spec in (CountWindow(100), CountWindow(100, 40))
    )
    got: list[Any] = []
    slid: list[Any] = []
    for part in np.array_split(np.arange(120_000), 5):
        rows = rows_of(keys[part].tolist(), values[part])
        got += [r for s in job.epoch(rows, 0, 0) for out in s.out for r in out.to_pylist()]
        slid += [r for s in slides.epoch(rows, 0, 0) for out in s.out for r in out.to_pylist()]

    mine = {k: values[keys == k] for k in range(500)}
    assert len(got) == sum(len(v) // 100 for v in mine.values())
    assert len(slid) == sum(len(v) // 40 for v in mine.values())
    for row in got:
        window = mine[row["k"]][row["pane"] * 100 :][:100]
        assert (row["n"], row["top"]) == (100, window.max())
        assert row["all"] == pytest.approx(window.sum())
    for row in slid:
        stop = (row["pane"] + 1) * 40
        window = mine[row["k"]][max(stop - 100, 0) : stop]
        assert (row["n"], row["top"]) == (len(window), window.max())
