"""Rows that are given stay what they were, though the state they were made of goes on changing."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

import headrace as hr
from tests.process.playing import SCHEMA, said


class InATuple(hr.KeyedProcess):
    output = "k string, seen array<bigint>"
    seen = hr.list_of(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.append(row.v)
        return (row.k, self.seen)


class ByAGenerator(InATuple):
    def on_row(self, row: Any, ctx: Any) -> Iterator[Any]:
        self.seen.append(row.v)
        yield (row.k, self.seen)


class WithATimer(InATuple):
    def on_row(self, row: Any, ctx: Any) -> Any:
        ctx.timer(row.v)

    def on_timer(self, time: int, ctx: Any) -> Any:
        self.seen.append(time)
        return {"k": ctx.key, "seen": self.seen}


class WhenAnotherFails(InATuple):
    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v == 4:
            raise ValueError("four")
        return super().on_row(row, ctx)


@pytest.mark.parametrize("kind", [InATuple, ByAGenerator, WithATimer, WhenAnotherFails])
def test_a_list_within_a_row(play: Any, kind: Any) -> None:
    test = play(kind())
    test.send("rows", [("a", v, v) for v in (1, 2, 3, *([4] if kind is WhenAnotherFails else []))])
    test.watermark("rows", 10)
    assert said(test) == [("a", [1]), ("a", [1, 2]), ("a", [1, 2, 3])]


@dataclass
class Stats:
    k: str
    n: int = 0
    by: dict[str, list[int]] = field(default_factory=dict)


class Whole(hr.KeyedProcess):
    output = Stats
    outputs: ClassVar[Any] = {"aside": Stats}
    stats = hr.value(Stats)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.stats = self.stats or Stats(row.k)
        for _ in range(2):
            self.stats.n += 1
            self.stats.by.setdefault("all", []).append(row.v)
            ctx.emit("aside", self.stats)
        return self.stats


def test_a_state_that_is_the_row_itself(play: Any) -> None:
    test = play(Whole(), "aside")
    test.send("rows", [("a", 1, 1), ("a", 2, 2)])
    found = [(n, dict(by)["all"]) for _, n, by in said(test)]
    assert found == [(2, [1, 1]), (4, [1, 1, 2, 2])]
    aside = [(n, dict(by)["all"]) for _, n, by in said(test, "aside")]
    assert aside == [(1, [1]), (2, [1, 1]), (3, [1, 1, 2]), (4, [1, 1, 2, 2])]


@dataclass
class Total:
    n: int = 0
    seen: list[int] = field(default_factory=list)


def _record(total: Total, row: Any) -> Total:
    total.n += row.v
    total.seen.append(row.v)
    return total


def _dict(total: dict[str, Any], row: Any) -> dict[str, Any]:
    total["n"] += row.v
    total["seen"].append(row.v)
    return total


@pytest.mark.parametrize(("zero", "fn"), [(Total, _record), ({"n": 0, "seen": []}, _dict)])
@pytest.mark.parametrize("windowed", [False, True])
def test_what_a_fold_goes_on_with(harness: Any, zero: Any, fn: Any, windowed: bool) -> None:
    job = hr.Job("folds")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h").key_by("k")
    if windowed:
        made = rows.window(hr.tumbling("10s")).fold(zero, fn, schema=Total)
    else:
        made = rows.fold(zero, fn, schema=Total, unbounded=True)
    made.write("collect:", name="out")
    test = harness(job)
    for batch in ([("a", 1, 1), ("a", 2, 2)], [("a", 3, 3)]):
        test.send("rows", batch)
    test.watermark("rows", 20_000)
    every = [(1, [1]), (3, [1, 2]), (6, [1, 2, 3])]
    found = [(r["n"], r["seen"]) for r in test.output("out")]
    assert found == (every[-1:] if windowed else every)


def test_a_fold_goes_on_with_a_set(harness: Any) -> None:
    job = hr.Job("folds")
    rows = job.read("log:rows", schema=SCHEMA, name="rows").key_by("k")
    made = rows.fold(set, lambda seen, row: seen | {row.v}, schema=list[int], unbounded=True)
    made.write("collect:", name="out")
    test = harness(job)
    for v in (1, 2, 1):
        test.send("rows", [("a", v, v)])
    assert [sorted(r["value"]) for r in test.output("out")] == [[1], [1, 2], [1, 2]]


def _put(found: dict[str, int], row: Any) -> dict[str, int]:
    found[str(row.v)] = found.get(str(row.v), 0) + 1
    return found


def _last(found: Any, row: Any) -> Any:
    found.append(row.v)
    return found


STARTS: Any = {
    "set": (set, lambda s, r: s | {r.v}, list[int], sorted, [1, 2, 3]),
    "frozenset": (frozenset(), lambda s, r: s | {r.v}, list[int], sorted, [1, 2, 3]),
    "dict": ({}, _put, dict[str, int], dict, {"1": 1, "2": 1, "3": 1}),
    "deque": (deque(maxlen=2), _last, list[int], list, [2, 3]),
    "tuple": ((), lambda s, r: (*s, r.v), list[int], list, [1, 2, 3]),
}


@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize(
    "window", [None, hr.tumbling("1m"), hr.session("10s"), hr.tumbling(rows=3)]
)
def test_a_fold_goes_on_with_what_it_began_with(harness: Any, kind: str, window: Any) -> None:
    zero, fn, schema, seen, wanted = STARTS[kind]
    job = hr.Job("folds")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h").key_by("k")
    if window is None:
        made = rows.fold(zero, fn, schema=schema, unbounded=True)
    else:
        made = rows.window(window).fold(zero, fn, schema=schema)
    made.write("collect:", name="out")
    test = harness(job, tasks=1)
    for v in (1, 2, 3):
        test.send("rows", [("a", v, v), (f"new {v}", v, v)])
    test.end()
    found = [seen(r["value"]) for r in test.output("out") if r["k"] == "a"]
    assert found[-1] == wanted and not test.dead()


def _add(total: dict[str, int], row: Any) -> dict[str, int]:
    return {"n": total["n"] + row.v}


# A column of any name, or a row of one column: what it starts with tells.
NAMED: Any = {
    "number": (0, lambda n, r: n + r.v, "n bigint", 6),
    "text": ("", lambda s, r: f"{s}{r.v}", "n string", "123"),
    "list": (list, lambda s, r: [*s, r.v], "n array<bigint>", [1, 2, 3]),
    "dict": ({"n": 0}, _add, "n bigint", 6),
    "row": ((0,), lambda row, r: (row[0] + r.v,), "n bigint", 6),
}


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize(
    "window", [None, hr.tumbling("1m"), hr.session("10s"), hr.tumbling(rows=3)]
)
def test_a_fold_into_one_column_may_name_it(harness: Any, kind: str, window: Any) -> None:
    zero, fn, schema, wanted = NAMED[kind]
    job = hr.Job("folds")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h").key_by("k")
    if window is None:
        made = rows.fold(zero, fn, schema=schema, unbounded=True)
    else:
        made = rows.window(window).fold(zero, fn, schema=schema)
    made.write("collect:", name="out")
    test = harness(job)
    for v in (1, 2, 3):
        test.send("rows", [("a", v, v)])
    test.end()
    assert test.output("out")[-1]["n"] == wanted and not test.dead()


@dataclass
class Bounds:
    low: int
    high: int


class Own(hr.Aggregate):
    """Each method must see what `zero` gives."""

    output = int

    def __init__(self, zero: Any, state: Any, column: str) -> None:
        super().__init__(column)
        self._zero, self.state = zero, state

    def zero(self) -> Any:
        return self._zero()

    def add(self, state: Any, value: int) -> Any:
        if isinstance(state, Bounds):
            return Bounds(min(state.low, value), max(state.high, value))
        return {**state, str(value): value} if isinstance(state, dict) else state | {value}

    def merge(self, a: Any, b: Any) -> Any:
        if isinstance(a, Bounds):
            return Bounds(min(a.low, b.low), max(a.high, b.high))
        return {**a, **b} if isinstance(a, dict) else a | b

    def result(self, state: Any) -> int:
        if isinstance(state, Bounds):
            return state.high - state.low
        return sum(state.values()) if isinstance(state, dict) else sum(state)


OWN: Any = {
    "record": (lambda: Bounds(10**9, -(10**9)), Bounds, 2),
    "dict": (dict, dict[str, int], 6),
    "dict by DDL": (dict, "map<string, bigint>", 6),
    "set": (set, set[int], 6),
    "set by DDL": (set, "array<bigint>", 6),
}


@pytest.mark.parametrize("kind", OWN)
@pytest.mark.parametrize(
    "window", [None, hr.tumbling("1m"), hr.sliding("20s", every="10s"), hr.session("10s"),
               hr.tumbling(rows=3), hr.everything()],
)  # fmt: skip
def test_an_own_aggregate_sees_what_its_zero_gives(harness: Any, kind: str, window: Any) -> None:
    zero, state, wanted = OWN[kind]
    job = hr.Job("own")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h").key_by("k")
    own = Own(zero, state, "v")
    made = rows.agg(x=own, unbounded=True) if window is None else rows.window(window).agg(x=own)
    made.write("collect:", name="out")
    test = harness(job)
    for v in (1, 2, 3):
        test.send("rows", [("a", v, v), (f"new {v}", v, v)])
    test.end()
    assert [r["x"] for r in test.output("out") if r["k"] == "a"][-1] == wanted


def test_a_dict_that_is_no_whole_record_is_refused() -> None:
    job = hr.Job("folds")
    rows = job.read("log:rows", schema=SCHEMA, name="rows").key_by("k")
    rows.fold({}, _put, schema="m map<string, bigint>", unbounded=True).write("collect:", name="o")
    with pytest.raises(hr.PlanError, match="HR-PLAN-045"):
        job.check()
