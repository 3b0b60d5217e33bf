"""What a process function over windows is called with, and what it counts."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness

SCHEMA = "k string, v bigint, at bigint"
WINDOWS = {"of time": hr.tumbling("10s"), "of rows": hr.tumbling(rows=2)}


def job_of(fn: Any, window: Any, schema: str = "n bigint") -> hr.Job:
    job = hr.Job("ctx")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h")
    made = rows.key_by("k").window(window)
    keeps = isinstance(fn, hr.WindowProcess)
    made.process(fn, schema=schema, unbounded=keeps, name="p").write("collect:", name="out")
    return job


def told(test: Harness, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[c] for c in columns) for row in test.output("out")]


def three(key: str, window: Any, rows: list[Any]) -> tuple[str, int, int]:
    return key, window.pane, len(rows)


def four(key: str, window: Any, rows: list[Any], ctx: Any) -> tuple[str, int, int]:
    assert isinstance(ctx.clock, int)
    return three(key, window, rows)


def with_own(key: str, window: Any, rows: list[Any], more: int = 0) -> tuple[str, int, int]:
    return key, window.pane, len(rows) + more


def any_number(*given: Any) -> tuple[str, int, int]:
    key, window, rows = given
    return three(key, window, rows)


def last(ahead: int, key: str, window: Any, rows: list[Any], ctx: Any) -> tuple[str, int, int]:
    return four(key, window, rows, ctx)


class Three(hr.WindowProcess):
    def process(self, key: str, window: Any, rows: list[Any]) -> tuple[str, int, int]:
        return three(key, window, rows)


class Four(hr.WindowProcess):
    def process(self, key: str, window: Any, rows: list[Any], ctx: Any) -> tuple[str, int, int]:
        return four(key, window, rows, ctx)


class Callable4:
    def __call__(self, key: str, window: Any, rows: list[Any], ctx: Any) -> tuple[str, int, int]:
        return four(key, window, rows, ctx)


FUNCTIONS = (
    three, four, with_own, any_number, partial(last, 1), partial(with_own, more=0), Three(),
    Four(), Callable4(),
)  # fmt: skip


@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: getattr(fn, "__name__", type(fn).__name__))
def test_a_function_gets_as_many_arguments_as_it_cannot_do_without(
    harness: Any, fn: Any, window: Any
) -> None:
    test = harness(job_of(fn, window, "who string, pane int, n int"))
    test.send("rows", [("a", 1, 1_000), ("a", 2, 2_000), ("b", 3, 3_000), ("b", 4, 4_000)])
    test.watermark("rows", 20_000)
    assert sorted(told(test, "who", "pane", "n")) == [("a", 0, 2), ("b", 0, 2)]


def test_the_watermark_and_the_clock_are_those_of_the_batch(harness: Any) -> None:
    def now(key: str, window: Any, rows: list[Any], ctx: Any) -> tuple[int, int]:
        return ctx.watermark, ctx.clock

    test = harness(job_of(now, WINDOWS["of time"], "mark bigint, clock bigint"))
    test.send("rows", [("a", 1, 1_000), ("a", 2, 11_000)])
    test.watermark("rows", 12_000)
    test.advance("5s")
    test.watermark("rows", 33_000)
    (first, began), (second, later) = told(test, "mark", "clock")
    assert (first, second, later - began) == (12_000, 33_000, 5_000)


# --- figures of the user's own


class Kept(hr.WindowProcess):
    seen = hr.value(int, default=0)

    def process(self, key: str, window: Any, rows: list[Any], ctx: Any) -> Any:
        self.seen += 1
        return careful(key, window, rows, ctx)


def careful(key: str, window: Any, rows: list[Any], ctx: Any) -> Any:
    ctx.counter("windows").add()
    ctx.counter("sum").add(sum(row.v for row in rows))
    if any(row.v == 3 for row in rows):
        raise ValueError("three")
    return "no number" if any(row.v == 4 for row in rows) else {"n": len(rows)}


def lazily(key: str, window: Any, rows: list[Any], ctx: Any) -> Any:
    yield careful(key, window, rows, ctx)


COUNTING: dict[str, tuple[Any, Any]] = {
    "of time": (careful, WINDOWS["of time"]),
    "of rows": (careful, WINDOWS["of rows"]),
    "that remember": (Kept(), WINDOWS["of time"]),
    "that yield": (lazily, WINDOWS["of time"]),
}


def counted_by_hand(values: list[tuple[str, int]], window: Any) -> dict[str, int]:
    """Windows of time hold all values of a key, windows of rows two, at the end one."""
    keys = {k: [v for key, v in values if key == k] for k, _ in values}
    step = 2 if window is WINDOWS["of rows"] else len(values) or 1
    whole = [mine[i : i + step] for mine in keys.values() for i in range(0, len(mine), step)]
    good = [w for w in whole if not {3, 4} & {*w}]
    return {"windows": len(good), "sum": sum(map(sum, good))} if good else {}


@pytest.mark.parametrize(("fn", "window"), COUNTING.values(), ids=COUNTING)
@settings(max_examples=8)
@given(values=st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 9)), max_size=24))
def test_a_window_that_fails_counts_nothing(
    fn: Any, window: Any, values: list[tuple[str, int]]
) -> None:
    with Harness(job_of(fn, window)) as test:
        test.send("rows", [(k, v, i) for i, (k, v) in enumerate(values)])
        test.end()
        assert test.progress is not None
        assert test.progress.metrics.get("p", {}) == counted_by_hand(values, window)


def test_counts_add_up_over_batches_and_a_batch_that_is_done_again_counts_once(
    harness: Any,
) -> None:
    test = harness(job_of(careful, WINDOWS["of rows"]))
    test.send("rows", [("a", 1, 1), ("a", 2, 2), ("b", 5, 3)])
    test.crash()
    test.send("rows", [("b", 6, 4)])
    test.restart()
    assert test.progress.metrics == {"p": Counter(windows=2, sum=14)}
