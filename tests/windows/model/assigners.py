"""Where: into which windows a row goes, as (start, end), the end not included."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from zoneinfo import ZoneInfo

from tests.windows.model.records import ALWAYS, NEVER, Row, Spec, Window

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
Spans = list[tuple[int, int]]


def sliding(row: Row, size: int, every: int, offset: int) -> Spans:
    last = (row.time - offset) // every * every + offset
    return [(start, start + size) for start in range(last, row.time - size, -every)]


def tumbling(row: Row, size: int, offset: int) -> Spans:
    return sliding(row, size, size, offset)


def cumulating(row: Row, size: int, step: int, offset: int) -> Spans:
    start = (row.time - offset) // size * size + offset
    ends = range(start + step, start + size + 1, step)
    return [(start, end) for end in ends if row.time < end]


def session(row: Row, gap: int | None) -> Spans:
    own = row.gap if gap is None else gap
    if own is None or own <= 0:  # a row without a gap belongs nowhere
        return []
    return [(row.time, row.time + own + 1)]  # a row exactly `gap` later still belongs


def everything(row: Row) -> Spans:
    return [(NEVER, ALWAYS - 1)]


def own(row: Row, *sizes: int) -> Spans:
    """By value: a size each for even and for odd, both for none."""
    wanted = sizes if row.value is None else [sizes[row.value % 2]]
    return [tumbling(row, size, 0)[0] for size in wanted]


def own_session(row: Row, gap: int) -> Spans:
    return [(row.time - gap, row.time + gap)]


def calendar(row: Row, unit: str, zone: str) -> Spans:
    local = (EPOCH + dt.timedelta(milliseconds=row.time)).astimezone(ZoneInfo(zone)).date()
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
    return [(_midnight(first, zone), _midnight(after, zone))]


def _midnight(day: dt.date, zone: str) -> int:
    local = dt.datetime.combine(day, dt.time(), ZoneInfo(zone))
    return (local.astimezone(dt.UTC) - EPOCH) // dt.timedelta(milliseconds=1)


ASSIGNERS: dict[str, Callable[..., Spans]] = {
    "sliding": sliding, "tumbling": tumbling, "cumulating": cumulating, "session": session,
    "everything": everything, "own": own, "own session": own_session, "calendar": calendar,
}  # fmt: skip


def assign(spec: Spec, row: Row) -> Spans:
    name, *args = spec
    return ASSIGNERS[name](row, *args)


def meets(spec: Spec, window: Window, start: int, end: int) -> bool:
    """Whether a row's window and one that there is are one window."""
    if spec[0] in ("session", "own session"):
        return window.start < end and start < window.end
    return (window.start, window.end) == (start, end)


def bounds(spec: Spec, window: Window) -> tuple[int | None, int | None]:
    """Start and end as they are shown: everything has none, a session ends with its gap."""
    if spec == ("everything",):
        return None, None
    return window.start, window.end - 1 if spec[0] == "session" else window.end
