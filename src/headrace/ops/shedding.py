"""Load shedding: which records of an input may be dropped when the job cannot keep up.

A value of this kind is passed to `job.read(..., shed=hr.shedding.random(lag="30s"))`. Nothing is
dropped unless it is, and then only while more records wait than it allows. Values only: how much
is dropped is decided in `driver/shedding.py`, which records in `task/shed_rows.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.clock import Duration, millis, pretty
from headrace.errors import PlanError, call_site
from headrace.expr import Expr

RANDOM, OLDEST, LOWEST = "random", "oldest", "lowest"
WHOLE = 1 << 32  # chances of a record that is never dropped


@dataclass(frozen=True, slots=True, eq=False)
class Shedding:
    """What an input drops under pressure, and how many records may wait before it does."""

    how: str
    lag: int | None  # ms: what the records that wait may take to be processed
    rows: int | None  # records that may wait
    weight: str | None = None  # the column that says how many records a row stands for
    priority: Any = None  # of `lowest`: what `select` takes; in a checked program an Expr

    def __str__(self) -> str:
        by = self.priority.sql() if isinstance(self.priority, Expr) else self.priority
        what = f"lowest {by}" if self.how == LOWEST else self.how
        bounds = [pretty(self.lag)] if self.lag is not None else []
        bounds += [f"{self.rows:,} records"] if self.rows is not None else []
        return f"{what} beyond {' or '.join(bounds)}" + (
            f", weight {self.weight}" if self.weight else ""
        )


def random(
    lag: Duration | None = None, *, rows: int | None = None, weight: str | None = None
) -> Shedding:
    """Drop records at random, each with the same probability.

    Nothing is dropped while the records that wait would take no longer than `lag` at the speed of
    the job, or are no more than `rows`. `weight` names a column to add: how many records a row
    stands for, 1.0 where nothing is dropped, so that `hr.sum(weight)` estimates their number.
    """
    return _shedding(RANDOM, lag, rows, weight)


def oldest(lag: Duration | None = None, *, rows: int | None = None) -> Shedding:
    """Drop the records that have waited longest: the job skips ahead. See `random`."""
    return _shedding(OLDEST, lag, rows, None)


def lowest(
    priority: Any,
    lag: Duration | None = None,
    *,
    rows: int | None = None,
    weight: str | None = None,
) -> Shedding:
    """Drop the records of the lowest `priority`, a number computed from a record. See `random`.

    Null is lower than any number. With `weight`, one in ten of the records that are used is of
    those that would all be dropped otherwise: they are what estimates of the others rest on.
    """
    return _shedding(LOWEST, lag, rows, weight, priority)


def priority_columns(shed: Shedding | None) -> frozenset[str]:
    """The columns that the priority of a record is computed from."""
    priority = None if shed is None else shed.priority
    return priority.columns if isinstance(priority, Expr) else frozenset()


def _shedding(
    how: str, lag: Duration | None, rows: int | None, weight: str | None, priority: Any = None
) -> Shedding:
    length = None if lag is None else millis(lag)
    if length is None and rows is None:
        raise _refused(
            f"shedding.{how} does not say when",
            'Say how long records may wait, lag="30s", or how many, rows=1_000_000.',
        )
    if length is not None and length <= 0:
        raise _refused(f"shedding.{how} has lag={lag!r}", 'Give a duration, as in lag="30s".')
    if rows is not None and (type(rows) is not int or rows < 1):
        raise _refused(f"shedding.{how} has rows={rows!r}", "Give a whole number, 1 or more.")
    if weight is not None and (not isinstance(weight, str) or not weight.isidentifier()):
        raise _refused(
            f"shedding.{how} has weight={weight!r}", 'Give the name of a column, as in weight="w".'
        )
    return Shedding(how, length, rows, weight, priority)


def _refused(fact: str, hint: str) -> PlanError:
    return PlanError("HR-SHED-001", fact, hint, site=call_site())
