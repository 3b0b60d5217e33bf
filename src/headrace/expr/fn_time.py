"""Functions of dates and timestamps.

Invariant: a timestamp is an instant and its fields are those of UTC; another zone is asked
for by name (`from_utc_timestamp`), never taken from a machine. Calendars are Gregorian, also
before 1582; months end where they end (31 January plus a month is 29 February).
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr import time_formats
from headrace.expr.catalog import offer
from headrace.expr.types import DUCKDB, SPARK, Term, text_literal
from headrace.schema import TIMESTAMP

TIME = "dates and times"


def _field(name: str, duckdb: str) -> None:
    """A part of a date or of a timestamp."""
    offer(TIME, name, "any ->", duckdb, f"{name}({{0}})", gives=_part)


def _part(args: Sequence[Term]) -> pa.DataType:
    if args[0].type in (pa.date32(), TIMESTAMP):
        return pa.int32()
    raise PlanError("HR-EXPR-003", "it takes a date or a timestamp", "Use cast.")


for _name in ("year", "quarter", "month", "dayofmonth", "dayofyear", "weekofyear"):
    _field(_name, f"CAST({_name}({{0}}) AS INTEGER)")
_field("dayofweek", "CAST(dayofweek({0}) + 1 AS INTEGER)")
_field("weekday", "CAST(isodow({0}) - 1 AS INTEGER)")
for _name in ("hour", "minute", "second"):
    offer(TIME, _name, "timestamp -> int", f"CAST({_name}({{0}}) AS INTEGER)", f"{_name}({{0}})")

offer(TIME, "date_add", "date int -> date", "({0} + {1})", "date_add({0}, {1})")
offer(TIME, "date_sub", "date int -> date", "({0} - {1})", "date_sub({0}, {1})")
offer(TIME, "date_diff", "date date -> int", "CAST({0} - {1} AS INTEGER)", "datediff({0}, {1})")
offer(
    TIME,
    "add_months",
    "date int -> date",
    "CAST({0} + to_months({1}) AS DATE)",
    "add_months({0}, {1})",
)
offer(TIME, "last_day", "date -> date", "last_day({0})")
offer(TIME, "make_date", "int int int -> date", "make_date({0}, {1}, {2})")
offer(
    TIME, "unix_date", "date -> int", "CAST({0} - DATE '1970-01-01' AS INTEGER)", "unix_date({0})"
)
offer(
    TIME,
    "date_from_unix_date",
    "int -> date",
    "(DATE '1970-01-01' + {0})",
    "date_from_unix_date({0})",
)


def _whole(per: int) -> str:
    """Microseconds to a larger unit, toward the past: also before 1970."""
    micros = "epoch_us({0})"
    return f"(({micros} - (({micros} % {per}) + {per}) % {per}) // {per})"


offer(TIME, "unix_micros", "timestamp -> long", "epoch_us({0})", "unix_micros({0})")
offer(TIME, "unix_millis", "timestamp -> long", _whole(1_000), "unix_millis({0})")
offer(TIME, "unix_seconds", "timestamp -> long", _whole(1_000_000), "unix_seconds({0})")
offer(TIME, "timestamp_micros", "long -> timestamp", "make_timestamp({0})", "timestamp_micros({0})")
offer(
    TIME,
    "timestamp_millis",
    "long -> timestamp",
    "make_timestamp({0} * 1000)",
    "timestamp_millis({0})",
)
offer(
    TIME,
    "timestamp_seconds",
    "long -> timestamp",
    "make_timestamp({0} * 1000000)",
    "timestamp_seconds({0})",
)

_TRUNCATED = ("millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_MICROS = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
           "hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000}  # fmt: skip


def _unit(term: Term, known: Sequence[str]) -> str:
    word = str(term.literal).lower()
    if word in known:
        return word
    raise PlanError(
        "HR-EXPR-003", f"{term.literal!r} is not a unit here", f"Units are {', '.join(known)}."
    )


def _truncate(args: Sequence[Term]) -> str:
    return f"date_trunc('{_unit(args[0], _TRUNCATED)}', {args[1].sql})"


offer(TIME, "date_trunc", "word timestamp -> timestamp", _truncate)


def _elapsed(micros: str, divide: str) -> Callable[[Sequence[Term]], str]:
    """Whole units from the second argument to the third, toward zero."""

    def sql(args: Sequence[Term]) -> str:
        per = _MICROS[_unit(args[0], tuple(_MICROS))]
        return f"(({micros}({args[2].sql}) - {micros}({args[1].sql})) {divide} {per})"

    return sql


offer(
    TIME,
    "timestamp_diff",
    "word timestamp timestamp -> long",
    _elapsed("epoch_us", "//"),
    _elapsed("unix_micros", "div"),
)


def zone(term: Term, dialect: str) -> str:
    name = str(term.literal)
    if name == "UTC" or ("/" in name and name in zoneinfo.available_timezones()):
        return text_literal(name, dialect)
    raise PlanError(
        "HR-EXPR-003", f"{name!r} is not a time zone", "Use a name such as 'Europe/Rome' or 'UTC'."
    )


offer(
    TIME,
    "from_utc_timestamp",
    "timestamp word -> timestamp",
    lambda a: f"timezone({zone(a[1], DUCKDB)}, timezone('UTC', {a[0].sql}))",
    lambda a: f"from_utc_timestamp({a[0].sql}, {zone(a[1], SPARK)})",
)


def _spark_format(args: Sequence[Term]) -> str:
    time_formats.written(args[1])
    return f"date_format({args[0].sql}, {text_literal(str(args[1].literal), SPARK)})"


offer(
    TIME,
    "date_format",
    "timestamp word -> text",
    lambda a: f"strftime({a[0].sql}, {time_formats.written(a[1])})",
    _spark_format,
)
