"""A process function that uses everything, as its rows tell it, and the rows drawn for it."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

import headrace as hr

SCHEMA = "k string, op string, arg bigint, at bigint"
OPS = [
    "add", "add", "fresh", "recs", "peek", "clocked", "look", "timer", "cancel", "clock_timer",
    "cancel_clock", "aside", "fail", "badly", "forget", "wipe",
]  # fmt: skip


class Row(NamedTuple):
    key: str
    op: str
    arg: int
    time: int
    split: int
    offset: int


class Spread(hr.Aggregate):
    state, output = list[int], int

    def zero(self) -> Any:
        return []

    def add(self, state: Any, item: Any) -> Any:
        return [min([item, *state]), max([item, *state])]

    def merge(self, a: Any, b: Any) -> Any:
        return [min(a + b), max(a + b)]

    def result(self, state: Any) -> Any:
        return state[1] - state[0]


class Everything(hr.KeyedProcess):
    output = "k string, op string, said string"
    outputs = {"aside": "k string, arg bigint"}  # noqa: RUF012

    n = hr.value(int, default=0)
    seen = hr.list_of(int)
    by = hr.map_of(str, int)
    recent = hr.last_of(2, int)
    total = hr.reducing(int, lambda a, b: a + b)
    spread = hr.aggregating(Spread())
    fresh = hr.value(int, default=-1, ttl="5s")
    recs = hr.list_of(int, ttl="8s")
    clocked = hr.value(int, default=-1, ttl="3s", by_clock=True)

    def on_row(self, row: Any, ctx: Any) -> Any:
        ctx.counter(row.op).add()
        said = getattr(self, f"_{row.op}")(row.arg, ctx)
        return [(ctx.key, row.op, self._said(ctx))] if said is None else said

    def on_timer(self, time: int, ctx: Any) -> Any:
        ctx.counter("timers").add()
        self.n += 1
        ctx.emit("aside", (ctx.key, self.n))
        if self.n % 3 == 0:
            ctx.timer(time + 1_500)
        if self.n % 4 == 0:
            ctx.cancel(time + 1_000)
        yield (ctx.key, "timer", f"{time} {ctx.by_clock} {self._said(ctx)}")

    def _said(self, ctx: Any) -> str:
        kept = [self.n, self.seen, sorted(self.by.items()), list(self.recent), self.total.value,
                self.spread.value, self.fresh, self.clocked]  # fmt: skip
        return f"{kept} {ctx.time} {ctx.watermark} {ctx.clock}"

    def _add(self, arg: int, ctx: Any) -> None:
        self.n += arg
        self.seen.append(arg)
        self.by[str(arg % 3)] = self.by.get(str(arg % 3), 0) + arg
        self.recent.append(arg)
        self.total.add(arg)
        self.spread.add(arg)

    def _fresh(self, arg: int, ctx: Any) -> None:
        self.fresh = arg

    def _recs(self, arg: int, ctx: Any) -> Any:
        self.recs.append(arg)
        return {"k": ctx.key, "op": "recs", "said": str(self.recs)}

    def _peek(self, arg: int, ctx: Any) -> Any:
        return [(ctx.key, "peek", str(len(self.recs)))]

    def _clocked(self, arg: int, ctx: Any) -> None:
        self.clocked = arg

    def _look(self, arg: int, ctx: Any) -> None:
        pass

    def _timer(self, arg: int, ctx: Any) -> None:
        ctx.timer(ctx.time + arg * 500)

    def _cancel(self, arg: int, ctx: Any) -> None:
        ctx.cancel(ctx.time - ctx.time % 500 + arg * 500)

    def _clock_timer(self, arg: int, ctx: Any) -> None:
        ctx.clock_timer(ctx.clock + arg * 500)

    def _cancel_clock(self, arg: int, ctx: Any) -> None:
        ctx.cancel_clock(ctx.clock + arg * 500)

    def _aside(self, arg: int, ctx: Any) -> Any:
        ctx.emit("aside", (ctx.key, arg))
        return []

    def _fail(self, arg: int, ctx: Any) -> None:
        self._add(arg, ctx)
        self.fresh = arg
        ctx.timer(ctx.time + 500)
        ctx.emit("aside", (ctx.key, arg))
        raise ValueError("told to fail")

    def _badly(self, arg: int, ctx: Any) -> Any:
        self.n += arg
        return [(ctx.key, "a row of two")]

    def _forget(self, arg: int, ctx: Any) -> None:
        del self.n
        del self.seen
        del self.fresh

    def _wipe(self, arg: int, ctx: Any) -> Any:
        for name in type(self).values:
            delattr(self, name)
        return []


@st.composite
def turns(draw: Any, keys: int = 4) -> list[tuple[int, list[Row]]]:
    """What comes before each epoch: how long the clock waits, and rows, some out of order."""
    count = draw(st.integers(3, 8))
    row = st.tuples(
        st.sampled_from("abcd"[:keys]), st.sampled_from(OPS), st.integers(0, 6),
        st.sampled_from([0, 0, 500, 1_000, 3_000]), st.integers(0, 1),
    )  # fmt: skip
    at, offsets, made = 0, [0, 0], []
    for _ in range(count):
        at += draw(st.sampled_from([0, 500, 1_000, 2_500, 6_000]))
        rows = []
        for key, op, arg, back, split in draw(st.lists(row, max_size=14)):
            rows.append(Row(key, op, arg, at - back, split, offsets[split]))
            offsets[split] += 1
        made.append((draw(st.sampled_from([0, 400, 1_500, 4_000])), rows))
    return [*made, (4_000, []), (9_000, [])]
