"""What windows of time mean, in plain Python: the judge of the real operator.

Nothing here knows Headrace. A stream is a list of epochs; a spec is a tuple that begins with
its name. Rows are kept one by one, and every fact a trigger asks for is worked out from them
anew, so that there is little that could be wrong. Times are milliseconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

NEVER, ALWAYS = -(2**62), 2**62  # a watermark before all times, and one after
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Spec = tuple[Any, ...]


class Row(NamedTuple):
    key: Any
    value: int | None
    time: int
    split: int
    offset: int
    gap: int | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.time, self.split, self.offset)

    @property
    def number(self) -> int:
        return 2 * self.offset + self.split


# into which windows a row goes: (start, end), the end not included


def assign(spec: Spec, row: Row) -> list[tuple[int, int]]:
    match spec:
        case ("tumbling", size, offset):
            return assign(("sliding", size, size, offset), row)
        case ("sliding", size, every, offset):
            last = (row.time - offset) // every * every + offset
            starts = range(last, row.time - size, -every)
            return [(start, start + size) for start in starts]
        case ("cumulating", size, step, offset):
            start = (row.time - offset) // size * size + offset
            return [(start, end) for end in range(start + step, start + size + 1, step)
                    if row.time < end]  # fmt: skip
        case ("session", gap):  # a row exactly `gap` later still belongs
            own = row.gap if gap is None else gap
            return [(row.time, row.time + own + 1)]
        case ("calendar", unit, zone):
            return [_calendar(unit, ZoneInfo(zone), row.time)]
        case ("everything",):
            return [(NEVER, ALWAYS - 1)]
        case ("own", *sizes):  # by value: a size each for even and for odd, both for none
            wanted = sizes if row.value is None else [sizes[row.value % 2]]
            return [assign(("tumbling", size, 0), row)[0] for size in wanted]
        case ("own session", gap):
            return [(row.time - gap, row.time + gap)]
    raise ValueError(spec)


def _calendar(unit: str, zone: ZoneInfo, time: int) -> tuple[int, int]:
    local = (EPOCH + dt.timedelta(milliseconds=time)).astimezone(zone).date()
    if unit == "day":
        first, after = local, local + dt.timedelta(days=1)
    elif unit == "week":
        first = local - dt.timedelta(days=local.weekday())
        after = first + dt.timedelta(days=7)
    elif unit == "month":
        first = local.replace(day=1)
        after = (first + dt.timedelta(days=31)).replace(day=1)
    else:
        first = local.replace(month=1, day=1)
        after = first.replace(year=first.year + 1)
    midnights = (dt.datetime.combine(day, dt.time(), zone) for day in (first, after))
    start, end = ((m.astimezone(dt.UTC) - EPOCH) // dt.timedelta(milliseconds=1) for m in midnights)
    return start, end


# one window, and what is known of it


@dataclass
class Window:
    key: Any
    start: int
    end: int
    rows: dict[Row, int] = field(default_factory=dict)  # with the clock when each came
    shown: set[Row] = field(default_factory=set)
    panes: int = 0
    fired: tuple[int, int] | None = None  # clock and watermark of the last firing
    was: dict[str, Any] | None = None  # what it last showed
    times: dict[Any, int] = field(default_factory=dict)  # how often each limited trigger fired

    def ordered(self) -> list[Row]:
        return sorted(self.rows, key=lambda r: r.place)

    def new(self) -> list[Row]:
        return [row for row in self.ordered() if row not in self.shown]

    def absorb(self, other: Window) -> None:
        """Become one window with another of the same key."""
        self.rows |= other.rows
        self.shown |= other.shown
        self.panes = max(self.panes, other.panes)
        self.fired = max(filter(None, (self.fired, other.fired)), default=None)
        for name, count in other.times.items():
            self.times[name] = max(count, self.times.get(name, 0))


class Now(NamedTuple):
    """The end of an epoch, as a window sees it."""

    window: Window
    before: int
    after: int
    clock: int
    touched: bool
    lateness: int

    @property
    def closes(self) -> bool:
        return self.before < self.window.end <= self.after

    @property
    def late(self) -> bool:
        return self.window.end <= self.before

    @property
    def expires(self) -> bool:
        return self.window.end + self.lateness <= self.after

    @property
    def timing(self) -> str:
        return "late" if self.late else "on time" if self.window.end <= self.after else "early"


# when a window shows its result


def ready(spec: Spec, now: Now, place: Spec = ()) -> bool:
    """Whether a trigger fires; `place` is where in the whole it stands."""
    window, new = now.window, now.window.new()
    match spec:
        case ("at_watermark", early, late):
            if now.late:
                return ready(late, now, (*place, "late")) if late else now.touched
            return now.closes or bool(early and ready(early, now, (*place, "early")))
        case ("after_rows", count):
            return len(new) >= count
        case ("on_change",):
            return bool(new)
        case ("every", period, "processing"):
            since = window.fired[0] if window.fired else min(map(window.rows.get, new), default=0)
            return bool(new) and since + period <= now.clock
        case ("every", period, "event"):  # the watermark has passed one of the marks
            start = window.start if window.start > NEVER else 0
            low = max(now.before, window.start)
            return bool(new) and (now.after - start) // period > (low - start) // period
        case ("after_delay", delay):
            return bool(new) and min(map(window.rows.get, new)) + delay <= now.clock
        case ("on_row", least):
            return any(row.value is not None and row.value >= least for row in new)
        case ("on_delta", threshold):
            rows = [row for row in window.ordered() if row.value is not None]
            base = [row for row in rows if row in window.shown][-1:] or rows[:1]
            return bool(new) and any(abs(rows[-1].value - b.value) >= threshold for b in base)
        case ("any_of", *parts):
            return any(ready(p, now, (*place, i)) for i, p in enumerate(parts))
        case ("all_of", *parts):
            return all(ready(p, now, (*place, i)) for i, p in enumerate(parts))
        case ("at_most", of, most):
            return window.times.get(place, 0) < most and ready(of, now, (*place, 0))
        case ("custom", every):  # every so many rows, and once more at the end
            asked = now.touched or now.closes or now.expires
            return asked and (len(window.rows) % every == 0 or now.window.end <= now.after)
    raise ValueError(spec)


def limited(spec: Any, now: Now, place: Spec = ()) -> Iterator[Spec]:
    """The places of the limited triggers that have a part in this firing."""
    match spec:
        case ("at_watermark", early, late):
            if not now.closes:
                phase, part = ("late", late) if now.late else ("early", early)
                yield from limited(part, now, (*place, phase))
        case ("any_of" | "all_of", *parts):
            for i, part in enumerate(parts):
                yield from limited(part, now, (*place, i))
        case ("at_most", of, _):
            if ready(spec, now, place):
                yield place
                yield from limited(of, now, (*place, 0))


def safe(spec: Spec) -> bool:
    """Whether a trigger shows every row before the window is forgotten."""
    match spec:
        case ("any_of", *parts):
            return any(map(safe, parts))
        case ("all_of", *parts):
            return all(map(safe, parts))
    return spec[0] == "at_watermark"


# which rows are seen, and what is made of them


def keep(spec: Spec, rows: list[Row]) -> list[Row]:
    match spec:
        case ("keep_rows", count):
            return rows[-count:]
        case ("keep_time", length):
            return [r for r in rows if r.time > rows[-1].time - length]
        case ("keep_near", threshold):
            last = rows[-1].value
            return [r for r in rows if r.value is None or last is None
                    or abs(r.value - last) < threshold]  # fmt: skip
        case ("keep_even",):
            return [r for r in rows if r.value is not None and r.value % 2 == 0]
    raise ValueError(spec)


def compute(function: str, rows: list[Row], now: Now, shown_end: int | None) -> list[Any]:
    """What is made of a window's rows: result rows, each a tuple of values."""
    values = [r.value for r in rows if r.value is not None]
    match function:
        case "agg":
            return [(len(rows), sum(values) if values else None, min(values, default=None),
                     max(values, default=None), values[0] if values else None,
                     values[-1] if values else None, values)]  # fmt: skip
        case "count":
            return [(len(rows), sum(values) if values else None)]
        case "reduce":  # the first row, with the sum of all and the number of the last
            total = rows[0].value if len(rows) == 1 else sum(r.value or 0 for r in rows)
            return [(total, rows[0].time, rows[0].gap, rows[-1].number)]
        case "fold":
            return [("".join(f"{r.value}," for r in rows),)]
        case "process":  # a row for each two rows, so that there may be none
            seen = [r.time for r in rows]
            start = now.window.start if now.window.start > NEVER else None
            call = (start, shown_end, now.window.panes, now.timing, now.expires, now.clock)
            return [(seen, *call, i) for i in range(len(rows) // 2)]
    raise ValueError(function)


# all of it


@dataclass
class Model:
    assigner: Spec
    trigger: Spec = ("at_watermark", None, None)
    lateness: int = 0
    mode: str = "replace"
    evict: Spec | None = None
    after: bool = False  # evict after the function
    function: str = "agg"
    may_lose: bool = False
    windows: list[Window] = field(default_factory=list)

    def step(
        self, rows: list[Row], before: int, after: int, clock: int
    ) -> tuple[list[dict[str, Any]], list[Row]]:
        """One epoch: what is shown, and the rows that came too late."""
        out: list[dict[str, Any]] = []
        late, touched = [], []
        dies = self.assigner == ("session", None)  # a row without a gap
        for row in [r for r in rows if not dies or (r.gap or 0) > 0]:
            windows = assign(self.assigner, row)
            windows = [w for w in windows if w[1] + self.lateness > before]
            late += [] if windows else [row]
            touched += [self._put(row, start, end, clock, out) for start, end in windows]
        for window in list(self.windows):
            mine = any(window is w for w in touched)
            now = Now(window, before, after, clock, mine, self.lateness)
            if self._fires(now):
                out += self._show(now)
            if now.expires:
                self.windows.remove(window)
        return out, late

    def _put(self, row: Row, start: int, end: int, clock: int, out: list[Any]) -> Window:
        merges = self.assigner[0] in ("session", "own session")
        mine = [w for w in self.windows if w.key == row.key and (w.start, w.end) == (start, end)]
        if merges:
            mine = [w for w in self.windows
                    if w.key == row.key and w.start < end and start < w.end]  # fmt: skip
        low, high = min([start, *(w.start for w in mine)]), max([end, *(w.end for w in mine)])
        made = Window(row.key, low, high, {row: clock})
        for window in mine:
            if (window.start, window.end) == (low, high):
                made.was = window.was
            elif window.was:  # it is no window any more
                out.append({**window.was, "change": "-"})
            made.absorb(window)
        self.windows = [w for w in self.windows if not any(w is m for m in mine)] + [made]
        return made

    def _fires(self, now: Now) -> bool:
        fires = ready(self.trigger, now)
        loses = self.may_lose and not safe(self.trigger)
        fires |= not loses and now.expires and bool(now.window.new())
        return fires and (self.mode != "delta" or bool(now.window.new()))

    def _show(self, now: Now) -> list[dict[str, Any]]:
        window, slack = now.window, 1 if self.assigner[0] == "session" else 0
        shown_end = window.end - slack if window.end < ALWAYS - 1 else None
        rows = self._seen(window)
        made = compute(self.function, rows, now, shown_end) if rows else []
        same = {
            "key": window.key, "start": window.start if window.start > NEVER else None,
            "end": shown_end, "pane": window.panes, "timing": now.timing, "final": now.expires,
        }  # fmt: skip
        out = [{**window.was, "change": "-"}] if window.was else []
        out += [{**same, "values": values, "change": "+"} for values in made]
        window.was = out[-1] if self.mode == "retract" and made else None
        for place in list(limited(self.trigger, now)):
            window.times[place] = window.times.get(place, 0) + 1
        window.shown, window.panes = set(window.rows), window.panes + 1
        window.fired = (now.clock, now.after)
        return out

    def _seen(self, window: Window) -> list[Row]:
        rows = window.new() if self.mode == "delta" else window.ordered()
        if self.evict is None:
            return rows
        judged = [r for r in rows if r in window.shown] if self.after else rows
        kept = set(keep(self.evict, judged)) if judged else set()
        return [r for r in rows if r in kept or r not in judged]
