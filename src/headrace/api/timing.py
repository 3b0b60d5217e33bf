"""What a user says about the time of an input, checked against its columns.

A stream has event time when its input names the column, or takes the clock's; how far a
split has come must then be said, because a guess would lose rows silently. What is wrong
goes to the draft; nothing is raised, and nothing outside is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError, Site
from headrace.expr.lower import unknown_column
from headrace.ops.watermarks import Bounded, Custom, Ingestion, Punctuated, Strategy
from headrace.plan import columns as cols
from headrace.plan.draft import Draft
from headrace.schema import ddl_type

_LENGTHS = ("delay", "idle", "max_skew", "align")
_ABOUT_ROWS = ("delay", "watermark", "idle", "max_skew", "align")  # in the order of `read`


@dataclass(frozen=True, slots=True)
class Timing:
    """What the user said about time."""

    time: str | Ingestion | None
    delay: Duration | None
    watermark: object
    idle: Duration | None
    max_skew: Duration | None
    align: Duration | None
    in_order: bool

    @property
    def given(self) -> list[str]:
        """What was said beside the time itself."""
        found = [n for n in _ABOUT_ROWS if getattr(self, n) is not None]
        return found + (["in_order"] if self.in_order else [])


def timing(draft: Draft, said: Timing, schema: pa.Schema, site: Site | None) -> dict[str, Any]:
    """The fields of a `Read` that are about time, durations in milliseconds."""
    found: dict[str, int | None] = dict.fromkeys(_LENGTHS)
    for name in _LENGTHS:
        with draft.attempt(site):
            found[name] = _length(name, getattr(said, name))
    for problem in _problems(said, found["delay"], schema):
        draft.report(problem, site)
    strategy = _strategy(draft, said.watermark, schema, site)
    lengths = {n: found[n] for n in _LENGTHS if n != "delay"}
    return {**lengths, "watermark": strategy or Bounded(found["delay"] or 0)}


def _length(name: str, duration: Duration | None) -> int | None:
    length = None if duration is None else millis(duration)
    if length is not None and (length < 0 or (length == 0 and name != "delay")):
        raise PlanError(
            "HR-TIME-005",
            f"{name} is {duration!r}",
            f'Give a duration above zero, as in {name}="10s".',
        )
    return length


def _problems(said: Timing, delay: int | None, schema: pa.Schema) -> Iterator[PlanError]:
    """What does not go together; of several that follow from one another only the first."""
    if said.time is None:
        yield from _without_time(said)
    elif isinstance(said.time, Ingestion):
        yield from _with_clock(said)
    elif not isinstance(said.time, str):
        yield PlanError(
            "HR-TIME-011",
            f"time is {said.time!r}",
            'Name the column of event time: time="at"; or say time=hr.ingestion().',
        )
    else:
        problem = _pace(said, delay) or _column("time", said.time, schema)
        yield from [problem] if problem else []


def _without_time(said: Timing) -> Iterator[PlanError]:
    if said.given:
        yield PlanError(
            "HR-TIME-004",
            f"{said.given[0]} is given, but not the column it is about",
            'Name the column of event time: time="at".',
        )


def _with_clock(said: Timing) -> Iterator[PlanError]:
    if said.given:
        yield PlanError(
            "HR-TIME-010",
            f"{said.given[0]} is given, but the rows take their time from the clock",
            f'Leave {said.given[0]} out, or name a column of event time: time="at".',
        )


def _pace(said: Timing, delay: int | None) -> PlanError | None:
    """What is wrong with how far a split is said to have come."""
    if said.watermark is not None:
        other = "delay" if said.delay is not None else "in_order" if said.in_order else None
        return _said_twice(other, "watermark") if other else None
    if delay and said.in_order:
        return _said_twice("delay", "in_order")
    if said.delay is None and not said.in_order:
        return PlanError(
            "HR-TIME-002",
            f"time={said.time!r} needs a delay",
            'Say how late a row may come after a newer one: delay="2s"; '
            "or in_order=True if none ever does.",
        )
    if delay == 0 and said.delay is not None and not said.in_order:
        return PlanError(
            "HR-TIME-003",
            "a delay of zero makes every row late that comes after a newer one",
            'Give the rows some time, as in delay="2s"; or say in_order=True.',
        )
    return None


def _said_twice(one: str, other: str) -> PlanError:
    return PlanError(
        "HR-TIME-007",
        f"both {one} and {other} say how far the rows have come",
        "Leave one of them out; delay=... is hr.watermarks.bounded(...).",
    )


def _column(what: str, name: str, schema: pa.Schema) -> PlanError | None:
    if len(schema) == 0:
        return None
    if name not in schema.names:
        return unknown_column(name, schema)
    kind = schema.field(name).type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind):
        return None
    return PlanError(
        "HR-TIME-006",
        f"the {what} column {name!r} is of type {ddl_type(kind)}",
        "Read it as a timestamp, a date, or a bigint of milliseconds since 1970.",
    )


def _strategy(draft: Draft, said: object, schema: pa.Schema, site: Site | None) -> Strategy | None:
    """The strategy with its condition as an expression; None if there is none or it is wrong."""
    match said:
        case None:
            return None
        case Bounded() | Custom():
            return said
        case Punctuated(predicate=predicate, by=by):
            if by is not None and (problem := _column("watermark", by, schema)):
                draft.report(problem, site)
            expr = cols.expression(draft, predicate, schema, site)
            if expr is None:
                return None
            cols.condition(draft, expr, schema, "a punctuated watermark", site)
            return Punctuated(expr, by)
    draft.report(
        PlanError(
            "HR-TIME-008",
            f"watermark is {said!r}",
            'Write watermark=hr.watermarks.bounded("2s"), monotonous(), punctuated(...) '
            "or custom(...).",
        ),
        site,
    )
    return None
