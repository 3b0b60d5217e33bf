"""The arguments of `read` and `write`: event time, checked against the columns, and places.

A stream has event time when its input names the column, or takes the clock's; how far a
split has come must then be stated, because a guess would lose rows silently. What is wrong
goes to the draft. Nothing outside is opened but an input that brings its own schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.callables import title
from headrace.clock import Duration, millis
from headrace.errors import InputError, PlanError, Site
from headrace.expr import Expr
from headrace.expr.lower import unknown_column
from headrace.ops.agg.named import bare_sql
from headrace.ops.watermarks import (
    Bounded,
    ComputedTime,
    CustomWatermark,
    EventTime,
    Ingestion,
    Punctuated,
    Strategy,
    ingestion,
)
from headrace.plan import columns as cols
from headrace.plan.draft import Draft
from headrace.schema import ddl_type
from headrace.sinks import Output, check_output
from headrace.sources import check_input, check_options, open_source
from headrace.sources.own import check_own

_LENGTHS = ("delay", "idle", "max_skew", "align")
_ABOUT_ROWS = ("delay", "watermark", "idle", "max_skew", "align")  # in the order of `read`


@dataclass(frozen=True, slots=True)
class Timing:
    """The arguments of `read` about time."""

    time: Any  # a column or expression, or the clock
    delay: Duration | None
    watermark: object
    idle: Duration | None
    max_skew: Duration | None
    align: Duration | None
    in_order: bool

    @property
    def stated(self) -> list[str]:
        """The arguments that were passed besides the time itself."""
        names = [n for n in _ABOUT_ROWS if getattr(self, n) is not None]
        return names + (["in_order"] if self.in_order else [])


def timing(draft: Draft, read: Timing, schema: pa.Schema, site: Site | None) -> dict[str, Any]:
    """The fields of a `Read` that are about time, durations in milliseconds."""
    durations: dict[str, int | None] = dict.fromkeys(_LENGTHS)
    for name in _LENGTHS:
        with draft.attempt(site):
            durations[name] = _length(name, getattr(read, name))
    for problem in _problems(read, durations["delay"], schema):
        draft.report(problem, site)
    time = _event_time(draft, read.time, schema, site)
    strategy = _strategy(draft, read.watermark, schema, site)
    lengths = {n: durations[n] for n in _LENGTHS if n != "delay"}
    return {**lengths, "time": time, "watermark": strategy or Bounded(durations["delay"] or 0)}


def _length(name: str, duration: Duration | None) -> int | None:
    length = None if duration is None else millis(duration)
    if length is not None and (length < 0 or (length == 0 and name != "delay")):
        raise PlanError(
            "HR-TIME-005",
            f"{name} is {duration!r}",
            f'Give a duration above zero, as in {name}="10s".',
        )
    return length


def _problems(read: Timing, delay: int | None, schema: pa.Schema) -> Iterator[PlanError]:
    """What does not go together; of several that follow from one another only the first."""
    if read.time is None:
        yield from _without_time(read)
    elif isinstance(read.time, Ingestion):
        yield from _with_clock(read)
    elif not _computable(read.time):
        yield PlanError(
            "HR-TIME-011",
            f"time is {read.time!r}",
            'Name the column of event time: time="at"; or pass time=hr.ingestion().',
        )
    elif problem := _pace(read, delay):
        yield problem


def _computable(time: Any) -> bool:
    return isinstance(time, str | Expr) or (callable(time) and time is not ingestion)


def _event_time(draft: Draft, time: Any, schema: pa.Schema, site: Site | None) -> EventTime | None:
    """Event time as a column or a checked expression; where it is wrong, that is reported."""
    if isinstance(time, str) and (time in schema.names or time.isidentifier()):
        if problem := _column("time", time, schema):
            draft.report(problem, site)
        return time
    if time is None or isinstance(time, Ingestion):
        return time
    expr = cols.expression(draft, time, schema, site) if _computable(time) else None
    if expr is None:
        return None
    kind = cols.type_of(draft, expr, schema, site)
    problem = None if kind is None else _not_a_time(f"the time {bare_sql(expr.sql())!r}", kind)
    if problem:
        draft.report(problem, site)
    return ComputedTime(expr)


def _without_time(read: Timing) -> Iterator[PlanError]:
    if read.stated:
        yield PlanError(
            "HR-TIME-004",
            f"{read.stated[0]} is given, but not the column it is about",
            'Name the column of event time: time="at".',
        )


def _with_clock(read: Timing) -> Iterator[PlanError]:
    if read.stated:
        yield PlanError(
            "HR-TIME-010",
            f"{read.stated[0]} is given, but the rows take their time from the clock",
            f'Leave {read.stated[0]} out, or name a column of event time: time="at".',
        )


def _pace(read: Timing, delay: int | None) -> PlanError | None:
    """What is wrong with how far a split is said to have come."""
    if read.watermark is not None:
        other = "delay" if read.delay is not None else "in_order" if read.in_order else None
        return _stated_twice(other, "watermark") if other else None
    if delay and read.in_order:
        return _stated_twice("delay", "in_order")
    if read.delay is None and not read.in_order:
        return PlanError(
            "HR-TIME-002",
            f"time={_text(read.time)} needs a delay",
            'Say how late a row may come after a newer one: delay="2s"; '
            "or in_order=True if none ever does.",
        )
    if delay == 0 and read.delay is not None and not read.in_order:
        return PlanError(
            "HR-TIME-003",
            "a delay of zero makes every row late that comes after a newer one",
            'Give the rows some time, as in delay="2s"; or pass in_order=True.',
        )
    return None


def _stated_twice(one: str, other: str) -> PlanError:
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
    return _not_a_time(f"the {what} column {name!r}", schema.field(name).type)


def _not_a_time(what: str, kind: pa.DataType) -> PlanError | None:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind):
        return None
    return PlanError(
        "HR-TIME-006",
        f"{what} is of type {ddl_type(kind)}",
        "Event time is a timestamp, a date, or a bigint of milliseconds since 1970: read the "
        "column so, or compute it: time=\"to_timestamp(day, 'dd.MM.yyyy HH:mm')\".",
    )


def _text(time: object) -> str:
    return repr(time.sql() if isinstance(time, Expr) else title(time) if callable(time) else time)


def _strategy(
    draft: Draft, strategy: object, schema: pa.Schema, site: Site | None
) -> Strategy | None:
    """The strategy with its condition as an expression; None if there is none or it is wrong."""
    match strategy:
        case None:
            return None
        case Bounded() | CustomWatermark():
            return strategy
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
            f"watermark is {strategy!r}",
            'Write watermark=hr.watermarks.bounded("2s"), monotonous(), punctuated(...) '
            "or custom(...).",
        ),
        site,
    )
    return None


# Places. They are judged by their text alone, so a program can be built anywhere; whether a
# topic or folder exists is found out at the start of a run.


def own_schema(
    uri: Any, format: str | None, options: Mapping[str, Any]
) -> tuple[pa.Schema, str | None, bool]:
    """The schema that the input itself has, the format that gives it, and whether it is a guess."""
    source = open_source(uri, None, format, options)
    is_guess = getattr(source, "guessed", None) is not None
    return source.schema, format or getattr(source, "format", None), is_guess


def check_declared(
    uri: Any, schema: pa.Schema, format: str | None, options: Mapping[str, Any]
) -> None:
    """Refuse options that the kind of input does not take; without a schema opening does it."""
    if not isinstance(uri, str):
        return
    try:
        check_input(uri)
    except InputError:  # reported with the input
        return
    check_options(uri, schema, format, options)


def check_place(uri: object, method: str) -> None:
    """Refuse what is neither the text of a place nor an input or output that was made."""
    made = hasattr(uri, "splits") if method == "read" else isinstance(uri, Output)
    if isinstance(uri, str) or made:
        return
    example = f'"files:{uri}"' if hasattr(uri, "__fspath__") else '"log:topic" or "files:path"'
    raise PlanError("HR-PLAN-025", f"{method} needs a place, not {uri!r}", f"Write {example}.")


def check_kind(uri: object, method: str, options: Mapping[str, Any]) -> None:
    """Refuse a text that names no kind of input (to "read"), or no output that could be opened.

    What is made in the program has its options where it is made.
    """
    if method == "write":
        if isinstance(uri, str | Output):
            check_output(uri, options)
    elif isinstance(uri, str):
        check_input(uri)
    elif options:
        raise InputError(
            "HR-INPUT-013",
            f"an input that is made in the program has no option {next(iter(options))!r} here",
            "Pass it where the input is made: hr.rows(..., splits=2), hr.generate(..., seed=7).",
        )
    else:
        check_own(uri)
