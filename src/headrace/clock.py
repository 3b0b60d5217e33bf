"""Durations and clocks; the only reader of wall time.

Time is integer milliseconds since the epoch everywhere inside Headrace. Code that needs
"now" takes a clock; nothing else calls `time.time`, but for the server's launcher of processes.
"""

from __future__ import annotations

import datetime as dt
import re
import time
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from math import isfinite
from numbers import Integral, Real
from typing import Protocol

from headrace.errors import PlanError, StateError, call_site

MIN_TIME = -(2**62)  # before every timestamp: a watermark that has not started
MAX_TIME = 2**62  # after every timestamp: a watermark whose input has ended
FIRST_TIME = -62_135_596_800_000  # the year 1 begins: no row is earlier
LAST_TIME = 253_402_300_799_999  # the year 9999 ends: no row is later
LONGEST = 86_400_000 * 100_000_000  # no duration is longer: a bound fits 64 bits of microseconds
FURTHEST = (2**63 - 1) // 1_000  # what they can hold, before or after 1970

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLI = timedelta(milliseconds=1)
_UNITS = {
    "ms": 1, "millisecond": 1,
    "s": 1_000, "sec": 1_000, "second": 1_000,
    "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000,
    "d": 86_400_000, "day": 86_400_000,
    "w": 604_800_000, "week": 604_800_000,
}  # fmt: skip
_UNITS |= {f"{name}s": size for name, size in _UNITS.items() if len(name) > 2}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.ASCII)

Duration = str | int | float | timedelta
Moment = dt.datetime | int | str


def millis(duration: Duration) -> int:
    """A duration in milliseconds: "5s", "1h 30m", "250 ms", a timedelta, or seconds."""
    exact = _exact(duration)
    if isinstance(duration, str) and re.search(r"\d\s*M(?![A-Za-z])", duration):
        raise PlanError(
            "HR-TIME-001",
            f"{duration!r} may mean minutes or months",
            'Write "1m" for a minute; windows of months are hr.calendar("month").',
            site=call_site(),
        )
    if exact is None:
        raise PlanError(
            "HR-TIME-001",
            f"{duration!r} is not a duration",
            'Write "5s", "1h 30m", "250ms" (units ms, s, m, h, d, w), a timedelta, '
            "or a number of seconds.",
            site=call_site(),
        )
    if abs(exact) > LONGEST:
        raise PlanError(
            "HR-TIME-002",
            f"{duration!r} is too long for a duration",
            "Leave the duration out if there is no limit.",
            site=call_site(),
        )
    return round(exact)


def millis_from(moment: datetime) -> int:
    """The first whole millisecond since 1970 that is not before a moment; a `datetime` without a
    zone is local time."""
    at = moment if moment.tzinfo else moment.astimezone()
    return -((_EPOCH - at) // _MILLI)


def shift_millis(offset: Duration) -> int:
    """A duration that may also go back: "-3s"."""
    text = offset.strip() if isinstance(offset, str) else ""
    back = text.startswith("-") and _exact(text[1:]) is not None
    return -millis(text[1:]) if back else millis(offset)


def _exact(duration: object) -> Fraction | None:
    """Milliseconds without rounding; None for what is not a duration."""
    if isinstance(duration, str):
        return _parse(duration.lower())
    if isinstance(duration, timedelta):
        return Fraction(duration // timedelta(microseconds=1), 1_000)
    if isinstance(duration, bool):
        return None
    if isinstance(duration, Integral):
        return Fraction(int(duration)) * 1_000
    if isinstance(duration, Real) and isfinite(duration):
        return Fraction(repr(float(duration))) * 1_000  # as it was written: 0.0025 is 1/400
    return None


def _parse(text: str) -> Fraction | None:
    total, at = Fraction(0), 0
    while part := _PART.match(text, at):
        if part[2] not in _UNITS:
            return None
        total += Fraction(part[1]) * _UNITS[part[2]]
        at = part.end()
    return total if 0 < at == len(text) else None


def pretty(ms: int) -> str:
    """The shortest exact spelling of a duration: 90000 is "90s", 3600000 is "1h"."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if ms and ms % size == 0:
            return f"{ms // size}{unit}"
    return f"{ms}ms"


def moment_millis(moment: Moment, now: int) -> int:
    """A moment in ms; "21:00" is on the day of `now`."""
    if isinstance(moment, int):
        return moment
    if isinstance(moment, dt.datetime):
        at = moment
    else:
        try:
            at = _moment(moment, now)
        except ValueError as error:
            raise StateError(
                "HR-STATE-032",
                f"{moment!r} is not a time",
                'Write "21:00", "2026-11-15 21:00", a datetime, or milliseconds since 1970.',
            ) from error
    return round((at if at.tzinfo else at.replace(tzinfo=dt.UTC)).timestamp() * 1_000)


def _moment(text: str, now: int) -> dt.datetime:
    text = re.sub(r"(^|[ T])(\d):", r"\g<1>0\2:", text)  # people write "9:00"
    if "-" in text:
        return dt.datetime.fromisoformat(text)
    day = dt.datetime.fromtimestamp(now / 1_000, dt.UTC).date()
    return dt.datetime.combine(day, dt.time.fromisoformat(text), dt.UTC)


class Clock(Protocol):
    def now(self) -> int: ...

    def steady(self) -> int:
        """Milliseconds since some moment, by a clock that nobody sets: for durations alone."""
        ...


class SystemClock:
    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def steady(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ManualClock:
    """A clock that a test moves by hand."""

    def __init__(self, now: int = 0) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def steady(self) -> int:
        return self._now

    def advance(self, ms: int) -> None:
        self._now += ms


def utc_text(time: int) -> str:
    """A time in words, in UTC: 2026-01-31T12:00:00+00:00; in ms where no year is of four digits."""
    try:
        return dt.datetime.fromtimestamp(time / 1_000, dt.UTC).isoformat()
    except (OverflowError, ValueError):
        return f"{time} ms since 1970"
