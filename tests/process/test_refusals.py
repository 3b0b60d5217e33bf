"""Process functions that cannot work are refused when the program is built."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import headrace as hr
from tests.process.playing import SCHEMA


def rows(job: hr.Job, name: str = "rows", **reading: Any) -> hr.Stream:
    return job.read(f"log:{name}", schema=SCHEMA, name=name, **reading)


TIMED: dict[str, Any] = {"time": "at", "delay": "2s"}


def made(**members: Any) -> hr.KeyedProcess:
    base = {"output": "k string", "on_row": lambda self, row, ctx: None}
    kept = {k: v for k, v in {**base, **members}.items() if v is not None}
    return type("P", (hr.KeyedProcess,), kept)()  # type: ignore[no-any-return]


def sets_timer(self: Any, row: Any, ctx: Any) -> None:
    ctx.timer(ctx.time + 1)


def sets_timer_inside(self: Any, row: Any, ctx: Any) -> Any:
    return [ctx.clock_timer(at) for at in (1, 2)]


def on_timer(self: Any, time: int, ctx: Any) -> None: ...


def on_chunk(self: Any, chunk: Any, ctx: Any) -> None: ...


WRONG: dict[str, tuple[Any, str, str]] = {
    "state without a key": (
        lambda job: rows(job).process(made(n=hr.value(int))), "HR-PROCESS-001",
        "process keeps state by key, but 'rows' has no key",
    ),
    "a timer without a key": (
        lambda job: rows(job, **TIMED).process(made(on_row=sets_timer, on_timer=on_timer)),
        "HR-PROCESS-002", "process sets timers by key, but 'rows' has no key",
    ),
    "a timer and state without a key": (
        lambda job: rows(job, **TIMED).process(
            made(on_row=sets_timer, on_timer=on_timer, n=hr.value(int))
        ),
        "HR-PROCESS-002", "process sets timers and keeps state by key, but 'rows' has no key",
    ),
    "a running aggregate without a key": (
        lambda job: rows(job).agg(n=hr.count()), "HR-PROCESS-001",
        "agg keeps state by key, but 'rows' has no key",
    ),
    "a running row without a key": (
        lambda job: rows(job).reduce(max), "HR-PROCESS-001",
        "reduce keeps state by key, but 'rows' has no key",
    ),
    "a running value without a key": (
        lambda job: rows(job).fold(0, max, schema="n bigint"), "HR-PROCESS-001",
        "fold keeps state by key, but 'rows' has no key",
    ),
    "neither state nor timers, and no key": (
        lambda job: rows(job).process(made()), "HR-PROCESS-001",
        "process hands over rows by key, but 'rows' has no key",
    ),
    "a timer that nobody hears": (
        lambda job: rows(job, **TIMED).key_by("k").process(made(on_row=sets_timer)),
        "HR-PROCESS-003", "P sets a timer with ctx.timer, but has no on_timer",
    ),
    "a timer in a comprehension that nobody hears": (
        lambda job: rows(job).key_by("k").process(made(on_row=sets_timer_inside)),
        "HR-PROCESS-003", "P sets a timer with ctx.clock_timer, but has no on_timer",
    ),
    "a timer by event time on an input without": (
        lambda job: rows(job).key_by("k").process(made(on_row=sets_timer, on_timer=on_timer)),
        "HR-PROCESS-004", "P sets timers by event time, but 'rows' has none",
    ),
    "a life by event time on an input without": (
        lambda job: rows(job).key_by("k").process(made(n=hr.value(int, ttl="1h"))),
        "HR-PROCESS-005", "P.n is forgotten by event time, but 'rows' has none",
    ),
    "a life by event time where one of two inputs has none": (
        lambda job: hr.connect(by="k", a=rows(job, "a", **TIMED), b=rows(job, "b")).process(
            made(n=hr.value(int, ttl="1h"))),
        "HR-PROCESS-005", "P.n is forgotten by event time, but 'b' has none",
    ),
    "chunks and rows": (
        lambda job: rows(job).key_by("k").process(made(on_chunk=on_chunk)),
        "HR-PROCESS-006", "P has on_chunk and on_row as well",
    ),
    "chunks and the last": (
        lambda job: rows(job).key_by("k").process(
            made(on_row=None, on_chunk=on_chunk, seen=hr.last_of(2, int)), unbounded=True),
        "HR-PROCESS-006",
        "P has on_chunk and a last, but only values, lists and maps can be columns",
    ),
    "chunks of two inputs": (
        lambda job: hr.connect(by="k", a=rows(job, "a"), b=rows(job, "b")).process(
            made(on_row=None, on_chunk=on_chunk)),
        "HR-PROCESS-006", "P has on_chunk and 2 inputs, and takes one",
    ),
    "shared state that nobody can change": (
        lambda job: rows(job).key_by("k").process(made(rules=hr.shared_map(str, int))),
        "HR-PROCESS-007", "nothing can change P.rules: 'rows.process' has no broadcast input",
    ),
    "a control stream without a method": (
        lambda job: hr.connect(by="k", a=rows(job, "a"), b=rows(job, "b").broadcast()).process(
            made()),
        "HR-PLAN-016", "P has no on_b, but the inputs of 'a.process' are a, b",
    ),
    "nothing but control streams": (
        lambda job: hr.connect(by="k", b=rows(job, "b").broadcast()).process(
            made(on_b=lambda self, row, ctx: None)),
        "HR-PLAN-018", "connect has broadcast streams alone",
    ),
    "a value called like the key's column": (
        lambda job: rows(job).key_by("k").process(made(k0=hr.value(int)), unbounded=True),
        "HR-PROCESS-008", "'k0' is how the state calls a column of the key",
    ),
    "a value that was one still there": (
        lambda job: rows(job).key_by("k").process(
            made(a=hr.value(int), b=hr.value(int, was="a")), unbounded=True),
        "HR-PROCESS-008", "'b' says it was 'a', which is still there",
    ),
    "two values that were one": (
        lambda job: rows(job).key_by("k").process(
            made(a=hr.value(int, was="x"), b=hr.value(int, was="x")), unbounded=True),
        "HR-PROCESS-008", "'a' and 'b' both say they were 'x'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_it_is_refused(name: str) -> None:
    build, code, text = WRONG[name]
    job = hr.Job("wrong")
    build(job).write("collect:", name="out")
    with pytest.raises(hr.PlanError) as refused:
        job.check()
    (problem,) = refused.value.problems
    assert problem.code == code
    assert text in problem.message
    assert problem.hint and problem.site and problem.site.file.endswith("test_refusals.py")


@pytest.mark.parametrize("method", ["write", "where", "key_by", "agg", "process"])
def test_a_broadcast_stream_says_what_it_is_for(method: str) -> None:
    control = rows(hr.Job("wrong")).broadcast()
    with pytest.raises(hr.PlanError, match=r"can only be an input of connect") as refused:
        getattr(control, method)
    assert refused.value.code == "HR-PLAN-046"
    assert refused.value.site and refused.value.site.file == __file__
    assert method in str(refused.value.hint)
    assert not hasattr(control, "wrote")


def test_a_function_without_state_and_key_is_not_asked_for_its_timers() -> None:
    job = hr.Job("wrong")
    rows(job).process(made()).write("collect:", name="out")
    with pytest.raises(hr.PlanError, match=r"Say which rows belong together: .*; or use map"):
        job.check()


class Frozen(NamedTuple):
    a: int


DECLARED: dict[str, tuple[Any, str]] = {
    "a value by the clock without a ttl": (lambda: hr.value(int, by_clock=True), "HR-PLAN-035"),
    "a list by the clock without a ttl": (lambda: hr.list_of(int, by_clock=True), "HR-PLAN-035"),
    "a map by the clock without a ttl": (lambda: hr.map_of(str, int, by_clock=True), "HR-PLAN-035"),
    "reducing by a number": (lambda: hr.reducing(int, 5), "HR-PLAN-036"),  # type: ignore[arg-type]
    "reducing by one": (lambda: hr.reducing(int, lambda a: a), "HR-PLAN-036"),  # type: ignore
    "the last of a type": (lambda: hr.last_of(int, 3), "HR-PLAN-031"),  # type: ignore[arg-type]
    "aggregating by a number": (lambda: hr.aggregating(5), "HR-PLAN-037"),  # type: ignore[arg-type]
    "a map by lists": (lambda: hr.map_of(list[int], int), "HR-PLAN-038"),
    "a map by maps": (lambda: hr.map_of(dict[str, int], int), "HR-PLAN-038"),
    "a map by records": (lambda: hr.map_of(Frozen, int), "HR-PLAN-038"),
    "a shared map by lists": (lambda: hr.shared_map(list[int], int), "HR-PLAN-038"),
    "a value with a map by lists inside": (
        lambda: hr.value(list[dict[tuple[int, ...], int]]), "HR-PLAN-038",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECLARED)
def test_it_is_refused_where_it_is_declared(name: str) -> None:
    declare, code = DECLARED[name]
    with pytest.raises(hr.PlanError) as refused:
        declare()
    assert refused.value.code == code
    assert refused.value.hint
    assert refused.value.site and refused.value.site.file == __file__


def test_timers_by_the_clock_and_lives_by_the_clock_need_no_event_time() -> None:
    job = hr.Job("right")
    fn = made(on_row=sets_timer_inside, on_timer=on_timer, n=hr.value(int, ttl="1s", by_clock=True))
    rows(job).key_by("k").process(fn).write("collect:", name="out")
    job.check()


def test_a_control_stream_needs_no_event_time() -> None:
    job = hr.Job("right")
    fn = made(on_row=sets_timer, on_timer=on_timer, on_rules=lambda self, row, ctx: None,
              rules=hr.shared_map(str, int))  # fmt: skip
    both = hr.connect(by="k", x=rows(job, "x", **TIMED), rules=rows(job, "r").broadcast())
    both.process(fn).write("collect:", name="out")
    job.check()
    assert "=> x.process: rows of r, to every slot" in job.explain().text


def test_shared_state_needs_no_bound() -> None:
    job = hr.Job("right")
    fn = made(on_rules=lambda self, row, ctx: None, rules=hr.shared_map(str, int))
    both = rows(job, "x").key_by("k").connect(rows(job, "rules").broadcast())
    both.process(fn).write("collect:", name="out")
    job.check()


def test_side_outputs_without_columns_are_refused() -> None:
    with pytest.raises(hr.PlanError, match=r"HR-PROCESS-011 .* of P are \['cold'\]") as refused:
        rows(hr.Job("j")).key_by("k").process(made(outputs=["cold"]))
    assert refused.value.site and refused.value.site.file == __file__
