"""When: whether a window shows its result at the end of an epoch."""

from __future__ import annotations

from typing import Any

from tests.windows.model.records import NEVER, Now, Spec


def at_watermark(now: Now, early: Spec | None, late: Spec | None) -> bool:
    if now.late:
        return ready(late, now.within("late")) if late else now.touched
    return now.closes or bool(early and ready(early, now.within("early")))


def after_rows(now: Now, count: int) -> bool:
    return len(now.window.new()) >= count


def on_change(now: Now) -> bool:
    return bool(now.window.new())


def every(now: Now, period: int, time: str) -> bool:
    window, new = now.window, now.window.new()
    if time == "processing":
        since = window.fired if window.fired > NEVER else _first_came(now)
        return bool(new) and since + period <= now.clock
    start = window.start if window.start > NEVER else 0
    low = max(now.before, window.start)  # has the watermark passed one of the marks?
    return bool(new) and (now.after - start) // period > (low - start) // period


def after_delay(now: Now, delay: int) -> bool:
    return bool(now.window.new()) and _first_came(now) + delay <= now.clock


def _first_came(now: Now) -> int:
    return min((now.window.rows[row].clock for row in now.window.new()), default=0)


def on_row(now: Now, least: int) -> bool:
    return any(row.value is not None and row.value >= least for row in now.window.new())


def on_delta(now: Now, threshold: int) -> bool:
    shown = [row.value for row in now.window.ordered() if row in now.window.shown]
    known = [row.value for row in now.window.ordered() if row.value is not None]
    base = [value for value in shown if value is not None][-1:] or known[:1]
    moved = any(abs(known[-1] - value) >= threshold for value in base)
    return moved and bool(now.window.new())


def custom(now: Now, count: int) -> bool:
    """Every so many rows, and once more at the end."""
    asked = now.touched or now.closes or now.expires
    return asked and (len(now.window.rows) % count == 0 or now.window.end <= now.after)


def any_of(now: Now, *parts: Spec) -> bool:  # all parts are asked: limits count
    return any([ready(part, now.within(i)) for i, part in enumerate(parts)])


def all_of(now: Now, *parts: Spec) -> bool:
    return all([ready(part, now.within(i)) for i, part in enumerate(parts)])


def at_most(now: Now, of: Spec, most: int) -> bool:
    fires = now.window.times[now.place] < most and ready(of, now.within(0))
    now.limited += [now.place] if fires else []
    return fires


TRIGGERS: dict[str, Any] = {
    made.__name__: made
    for made in (at_watermark, after_rows, on_change, every, after_delay, on_row, on_delta,
                 custom, any_of, all_of, at_most)
}  # fmt: skip


def ready(spec: Spec, now: Now) -> bool:
    name, *args = spec
    return bool(TRIGGERS[name](now, *args))


def safe(spec: Spec) -> bool:
    """Whether a trigger shows every row before the window is forgotten."""
    name, *parts = spec
    if name in ("any_of", "all_of"):
        return (any if name == "any_of" else all)(map(safe, parts))
    return bool(name == "at_watermark")
