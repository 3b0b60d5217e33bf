"""What a process function in the order of event time should do: plain Python, row after row.

It knows nothing of batches: it gets all rows of a stream, and says what comes out of it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import headrace as hr

SCHEMA = "k string, op string, arg bigint, at bigint"
OPS = ["add", "add", "timer", "timer", "cancel", "fresh", "look", "fail"]
TTL = 2_000


class Row(NamedTuple):
    key: str
    op: str
    arg: int
    time: int
    split: int
    offset: int


class InOrder(hr.KeyedProcess):
    """Values, a list, a map, a time to live, timers in the future and the past, and failures."""

    output = "k string, said string"
    outputs = {"aside": "k string, said string"}  # noqa: RUF012
    n = hr.value(int, default=0)
    seen = hr.list_of(int)
    by = hr.map_of(str, int)
    fresh = hr.value(int, default=-1, ttl=f"{TTL}ms")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        if row.op == "add":
            self.seen.append(row.arg)
            self.by[str(row.arg)] = self.by.get(str(row.arg), 0) + 1
        elif row.op == "timer":
            ctx.timer(ctx.time + (row.arg - 2) * 500)
        elif row.op == "cancel":
            ctx.cancel(ctx.time + row.arg * 500)
        elif row.op == "fresh":
            self.fresh = row.arg
        elif row.op == "fail":
            ctx.timer(ctx.time + 500)
            raise ValueError("told to fail")
        return (ctx.key, f"{row.op} {self._said(ctx)}")

    def on_timer(self, time: int, ctx: Any) -> Any:
        self.n += 1
        if self.n % 2:
            ctx.timer(time + 700)
        ctx.emit("aside", (ctx.key, str(time)))
        return (ctx.key, f"timer {time} {self._said(ctx)}")

    def _said(self, ctx: Any) -> str:
        return f"{ctx.time} {ctx.watermark} {self.n} {self.seen} {sorted(self.by)} {self.fresh}"


class Expected:
    """`newest` is the furthest that the watermark comes before the input ends: a timer beyond it
    sets no other."""

    def __init__(self, rows: list[Row], newest: int) -> None:
        self.out, self.aside = Counter[Any](), Counter[Any]()
        self.times = Counter[Any]()  # of what is emitted
        self.dead, self.newest = 0, newest
        for key in {r.key for r in rows}:
            own = sorted((r for r in rows if r.key == key), key=lambda r: r[3:])
            self._key(key, own)

    def _key(self, key: str, rows: list[Row]) -> None:
        self.key, self.timers = key, set[int]()
        self.n, self.seen, self.by, self.fresh = 0, list[int](), set[str](), (-1, 0)
        self.mark = -(10**9)
        for row in rows:
            self._fire(row.time)
            self.mark = row.time
            self._row(row)
        self._fire(10**12)

    def _fire(self, until: int) -> None:
        while self.timers and (at := min(self.timers)) < until:
            self.timers.discard(at)
            self.mark = max(self.mark, at)
            self.n += 1
            if self.n % 2 and at <= self.newest:
                self.timers.add(at + 700)
            self.aside[self.key, str(at)] += 1
            self._say(f"timer {at}", at)

    def _row(self, row: Row) -> None:
        if row.op == "fail":
            self.dead += 1
            return
        self.n += 1
        if row.op == "add":
            self.seen.append(row.arg)
            self.by.add(str(row.arg))
        elif row.op == "timer":
            self.timers.add(row.time + (row.arg - 2) * 500)
        elif row.op == "cancel":
            self.timers.discard(row.time + row.arg * 500)
        elif row.op == "fresh":
            self.fresh = (row.arg, row.time + TTL)
        self._say(row.op, row.time)

    def _say(self, what: str, time: int) -> None:
        fresh = self.fresh[0] if self.fresh[1] > self.mark else -1
        text = f"{what} {time} {self.mark} {self.n} {self.seen} {sorted(self.by)} {fresh}"
        self.out[self.key, text] += 1
        self.times[self.key, self.mark // 1_000] += 1
