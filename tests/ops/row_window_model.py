"""Row windows in plain Python, a row at a time: what the operator must agree with.

There are three kinds, which know nothing of each other: each is a class of at most 30 lines
of code on top of `Model`. Of Headrace they know the specs alone, as values.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import MAX_TIME
from headrace.ops.window.by_rows import (
    CountWindow,
    DeltaWindow,
    LastRows,
    LastTime,
    RowWindow,
    UntilWindow,
)

Row = dict[str, Any]


@dataclass(frozen=True)
class Shown:
    """One window: its key, its number, its rows in order, whether the input's end ended it."""

    key: Any
    number: int
    rows: list[Row]
    at_end: bool


def place(row: Row) -> tuple[int, int, int]:
    return row["__t"], row["__s"], row["__o"]


@dataclass
class Model:
    spec: Any
    rows: dict[Any, list[Row]] = field(default_factory=lambda: defaultdict(list))
    number: Counter[Any] = field(default_factory=Counter)

    def show(self, key: Any, rows: list[Row], at_end: bool = False) -> Shown:
        self.number[key] += 1
        return Shown(key, self.number[key] - 1, list(rows), at_end)


class Following(Model):
    """Count, Delta, Until: `rows` are those of the open window."""

    def epoch(self, rows: list[Row], before: int, after: int) -> Iterator[Shown]:
        for row in sorted(rows, key=place):
            mine = self.rows[row["k"]]
            if mine and self.ends_before(row, mine):
                yield self.close(row["k"])
            mine.append(row)
            if self.ends_after(row, mine):
                yield self.close(row["k"])
        if after >= MAX_TIME:
            yield from [self.close(key, at_end=True) for key in [*self.rows] if self.rows[key]]

    def close(self, key: Any, at_end: bool = False) -> Shown:
        shown = self.show(key, self.rows[key], at_end)
        self.rows[key].clear()
        return shown

    def ends_before(self, row: Row, mine: list[Row]) -> bool:
        if isinstance(self.spec, UntilWindow):
            return not self.spec.inside and bool(row[self.spec.column])
        if isinstance(self.spec, DeltaWindow):
            numbers = [r[self.spec.column] for r in [*mine, row] if _known(r[self.spec.column])]
            if len(numbers) > 1 and _known(row[self.spec.column]):
                base = numbers[0 if self.spec.since == "first" else -2]
                return abs(numbers[-1] - base) > self.spec.threshold
        return False

    def ends_after(self, row: Row, mine: list[Row]) -> bool:
        if isinstance(self.spec, CountWindow):
            return len(mine) == self.spec.size
        return (
            isinstance(self.spec, UntilWindow) and self.spec.inside and bool(row[self.spec.column])
        )


def _known(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and math.isnan(value))


class Overlapping(Model):
    """Count with `every`, and LastTime: `rows` are all that a key ever had."""

    since: Counter[Any]

    def epoch(self, rows: list[Row], before: int, after: int) -> Iterator[Shown]:
        self.since = getattr(self, "since", Counter())
        for row in sorted(rows, key=place):
            self.rows[row["k"]].append(row)
            self.since[row["k"]] += 1
            if self.since[row["k"]] == self.spec.every:
                yield self.fire(row["k"])
        if after >= MAX_TIME:
            yield from [self.fire(key, at_end=True) for key in self.rows if self.since[key]]

    def fire(self, key: Any, at_end: bool = False) -> Shown:
        self.since[key] = 0
        mine = self.rows[key]
        if isinstance(self.spec, CountWindow):
            return self.show(key, mine[-self.spec.size :], at_end)
        time = mine[-1]["__t"]
        near = [r for r in mine if time - self.spec.size < r["__t"] <= time]
        return self.show(key, sorted(near, key=lambda r: r["__t"]), at_end)


class Ticking(Model):
    """LastRows: at every multiple of `every`, all that a key ever had."""

    def epoch(self, rows: list[Row], before: int, after: int) -> Iterator[Shown]:
        for row in rows:
            self.rows[row["k"]].append(row | {"unseen": True})
        times = [r["__t"] for mine in self.rows.values() for r in mine]
        every, shown = self.spec.every, dict[Any, list[Shown]]()
        for tick in range(
            min(times, default=0) // every * every, max(times, default=0) + every + 1
        ):
            if tick % every == 0 and before < tick <= after:
                for key in self.rows:
                    shown.setdefault(key, []).extend(self.tick(key, tick))
        for mine in shown.values():
            yield from mine[:-1]
            for last in mine[-1:]:
                yield Shown(last.key, last.number, last.rows, after >= MAX_TIME)

    def tick(self, key: Any, tick: int) -> Iterator[Shown]:
        mine = sorted((r for r in self.rows[key] if r["__t"] < tick), key=place)
        if any(r["unseen"] for r in mine):
            for row in mine:
                row["unseen"] = False
            yield self.show(key, mine[-self.spec.rows :])


def model_of(spec: RowWindow) -> Following | Overlapping | Ticking:
    if isinstance(spec, LastRows):
        return Ticking(spec)
    return Following(spec) if spec.tumbles else Overlapping(spec)


def is_late(spec: RowWindow, row: Row, before: int) -> bool:
    if isinstance(spec, LastRows):
        return row["__t"] < before // spec.every * spec.every
    return isinstance(spec, LastTime) and row["__t"] < before
