"""What windows, triggers and evictors refuse when a program is built: code, line and hint."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.errors import PlanError
from headrace.testing import drive

SCHEMA = "k string, v bigint, x double, at timestamp"
SECOND = hr.tumbling("1s")


def window(s: Any, what: Any = SECOND, **said: Any) -> Any:
    return s.key_by("k").window(what, **said).agg(n=hr.count())


def process(key: str, w: Any, rows: list[Any]) -> dict[str, int]:
    return {"n": len(rows)}


class Storing(hr.WindowProcess):
    calls = hr.value(int, default=0)

    def process(self, key: str, w: Any, rows: list[Any]) -> dict[str, int]:
        self.calls += 1
        return {"n": self.calls}


# What is wrong, how it is written, the code, and what the message says.
WRONG: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "no step": (lambda s: hr.cumulating("1h", "0s"), "WINDOW-004", "step 0 ms"),
    "a step that does not divide": (
        lambda s: hr.cumulating("1h", "25m"), "WINDOW-005", "1h grow by 25m",
    ),
    "no gap": (lambda s: hr.session("0s"), "WINDOW-006", "gap 0 ms"),
    "a gap below zero": (lambda s: hr.session(-1), "WINDOW-006", "gap -1000 ms"),
    "no unit": (lambda s: hr.calendar("fortnight"), "WINDOW-007", "'fortnight' is not a unit"),
    "no day": (lambda s: hr.calendar("day", each=0), "WINDOW-007", "of 0 days"),
    "half a month": (lambda s: hr.calendar("month", each=0.5), "WINDOW-007", "of 0.5 months"),
    "no zone": (lambda s: hr.calendar("day", zone="Berlin"), "WINDOW-008", "'Berlin' is no"),
    "a zone that is no text": (lambda s: hr.calendar("day", zone=1), "WINDOW-008", "1 is no"),
    "a gap with a fraction": (
        lambda s: window(s, hr.session(hr.col("x"))), "WINDOW-009", "whole milliseconds, but `x`",
    ),
    "a gap of text": (
        lambda s: window(s, hr.session(lambda e: e.k)), "WINDOW-009", "whole milliseconds, but `k`",
    ),
    "a delta of texts": (
        lambda s: window(s, trigger=t.at_watermark(early=t.on_delta("k", 1))),
        "WINDOW-009", "on_delta needs a number, but `k` is string",
    ),
    "near a text": (
        lambda s: window(s, evict=hr.keep_near("k", 1)), "WINDOW-009", "keep_near needs a number",
    ),
    "the last of what": (lambda s: hr.keep_last(), "WINDOW-030", "a length or rows="),
    "the last of both": (lambda s: hr.keep_last("1s", rows=3), "WINDOW-030", "length or rows="),
    "the last no rows": (lambda s: hr.keep_last(rows=0), "WINDOW-031", "0 rows"),
    "the last half row": (lambda s: hr.keep_last(rows=1.5), "WINDOW-031", "1.5 rows"),
    "the last no time": (lambda s: hr.keep_last("0s"), "WINDOW-031", "keeps '0s'"),
    "no nearer": (lambda s: hr.keep_near("v", 0), "WINDOW-032", "threshold 0"),
    "near a NaN": (lambda s: hr.keep_near("v", float("nan")), "WINDOW-032", "threshold nan"),
    "near a text's distance": (lambda s: hr.keep_near("v", "2"), "WINDOW-032", "threshold '2'"),
    "keep without a function": (lambda s: hr.keep("v"), "WINDOW-046", "a function, not 'v'"),
    "lateness below zero": (lambda s: window(s, lateness=-5), "WINDOW-033", "lateness=-5"),
    "no evictor": (lambda s: window(s, evict=5), "WINDOW-034", "evict=5 is not"),
    "no mode": (lambda s: window(s, mode="append"), "WINDOW-035", "mode='append'"),
    "no time": (lambda s: window(s, time="wall"), "WINDOW-036", "time='wall'"),
    "lateness for windows of rows": (
        lambda s: window(s, hr.tumbling(rows=9), lateness="1s"),
        "WINDOW-037", "lateness= has no meaning for 9 rows",
    ),
    "late results of windows of rows": (
        lambda s: window(s, hr.tumbling(rows=9), trigger=t.at_watermark(late=t.on_change())),
        "TRIGGER-012", "says what to do with late rows",
    ),
    "a trigger that can lose rows of windows of rows": (
        lambda s: window(s, hr.tumbling(rows=9), trigger=t.after_rows(2)),
        "TRIGGER-010", "(after 2 rows) can lose",
    ),
    "new rows alone of the last rows": (
        lambda s: window(s, hr.sliding(rows=9, every_rows=3), mode="delta"),
        "WINDOW-062", "9 rows every 3: rows leave such a window",
    ),
    "a trigger for rows at ticks": (
        lambda s: window(
            s, hr.sliding(rows=9, every="5s"), trigger=t.at_watermark(early=t.on_change())
        ),
        "WINDOW-063", "last 9 rows every 5s cannot have trigger=",
    ),
    "an evictor for rows at ticks": (
        lambda s: window(s, hr.sliding(rows=9, every="5s"), evict=hr.keep_last(rows=1)),
        "WINDOW-063", "last 9 rows every 5s cannot have evict=",
    ),
    "a mode for rows at ticks": (
        lambda s: window(s, hr.sliding(rows=9, every="5s"), mode="retract"),
        "WINDOW-063", "last 9 rows every 5s cannot have mode=",
    ),
    "values stored at ticks": (
        lambda s: s.key_by("k").window(hr.sliding(rows=9, every="5s")).process(
            Storing(), schema="n int", unbounded=True
        ),
        "WINDOW-063", "cannot have a function that stores values, as Storing does",
    ),
    "lateness in processing time": (
        lambda s: window(s, time="processing", lateness="1s"), "WINDOW-038", "nothing is late",
    ),
    "lateness without end": (
        lambda s: window(s, hr.everything(), lateness="1s"), "WINDOW-039", "does not end",
    ),
    "process that takes back": (
        lambda s: s.key_by("k").window(SECOND, mode="retract").process(process, schema="n int"),
        "WINDOW-040", "cannot take back",
    ),
    "no trigger": (lambda s: window(s, trigger="5s"), "TRIGGER-001", "trigger='5s' is not"),
    "no trigger in it": (lambda s: t.any_of(t.on_change(), "5s"), "TRIGGER-001", "got '5s'"),
    "no trigger early": (lambda s: t.at_watermark(early=5), "TRIGGER-001", "(early=...) got 5"),
    "the watermark at the watermark": (
        lambda s: t.at_watermark(late=t.at_watermark()), "TRIGGER-002", "(late=...) is at_water",
    ),
    "the watermark in the watermark": (
        lambda s: t.at_watermark(early=t.any_of(t.on_change(), t.at_watermark())),
        "TRIGGER-002", "(early=...) is at_watermark itself",
    ),
    "every nothing": (lambda s: t.every("0s"), "TRIGGER-003", "every('0s')"),
    "after no delay": (lambda s: t.after_delay(0), "TRIGGER-003", "after_delay(0)"),
    "every so often by what": (lambda s: t.every("1s", time="wall"), "TRIGGER-004", "'wall'"),
    "after no rows": (lambda s: t.after_rows(0), "TRIGGER-005", "count 0"),
    "after some rows": (lambda s: t.after_rows("2"), "TRIGGER-005", "count '2'"),
    "on no move": (lambda s: t.on_delta("v", 0), "TRIGGER-006", "threshold 0"),
    "never": (lambda s: t.repeat(t.on_change(), times=0), "TRIGGER-007", "times=0"),
    "now and then": (lambda s: t.repeat(t.on_change(), times=1.5), "TRIGGER-007", "times=1.5"),
    "custom without a function": (lambda s: t.custom(5), "TRIGGER-008", "a function, not 5"),
    "any of nothing": (lambda s: t.any_of(), "TRIGGER-009", "any_of of nothing"),
    "all of nothing": (lambda s: t.all_of(), "TRIGGER-009", "all_of of nothing"),
    "a trigger that can lose rows": (
        lambda s: window(s, trigger=t.after_rows(9)), "TRIGGER-010", "(after 9 rows) can lose",
    ),
    "all that can lose rows": (
        lambda s: window(s, trigger=t.all_of(t.at_watermark(), t.after_rows(9))),
        "TRIGGER-010", "can lose rows",
    ),
    "once at the watermark": (
        lambda s: window(s, trigger=t.first(t.at_watermark())), "TRIGGER-010", "once at most",
    ),
    "on a row of numbers": (
        lambda s: window(s, trigger=t.at_watermark(early=t.on_row("v + 1"))), "PLAN-012", "on_row",
    ),
    "on a row of another": (
        lambda s: window(s, trigger=t.at_watermark(early=t.on_row("y > 1"))), "EXPR-001", "y",
    ),
}  # fmt: skip


def problems(write: Callable[[Any], Any]) -> tuple[PlanError, ...]:
    """What is wrong with a program, told at once or when it is checked."""
    job = hr.Job("wrong")
    stream = job.read("log:x", schema=SCHEMA, time="at", delay="1s")
    try:
        write(stream).write("collect:", name="out")
        job.check()
    except PlanError as error:
        return error.problems
    return ()


@pytest.mark.parametrize("name", WRONG)
def test_is_refused_with_a_code_a_line_and_a_hint(name: str) -> None:
    write, code, message = WRONG[name]
    (problem,) = problems(write)

    assert problem.code == f"HR-{code}"
    assert message in problem.message
    assert problem.message[0] in "'0123456789(" or problem.message[0].islower()
    assert not problem.message.endswith(".")
    assert problem.hint and problem.hint.endswith((".", "..."))
    assert problem.site is not None
    assert Path(problem.site.file).name == Path(__file__).name
    assert problem.site.line in written(write)


def written(write: Callable[[Any], Any]) -> range:
    """The lines on which a mistake may be reported: its own, or of the helper that it calls."""
    lines, first = inspect.getsourcelines(window)
    if write.__code__.co_names[0] == "window":
        return range(first, first + len(lines))
    lines, first = inspect.getsourcelines(write)
    return range(first, first + len(lines) + 2)


RIGHT: dict[str, Callable[[Any], Any]] = {
    "a trigger that may lose rows": lambda s: window(
        s, trigger=t.after_rows(9), may_lose=True
    ),
    "a trigger for everything": lambda s: window(s, hr.everything(), trigger=t.after_rows(9)),
    "any of, with the watermark": lambda s: window(
        s, trigger=t.any_of(t.at_watermark(), t.after_rows(9))
    ),
    "a gap of a narrow integer": lambda s: window(s, hr.session(lambda e: e.v.cast("int"))),
    "repeat without end": lambda s: window(
        s, trigger=t.at_watermark(early=t.repeat(t.on_change()))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_is_taken(name: str) -> None:
    assert problems(RIGHT[name]) == ()


def test_a_trigger_that_raises_is_named(tmp_path: Path) -> None:
    def broken(window: Any) -> bool:
        raise ValueError("no")

    job = hr.Job("broken")
    rows = job.read(hr.rows([{"k": "a", "at": 1}]), time="at", delay="1s", name="rows")
    fires = t.at_watermark(early=t.custom(broken))
    rows.key_by("k").window(SECOND, trigger=fires).agg(n=hr.count()).write("collect:", name="out")

    with pytest.raises(hr.StepError, match=r"HR-TRIGGER-011 .*when broken says so.*ValueError: no"):
        drive(job, tmp_path)
