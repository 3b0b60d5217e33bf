"""A key's state is its own, though a function returns one object for all of them.

Every function here fills one list, dict or record and returns it, or puts it into the state. The
model has a value for each key and knows no such object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness

SCHEMA = "k string, v bigint, at bigint"
BATCHES = [
    [("a", 1, 0), ("b", 10, 1), ("a", 2, 2), ("c", 100, 3), ("b", 20, 4), ("c", 150, 4)],
    [("b", 30, 5), ("a", 3, 6), ("c", 200, 7), ("a", 4, 8)],
]
SEEN = {"a": [1, 2, 3, 4], "b": [10, 20, 30], "c": [100, 150, 200]}
RUNNING = sorted((k, vs[: i + 1]) for k, vs in SEEN.items() for i in range(len(vs)))
FINAL = sorted(SEEN.items())


@dataclass
class Items:
    items: list[int] = field(default_factory=list)


LIST: list[int] = []
DICT: dict[str, Any] = {"items": []}
RECORD = Items()
BYTES = bytearray()


def refilled(items: Any, v: int) -> list[int]:
    """The one list, with these items and one more."""
    LIST[:] = [*items, v]
    return LIST


def one_list(acc: list[int], row: Any) -> list[int]:
    return refilled(acc, row.v)


def one_dict(acc: Any, row: Any) -> Any:
    DICT["items"] = [*acc["items"], row.v]
    return DICT


def one_list_in_a_new_dict(acc: Any, row: Any) -> Any:
    return {"items": refilled(acc["items"], row.v)}


def one_list_put_into_the_state(acc: Any, row: Any) -> Any:
    acc["items"] = refilled(acc["items"], row.v)
    return acc


def one_record(acc: Any, row: Any) -> Any:
    RECORD.items = [*acc.items, row.v]
    return RECORD


def one_list_put_into_the_record(acc: Any, row: Any) -> Any:
    acc.items = refilled(acc.items, row.v)
    return acc


def one_list_in_a_tuple(acc: Any, row: Any) -> Any:
    return (refilled(acc[0], row.v),)


def appended(acc: list[int], row: Any) -> list[int]:
    acc.append(row.v)
    return acc


ZERO: list[int] = []
FOLDS: dict[str, tuple[Any, Any, Any]] = {
    "one list": ([], one_list, "value array<bigint>"),
    "one zero": (lambda: ZERO, appended, "value array<bigint>"),
    "one dict": ({"items": []}, one_dict, "items array<bigint>"),
    "a new dict": ({"items": []}, one_list_in_a_new_dict, "items array<bigint>"),
    "into a dict": ({"items": []}, one_list_put_into_the_state, "items array<bigint>"),
    "one record": (Items(), one_record, Items),
    "into a record": (Items(), one_list_put_into_the_record, Items),
    "in a tuple": (([],), one_list_in_a_tuple, "items array<bigint>"),
}


def played(build: Callable[[Any], Any]) -> list[dict[str, Any]]:
    job = hr.Job("own state")
    rows = job.read("log:rows", schema=SCHEMA, time="at", delay="1h", name="rows")
    build(rows.key_by("k")).write("collect:", name="out")
    with Harness(job) as test:
        for batch in BATCHES:
            test.send("rows", batch)
        test.end()
        assert not test.dead()
        return test.output("out")


@pytest.mark.parametrize("case", FOLDS)
def test_a_running_fold(case):
    zero, fn, schema = FOLDS[case]

    rows = played(lambda keyed: keyed.fold(zero, fn, schema=schema, unbounded=True))

    assert per_key(rows) == RUNNING


WINDOWS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda keyed: keyed.window(hr.tumbling("1h")),
    "sliding": lambda keyed: keyed.window(hr.sliding("1h", "30m")),
    "session": lambda keyed: keyed.window(hr.session("1h")),
    "early": lambda keyed: keyed.window(hr.tumbling("1h"), lateness="1h"),
    "of rows": lambda keyed: keyed.window(hr.delta("v", 1000)),
    "in all": lambda keyed: keyed.window(hr.everything()),
}


def per_key(rows: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """What each key's last window has; a row is in both of two sliding windows."""
    return sorted((row["k"], row.get("items", row.get("value"))) for row in rows)


@pytest.mark.parametrize("case", FOLDS)
@pytest.mark.parametrize("window", WINDOWS)
def test_a_fold_over_windows(window, case):
    zero, fn, schema = FOLDS[case]

    rows = played(lambda keyed: WINDOWS[window](keyed).fold(zero, fn, schema=schema))

    assert per_key(rows) == (sorted(FINAL * 2) if window == "sliding" else FINAL)


def merged(a: list[int], b: list[int]) -> list[int]:
    LIST[:] = [*a, *b]
    return LIST


def without(a: list[int], b: list[int]) -> list[int]:
    LIST[:] = a[len(b) :]
    return LIST


@pytest.mark.parametrize("more", [{"merge": merged}, {"merge": merged, "inverse": without}])
def test_a_fold_of_shared_panes(more):
    def build(fn: Any, **more: Any) -> Callable[[Any], Any]:
        windows = hr.sliding("6ms", "2ms")
        return lambda keyed: keyed.window(windows).fold(
            [], fn, schema="value array<bigint>", **more
        )

    plain = played(build(lambda acc, row: [*acc, row.v]))

    assert per_key(played(build(one_list, **more))) == per_key(plain)


TAGS: list[str] = []


def test_reduce():
    """The longest text wins; its row holds a list that is the same object for all."""

    def tagged(row: Any) -> Any:
        return (row.k, row.v, [])

    def both(a: Any, b: Any) -> Any:
        TAGS[:] = [*(a.tags or [str(a.v)]), str(b.v)]
        return a._replace(tags=TAGS)

    for windowed in (False, True):

        def build(keyed: Any, windowed: bool = windowed) -> Any:
            rows = keyed.unkeyed.map(
                tagged, schema="k string, v bigint, tags array<string>"
            ).key_by("k")
            return (
                rows.window(hr.session("1h")).reduce(both)
                if windowed
                else rows.reduce(both, unbounded=True)
            )

        last = {row["k"]: row["tags"] for row in played(build)}
        assert last == {k: list(map(str, vs)) for k, vs in SEEN.items()}


class Listed(hr.Aggregate):
    state = "array<bigint>"
    output = "array<bigint>"

    def zero(self) -> Any:
        return []

    def add(self, state: Any, value: Any) -> Any:
        return refilled(state, value)

    def merge(self, a: Any, b: Any) -> Any:
        LIST[:] = [*a, *b]
        return LIST

    def result(self, state: Any) -> Any:
        LIST[:] = state
        return LIST


AGGREGATED: dict[str, Callable[[Any], Any]] = {
    "running": lambda keyed: keyed.agg(items=Listed("v"), unbounded=True),
    **{
        name: lambda keyed, window=window: window(keyed).agg(items=Listed("v"))
        for name, window in WINDOWS.items()
    },
}


@pytest.mark.parametrize("case", AGGREGATED)
def test_an_aggregate_of_the_users(case):
    expected = {"running": RUNNING, "sliding": sorted(FINAL * 2)}.get(case, FINAL)

    assert per_key(played(AGGREGATED[case])) == expected


def map_list(row: Any, state: Any) -> Any:
    items = refilled(state or [], row.v)
    return (row.k, items), items


def update_list(rows: Any, state: Any) -> Any:
    for row in rows:
        state = refilled(state or [], row.v)
    return state


def update_record(rows: Any, state: Items | None) -> Items:
    RECORD.items = [*(state.items if state else []), *(row.v for row in rows)]
    return RECORD


class Assigned(hr.KeyedProcess):
    output = "k string, items array<bigint>"
    seen = hr.value("array<bigint>")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen = refilled(self.seen or [], row.v)
        return row.k, self.seen


class AssignedWithTtl(Assigned):
    seen = hr.value("array<bigint>", ttl="1h")


class AssignedList(Assigned):
    seen = hr.list_of(int)


@dataclass
class Holder:
    at: int
    items: list[int]


class AppendedRecord(hr.KeyedProcess):
    """One record, in the list of every key."""

    output = "k string, items array<bigint>"
    seen = hr.list_of(Holder)
    one = Holder(0, [])

    def on_row(self, row: Any, ctx: Any) -> Any:
        before = [v for held in self.seen for v in held.items]
        type(self).one.items = [*before, row.v]
        self.seen = [type(self).one]
        return row.k, [*before, row.v]


class Reduced(hr.KeyedProcess):
    output = "k string, items array<bigint>"
    seen = hr.reducing("array<bigint>", lambda a, b: refilled(a, b[0]))

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.add([row.v])
        return row.k, self.seen.value


class Aggregated(hr.KeyedProcess):
    output = "k string, items array<bigint>"
    seen = hr.aggregating(Listed())

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.add(row.v)
        return row.k, self.seen.value


class OneZero(Listed):
    def zero(self) -> Any:
        return ZERO

    def add(self, state: Any, value: Any) -> Any:
        state.append(value)
        return state


class AggregatedFromOneZero(Aggregated):
    seen = hr.aggregating(OneZero())


PROCESSED: dict[str, Callable[[Any], Any]] = {
    "map_with_state": lambda keyed: keyed.map_with_state(
        map_list, state="array<bigint>", output="k string, items array<bigint>", unbounded=True
    ),
    "map_with_state, ttl": lambda keyed: keyed.map_with_state(
        map_list, state="array<bigint>", output="k string, items array<bigint>", ttl="1h"
    ),
    **{
        kind.__name__: lambda keyed, kind=kind: keyed.process(kind(), unbounded=True)
        for kind in (
            Assigned, AssignedWithTtl, AssignedList, AppendedRecord, Reduced, Aggregated,
            AggregatedFromOneZero,
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("case", PROCESSED)
def test_state_of_process_functions(case):
    assert per_key(played(PROCESSED[case])) == RUNNING


@pytest.mark.parametrize(("fn", "schema"), [(update_list, "items array<bigint>"),
                                            (update_record, Items)])  # fmt: skip
def test_update_state_by_key(fn, schema):
    rows = played(lambda keyed: keyed.update_state_by_key(fn, schema=schema, unbounded=True))

    assert {row["k"]: row["items"] for row in rows} == SEEN


class Windowed(hr.WindowProcess):
    of_key = hr.value("array<bigint>")
    of_window = hr.window_value("array<bigint>")

    def process(self, key: Any, window: Any, rows: Any) -> Any:
        if self.of_key != self.of_window:
            raise ValueError("a key has one window here")
        for v in rows["v"]:
            if v not in (self.of_key or []):
                self.of_key = refilled(self.of_key or [], v)
        self.of_window = self.of_key
        return [(self.of_window,)]


def test_values_of_a_window_process():
    """Each batch fires every window: the values are stored and read again."""
    rows = played(
        lambda keyed: keyed.window(
            hr.tumbling("1h"), trigger=hr.triggers.at_watermark(early=hr.triggers.on_change())
        ).process(Windowed(), schema="items array<bigint>", unbounded=True)
    )

    assert {row["k"]: row["items"] for row in rows} == SEEN


def test_a_bytearray_that_is_used_again():
    def filled(row: Any) -> Any:
        BYTES[:] = f"{row.k}{row.v}".encode()
        return row.k, BYTES

    rows = played(lambda keyed: keyed.unkeyed.map(filled, schema="k string, items binary"))
    expected = sorted((k, f"{k}{v}".encode()) for k, vs in SEEN.items() for v in vs)
    assert per_key(rows) == expected

    class Filled(hr.KeyedProcess):
        output = "k string, items binary"
        held = hr.value("binary")

        def on_row(self, row: Any, ctx: Any) -> Any:
            BYTES[:] = f"{row.k}{row.v}".encode()
            self.held = BYTES
            return row.k, self.held

    assert per_key(played(lambda keyed: keyed.process(Filled(), unbounded=True))) == expected


# resources of objects that are part of a step


class Rounded(hr.Aggregate):
    state = output = int

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.places = hr.resource(lambda: 10)

    def zero(self) -> int:
        return 0

    def add(self, state: int, value: int) -> int:
        return state + value // self.places()

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, state: int) -> int:
        return state


class Decades(hr.WindowAssigner):
    def __init__(self) -> None:
        self.length = hr.resource(lambda: 10)

    def assign(self, time: int, row: Any) -> Any:
        start = time - time % self.length()
        return [(start, start + self.length())]


RESOURCEFUL: dict[str, Callable[[Any], Any]] = {
    "an aggregate": lambda keyed: keyed.agg(n=Rounded("v"), unbounded=True),
    "an assigner": lambda keyed: keyed.window(Decades()).agg(n=hr.count()),
}


@pytest.mark.parametrize("case", RESOURCEFUL)
def test_a_job_whose_objects_have_a_resource_starts_again(case):
    def job() -> hr.Job:
        made = hr.Job("resourceful")
        rows = made.read("log:rows", schema=SCHEMA, time="at", delay="1h", name="rows")
        RESOURCEFUL[case](rows.key_by("k")).write("collect:", name="out")
        return made

    with Harness(job()) as test:
        test.send("rows", [("a", 10, 0), ("a", 25, 3)])
        test.restart(job())
        test.send("rows", [("a", 30, 5)])
        test.end()
        assert test.output("out")[-1]["n"] == (6 if case == "an aggregate" else 3)
