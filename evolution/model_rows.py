"""What steps emit as rows arrive, row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from evolution.model import Emitted, Life, Row, Seen, aggregated, key_of
from evolution.model_joins import pairs
from evolution.spec import Step


def arrivals(life: Life) -> Iterator[tuple[int, str, Emitted]]:
    """What a step emits as rows arrive: under which start, to which place."""
    if life[0].step.kind == "join":
        yield from pairs(life)
        return
    step = Arriving(life[0].step)
    for segment in life:
        step.begin(segment.step)
        for side in range(len(segment.sides)):
            for row in segment.rows(side):
                for emitted in step(row, segment.times[side], side):
                    yield segment.number, segment.place, (key_of(row, segment.step), *emitted)


Numbers = list[tuple[int, int, int]]


class Arriving:
    """A step that decides row by row; `held` is its state by key."""

    def __init__(self, step: Step) -> None:
        self.step, self.held, self.starts = step, dict[Any, Any](), 0

    def begin(self, step: Step) -> None:
        """With another start the value that was added may be gone, or new."""
        self.step, self.starts = step, self.starts + 1
        if step.kind == "process" and not step.more:
            self.held = {key: (*held[:2], 0) for key, held in self.held.items()}
        if step.kind == "fold" and not step.more:
            self.held = {key: (total, 0) for key, (total, _) in self.held.items()}

    def __call__(self, row: Row, time: str, side: int) -> Numbers:
        if self.step.kind == "connect":
            return self._counted(row, (key_of(row, self.step), side))
        how: Callable[[Row, str, str], Numbers] = getattr(self, f"_{self.step.kind}")
        return how(row, key_of(row, self.step), time)

    def _none(self, row: Row, key: str, time: str) -> Numbers:
        return [(row["id"], row["x"], row["y"])]

    _async = _transform = _union = _share = _none

    def _explode(self, row: Row, key: str, time: str) -> Numbers:
        return [(row["id"], row["x"], 0), (row["id"], row["y"], 0)]

    def _python(self, row: Row, key: str, time: str) -> Numbers:
        return [(row["id"], row["x"], row["y"]), (row["id"], row["x"] + 1, row["y"])]

    def _lookup(self, row: Row, key: str, time: str) -> Numbers:
        return [(row["id"], {"a": 1, "b": 2}.get(row["k"], -1), 0)]

    def _agg(self, row: Row, key: str, time: str) -> Numbers:
        self.held.setdefault(key, []).append(Seen(row, row[time], key, self.starts - 1))
        one, two = aggregated(self.held[key], self.step)
        return [(row["id"], one, two)]

    def _fold(self, row: Row, key: str, time: str) -> Numbers:
        total, most = self.held.get(key, (0, 0))
        most = max(most, row["x"]) if self.step.more else 0
        self.held[key] = total + row["id"], most
        return [(*self.held[key], 0)]

    def _reduce(self, row: Row, key: str, time: str) -> Numbers:
        before, column = self.held.get(key), self.step.column
        total = row[column] + (before[column] if before is not None else 0)
        self.held[key] = {**row, column: total}  # the other columns are the last row's
        return [(row["id"], total, 0)]

    def _process(self, row: Row, key: str, time: str) -> Numbers:
        n, total, most = self.held.get(key, (0, 0, 0))
        most = max(most, row["x"]) if self.step.more else 0
        self.held[key] = n + 1, total + row["x"], most
        return [(row["id"], n + 1, 1000 * most + total + row["x"])]

    def _counted(self, row: Row, key: Any, time: str = "") -> Numbers:
        self.held[key] = self.held.get(key, 0) + 1
        return [(row["id"], self.held[key], 0)]

    _mapped = _iterate = _counted

    def _changes(self, row: Row, key: str, time: str) -> Numbers:
        before, self.held[key] = self.held.get(key), row[self.step.column]
        return self._none(row, key, time) if before != row[self.step.column] else []

    def _dedup(self, row: Row, key: str, time: str) -> Numbers:
        if key in self.held and row[time] - self.held[key] < self.step.length * 1000 + 500:
            return []
        self.held[key] = row[time]
        return self._none(row, key, time)

    def _limit(self, row: Row, key: str, time: str) -> Numbers:
        passed = self.held.get(key, 0)
        if passed >= self.step.length:
            return []
        self.held[key] = passed + 1
        return self._none(row, key, time)

    def _throttle(self, row: Row, key: str, time: str) -> Numbers:
        period = row[time] // (self.step.length * 1000)
        if self.held.get(key) == period:
            return []
        self.held[key] = period
        return self._none(row, key, time)

    _seen = _throttle
