"""Watermark strategies: how a split's rows say how far it has come.

A strategy is a value, passed to `job.read(..., watermark=...)`. It is asked for each split by
itself, and its watermark never goes back. Values only: what runs them is in
`task/watermark_trackers.py`, what checks them against an input in `api/inputs.py`.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from typing import Any

from headrace.clock import Duration, millis, pretty
from headrace.errors import PlanError, call_site
from headrace.expr import Expr

METHODS = ("on_chunk", "on_row")


@dataclass(frozen=True, slots=True)
class Bounded:
    """The newest time less `delay`; with none, the newest time itself."""

    delay: int

    def __str__(self) -> str:
        return f"delay {pretty(self.delay)}" if self.delay else "in order"


@dataclass(frozen=True, slots=True, eq=False)
class Punctuated:
    """The time of the newest row for which `predicate` is true, or what its column `by` says."""

    predicate: Any  # what `where` takes; in a checked program an Expr
    by: str | None = None

    def __str__(self) -> str:
        sql = self.predicate.sql() if isinstance(self.predicate, Expr) else str(self.predicate)
        return f"watermark when {sql}" + (f" by {self.by}" if self.by else "")


@dataclass(frozen=True, slots=True)
class CustomWatermark:
    """Whatever an object of the user's class says."""

    kind: type

    def __str__(self) -> str:
        return f"watermark by {self.kind.__qualname__}"

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(n for n in METHODS if callable(getattr(self.kind, n, None)))


Strategy = Bounded | Punctuated | CustomWatermark


@dataclass(frozen=True, slots=True)
class Ingestion:
    """A time that no column has: the clock of the epoch that reads the row."""

    def __str__(self) -> str:
        return "at ingestion"


@dataclass(frozen=True, slots=True, eq=False)
class ComputedTime:
    """A time that is computed from the columns of the row when it is read."""

    expr: Expr

    def __str__(self) -> str:
        return self.expr.sql()


EventTime = str | ComputedTime | Ingestion  # a column, an expression, the clock


def bounded(delay: Duration) -> Bounded:
    """Rows come up to `delay` after a newer one: the same as `delay=`."""
    length = millis(delay)
    if length <= 0:
        raise PlanError(
            "HR-TIME-012",
            f"bounded has a delay of {delay!r}",
            'Give the rows some time, as in bounded("2s"); or say monotonous().',
            site=call_site(),
        )
    return Bounded(length)


def monotonous() -> Bounded:
    """Rows of a split never go back in time; one that does, after its batch, may be late."""
    return Bounded(0)


def punctuated(predicate: Any, by: str | None = None) -> Punctuated:
    """Only a row that satisfies `predicate` moves it: to its time, or to its column `by`."""
    return Punctuated(predicate, by)


def custom(kind: type) -> CustomWatermark:
    """A class of your own, made anew for each split and batch.

    `on_chunk(self, times, rows)` sees many rows at once, an array of milliseconds and an
    Arrow table; `on_row(self, time, row)` one after the other. Either gives a watermark in
    milliseconds, or None. What is to be known in the next batch is kept in `self.state`,
    which the class declares with its first value and which must be plain JSON.
    """
    strategy = CustomWatermark(kind)
    if not isinstance(kind, type) or not strategy.methods:
        name = kind.__qualname__ if isinstance(kind, type) else repr(kind)
        fact = "has neither on_chunk nor on_row" if isinstance(kind, type) else "is not a class"
        raise _refused(
            f"{name} {fact}",
            "Give a class with on_chunk(times, rows) or on_row(time,"
            " row); each returns a watermark in milliseconds, or None.",
        )
    _check_state(kind)
    try:
        inspect.signature(kind).bind()
    except ValueError:  # a class without a signature
        return strategy
    except TypeError as error:
        raise _refused(
            f"{kind.__qualname__} cannot be created without arguments: {error}",
            "Each split gets an object of its own: give its settings defaults, or make a subclass.",
        ) from error
    return strategy


def _check_state(kind: type) -> None:
    try:
        json.dumps(getattr(kind, "state", None))
    except (TypeError, ValueError) as error:
        raise PlanError(
            "HR-TIME-013",
            f"the watermark {kind.__qualname__} has a state that is not JSON: {error}",
            "A state may hold numbers, texts, lists and dicts; keep a set as a list.",
            site=call_site(),
        ) from error


def ingestion() -> Ingestion:
    """As `time=`: a row's event time is the clock when its batch is read. No row is late."""
    return Ingestion()


def columns_watched(
    time: EventTime | None, strategy: Strategy, every: tuple[str, ...]
) -> frozenset[str]:
    """The columns that event time and its strategy look at, of `every` one there is."""
    watched = frozenset[str]()
    match time:
        case str():
            watched = frozenset({time})
        case ComputedTime(expr=expr):
            watched = expr.columns
    match strategy:
        case CustomWatermark():
            return frozenset(every)
        case Punctuated(predicate=Expr() as predicate, by=by):
            return watched | predicate.columns | ({by} if by else set())
    return watched


def _refused(fact: str, hint: str) -> PlanError:
    return PlanError("HR-TIME-009", fact, hint, site=call_site())
