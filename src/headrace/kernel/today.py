"""The date of the epoch, for `current_date()`: the one thing that an expression reads besides rows.

Invariant: it is the clock that was recorded when the epoch was planned, in UTC, so a replayed
epoch computes with the same date. Where no epoch runs there is no date, and asking is HR-EXPR-006.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from headrace.errors import PlanError
from headrace.expr.types import TODAY

_CLOCK: ContextVar[int | None] = ContextVar("epoch_clock", default=None)


@contextmanager
def epoch_clock(millis: int) -> Iterator[None]:
    """Within, `current_date()` is the date of this time."""
    token = _CLOCK.set(millis)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def date_now() -> dt.date:
    clock = _CLOCK.get()
    if clock is None:
        raise PlanError(
            "HR-EXPR-006",
            "current_date() is asked for where there is no epoch",
            "Compute it by with_columns before this step, and use the column here.",
        )
    return (dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=clock)).date()


def dated(sql: str) -> str:
    """The query with the epoch's date in its places."""
    return sql.replace(TODAY, f"DATE '{date_now().isoformat()}'") if TODAY in sql else sql
