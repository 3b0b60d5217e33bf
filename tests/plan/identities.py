"""Every step of the API: what identifies its state, and what may change under it.

Each public method that adds a step is here, or in `WITHOUT_STATE`. `test_identity.py` tries
them all; the step in question is called "s".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from river.linear_model import LinearRegression as LINE

import headrace as hr
from headrace import triggers as t
from headrace.api.connected import ConnectedStreams
from headrace.api.keyed import KeyedStream, Table
from headrace.api.stream import Stream, WindowResult
from headrace.api.windowed import WindowedStream
from headrace.plan.program import Program

ROW = "k string, p string, x bigint, y bigint, u double, at bigint, made bigint"
CLASSES = (Stream, KeyedStream, WindowedStream, WindowResult, Table, ConnectedStreams)
FUNCTIONS = ("hr.join_all", "hr.connect")
WITHOUT_STATE = {
    "named", "filter", "where", "select", "with_columns", "drop", "rename", "map", "flat_map",
    "explode", "map_batches", "tap", "split", "union", "key_by", "window", "broadcast", "connect",
    "write", "map_async", "repeat", "table", "schema", "name", "keys", "unkeyed", "late",
    "branch", "transform", "head", "show", "repartition", "clone", "log", "consume", "to_sink",
    "reduce_by_key_and_window", "for_each_batch",
}  # fmt: skip

Build = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A step as it was, changes that give its state another meaning, and those that do not."""

    before: Build
    identifying: Mapping[str, Build] = field(default_factory=dict)
    free: Mapping[str, Build] = field(default_factory=dict)


def program(
    build: Build, time: str | None = "at", swap: bool = False, schema: str = ROW
) -> Program:
    job = hr.Job("j")
    timing = {"time": time, "delay": "1s"} if time else {}
    names = ("r", "l") if swap else ("l", "r")
    both = {n: job.read(f"log:{n}", schema=schema, name=n, **timing) for n in ("l", "r")}
    left, right = (both[n] for n in names)
    build(left, right).write("log:out", name="out")
    for n, stream in both.items():
        stream.select("k").write(f"log:{n}-copy", name=f"{n} copy")
    return job.program()


class Sum(hr.KeyedProcess):
    output = "k string, n bigint"
    n = hr.value("bigint", default=0)

    def on_row(self, row, ctx): ...


class Timed(Sum):
    def on_timer(self, at, ctx): ...


class Other(Sum):
    def on_row(self, row, ctx):
        self.n += 1


class Wider(Sum):
    more = hr.value("bigint", default=0)


class Task(hr.KeyedProcess):
    output = "k string, n bigint"
    n = hr.operator_value("bigint", default=0)
    seen = hr.operator_list(str)

    def on_row(self, row, ctx): ...


class MergedTask(Task):
    n = hr.operator_value("bigint", default=0, merge=max)
    seen = hr.operator_list(str, redistribute="union")
    more = hr.operator_value(int)


class KeyedTask(Task):
    n = hr.value("bigint", default=0)


class Spread(hr.Aggregate):
    state = "double"
    output = "double"

    def __init__(self, column, alpha=1.0):
        super().__init__(column)
        self.alpha = alpha

    def zero(self):
        return 0.0

    def add(self, state, value):
        return state

    def merge(self, a, b):
        return a

    def result(self, state):
        return state


class Hours(hr.WindowAssigner):
    def __init__(self, size):
        self.size = size

    def assign(self, time, row):
        return [(time // self.size * self.size, time // self.size * self.size + self.size)]


class Fixed(hr.WindowAssigner):
    size = 10

    def assign(self, time, row):
        return [(0, self.size)]


class FixedWider(Fixed):
    size = 20


class FixedMerging(Fixed):
    def merge(self, first, second):
        return None


FixedWider.__qualname__ = FixedMerging.__qualname__ = "Fixed"


def add(a, b):
    return a


def keyed(then: Callable[[Any], Any], *keys: str, **made: str) -> Build:
    """The step after `key_by`."""
    return lambda left, right: then(left.key_by(*(keys or () if made else keys or ("k",)), **made))


def of_keyed(then: Callable[[Any], Any]) -> dict[str, Build]:
    """What identifies a step by its key."""
    return {
        "key column": keyed(then, "p"),
        "one more key column": keyed(then, "k", "p"),
        "key type": lambda left, right: then(
            left.with_columns(k="x").key_by("k")
        ),
        "key expression": lambda left, right: then(
            left.with_columns(k="upper(k)").key_by("k")
        ),
    }  # fmt: skip


def around(then: Callable[[Any], Any]) -> dict[str, Build]:
    """What is free of every step with a name: the rows that come, and what follows."""
    return {
        "a condition before": lambda left, right: then(left.where("x > 1").key_by("k")),
        "a function before": lambda left, right: then(left.filter(bool).key_by("k")),
        "a step after": lambda left, right: then(left.key_by("k")).where("true"),
    }  # fmt: skip


def keyed_case(
    then: Callable[[Any], Any], identifying: Mapping[str, Callable[[Any], Any]] = {},
    free: Mapping[str, Callable[[Any], Any]] = {},
) -> Case:  # fmt: skip
    """A case of a keyed step, with the changes that all of them have."""
    return Case(
        keyed(then),
        {**of_keyed(then), **{what: keyed(change) for what, change in identifying.items()}},
        {**around(then), **{what: keyed(change) for what, change in free.items()}},
    )


def agg(**aggs: Any) -> Callable[[Any], Any]:
    return lambda keyed: keyed.agg(**aggs, unbounded=True, name="s")


def win(window: Any, name: str = "s", **how: Any) -> Callable[[Any], Any]:
    return lambda keyed: keyed.window(window, **how).agg(t=hr.sum("x"), name=name)


S = {"unbounded": True, "name": "s"}
M1 = hr.pattern("a", "x = 1").then("b", "x = 2").within("1h")
M2 = hr.pattern("a", "x = 1").then("b", "x = 3").within("1h")
TEN = hr.tumbling("10s")
HOP = hr.sliding("10s", every="5s")


def interval(left, right, **how):
    return left.join(right, **{"on": "k", "within": "1h", "name": "s", **how})


def tab(stream, key="k"):
    return stream.table(key, unbounded=True)


def windowed(s):
    return s.window(TEN).agg(t=hr.sum("x"), q=hr.sum("y"), name="w")


def doubled(s):
    return s.unkeyed.with_columns(x="x * 2").key_by("k")


def exploded(stream, column):
    return stream.with_columns(z=f"array({column})").explode("z")


def sides(build: Build) -> dict[str, Build]:
    return {
        "sides exchanged": lambda left, right: build(right, left),
        "key column": lambda left, right: build(left, right, on="p"),
        "key order": lambda left, right: build(left, right, on=["p", "k"]),
    }


CASES: dict[str, Case] = {
    "KeyedStream.agg": keyed_case(
        agg(t=hr.sum("x")),
        {
            "another column": agg(t=hr.sum("y")), "expression": agg(t=hr.sum("x * 2")),
            "another aggregate": agg(t=hr.max("x")), "type": agg(t=hr.sum("u")),
            "one more": agg(t=hr.sum("x"), n=hr.count()), "another name": agg(q=hr.sum("x")),
        },
    ),
    "KeyedStream.agg count": keyed_case(
        agg(n=hr.count()), {"of a column": agg(n=hr.count("x"))}
    ),
    "KeyedStream.agg count of a column": keyed_case(
        agg(n=hr.count("x")),
        {"of rows": agg(n=hr.count()), "of another": agg(n=hr.count("y"))},
    ),
    "KeyedStream.agg max_by": keyed_case(
        agg(t=hr.max_by("p", "x")),
        {"by another column": agg(t=hr.max_by("p", "y")), "of another": agg(t=hr.max_by("k", "x"))},
    ),
    "KeyedStream.agg own": keyed_case(
        agg(t=Spread("u")),
        {"settings": agg(t=Spread("u", 2.0)), "column": agg(t=Spread("u * 2"))},
    ),
    "KeyedStream.reduce": keyed_case(
        lambda s: s.reduce(lambda a, b: a, **S), {"fold": lambda s: s.fold(0, add, **S)},
        {"function": lambda s: s.reduce(add, **S)},
    ),
    "KeyedStream.fold": keyed_case(
        lambda s: s.fold(0, lambda a, r: a + 1, **S),
        {"value": lambda s: s.fold(0.0, add, **S)},
        {"function": lambda s: s.fold(0, add, **S), "start": lambda s: s.fold(9, add, **S)},
    ),
    "KeyedStream.process": keyed_case(
        lambda s: s.process(Sum(), **S), {},
        {"function": lambda s: s.process(Other(), **S), "value": lambda s: s.process(Wider(), **S)},
    ),
    "KeyedStream.process in order": keyed_case(
        lambda s: s.process(Sum(), order="event_time", **S),
        {"no order": lambda s: s.process(Sum(), **S),
         "column of what it holds": lambda s: s.unkeyed.with_columns(z="x + 1").key_by(
             *s.keys).process(Sum(), order="event_time", **S)},
        {"value": lambda s: s.process(Wider(), order="event_time", **S)},
        ),
    "KeyedStream.process by task": keyed_case(
        lambda s: s.process(Task(), **S), {"by key": lambda s: s.process(KeyedTask(), **S)},
        {"merge, union, value": lambda s: s.process(MergedTask(), **S)},
    ),
    "Stream.process": Case(
        lambda s, _: s.process(Task(), **S),
        {"key": lambda s, _: s.key_by("k").process(Task(), **S)},
        {"merge, union, value": lambda s, _: s.process(MergedTask(), **S)},
    ),
    "KeyedStream.map_with_state": keyed_case(
        lambda s: s.map_with_state(add, state=int, output="n bigint", **S),
        {"state": lambda s: s.map_with_state(add, state=str, output="n bigint", **S)},
        {"function": lambda s: s.map_with_state(max, state=int, output="n bigint", **S)},
    ),
    "KeyedStream.flat_map_with_state": keyed_case(
        lambda s: s.flat_map_with_state(add, state=int, output="n bigint", **S),
        {"state": lambda s: s.flat_map_with_state(add, state=str, output="n bigint", **S)},
    ),
    "KeyedStream.update_state_by_key": keyed_case(
        lambda s: s.update_state_by_key(add, schema="n bigint", **S),
        {"state": lambda s: s.update_state_by_key(add, schema="n string", **S)},
        {"every key": lambda s: s.update_state_by_key(add, schema="n bigint", every_key=True, **S)},
    ),
    "WindowedStream.agg": keyed_case(
        win(TEN),
        {
            "size": win(hr.tumbling("20s")), "slide": win(hr.sliding("10s", every="5s")),
            "offset": win(hr.tumbling("10s", offset="1s")),
            "processing time": win(TEN, time="processing"), "session": win(hr.session("10s")),
            "rows": win(hr.tumbling(rows=10)),
            "column": lambda s: s.window(TEN).agg(t=hr.sum("y"), name="s"),
        },
    ),
    "WindowedStream.agg lateness": keyed_case(
        win(TEN, lateness="1m"), {"another mode": win(TEN, lateness="1m", mode="delta")},
        {"shorter lateness": win(TEN, lateness="30s"), "longer": win(TEN, lateness="1h")},
    ),
    "WindowedStream.agg result time": keyed_case(
        win(TEN, result_time="earliest"),
        {"latest": win(TEN, result_time="latest"), "end": win(TEN, info=True)},
    ),
    "WindowedStream.agg per row": keyed_case(
        win(TEN, trigger=t.per_row(t.at_watermark())), {"once per batch": win(TEN, info=True)},
        {"another trigger": win(TEN, trigger=t.per_row(t.at_watermark(early=t.on_change())))},
    ),
    "WindowedStream.agg session by row": keyed_case(
        win(hr.session(hr.col("x"))), {"another gap": win(hr.session(hr.col("y")))}
    ),
    "WindowedStream.agg own assigner": keyed_case(
        win(Hours(10)), {"size": win(Hours(20)), "another": win(Fixed())}
    ),
    "WindowedStream.agg own assigner of a class": keyed_case(
        win(Fixed()), {"size": win(FixedWider()), "merging": win(FixedMerging())}
    ),
    "WindowedStream.reduce": keyed_case(
        lambda s: s.window(TEN).reduce(add, name="s"),
        {"window": lambda s: s.window(hr.tumbling("20s")).reduce(add, name="s")},
        {"function": lambda s: s.window(TEN).reduce(lambda a, b: b, name="s")},
    ),
    "WindowedStream.fold": keyed_case(
        lambda s: s.window(TEN).fold(0, add, name="s"),
        {"window": lambda s: s.window(hr.tumbling("20s")).fold(0, add, name="s")},
        {"function": lambda s: s.window(TEN).fold(0, lambda a, b: a, name="s")},
    ),
    "WindowedStream.fold merge": keyed_case(
        lambda s: s.window(HOP).fold(0, add, merge=add, name="s"),
        {
            "without": lambda s: s.window(HOP).fold(0, add, name="s"),
            "inverse": lambda s: s.window(HOP).fold(0, add, merge=add, inverse=add, name="s"),
        },
        {"function": lambda s: s.window(HOP).fold(0, add, merge=max, name="s")},
    ),
    "WindowedStream.process": keyed_case(
        lambda s: s.window(TEN).process(lambda k, w, rows: [], schema="n bigint", name="s"),
        {"window": lambda s: s.window(hr.session("20s")).process(
            lambda k, w, rows: [], schema="n bigint", name="s")},
        {"function": lambda s: s.window(TEN).process(
            lambda key, window, rows: None, schema="n bigint", name="s")},
    ),
    "WindowedStream.process agg": keyed_case(
        lambda s: s.window(TEN).process(
            lambda k, w, v: [], agg={"t": hr.sum("x")}, schema="n bigint", name="s"),
        {
            "rows": lambda s: s.window(TEN).process(
                lambda k, w, v: [], schema="n bigint", name="s"),
            "column": lambda s: s.window(TEN).process(
                lambda k, w, v: [], agg={"t": hr.sum("y")}, schema="n bigint", name="s"),
        },
        {"function": lambda s: s.window(TEN).process(
            lambda key, window, v: None, agg={"t": hr.sum("x")}, schema="n bigint", name="s")},
    ),
    "WindowResult.top": keyed_case(
        lambda s: windowed(s).top(2, by="t", name="s"),
        {
            "by": lambda s: windowed(s).top(
                2, by="q", name="s"),
            "rows": lambda s: windowed(s).top(
                3, by="t", name="s"),
            "smallest": lambda s: windowed(s).top(
                2, by="t", largest=False, name="s"),
        },
    ),
    "deduplicate": keyed_case(
        lambda s: s.deduplicate(within="1h", name="s"),
        {"within": lambda s: s.deduplicate(within="2h", name="s"),
         "columns": lambda s: s.deduplicate("p", within="1h", name="s")},
        {"a shorter time": lambda s: s.deduplicate(within="30m", name="s")},
    ),
    "changes_only": keyed_case(
        lambda s: s.changes_only("x", **S),
        {"column": lambda s: s.changes_only("y", **S),
         "expression": lambda s: doubled(s).changes_only("x", **S)},
    ),
    "throttle": keyed_case(
        lambda s: s.throttle(1, per="1h", name="s"),
        {"per": lambda s: s.throttle(1, per="2h", name="s")},
        {"rows": lambda s: s.throttle(2, per="1h", name="s")},
    ),
    "edges": keyed_case(
        lambda s: s.edges("x", "y").components(**S),
        {
            "vertices": lambda s: s.edges("x", "made").components(**S),
            "computed vertices": lambda s: doubled(s).edges("x", "y").components(**S),
            "texts": lambda s: s.unkeyed.with_columns(x="cast(x as string)", y="cast(y as string)")
            .key_by("k").edges("x", "y").components(**S),
            "degrees": lambda s: s.edges("x", "y").degrees(**S),
        },
    ),
    "edges degrees": keyed_case(
        lambda s: s.edges("x", "y").degrees(**S),
        {"distribution": lambda s: s.edges("x", "y").degree_distribution(**S)},
    ),
    "edges degree_distribution": keyed_case(
        lambda s: s.edges("x", "y").degree_distribution(**S),
        {"vertices": lambda s: s.edges("x", "made").degree_distribution(**S)},
    ),
    "edges triangles": keyed_case(
        lambda s: s.edges("x", "y").triangles(sample=20, **S),
        {
            "size": lambda s: s.edges("x", "y").triangles(sample=30, **S),
            "seed": lambda s: s.edges("x", "y").triangles(sample=20, seed=1, **S),
        },
    ),
    "edges spanner": keyed_case(
        lambda s: s.edges("x", "y").spanner(2, **S),
        {"k": lambda s: s.edges("x", "y").spanner(3, **S)},
    ),
    "first_seen": keyed_case(
        lambda s: s.first_seen(per="1h", expected=100, name="s"),
        {"per": lambda s: s.first_seen(per="2h", expected=100, name="s"),
         "calendar": lambda s: s.first_seen(per=hr.calendar("day"), expected=100, name="s"),
         "expected": lambda s: s.first_seen(per="1h", expected=10_000, name="s"),
         "error": lambda s: s.first_seen(per="1h", expected=100, error=0.02, name="s"),
         "columns": lambda s: s.first_seen("p", per="1h", expected=100, name="s")},
    ),
    "limit": keyed_case(
        lambda s: s.limit(2, **S),
        free={"more rows": lambda s: s.limit(3, **S), "fewer rows": lambda s: s.limit(1, **S)},
    ),
    "top": keyed_case(
        lambda s: s.top(2, by="x", **S),
        {
            "by": lambda s: s.top(2, by="y", **S), "rows": lambda s: s.top(3, by="x", **S),
            "smallest": lambda s: s.top(2, by="x", largest=False, **S),
            "each": lambda s: s.top(2, by="x", each="p", **S),
            "by an expression": lambda s: doubled(s).top(
                2, by="x", **S),
        },
    ),
    "top of each": keyed_case(
        lambda s: s.top(2, by="x", each="p", **S),
        {
            "by": lambda s: s.top(2, by="y", each="p", **S),
            "rows": lambda s: s.top(3, by="x", each="p", **S),
            "without": lambda s: s.top(2, by="x", **S),
        },
        {"delete": lambda s: s.top(2, by="x", each="p", delete="x = 0", **S)},
    ),
    "batch": keyed_case(
        lambda s: s.batch(2, "1h", name="s"),
        {"by the clock": lambda s: s.batch(2, "1h", time="processing", name="s")},
        {"column": lambda s: s.batch(2, "1h", into="many", name="s")},
    ),
    "suppress": keyed_case(
        lambda s: s.suppress("1h", name="s"),
        {"period": lambda s: s.suppress("2h", name="s"),
         "by the clock": lambda s: s.suppress("1h", time="processing", name="s"),
         "without a period": lambda s: s.suppress(rows=3, **S)},
        {"rows": lambda s: s.suppress("1h", rows=3, name="s")},
    ),
    "suppress by the clock": keyed_case(
        lambda s: s.suppress("1h", time="processing", name="s"),
        {"by event time": lambda s: s.suppress("1h", name="s")},
        {"period": lambda s: s.suppress("2h", time="processing", name="s"),
         "rows": lambda s: s.suppress("1h", rows=3, time="processing", name="s")},
    ),
    "sample": keyed_case(
        lambda s: s.sample(2, per="1h", name="s"),
        {"per": lambda s: s.sample(2, per="2h", name="s"),
         "rows": lambda s: s.sample(3, per="1h", name="s"),
         "seed": lambda s: s.sample(2, per="1h", seed=7, name="s")},
    ),
    "drift": keyed_case(
        lambda s: s.drift("x", **S),
        {"column": lambda s: s.drift("y", **S),
         "detector": lambda s: s.drift("x", detector="kswin", **S),
         "option": lambda s: s.drift("x", delta=0.1, **S),
         "expression": lambda s: doubled(s).drift("x", **S)},
        {"another column": lambda s: s.unkeyed.with_columns(z="x").key_by("k").drift("x", **S)},
    ),
    "learn": keyed_case(
        lambda s: s.learn(LINE(), target="x", features=["y"], **S),
        {"target": lambda s: s.learn(LINE(), target="y", features=["x"], **S),
         "features": lambda s: s.unkeyed.with_columns(z="x").key_by("k").learn(
             LINE(), target="x", features=["y", "z"], **S),
         "parameter": lambda s: s.learn(LINE(l2=0.5), target="x", features=["y"], **S),
         "columns that wait": lambda s: s.unkeyed.with_columns(z="x").key_by("k").learn(
             LINE(), target="x", features=["y"], **S),
         "expression": lambda s: doubled(s).learn(LINE(), target="x", features=["y"], **S)},
    ),
    "KeyedStream.match": keyed_case(
        lambda s: s.match(M1, name="s"),
        {"pattern": lambda s: s.match(M2, name="s"),
         "within": lambda s: s.match(
             hr.pattern("a", "x = 1").then("b", "x = 2").within("2h"), name="s"),
         "expression": lambda s: doubled(s).match(M1, name="s")},
        {"another column": lambda s: s.unkeyed.with_columns(y="y * 2").key_by("k").match(
            M1, name="s")},
    ),
    "KeyedStream.match of several": keyed_case(
        lambda s: s.match({"one": M1, "two": M2}, name="s"),
        {"order": lambda s: s.match({"two": M2, "one": M1}, name="s"),
         "exchanged": lambda s: s.match({"one": M2, "two": M1}, name="s")},
    ),
    "iterate": keyed_case(
        lambda s: s.iterate(lambda rows, loop: rows, over="batches", name="s"),
        {"columns that wait": lambda s: s.unkeyed.with_columns(z="x").key_by("k").iterate(
            lambda rows, loop: rows, over="batches", name="s")},
        {"function": lambda s: s.iterate(lambda a, b: a, over="batches", name="s")},
    ),
    "join": Case(
        interval,
        {
            **sides(interval),
            "within": lambda left, right: interval(left, right, within="2h"),
            "how": lambda left, right: interval(left, right, how="left"),
            "columns": lambda left, right: interval(left.with_columns(z="x"), right),
            "longer lateness": lambda left, right: interval(left, right, lateness="1h"),
            "key expression": lambda left, right: interval(left, right.with_columns(k="upper(k)")),
        },
        {"narrower": lambda left, right: interval(left, right, within="30m"),
         "a condition": lambda left, right: interval(left.where("x > 1"), right),
         "suffix": lambda left, right: interval(left, right, suffix="_other")},
    ),
    "join of a stream with itself": Case(
        lambda left, right: interval(left.where("x > 1"), left.where("x < 9")),
        {"exchanged": lambda left, right: interval(left.where("x < 9"), left.where("x > 1")),
         "both others": lambda left, right: interval(left.where("x < 8"), left.where("x > 2"))},
        {"one other": lambda left, right: interval(left.where("x > 2"), left.where("x < 9"))},
    ),
    "join of two selections": Case(
        lambda left, right: interval(left.select("k", z="x"), left.select("k", z="y")),
        {"exchanged": lambda left, right: interval(
            left.select("k", z="y"), left.select("k", z="x")),
         "both others": lambda left, right: interval(
             left.select("k", z="x * 2"), left.select("k", z="y * 2"))},
        {"one other": lambda left, right: interval(
            left.select("k", z="x * 2"), left.select("k", z="y"))},
    ),
    "join of two samples": Case(
        lambda left, right: interval(left.sample(0.5, seed=1), left.sample(0.5, seed=2)),
        {"exchanged": lambda left, right: interval(
            left.sample(0.5, seed=2), left.sample(0.5, seed=1))},
    ),
    "join of two explosions": Case(
        lambda left, right: interval(exploded(left, "x"), exploded(left, "y")),
        {"exchanged": lambda left, right: interval(exploded(left, "y"), exploded(left, "x"))},
    ),
    "join in windows": Case(
        lambda left, right, on="k": left.join(right, on=on, window=TEN, name="s"),
        {**sides(lambda left, right, on="k": left.join(right, on=on, window=TEN, name="s")),
         "window": lambda left, right: left.join(
             right, on="k", window=hr.tumbling("9s"), name="s")},
    ),
    "join with a table": Case(
        lambda left, right: left.join(tab(right), on="k", name="s"),
        {
            "exchanged": lambda left, right: right.join(tab(left), on="k", name="s"),
            "key": lambda left, right: left.join(tab(right, "p"), on="k", name="s"),
            "bounded": lambda left, right: left.join(
                right.table("k"), on="k", within="1h", name="s"),
            "clock": lambda left, right: left.join(
                tab(right), on="k", time="processing", name="s"),
            "deletes": lambda left, right: left.join(
                right.table("k", delete="x = 0", unbounded=True), on="k", name="s"),
        },
    ),
    "join with a table that forgets": Case(
        lambda left, right: left.join(right.table("k"), on="k", within="1h", name="s"),
        {"older": lambda left, right: left.join(right.table("k"), on="k", within="2h", name="s")},
        {"younger": lambda left, right: left.join(
            right.table("k"), on="k", within="1m", name="s")},
    ),
    "Table.join": Case(
        lambda left, right: tab(left).join(
            tab(right), name="s"),
        {
            "exchanged": lambda left, right: tab(right).join(
                tab(left), name="s"),
            "key": lambda left, right: tab(left, "p").join(
                tab(right, "p"), name="s"),
            "how": lambda left, right: tab(left).join(
                tab(right), how="left", name="s"),
        },
    ),
    "Table.changes": Case(
        lambda left, right: tab(left).changes(name="s"),
        {"key": lambda left, right: tab(left, "p").changes(name="s"),
         "clock": lambda left, right: tab(left).changes(
             time="processing", name="s")},
    ),
    "lookup": Case(
        lambda left, right: left.lookup(
            hr.table_file("none.csv", schema="k string, z string"), on="k", refresh="1m",
            on_missing="wait", patience="1h", name="s"),
        {"key": lambda left, right: left.lookup(
            hr.table_file("none.csv", schema="p string, z string"), on="p", refresh="1m",
            on_missing="wait", patience="1h", name="s")},
        {"patience": lambda left, right: left.lookup(
            hr.table_file("none.csv", schema="k string, z string"), on="k", refresh="2m",
            on_missing="wait", patience="2h", name="s")},
    ),
    "cogroup": Case(
        lambda left, right, on="k": left.cogroup(
            right, lambda k, a, b: [], window=TEN, on=on, schema="n bigint", name="s"),
        {**sides(lambda left, right, on="k": left.cogroup(
            right, lambda k, a, b: [], window=TEN, on=on, schema="n bigint", name="s"))},
        {"function": lambda left, right: left.cogroup(
            right, lambda key, a, b: None, window=TEN, on="k", schema="n bigint", name="s")},
    ),
    "hr.join_all": Case(
        lambda left, right, on="k": hr.join_all(on=on, within="1h", a=left, b=right, name="s"),
        {**sides(lambda left, right, on="k": hr.join_all(
            on=on, within="1h", a=left, b=right, name="s")),
         "within": lambda left, right: hr.join_all(on="k", within="2h", a=left, b=right, name="s")},
    ),
    "ConnectedStreams.process": Case(
        lambda left, right: hr.connect(by="k", left=left, right=right).process(Sum(), **S),
        {
            "key": lambda left, right: hr.connect(by="p", left=left, right=right).process(
                Sum(), **S),
            "exchanged": lambda left, right: hr.connect(by="k", left=right, right=left).process(
                Sum(), **S),
            "exchanged in another order": lambda left, right: hr.connect(
                by="k", right=left, left=right).process(Sum(), **S),
            "exchanged under a new name": lambda left, right: hr.connect(
                by="k", left=right, other=left).process(Sum(), **S),
        },
        {
            "function": lambda left, right: hr.connect(by="k", left=left, right=right).process(
                Other(), **S),
            "order": lambda left, right: hr.connect(by="k", right=right, left=left).process(
                Sum(), **S),
            "names": lambda left, right: hr.connect(by="k", a=left, b=right).process(Sum(), **S),
            "conditions": lambda left, right: hr.connect(
                by="k", left=left.where("x > 1"), right=right.where("x > 2")).process(Sum(), **S),
        },
    ),
}  # fmt: skip
ALSO = {"hr.connect": "ConnectedStreams.process"}  # the same step by another way
UNKEYED = {"agg", "reduce", "fold", "process", "match", "map_with_state", "flat_map_with_state",
           "update_state_by_key"}  # fmt: skip
