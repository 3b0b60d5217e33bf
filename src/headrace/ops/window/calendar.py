"""Calendar windows: days, weeks, months and years as people of a time zone count them.

A local day has 23, 24 or 25 hours; a window here lasts from one local midnight to another,
so it is right when clocks change. A midnight that does not exist begins when the clock
jumps; one that comes twice is the first. What lies beyond the years 1 to 9999 is in one window.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa

from headrace.arrays import Times
from headrace.clock import MIN_TIME
from headrace.errors import refusal
from headrace.ops.window.assigners import FOREVER, NonMerging, Placed, whole

UNITS = ("day", "week", "month", "year")
_DAY = 86_400_000
_MOST_DAYS = dict(zip(UNITS, (1, 7, 31, 366), strict=True))
_MONDAY = dt.date(1970, 1, 5).toordinal()
_EPOCH = dt.date(1970, 1, 1).toordinal()
_FIRST, _LAST = (d.toordinal() - _EPOCH for d in (dt.date.min, dt.date.max))


@dataclass(frozen=True, slots=True)
class Calendar(NonMerging):
    unit: str
    zone: str = "UTC"
    each: int = 1

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            hint = f"Choose one of {', '.join(UNITS)}."
            raise refusal("HR-WINDOW-007", f"{self.unit!r} is not a unit of the calendar", hint)
        if not whole(self.each):
            raise refusal(
                "HR-WINDOW-007",
                f"calendar window of {self.each!r} {self.unit}s",
                "Choose 1 or more.",
            )
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError, TypeError):
            hint = 'Write a zone as "Europe/Berlin" or "UTC"; they come from the tz database.'
            raise refusal("HR-WINDOW-008", f"{self.zone!r} is not a time zone", hint) from None

    def at_rest(self) -> str:
        many = f"{self.each} {self.unit}s" if self.each > 1 else self.unit
        return f"calendar {many} in {self.zone}"

    @property
    def longest(self) -> int:
        return (self.each * _MOST_DAYS[self.unit] + 1) * _DAY  # one more, for changes of clocks

    def place(self, times: Times, rows: pa.Table) -> Placed:
        days, which = np.unique(np.clip(times // _DAY, _FIRST, _LAST), return_inverse=True)
        around = [self._around(int(day)) for day in days.tolist()]
        # The windows that touch a UTC day are few; the last that has begun is the row's.
        most = max(map(len, around), default=1)
        padded = [starts + [starts[-1]] * (most - len(starts)) for starts in around]
        edges = np.array(padded, np.int64).reshape(-1, most)
        own_edges = edges[which]
        at = np.maximum((own_edges <= times[:, None]).sum(axis=1) - 1, 0)
        lines = np.arange(len(times))
        start = own_edges[lines, at]
        return Placed(lines, start, own_edges[lines, np.minimum(at + 1, most - 1)])

    def reach(self, times: Times, rows: pa.Table) -> Times:
        return self.place(times, rows).end

    def _around(self, day: int) -> list[int]:
        """Starts of windows, in order: from one that begins before a UTC day to one after."""
        number = _number(dt.date.fromordinal(_EPOCH + day), self.unit, self.each)
        return [_start(number + i, self.unit, self.each, self.zone) for i in (-1, 0, 1, 2)]


def calendar(unit: str, *, zone: str = "UTC", each: int = 1) -> Calendar:
    """Windows of the calendar: `calendar("month", zone="Europe/Berlin")`, `each=3` of them."""
    return Calendar(unit, zone, each)


def _number(date: dt.date, unit: str, each: int) -> int:
    """Windows since 1970 (weeks: since its first Monday) at a date."""
    match unit:
        case "day":
            return (date.toordinal() - _EPOCH) // each
        case "week":
            return (date.toordinal() - _MONDAY) // 7 // each
        case "month":
            return ((date.year - 1970) * 12 + date.month - 1) // each
    return (date.year - 1970) // each


@lru_cache(maxsize=4096)
def _start(number: int, unit: str, each: int, zone: str) -> int:
    """When window `number` begins, in ms."""
    try:
        date = _first_day(number * each, unit)
        midnight = dt.datetime.combine(date, dt.time(), ZoneInfo(zone))
        return round(midnight.timestamp() * 1_000)
    except (ValueError, OverflowError):  # there is no such year
        return MIN_TIME if number < 0 else FOREVER


def _first_day(at: int, unit: str) -> dt.date:
    match unit:
        case "day":
            return dt.date.fromordinal(_EPOCH + at)
        case "week":
            return dt.date.fromordinal(_MONDAY + 7 * at)
        case "month":
            return dt.date(1970 + at // 12, at % 12 + 1, 1)
    return dt.date(1970 + at, 1, 1)
