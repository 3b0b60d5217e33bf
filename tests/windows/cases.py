"""Windowed programs from specs, drawn at random; each spec is a `Model` too.

A family of assigners or triggers is a strategy of specs. Times are in units: a second, or
hours where windows are days and months.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

import headrace as hr
from headrace import triggers as t
from headrace.clock import ManualClock
from tests.windows.model import Model, Spec, safe
from tests.windows.model.by_rows import RowModel

SCHEMA = "k string, v bigint, at bigint, g bigint, n bigint"
SECOND, HOUR = 1_000, 3_600_000
BERLIN = "Europe/Berlin"
WINTER, SUMMER = 1_729_900_800_000, 1_711_756_800_000  # a day before each change of clocks

Clock = ManualClock


def _ms(length: int) -> str:
    return f"{length}ms"


# specs as Headrace says them


def assigner(spec: Spec) -> Any:
    match spec:
        case ("tumbling", size, offset):
            return hr.tumbling(_ms(size), offset=_ms(offset))
        case ("sliding", size, every, offset):
            return hr.sliding(_ms(size), _ms(every), offset=_ms(offset))
        case ("cumulating", size, step, offset):
            return hr.cumulating(_ms(size), _ms(step), offset=_ms(offset))
        case ("session", gap):
            return hr.session(_ms(gap) if gap is not None else hr.col("g"))
        case ("calendar", unit, zone):
            return hr.calendar(unit, zone=zone)
        case ("own", *sizes):
            return ByValue(sizes)
        case ("own session", gap):
            return Around(gap)
        case ("rows", size):
            return hr.tumbling(rows=size)
        case ("last rows", size, every):
            return hr.sliding(rows=size, every_rows=every)
        case ("last time", size, every):
            return hr.sliding(_ms(size), every_rows=every)
        case ("until", least, inside):
            return hr.until(hr.col("v") >= least, inside=inside)
        case ("delta", threshold, since):
            return hr.delta("v", threshold, since=since)
    return hr.everything()


class ByValue(hr.WindowAssigner):
    """Windows of one length for even values, of another for odd ones; in both without any."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes

    def assign(self, time: int, row: Any) -> Any:
        for size in self.sizes if row.v is None else [self.sizes[row.v % 2]]:
            yield time // size * size, time // size * size + size


class Around(hr.WindowAssigner):
    """From before a row until after it; windows that meet become one."""

    def __init__(self, gap: int) -> None:
        self.gap = gap

    def assign(self, time: int, row: Any) -> Any:
        return [(time - self.gap, time + self.gap)]

    def merge(self, first: Any, second: Any) -> Any:
        if second[0] < first[1]:
            return first[0], max(first[1], second[1])
        return None


def trigger(spec: Spec | None) -> Any:
    match spec:
        case None:
            return None
        case ("at_watermark", early, late):
            return t.at_watermark(early=trigger(early), late=trigger(late))
        case ("after_rows", count):
            return t.after_rows(count)
        case ("on_change",):
            return t.on_change()
        case ("every", period, time):
            return t.every(_ms(period), time=time)
        case ("after_delay", delay):
            return t.after_delay(_ms(delay))
        case ("on_row", least):
            return t.on_row(hr.col("v") >= least)
        case ("on_delta", threshold):
            return t.on_delta("v", threshold)
        case ("any_of" | "all_of" as name, *parts):
            return getattr(t, name)(*map(trigger, parts))
        case ("at_most", of, most):
            return t.first(trigger(of)) if most == 1 else t.repeat(trigger(of), times=most)
        case ("custom", every):
            return t.custom(lambda w: w.rows % every == 0 or w.over)
    raise ValueError(spec)


def evictor(spec: Spec | None, after: bool) -> Any:
    match spec:
        case None:
            return None
        case ("keep_rows", count):
            return hr.keep_last(rows=count, after=after)
        case ("keep_time", length):
            return hr.keep_last(_ms(length), after=after)
        case ("keep_near", threshold):
            return hr.keep_near("v", threshold, after=after)
    return hr.keep(lambda rows: [r.v is not None and r.v % 2 == 0 for r in rows], after=after)


def _add(a: Any, b: Any) -> Any:
    return a._replace(v=(a.v or 0) + (b.v or 0), n=b.n)


def _concat(text: str, row: Any) -> str:
    return f"{text}{row.v},"


def _halves(key: Any, w: Any, rows: list[Any], ctx: Any) -> Any:
    seen = [r.at for r in rows]
    call = (w.start, w.end, w.pane, w.timing, w.final, ctx.clock)
    return [(seen, *call, i) for i in range(len(rows) // 2)]


def _summary(key: Any, w: Any, values: Any, ctx: Any) -> Any:
    call = (w.start, w.end, w.pane, w.timing, w.final, ctx.clock)
    return (values.n, values.total, values.every, *call) if values.n > 1 else None


_SUMMARY = (
    "n bigint, total bigint, every array<bigint>, "
    "s bigint, e bigint, p bigint, t string, f boolean, c bigint"
)
_CALL = "seen array<bigint>, s bigint, e bigint, p bigint, t string, f boolean, c bigint, i bigint"


class Remembering(hr.WindowProcess):
    """What it sees, how often it was called for the key, and how many rows for the window."""

    calls = hr.value(int, default=0)
    rows = hr.window_value(int, default=0)

    def process(self, key: Any, window: Any, rows: Any) -> Any:
        self.calls += 1
        self.rows += len(rows)
        return rows["n"], self.calls, self.rows


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "agg": lambda w: w.agg(
        n=hr.count(), total=hr.sum("v"), low=hr.min("v"), high=hr.max("v"), a=hr.first("v"),
        z=hr.last("v"), every=hr.collect("v"),
    ),
    "count": lambda w: w.agg(n=hr.count(), total=hr.sum("v")),
    "reduce": lambda w: w.reduce(_add),
    "fold": lambda w: w.fold("", _concat, schema=str),
    "process": lambda w: w.process(_halves, schema=_CALL),
    "summary": lambda w: w.process(
        _summary, agg={"n": hr.count(), "total": hr.sum("v"), "every": hr.collect("v")},
        schema=_SUMMARY,
    ),
}  # fmt: skip


def _never_late(spec: Any) -> Any:
    """A trigger without late=, which is refused where nothing can be late."""
    if not isinstance(spec, tuple):
        return spec
    match spec:
        case ("at_watermark", early, _):
            return ("at_watermark", early, None)
    return tuple(map(_never_late, spec))


def build(stream: Any, case: Model, **more: Any) -> Any:
    """The windows of `case` over a stream, keyed or not."""
    fires = trigger(case.trigger if case.lateness else _never_late(case.trigger))
    windows = stream.window(
        assigner(case.assigner), trigger=t.per_row(fires) if case.per_row else fires,
        lateness=_ms(case.lateness), mode=case.mode, evict=evictor(case.evict, case.after),
        may_lose=case.may_lose, info=True, **more,
    )  # fmt: skip
    if case.function == "remember":
        schema = "seen array<bigint>, calls bigint, rows bigint"
        return windows.process(Remembering(), schema=schema, unbounded=True)
    return FUNCTIONS[case.function](windows)


# families of specs; `u` is the unit of time

ASSIGNERS: dict[str, tuple[int, int, st.SearchStrategy[Spec]]] = {  # unit, first time, specs
    "tumbling": (SECOND, 0, st.sampled_from([("tumbling", 4_000, 0), ("tumbling", 5_000, 1_500)])),
    "sliding": (SECOND, -9_000, st.sampled_from(
        [("sliding", 6_000, 2_000, 0), ("sliding", 5_000, 3_000, 500)])),
    "session": (SECOND, -3_000, st.sampled_from([("session", 1_000), ("session", 2_500)])),
    "session by row": (SECOND, 0, st.just(("session", None))),
    "cumulating": (SECOND, -5_000, st.sampled_from(
        [("cumulating", 6_000, 2_000, 0), ("cumulating", 4_000, 1_000, 500)])),
    "calendar day, winter": (3 * HOUR, WINTER, st.just(("calendar", "day", BERLIN))),
    "calendar day, summer": (3 * HOUR, SUMMER, st.just(("calendar", "day", BERLIN))),
    "calendar month": (90 * HOUR, SUMMER, st.sampled_from(
        [("calendar", unit, BERLIN) for unit in ("week", "month", "year")])),
    "own": (SECOND, -3_000, st.just(("own", 4_000, 10_000))),
    "own session": (SECOND, -3_000, st.sampled_from(
        [("own session", 500), ("own session", 1_000)])),
    "everything": (SECOND, -5_000, st.just(("everything",))),
}  # fmt: skip

LEAVES: dict[str, Callable[[int], st.SearchStrategy[Spec]]] = {
    "after_rows": lambda u: st.tuples(st.just("after_rows"), st.integers(1, 4)),
    "on_change": lambda u: st.just(("on_change",)),
    "every": lambda u: st.tuples(
        st.just("every"), st.sampled_from([1_000, 3_000]), st.just("processing")),
    "every, event time": lambda u: st.tuples(
        st.just("every"), st.sampled_from([u, 3 * u // 2, 4 * u]), st.just("event")),
    "after_delay": lambda u: st.tuples(st.just("after_delay"), st.sampled_from([1_000, 2_500])),
    "on_row": lambda u: st.tuples(st.just("on_row"), st.integers(3, 8)),
    "on_delta": lambda u: st.tuples(st.just("on_delta"), st.integers(1, 6)),
    "custom": lambda u: st.tuples(st.just("custom"), st.integers(2, 3)),
}  # fmt: skip


def leaf(u: int) -> st.SearchStrategy[Spec]:
    return st.one_of([make(u) for make in LEAVES.values()])


def at_watermark(
    early: st.SearchStrategy[Any], late: st.SearchStrategy[Any]
) -> st.SearchStrategy[Spec]:
    return st.tuples(st.just("at_watermark"), early, late)


def of_leaf(name: str) -> Callable[[int], st.SearchStrategy[Spec]]:
    """One kind of trigger: early, late, both, or bare."""

    def made(u: int) -> st.SearchStrategy[Spec]:
        mine, none = LEAVES[name](u), st.none()
        both = [at_watermark(mine, none), at_watermark(none, mine), at_watermark(mine, leaf(u)),
                at_watermark(leaf(u), mine), mine]  # fmt: skip
        return st.one_of(both)

    return made


def _combined(name: str) -> Callable[[int], st.SearchStrategy[Spec]]:
    def made(u: int) -> st.SearchStrategy[Spec]:
        some = st.one_of(leaf(u), _limit(leaf(u)))
        two = st.tuples(st.just(name), some, some)
        whole = st.tuples(st.just(name), at_watermark(st.none() | two, st.none() | two), some)
        return st.one_of(at_watermark(two, st.none() | two), whole, two)

    return made


def _limit(of: st.SearchStrategy[Spec]) -> st.SearchStrategy[Spec]:
    return st.tuples(st.just("at_most"), of, st.integers(1, 2))


def _limited(u: int) -> st.SearchStrategy[Spec]:
    some = st.none() | _limit(leaf(u))
    return st.one_of(at_watermark(some, some), _limit(leaf(u)))


TRIGGERS: dict[str, Callable[[int], st.SearchStrategy[Spec]]] = {
    "default": lambda u: st.just(("at_watermark", None, None)),
    **{name: of_leaf(name) for name in LEAVES},
    "any_of": _combined("any_of"),
    "all_of": _combined("all_of"),
    "limited": _limited,
}


@st.composite
def cases(draw: Any, assigners: str, triggers: str) -> Model:
    """A program of these families."""
    u, _, specs = ASSIGNERS[assigners]
    window, fires = draw(specs), draw(TRIGGERS[triggers](u))
    endless = window == ("everything",)
    function = draw(st.sampled_from([*FUNCTIONS]))
    modes = (
        ["replace", "delta"]
        if function in ("process", "summary")
        else ["retract", "delta", "replace"]
    )
    evict = draw(st.none() | st.sampled_from(
        [("keep_rows", 2), ("keep_time", 2 * u), ("keep_near", 4), ("keep_even",)]))  # fmt: skip
    return Model(
        window, fires, 0 if endless else draw(st.sampled_from([0, 2 * u, 4 * u, 16 * u])),
        draw(st.sampled_from(modes)), evict, draw(st.booleans()), function,
        may_lose=(not safe(fires) and not endless) or draw(st.booleans()),
    )  # fmt: skip


ROW_WINDOWS: dict[str, st.SearchStrategy[Spec]] = {
    "rows": st.sampled_from([("rows", 1), ("rows", 3), ("rows", 5)]),
    "last rows": st.sampled_from([("last rows", 4, 2), ("last rows", 3, 3), ("last rows", 5, 4)]),
    "last time": st.sampled_from([("last time", 3_000, 2), ("last time", 9_000, 3)]),
    "until": st.tuples(st.just("until"), st.integers(4, 8), st.booleans()),
    "delta": st.tuples(st.just("delta"), st.integers(2, 6), st.sampled_from(["first", "previous"])),
}


@st.composite
def row_cases(draw: Any, windows: str, per_row: bool = False) -> RowModel:
    """A program over windows that rows end."""
    window, fires = (
        draw(ROW_WINDOWS[windows]),
        draw(st.one_of([t(SECOND) for t in TRIGGERS.values()])),
    )
    function = draw(st.sampled_from([*FUNCTIONS, "remember"]))
    tumbles = windows in ("rows", "until", "delta") or window == ("last rows", 3, 3)
    modes = ["replace", *(["delta"] if tumbles else [])]
    modes += ["retract"] if function not in ("process", "summary", "remember") else []
    evict = draw(st.none() | st.sampled_from(
        [("keep_rows", 2), ("keep_time", 2_000), ("keep_near", 4), ("keep_even",)]))  # fmt: skip
    fires = _never_late(fires)
    return RowModel(
        window, fires, 0, draw(st.sampled_from(modes)), evict, draw(st.booleans()), function,
        may_lose=not safe(fires) or draw(st.booleans()), per_row=per_row,
    )  # fmt: skip
