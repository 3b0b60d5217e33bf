"""What each kind of step emits, in plain Python; shares no code with the product.

A life is the rows a step has seen, start by start. Times are whole seconds, they grow from row
to row of an input, and lengths end in half a second where two times of rows are compared: there
no result depends on a boundary. A watermark is half a second behind a row, and so may be exactly
at the end of a session.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolution.spec import JOINED, Step

DELAY = 500
Row = Mapping[str, Any]
Emitted = tuple[str, int, int, int]  # key, a, b, c


@dataclass(frozen=True, slots=True)
class Segment:
    """What a step has seen under one start: the rows of each of its inputs, in order."""

    number: int
    step: Step
    place: str
    sides: tuple[tuple[Row, ...], ...]
    times: tuple[str, ...]  # the column of event time of each side
    ended: bool  # the inputs were at their end: no row can come
    crashed: bool

    def rows(self, side: int = 0) -> list[Row]:
        return [r for r in self.sides[side] if holds(self.step.where, r)]


Life = Sequence[Segment]


def holds(where: str, row: Row) -> bool:
    if where == "true":
        return True
    column, sign, bound = where.split()
    return row[column] > int(bound) if sign == ">" else row[column] <= int(bound)


def arrivals(life: Life) -> Iterator[tuple[int, str, Emitted]]:
    """What a step emits as rows arrive: under which start, to which place."""
    if life[0].step.kind == JOINED:
        yield from _joined(life)
        return
    step = _STEPS[life[0].step.kind](life[0].step)
    for segment in life:
        for row in segment.rows():
            for emitted in step(row, segment.times[0]):
                yield segment.number, segment.place, (_key(row, segment.step), *emitted)


def by_time(life: Life, *, closed: bool) -> tuple[Counter[Emitted], Counter[Emitted]]:
    """What windows, patterns and boards have emitted for certain, and at most."""
    kind, rows = life[0].step.kind, [r for s in life for r in s.rows()]
    if kind == "top":
        board = Counter(_board(life))
        return board, board
    if kind == "match":
        found = Counter(_matches(rows, life[0].step, life[0].times[0]))
        return (found if closed else Counter()), found
    windows = _windows(rows, life[0].step, life[0].times[0])
    quiet = max((i for i, s in enumerate(life) if not s.crashed), default=-1)
    sure, most = _watermark(life[: quiet + 1]), _watermark(life)
    if closed:
        sure = most = float("inf")
    return _over(windows, sure), _over(windows, most)


def _watermark(life: Life) -> float:
    if any(s.ended for s in life):
        return float("inf")
    times = [r[s.times[0]] for s in life for r in s.sides[0]]
    return max(times, default=-DELAY) - DELAY


def _over(windows: Sequence[tuple[int, Emitted]], watermark: float) -> Counter[Emitted]:
    return Counter(emitted for end, emitted in windows if end <= watermark)


def _key(row: Row, step: Step) -> str:
    return "/".join(str(row[k]) for k in step.keys)


def _windows(rows: Sequence[Row], step: Step, time: str) -> list[tuple[int, Emitted]]:
    size, found = step.length * 1000, defaultdict[tuple[str, int, int], list[Row]](list)
    if step.kind == "session":
        return _sessions(rows, step, time)
    for row in rows:
        start = row[time] // size * size
        spans = [(start, start + size)]
        if step.kind == "sliding":
            spans = [(start, start + 2 * size), (start - size, start + size)]
        for span in spans:
            found[_key(row, step), *span].append(row)
    return [(end, (key, start, len(held), _sum(held, step)))
            for (key, start, end), held in found.items()]  # fmt: skip


def _sum(rows: Sequence[Row], step: Step) -> int:
    return sum(r[step.column] for r in rows)


def _sessions(rows: Sequence[Row], step: Step, time: str) -> list[tuple[int, Emitted]]:
    gap, open_, done = (
        step.length * 1000 + 500,
        dict[str, list[Row]](),
        list[tuple[str, list[Row]]](),
    )
    for row in rows:
        key = _key(row, step)
        if key in open_ and row[time] - open_[key][-1][time] <= gap:
            open_[key].append(row)
            continue
        if key in open_:
            done.append((key, open_[key]))
        open_[key] = [row]
    found = [*done, *open_.items()]  # a row at the very end belongs, so it is over 1 ms later
    return [(rows[-1][time] + gap + 1, (key, rows[0][time], len(rows), _sum(rows, step)))
            for key, rows in found]  # fmt: skip


def _matches(rows: Sequence[Row], step: Step, time: str) -> Iterator[Emitted]:
    waiting = defaultdict[str, list[Row]](list)
    for row in rows:
        key = _key(row, step)
        if row["x"] == 2:
            for first in waiting.pop(key, ()):
                if row[time] - first[time] < step.length * 1000 + 500:
                    yield key, first["id"], row["id"], 0
        if row["x"] == 1:
            waiting[key].append(row)


def _board(life: Life) -> Iterator[Emitted]:
    """Of equals the one with the earlier event time is better, then the one of the older input."""
    keys, column = defaultdict[str, list[tuple[int, int, Row]]](list), life[0].step.column
    for segment in life:
        for row in segment.rows():
            time = row[segment.times[0]]  # as it was when the row was read
            keys[_key(row, segment.step)].append((-row[column], time, row))
    for key, held in keys.items():
        best = sorted(held, key=lambda one: one[:2])[:2]  # in the order of arrival, if all is equal
        for rank, (_, _, row) in enumerate(best, 1):
            yield key, row["id"], rank, 1


def _joined(life: Life) -> Iterator[tuple[int, str, Emitted]]:
    within = life[0].step.length * 1000 + 500
    lefts = [(i, r) for i, s in enumerate(life) for r in s.rows(0)]
    rights = [(i, r) for i, s in enumerate(life) for r in s.rows(1)]
    for i, left in lefts:
        for j, right in rights:
            near = abs(left[life[i].times[0]] - right[life[j].times[1]]) <= within
            if near and _key(left, life[i].step) == _key(right, life[j].step):
                later = life[max(i, j)]
                emitted = _key(left, later.step), left["id"], right["id"], 0
                yield later.number, later.place, emitted


class _Arriving:
    """A step that decides row by row; `held` is its state by key."""

    def __init__(self, step: Step) -> None:
        self.step, self.held = step, dict[str, Any]()

    def __call__(self, row: Row, time: str) -> list[tuple[int, int, int]]:
        return getattr(self, f"_{self.step.kind}")(row, _key(row, self.step), time)  # type: ignore[no-any-return]

    def _none(self, row: Row, key: str, time: str) -> list[tuple[int, int, int]]:
        return [(row["id"], row["x"], row["y"])]

    def _agg(self, row: Row, key: str, time: str) -> list[tuple[int, int, int]]:
        self.held[key] = self.held.get(key, 0) + row[self.step.column]
        return [(row["id"], self.held[key], 0)]

    def _fold(self, row: Row, key: str, time: str) -> list[tuple[int, int, int]]:
        self.held[key] = self.held.get(key, 0) + row["id"]
        return [(self.held[key], 0, 0)]

    def _process(self, row: Row, key: str, time: str) -> list[tuple[int, int, int]]:
        n, total = self.held.get(key, (0, 0))
        self.held[key] = n + 1, total + row["x"]
        return [(row["id"], n + 1, total + row["x"])]

    def _changes(self, row: Row, key: str, time: str) -> list[tuple[int, int, int]]:
        before, self.held[key] = self.held.get(key), row[self.step.column]
        return self._none(row, key, time) if before != row[self.step.column] else []

    def _dedup(self, row: Row, key: str, time: str) -> list[tuple[int, int, int]]:
        if key in self.held and row[time] - self.held[key] < self.step.length * 1000 + 500:
            return []
        self.held[key] = row[time]
        return self._none(row, key, time)

    def _throttle(self, row: Row, key: str, time: str) -> list[tuple[int, int, int]]:
        period = row[time] // (self.step.length * 1000)
        if self.held.get(key) == period:
            return []
        self.held[key] = period
        return self._none(row, key, time)


_STEPS = {
    kind: _Arriving for kind in ("none", "agg", "fold", "process", "changes", "dedup", "throttle")
}
