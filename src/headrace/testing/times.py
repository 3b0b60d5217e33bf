"""Times and durations as a test writes them.

A time is milliseconds since 1970 (an int), a datetime (without a zone: UTC), or a text such
as "12s": so long after 1970. A duration is what it is everywhere: "5s", a timedelta, seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from headrace.clock import Duration, millis
from headrace.errors import RunError

Time = int | str | datetime
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def moment(time: Time) -> int:
    """A time in milliseconds since 1970."""
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return (aware - _1970) // timedelta(milliseconds=1)
    if isinstance(time, str):
        return millis(time)
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise RunError(
        "HR-TEST-002",
        f"{time!r} is not a time",
        'Give milliseconds since 1970, a datetime, or "12s" for twelve seconds after 1970.',
    )


def later(now: int, by: Duration | datetime) -> int:
    """The clock after `by`: a duration, or the time itself as a datetime."""
    then = moment(by) if isinstance(by, datetime) else now + millis(by)
    return not_back(now, then)


def not_back(now: int, then: int) -> int:
    if then < now:
        raise RunError(
            "HR-TEST-003",
            f"the clock is at {now} ms and cannot go back to {then} ms",
            "Time only goes on: give a later one, or start another harness.",
        )
    return then
