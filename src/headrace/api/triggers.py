"""Triggers: when a window shows its result, besides when it is over.

    from headrace import triggers as t
    .window(hr.tumbling("1h"), trigger=t.at_watermark(early=t.every("10s")), lateness="5m")

A trigger is looked at once per batch, or with `per_row` once per row: "after 100 rows" fires
when at least 100 have come since it last fired. Every trigger goes on after it fired, unless
`first` or `repeat(times=)` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.clock import Duration, millis
from headrace.errors import call_site, refusal
from headrace.ops.window.assigners import above_zero, whole
from headrace.ops.window.trigger_base import Trigger
from headrace.ops.window.triggers import (
    AfterDelay,
    AfterRows,
    AtMost,
    AtWatermark,
    Combined,
    CustomTrigger,
    Every,
    OnDelta,
    OnRow,
    PerRow,
    WindowNow,
)
from headrace.plan.signature import check_takes

__all__ = [
    "Trigger", "WindowNow", "after_delay", "after_rows", "all_of", "any_of", "at_watermark",
    "custom", "every", "first", "on_change", "on_delta", "on_row", "per_row", "repeat",
]  # fmt: skip


def at_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> Trigger:
    """When the watermark passes the window's end: the trigger that windows have by default.

    Before that as `early` says, if given; after it, within the allowed lateness, as `late`
    says, else with every batch that brings rows.
    """
    for name, trigger in (("early", early), ("late", late)):
        if trigger is not None:
            _checked(trigger, f"at_watermark({name}=...)")
            if holds_watermark(trigger):
                raise refusal(
                    "HR-TRIGGER-002",
                    f"at_watermark({name}=...) is at_watermark itself",
                    "Say what else should fire: t.every(...), t.after_rows(...), t.on_change().",
                )
    return AtWatermark(early, late)


def every(period: Duration, *, time: str = "processing") -> Trigger:
    """Every `period`, if something is new.

    By the clock: so long after the last firing, or after the first row. With time="event":
    when the watermark passes a multiple of the period, counted from the window's start.
    """
    length = millis(period)
    if length <= 0:
        raise refusal(
            "HR-TRIGGER-003", f"every({period!r}) never ends", "Choose a period above zero."
        )
    if time not in ("processing", "event"):
        raise refusal(
            "HR-TRIGGER-004",
            f"time={time!r} is unknown",
            'Write time="processing" or time="event".',
        )
    return Every(length, time == "event")


def after_rows(count: int) -> Trigger:
    """When `count` rows have come that were not shown yet."""
    if not whole(count):
        raise refusal(
            "HR-TRIGGER-005", f"after_rows has count {count!r}", "Choose one row or more."
        )
    return AfterRows(count)


def on_change() -> Trigger:
    """With every batch that brings rows."""
    return AfterRows(1)


def on_row(predicate: Any) -> Trigger:
    """When a row comes that fulfils `predicate`, as in `where`: a punctuation."""
    return OnRow("", predicate)


def on_delta(column: Any, threshold: float) -> Trigger:
    """When `column` has moved by `threshold` since the window last fired.

    Compared are the last value, by event time, and the last that was shown; before the first
    firing, the window's first value.
    """
    if not above_zero(threshold):
        raise refusal(
            "HR-TRIGGER-006", f"on_delta has threshold {threshold!r}", "Choose one above zero."
        )
    return OnDelta("", column, float(threshold))


def after_delay(delay: Duration) -> Trigger:
    """`delay` after the first row that was not shown yet, by the clock."""
    length = millis(delay)
    if length <= 0:
        raise refusal(
            "HR-TRIGGER-003", f"after_delay({delay!r}) is not a delay", "Choose a delay above zero."
        )
    return AfterDelay(length)


def any_of(*triggers: Trigger) -> Trigger:
    """When one of them would fire."""
    return _combined(triggers, "any_of", every=False)


def all_of(*triggers: Trigger) -> Trigger:
    """When all of them would fire."""
    return _combined(triggers, "all_of", every=True)


def first(trigger: Trigger) -> Trigger:
    """Only the first time that it has a part in a firing, once per window."""
    return AtMost("", _checked(trigger, "first"), 1)


def repeat(trigger: Trigger, *, times: int | None = None) -> Trigger:
    """Again and again, which is what triggers do; or `times` times per window at most."""
    _checked(trigger, "repeat")
    if times is None:
        return trigger
    if not whole(times):
        raise refusal("HR-TRIGGER-007", f"repeat has times={times!r}", "Choose one or more.")
    return AtMost("", trigger, times)


def per_row(trigger: Trigger) -> Trigger:
    """Evaluated for every row, in order, instead of once per batch: the whole trigger goes in.

    So `per_row(at_watermark(early=after_rows(2)))` fires twice where a batch brings five rows. A
    batch then takes as many passes as it has rows of one key.
    """
    return PerRow(_checked(trigger, "per_row"))


def custom(fn: Callable[[WindowNow], bool]) -> Trigger:
    """Your own: `fn(window)` says whether a window fires.

    It is called for windows that got rows, whose end was passed, or that are about to be
    forgotten; `window` is a `WindowNow`.
    """
    if not callable(fn):
        raise refusal(
            "HR-TRIGGER-008", f"custom needs a function, not {fn!r}", "Give fn(window) -> bool."
        )
    check_takes(fn, 1, "t.custom", call_site())
    return CustomTrigger(fn)


def holds_watermark(trigger: Trigger) -> bool:
    """Whether `at_watermark` is in it."""
    match trigger:
        case Combined(parts, _):
            return any(map(holds_watermark, parts))
        case AtMost(_, of, _):
            return holds_watermark(of)
    return isinstance(trigger, AtWatermark)


def _combined(triggers: tuple[Trigger, ...], name: str, *, every: bool) -> Trigger:
    if not triggers:
        raise refusal("HR-TRIGGER-009", f"{name} of nothing", "Give at least one trigger.")
    return Combined(tuple(_checked(t, name) for t in triggers), every)


def _checked(trigger: object, where: str) -> Trigger:
    if isinstance(trigger, PerRow):
        raise refusal(
            "HR-TRIGGER-015",
            f"{where} got t.per_row(...), which is for a whole trigger",
            "Put it around all of it: t.per_row(t.at_watermark(early=...)).",
        )
    if isinstance(trigger, Trigger):
        return trigger
    raise refusal(
        "HR-TRIGGER-001",
        f"{where} got {trigger!r}, which is not a trigger",
        "Triggers are made by headrace.triggers: t.every(...), t.after_rows(...) ...",
    )
