"""What a user's own assigner or aggregate raises: a dead letter for a row, else a named error."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import headrace as hr
from headrace.errors import StepError
from headrace.testing import Harness

SEVEN, NOWHERE, NINE = 7, 8, 9


class Picky(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> Iterable[tuple[int, int]]:
        if row.v == SEVEN:
            raise ValueError("seven")
        return [] if row.v == NOWHERE else [(0, 10_000)]


class Sum(hr.Aggregate):
    state = "bigint"
    output = "bigint"

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        if value == NINE:
            raise ValueError("nine")
        return state + value

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, state: int) -> int:
        return state


class NoResult(Sum):
    def result(self, state: int) -> int:
        raise KeyError("no result")


class InArrow(Sum):
    def result(self, state: int) -> int:
        return pc.add(state, "one")  # type: ignore[no-any-return]


class InJson(Sum):
    def result(self, state: int) -> int:
        return json.loads("{")  # type: ignore[no-any-return]


class Nowhere(Sum):
    result = staticmethod(functools.partial(json.loads, "{"))  # type: ignore[assignment]


class NoMerge(Sum):
    def merge(self, a: int, b: int) -> int:
        raise KeyError("no merge")


def harness(window: Any, total: Any, on_error: str = "dead", **options: Any) -> Harness:
    job = hr.Job("errors", on_error=on_error)
    rows = job.read(
        "log:x", schema="k string, v bigint, at bigint", time="at", delay="1ms", name="x"
    )
    sums = rows.key_by("k").window(window, **options).agg(s=total("v"), n=hr.count(), name="sums")
    sums.write("collect:", name="out")
    sums.late.write("collect:", name="late")
    return Harness(job)


def sent(h: Harness) -> Harness:
    h.send("x", [{"k": "a", "v": v, "at": v} for v in range(12)])
    return h


def totals(h: Harness) -> list[tuple[int, int]]:
    return [(row["s"], row["n"]) for row in h.output("out")]


@pytest.mark.parametrize("evict", [None, hr.keep_last(100)])
def test_a_row_that_the_assigner_cannot_place_is_a_dead_letter(evict: Any) -> None:
    h = sent(harness(Picky(), hr.sum, evict=evict))
    h.end()
    assert totals(h) == [(sum(range(12)) - SEVEN - NOWHERE, 10)]
    assert [(d["step"], d["offset"], d["error"]) for d in h.dead()] == [
        ("sums", SEVEN, "ValueError: seven")
    ]
    assert [row["v"] for row in h.output("late")] == [NOWHERE]


@pytest.mark.parametrize("window", [hr.tumbling("10s"), hr.session("10s")], ids=["panes", "timed"])
def test_a_row_that_an_aggregate_cannot_add_is_a_dead_letter(window: Any) -> None:
    h = sent(harness(window, Sum))
    h.end()
    assert totals(h) == [(sum(range(12)) - NINE, 11)]
    assert [(d["step"], d["offset"]) for d in h.dead()] == [("sums", NINE)]


def test_or_stops_the_job_if_that_was_asked_for() -> None:
    h = harness(hr.tumbling("10s"), Sum, on_error="fail")
    with pytest.raises(StepError, match=r"'sums' failed on a record: ValueError: nine.*offset 9"):
        sent(h)


@pytest.mark.parametrize("total", [NoResult, NoMerge])
def test_what_fails_over_many_rows_stops_the_job_and_names_the_step(total: Any) -> None:
    h = harness(hr.tumbling("10s"), total)
    with pytest.raises(StepError, match="step 'sums' failed: KeyError") as raised:
        for at in (1, 2):
            h.send("x", [{"k": "a", "v": at, "at": at}])
        h.end()
    assert raised.value.site is not None
    assert raised.value.site.file == __file__


@pytest.mark.parametrize(("total", "line"), [(InArrow, "pc.add("), (InJson, "json.loads(")])
def test_the_place_is_the_users_line_though_a_library_raised(total: Any, line: str) -> None:
    h = harness(hr.tumbling("10s"), total)
    with pytest.raises(StepError) as raised:
        sent(h).end()
    site = raised.value.site
    assert site is not None and site.file == __file__
    assert line in Path(__file__).read_text().splitlines()[site.line - 1]


def test_an_error_from_no_line_of_the_users_is_placed_where_the_step_was_written() -> None:
    with pytest.raises(StepError, match="step 'sums' failed") as raised:
        sent(harness(hr.tumbling("10s"), Nowhere)).end()
    site = raised.value.site
    assert site is not None and site.file == __file__
    assert "sums = rows.key_by" in Path(__file__).read_text().splitlines()[site.line - 1]
