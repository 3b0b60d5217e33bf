"""Mistakes that would show only with rows, or never: they are refused when a program is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.errors import PlanError
from headrace.plan.checks import check
from headrace.testing import Harness

SCHEMA = "k string, v bigint, d decimal(10,2), at timestamp"
SECOND = hr.tumbling("1s")


class NoAssign(hr.WindowAssigner):
    pass


class NoProcess(hr.WindowProcess):
    pass


class Whole(hr.WindowProcess):
    def process(self, key: Any, window: Any, rows: list[Any]) -> dict[str, int]:
        return {"n": len(rows)}


class OnlyKey(hr.WindowProcess):
    def process(self, key: Any) -> None:
        pass


class Backwards(hr.WindowProcess):
    def process(self, key: Any, seen: list[Any], window: Any) -> None:
        pass


class Spread(hr.Aggregate):
    pass


class Typo(hr.Aggregate):
    state = "dubble"
    output = float

    def zero(self) -> float:
        return 0.0

    def add(self, state: float, value: float) -> float:
        return state + value

    def merge(self, a: float, b: float) -> float:
        return a + b

    def result(self, state: float) -> float:
        return state


class Seen:
    state: ClassVar[Any] = set()

    def on_row(self, time: int, row: Any) -> int:
        return time


def read(**said: Any) -> Any:
    return hr.Job("wrong").read("log:x", schema=SCHEMA, **said)


def event() -> Any:
    return read(time="at", delay="1s")


def window(what: Any, stream: Any = None, **said: Any) -> Any:
    return (stream or event()).key_by("k").window(what, **said)


def counted(what: Any, stream: Any = None, **said: Any) -> Any:
    return window(what, stream, **said).agg(n=hr.count())


# What is wrong, how it is written, the code, and what the message and the hint say.
WRONG: dict[str, tuple[Callable[[], Any], str, str, str]] = {
    "a delta of a text": (lambda: counted(hr.delta("k", 1)), "WINDOW-019", "string", "cast"),
    "until a text": (lambda: counted(hr.until("k")), "WINDOW-020", "string", "condition"),
    "no assign": (lambda: counted(NoAssign()), "WINDOW-047", "NoAssign has no assign", "assign("),
    "an assigner that is a class": (lambda: counted(NoAssign), "WINDOW-048", "class", "NoAssign()"),
    "no process": (
        lambda: window(SECOND).process(NoProcess(), schema="n int"),
        "WINDOW-049", "NoProcess has no process", "process(self, key, window, rows)",
    ),
    "a process that is a class": (
        lambda: window(SECOND).process(Whole, schema="n int"),
        "WINDOW-048", "Whole is a class", "Whole()",
    ),
    "a process of two": (
        lambda: window(SECOND).process(lambda key, rows: None, schema="n int"),
        "PLAN-028", "key, window, rows and, if it takes four, ctx", "(key, window, rows)",
    ),
    "a process of five": (
        lambda: window(SECOND).process(lambda a, b, c, d, e: None, schema="n int"),
        "PLAN-028", "cannot call a lambda", "(key, window, rows, ctx)",
    ),
    "a process of words": (
        lambda: window(SECOND).process("n", schema="n int"), "PLAN-028", "cannot call 'n'", "",
    ),
    "a method of one": (
        lambda: window(SECOND).process(OnlyKey(), schema="n int"),
        "PLAN-028", "cannot call OnlyKey.process", "(key, window, rows, ctx)",
    ),
    "rows before the window": (
        lambda: window(SECOND).process(lambda key, rows, w, ctx: None, schema="n int"),
        "WINDOW-050", "(key, rows, w, ctx)", "(key, window, rows)",
    ),
    "the window after the rows": (
        lambda: window(SECOND).process(Backwards(), schema="n int"),
        "WINDOW-050", "Backwards.process takes (key, seen, window)", "(key, window, rows)",
    ),
    "a trigger of two": (lambda: t.custom(lambda a, b: True), "PLAN-028", "t.custom", "1 argument"),
    "an evictor of two": (
        lambda: counted(SECOND, evict=hr.keep(lambda a, b: [])),
        "PLAN-028", "hr.keep", "1 argument",
    ),
    "an aggregate whose state is no type": (
        lambda: window(SECOND).agg(n=Typo("v")),
        "AGG-011", "Typo.state is not a type: 'dubble'", "double",
    ),
    "late without lateness": (
        lambda: counted(SECOND, trigger=t.at_watermark(late=t.on_change())),
        "TRIGGER-012", "never late", "lateness=",
    ),
    "late without lateness inside": (
        lambda: counted(SECOND, trigger=t.repeat(t.at_watermark(late=t.on_change()), times=3),
                        may_lose=True),
        "TRIGGER-012", "never late", "lateness=",
    ),
    "late by the clock": (
        lambda: counted(SECOND, time="processing", trigger=t.at_watermark(late=t.on_change())),
        "TRIGGER-012", "never late", "Leave late= out: nothing is late here.",
    ),
    "a gap of no column": (lambda: counted(hr.session(hr.col("w"))), "EXPR-001", "'w'", ""),
    "a delay in order": (
        lambda: read(time="at", delay="5s", in_order=True), "TIME-007", "delay and in_order", "one",
    ),
    "lateness at ingestion": (
        lambda: counted(SECOND, read(time=hr.ingestion()).where("v > 1"), lateness="1s"),
        "WINDOW-038", "ingestion time", "Leave it out",
    ),
    "a constant gap below zero": (
        lambda: counted(hr.session(hr.lit(-5))), "WINDOW-006", "gap -5 ms", "above zero",
    ),
    "a constant gap of nothing": (
        lambda: counted(hr.session(lambda r: hr.lit(3) - 3)),
        "WINDOW-006", "gap 0 ms", "above zero",
    ),
    "a watermark that keeps a set": (
        lambda: hr.watermarks.custom(Seen), "TIME-013", "not JSON", "lists and dicts",
    ),
    "a size below zero": (lambda: hr.tumbling("-5s"), "TIME-001", "'-5s'", "5s"),
    "a gap that is no duration": (lambda: hr.session("-1s"), "TIME-001", "'-1s'", "5s"),
    "a step below zero": (lambda: hr.sliding("5s", every="-1s"), "TIME-001", "'-1s'", "5s"),
    "an offset that is none": (lambda: hr.tumbling("5s", offset="-3"), "TIME-001", "'-3'", "5s"),
    "a bound below zero": (lambda: hr.watermarks.bounded("-1s"), "TIME-001", "'-1s'", "5s"),
    "a gap that is a column": (
        lambda: hr.session("value"), "TIME-001", "'value'", 'hr.session(hr.col("value"))',
    ),
    "once at the watermark": (
        lambda: counted(SECOND, trigger=t.first(t.at_watermark())),
        "TRIGGER-010", "can lose rows", "t.at_watermark() by itself",
    ),
    "all with the watermark": (
        lambda: counted(SECOND, trigger=t.all_of(t.at_watermark(), t.after_rows(9))),
        "TRIGGER-010", "can lose rows", "t.any_of(t.at_watermark(), ...)",
    ),
    "a row that never comes": (
        lambda: counted(hr.everything(), trigger=t.on_row("false")),
        "TRIGGER-014", "the trigger (on a row with FALSE) can never fire", "a row can fulfil",
    ),
    "a row that never comes, as an expression": (
        lambda: counted(hr.everything(), trigger=t.on_row(lambda r: hr.lit(1) == 2)),
        "TRIGGER-014", "can never fire", "leave this trigger out",
    ),
    "a row that is two things at once": (
        lambda: counted(hr.everything(), trigger=t.on_row("v > 1 and v < 0")),
        "TRIGGER-014", "can never fire", "",
    ),
    "a row that is nothing": (
        lambda: counted(hr.everything(), trigger=t.on_row("1 = null")), "TRIGGER-014", "never", "",
    ),
    "a null": (
        lambda: counted(hr.everything(), trigger=t.on_row("null")),
        "EXPR-003", "always null", "",
    ),
    "a window that is forgotten": (
        lambda: counted(SECOND, trigger=t.on_row("1 = 2")), "TRIGGER-014", "can never fire", "",
    ),
    "a session that may lose rows": (
        lambda: counted(hr.session("5s"), trigger=t.on_row("1 = 2"), may_lose=True),
        "TRIGGER-014", "can never fire", "",
    ),
    "never early": (
        lambda: counted(SECOND, trigger=t.at_watermark(early=t.on_row("false"))),
        "TRIGGER-014", "on a row with FALSE", "",
    ),
    "never late": (
        lambda: counted(SECOND, trigger=t.at_watermark(late=t.on_row("false")), lateness="1s"),
        "TRIGGER-014", "on a row with FALSE", "",
    ),
    "all with what never comes": (
        lambda: counted(hr.everything(), trigger=t.all_of(t.after_rows(2), t.on_row("1 = 2"))),
        "TRIGGER-014", "the trigger (on a row with 1 = 2) can never fire", "",
    ),
    "any of what never comes": (
        lambda: counted(hr.everything(), trigger=t.any_of(t.on_row("false"), t.on_row("1 = 2"))),
        "TRIGGER-014", "can never fire", "",
    ),
    "the first of nothing": (
        lambda: counted(hr.everything(), trigger=t.first(t.on_row("false"))),
        "TRIGGER-014", "can never fire", "",
    ),
    "nothing, three times": (
        lambda: counted(hr.everything(), trigger=t.repeat(t.on_row("false"), times=3)),
        "TRIGGER-014", "can never fire", "",
    ),
    "until never": (
        lambda: counted(hr.until("false")),
        "WINDOW-051", "no row ever ends the window: FALSE is never true", "hr.until",
    ),
    "until before never": (
        lambda: counted(hr.until("v > 3 and v < 2", inside=False)), "WINDOW-051", "never true", "",
    ),
    "an aggregate that is a class": (
        lambda: window(SECOND).agg(n=Spread), "PLAN-021", "Spread is a class", 'n=Spread("column")',
    ),
}  # fmt: skip


def problems(write: Callable[[], Any]) -> tuple[PlanError, ...]:
    try:
        stream = write()
        stream.write("collect:", name="out")
    except PlanError as error:
        return error.problems
    return tuple(check(stream._draft))


@pytest.mark.parametrize("name", WRONG)
def test_is_refused_with_a_code_a_line_and_a_hint(name: str) -> None:
    write, code, message, hint = WRONG[name]
    (problem,) = problems(write)

    assert problem.code == f"HR-{code}"
    assert message in problem.message
    assert hint in (problem.hint or "")
    assert problem.site is not None
    assert Path(problem.site.file).name == Path(__file__).name
    assert problem.site.line in written(write)


def written(write: Callable[[], Any]) -> set[int]:
    """The lines on which a mistake may be reported: its own, or of the helper that it calls."""
    lines = set[int]()
    for place in (write, read, window, counted):
        source, first = inspect.getsourcelines(place)
        lines |= {*range(first, first + len(source) + 2)}
    return lines


def test_what_looks_alike_is_taken() -> None:
    good = [
        lambda: counted(hr.delta("d", 1)),
        lambda: counted(hr.delta("d * 2", 1)),
        lambda: counted(hr.everything(), trigger=t.on_row("true")),
        lambda: counted(hr.everything(), trigger=t.on_row("v > 1 and v < 3")),
        lambda: counted(hr.everything(), trigger=t.any_of(t.on_row("false"), t.after_rows(2))),
        lambda: counted(hr.until("true")),
        lambda: counted(hr.until("v > 1")),
        lambda: counted(hr.session(hr.lit(5))),
        lambda: counted(hr.session(hr.col("v"))),
        lambda: counted(SECOND, trigger=t.at_watermark(late=t.on_change()), lateness="1s"),
        lambda: counted(SECOND, evict=hr.keep(lambda rows: [True for _ in rows])),
        lambda: counted(SECOND, trigger=t.at_watermark(early=t.custom(lambda w: w.new > 3))),
        lambda: read(time="at", delay=0, in_order=True),
        lambda: window(SECOND).process(Whole(), schema="n int"),
    ]  # fmt: skip
    assert [problems(write) for write in good] == [()] * len(good)


def test_an_offset_may_go_back() -> None:
    assert hr.tumbling("10s", offset="-3s") == hr.tumbling("10s", offset=-3)
    assert hr.tumbling("10s", offset="-3s") == hr.tumbling("10s", offset="7s")
    assert hr.sliding("10s", "5s", offset="- 1s") == hr.sliding("10s", "5s", offset="4s")
    assert hr.cumulating("10s", "5s", offset="-3s") == hr.cumulating("10s", "5s", offset="7s")


def decimals(what: Any, *amounts: str, **said: Any) -> list[int]:
    job = hr.Job("decimals")
    rows = job.read("log:rows", schema="d decimal(10,2), at bigint", time="at", delay="1s",
                    name="rows")  # fmt: skip
    rows.window(what, **said).agg(n=hr.count()).write("collect:", name="out")
    with Harness(job) as h:
        for at, amount in enumerate(amounts):
            h.send("rows", [(Decimal(amount), at)])
        h.end()
        return list(h.table("out")["n"].to_pylist())


def test_a_delta_window_measures_a_decimal_expression() -> None:
    assert decimals(hr.delta("d * 2", 1), "1.00", "1.50", "1.51", "9.00") == [2, 1, 1]


def test_a_trigger_and_an_evictor_measure_decimals() -> None:
    fires = t.at_watermark(early=t.on_delta("d", 2))
    assert decimals(SECOND, "1.00", "2.99", "3.00", trigger=fires) == [3, 3]
    assert decimals(SECOND, "1.00", "2.99", "3.00", evict=hr.keep_near("d", 1)) == [2]
