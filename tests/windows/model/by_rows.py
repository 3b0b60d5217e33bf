"""What windows that rows end mean, in plain Python, when they have triggers, evictors and modes.

A key has one open window at a time. `_ends_before` and `_ends_with` say where it ends; `_held`
says which rows it holds. When it fires, and what it shows, is as for windows of time: see
`triggers.py` and `results.py`.

    ("rows", 5)                          five rows
    ("last rows", 5, 2)                  the last five, at every second
    ("last time", 4_000, 3)              the last 4 s, at every third
    ("until", 6, True)                   with the row that has 6 or more; or (False) before it
    ("delta", 3, "first")                before the row that is more than 3 from the first
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

from tests.windows.model.core import Model
from tests.windows.model.records import ALWAYS, NEVER, Came, Epoch, Now, Row, Shown, Window
from tests.windows.model.results import EVICTORS, FUNCTIONS

DEFAULT = ("at_watermark", None, None)


@dataclass(eq=False)
class OpenWindow(Window):
    number: int = 0
    count: int = 0  # of the key's rows, up to its last
    full: bool = False
    calls: int = 0  # what a function stores with it


@dataclass
class RowNow(Now):
    at_end: bool = False

    @property
    def full(self) -> bool:
        assert isinstance(self.window, OpenWindow)
        return self.window.full

    @property
    def closes(self) -> bool:
        return self.full or self.at_end

    @property
    def late(self) -> bool:
        return False

    @property
    def expires(self) -> bool:
        return self.closes

    @property
    def timing(self) -> str:
        return "on time" if self.full else "end" if self.at_end else "early"


@dataclass
class RowModel(Model):
    came: dict[Row, Came] = field(default_factory=dict)  # every row, in the order they count
    numbers: Counter[Any] = field(default_factory=Counter)
    calls: Counter[Any] = field(default_factory=Counter)  # what a function stores per key

    @property
    def once(self) -> bool:
        return self.trigger == DEFAULT and not self.per_row

    def _step(self, rows: list[Row], before: int, after: int, clock: int) -> Epoch:
        out, late, touched = list[Shown](), list[Row](), list[Window]()
        came, self.epochs = Came(self.epochs, clock), self.epochs + 1
        for row in sorted(rows, key=lambda r: r.place):
            if self.assigner[0] == "last time" and row.time < before:
                late.append(row)
            else:
                touched.append(self._add(row, came))
        at_end = after >= ALWAYS and not (self.per_row and rows)
        for window in [*self.windows]:
            assert isinstance(window, OpenWindow)
            if self.per_row and rows and window not in touched and not window.full:
                continue
            window.end = NEVER if window.full or at_end else ALWAYS  # what a custom trigger asks
            now = RowNow(window, before, after, clock, window in touched, 0, at_end=at_end)
            if self._fires(now):
                out += self._show(now)
            if now.closes:
                self.windows.remove(window)
        return out, late

    def _add(self, row: Row, came: Came) -> OpenWindow:
        window = self._open(row.key)
        if window is not None and self._ends_before(window, row):
            window.full, window = True, None
        if window is None:
            window = OpenWindow(row.key, NEVER, ALWAYS, number=self.numbers[row.key])
            self.numbers[row.key] += 1
            self.windows.append(window)
        window.rows[row] = self.came[row] = came
        window.count = len([r for r in self.came if r.key == row.key])
        window.full = self._ends_with(window, row)
        return window

    def _open(self, key: Any) -> OpenWindow | None:
        mine = [w for w in self.windows if w.key == key and isinstance(w, OpenWindow)]
        return next((w for w in mine if not w.full), None)

    def _ends_before(self, window: OpenWindow, row: Row) -> bool:
        match self.assigner:
            case ("until", least, False):
                return row.value is not None and row.value >= least
            case ("delta", threshold, since):
                known = [r.value for r in window.rows if r.value is not None]
                base = known[:1] if since == "first" else known[-1:]
                return any(row.value is not None and abs(row.value - b) > threshold for b in base)
        return False

    def _ends_with(self, window: OpenWindow, row: Row) -> bool:
        match self.assigner:
            case ("rows", size):
                return len(window.rows) == size
            case ("last rows" | "last time", _, every):
                return len(window.rows) == every
            case ("until", least, True):
                return row.value is not None and row.value >= least
        return False

    def _held(self, window: OpenWindow) -> list[Row]:
        """The rows of a window, in order."""
        mine = [r for r in self.came if r.key == window.key][: window.count]
        match self.assigner:
            case ("last rows", size, every) if every < size:  # else they follow each other
                return mine[-size:]
            case ("last time", size, _):
                last = mine[-1].time
                near = [r for r in mine if last - size < r.time <= last]
                return sorted(near, key=lambda r: r.time)
        return [*window.rows]

    def _seen(self, window: OpenWindow) -> list[Row]:
        rows = [r for r in self._held(window) if self.mode != "delta" or r not in window.shown]
        if self.evict is None:
            return rows
        name, *args = self.evict
        before = window.shown | {r for r in rows if r not in window.rows} if window.panes else set()
        judged = [r for r in rows if r in before] if self.after else rows
        if name == "keep_time":
            kept = [r for r in judged if r.time > max(r.time for r in judged) - args[0]]
        else:
            kept = EVICTORS[name](judged, *args) if judged else []
        return [r for r in rows if r in kept or r not in judged]

    def _show(self, now: Now) -> list[Shown]:
        window = now.window
        assert isinstance(window, OpenWindow)
        held, rows = self._held(window), self._seen(window)
        bounds = min(r.time for r in held), max(r.time for r in held) + 1
        pane = window.number if self.once else window.panes
        same = {
            "key": window.key, "start": bounds[0], "end": bounds[1], "number": window.number,
            "pane": pane, "timing": now.timing, "final": now.closes,
        }  # fmt: skip
        seen_as = replace(now, window=replace(window, panes=pane, rows=self.came))
        made = self._made(rows, seen_as, bounds, window) if rows else []
        out = [{**window.was, "change": "-"}] if window.was else []
        out += [{**same, "values": values, "change": "+"} for values in made]
        window.was = out[-1] if self.mode == "retract" and made else None
        window.shown, window.panes, window.fired = set(window.rows), window.panes + 1, now.clock
        window.times.update(now.limited)
        return out

    def _made(self, rows: list[Row], now: Now, bounds: Any, window: OpenWindow) -> list[Any]:
        if self.function == "remember":
            self.calls[window.key] += 1
            window.calls += len(rows)
            return [([r.number for r in rows], self.calls[window.key], window.calls)]
        if self.function in ("agg", "count", "summary"):  # first and last are by event time
            rows = sorted(rows, key=lambda r: r.place)
        return list(FUNCTIONS[self.function](rows, now, bounds))
