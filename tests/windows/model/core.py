"""What windows mean: rows go into windows, windows meet, fire, show and are forgotten."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.windows.model.assigners import assign, bounds, meets
from tests.windows.model.records import Came, Epoch, Now, Program, Row, Shown, Window
from tests.windows.model.results import compute, seen
from tests.windows.model.triggers import ready, safe


def _turns(rows: list[Row]) -> list[list[Row]]:
    """The first row of every key, the second, and so on."""
    turns: list[list[Row]] = []
    for row in sorted(rows, key=lambda r: r.place):
        turn = next((t for t in turns if all(r.key != row.key for r in t)), None)
        if turn is None:
            turns.append(turn := [])
        turn.append(row)
    return turns


@dataclass
class Model(Program):
    windows: list[Window] = field(default_factory=list)
    epochs: int = 0  # how many there have been

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> Epoch:
        """One epoch: rows come, the watermark moves from `before` to `after`."""
        if not self.per_row:
            return self._step(rows, before, after, clock)
        turns = [self._step(turn, before, before, clock) for turn in _turns(rows)]
        turns.append(self._step([], before, after, clock))
        return [s for shown, _ in turns for s in shown], [r for _, late in turns for r in late]

    def _step(self, rows: list[Row], before: int, after: int, clock: int) -> Epoch:
        out, late, touched = list[Shown](), list[Row](), list[Window]()
        came, self.epochs = Came(self.epochs, clock), self.epochs + 1
        for row in rows:
            spans = assign(self.assigner, row)
            held = [(start, end) for start, end in spans if end + self.lateness > before]
            late += [row] if spans and not held else []
            touched += [self._put(row, *span, came, out) for span in held]
        judged = [w for w in self.windows if w in touched or not (self.per_row and rows)]
        for window in judged:
            now = Now(window, before, after, clock, window in touched, self.lateness)
            if self._fires(now):
                out += self._show(now)
            if now.expires:
                self.windows.remove(window)
        return out, late

    def _put(self, row: Row, start: int, end: int, came: Came, out: list[Shown]) -> Window:
        """Put a row into its window, which becomes one with all those that it meets."""
        mine = [w for w in self.windows if w.key == row.key and meets(self.assigner, w, start, end)]
        low, high = min([start, *(w.start for w in mine)]), max([end, *(w.end for w in mine)])
        made = Window(row.key, low, high, {row: came})
        for old in mine:
            if (old.start, old.end) == (low, high):
                made.was = old.was
            elif old.was:  # it is no window any more
                out.append({**old.was, "change": "-"})
            made.rows |= old.rows
            made.shown |= old.shown
            made.times |= old.times  # for each, the larger
            made.panes = max(made.panes, old.panes)
            made.fired = max(made.fired, old.fired)
        self.windows = [w for w in self.windows if w not in mine] + [made]
        return made

    def _fires(self, now: Now) -> bool:
        fires, new = ready(self.trigger, now), bool(now.window.new())
        last_chance = new and now.expires and (safe(self.trigger) or not self.may_lose)
        return (fires or last_chance) and (new or self.mode != "delta")

    def _show(self, now: Now) -> list[Shown]:
        window, (start, end) = now.window, bounds(self.assigner, now.window)
        same = {
            "key": window.key, "start": start, "end": end, "pane": window.panes,
            "timing": now.timing, "final": now.expires,
        }  # fmt: skip
        made = compute(self.function, seen(self, window), now, (start, end))
        out = [{**window.was, "change": "-"}] if window.was else []
        out += [{**same, "values": values, "change": "+"} for values in made]
        window.was = out[-1] if self.mode == "retract" and made else None
        window.shown, window.panes, window.fired = set(window.rows), window.panes + 1, now.clock
        window.times.update(now.limited)
        return out
