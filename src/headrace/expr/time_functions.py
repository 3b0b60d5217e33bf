"""SQL functions of dates and timestamps: fields, arithmetic, epochs, units.

Invariant: a timestamp is an instant and its fields are those of UTC; another zone is asked
for by name (`from_utc_timestamp`), never taken from a machine. Calendars are Gregorian, also
before 1582; months end where they end (31 January plus a month is 29 February).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.catalog import function
from headrace.expr.expression import Column, Expr, call, column_of
from headrace.expr.rounding_functions import rounded_double
from headrace.expr.types import TODAY, Term, cast, failing, text_literal
from headrace.schema import TIMESTAMP

# fields


def _field_type(args: Sequence[Term]) -> pa.DataType:
    if args[0].type in (pa.date32(), TIMESTAMP):
        return pa.int32()
    raise PlanError("HR-EXPR-003", "it takes a date or a timestamp", "Use cast.")


@function("any ->", "CAST(year({0}) AS INTEGER)", returns=_field_type)
def year(column: Column) -> Expr:
    """The year."""
    return call("year", column_of(column))


@function("any ->", "CAST(quarter({0}) AS INTEGER)", returns=_field_type)
def quarter(column: Column) -> Expr:
    """The quarter, 1 to 4."""
    return call("quarter", column_of(column))


@function("any ->", "CAST(month({0}) AS INTEGER)", returns=_field_type)
def month(column: Column) -> Expr:
    """The month, 1 to 12."""
    return call("month", column_of(column))


@function("any ->", "CAST(dayofmonth({0}) AS INTEGER)", returns=_field_type, aliases="day")
def dayofmonth(column: Column) -> Expr:
    """The day of the month, 1 to 31."""
    return call("dayofmonth", column_of(column))


@function("any ->", "CAST(dayofyear({0}) AS INTEGER)", returns=_field_type)
def dayofyear(column: Column) -> Expr:
    """The day of the year, 1 to 366."""
    return call("dayofyear", column_of(column))


@function("any ->", "CAST(dayofweek({0}) + 1 AS INTEGER)", returns=_field_type)
def dayofweek(column: Column) -> Expr:
    """The day of the week: Sunday is 1, Saturday 7."""
    return call("dayofweek", column_of(column))


@function("any ->", "CAST(isodow({0}) - 1 AS INTEGER)", returns=_field_type)
def weekday(column: Column) -> Expr:
    """The day of the week: Monday is 0, Sunday 6."""
    return call("weekday", column_of(column))


@function("any ->", "CAST(weekofyear({0}) AS INTEGER)", returns=_field_type)
def weekofyear(column: Column) -> Expr:
    """The ISO week of the year, 1 to 53."""
    return call("weekofyear", column_of(column))


@function("timestamp -> int", "CAST(hour({0}) AS INTEGER)")
def hour(column: Column) -> Expr:
    """The hour in UTC."""
    return call("hour", column_of(column))


@function("timestamp -> int", "CAST(minute({0}) AS INTEGER)")
def minute(column: Column) -> Expr:
    """The minute."""
    return call("minute", column_of(column))


@function("timestamp -> int", "CAST(second({0}) AS INTEGER)")
def second(column: Column) -> Expr:
    """The second."""
    return call("second", column_of(column))


_PARTS = {
    "year": "y years yr yrs", "yearofweek": "", "quarter": "qtr", "month": "mon mons months",
    "week": "w weeks", "day": "d days", "dayofweek": "dow", "dayofweek_iso": "dow_iso", "doy": "",
    "hour": "h hours hr hrs", "minute": "m min mins minutes", "second": "s sec seconds secs",
}  # fmt: skip
_NAMES = {name: part for part, others in _PARTS.items() for name in (part, *others.split())}
_DUCKDB_PARTS = {"yearofweek": "isoyear", "doy": "dayofyear", "dayofweek_iso": "isodow",
                 "day": "dayofmonth"}  # fmt: skip
_MICRO = "CAST('0.000001' AS DECIMAL(7,6))"
_FRACTION = f"CAST(CAST(microsecond({{}}) AS DECIMAL(10,0)) * {_MICRO} AS DECIMAL(8,6))"


def part_name(args: Sequence[Term]) -> str:
    part = _NAMES.get(str(args[0].literal).lower())
    if part is not None:
        return part
    raise PlanError(
        "HR-EXPR-003",
        f"{args[0].literal!r} is not a part of a time",
        f"Parts are {', '.join(_PARTS)}.",
    )


def _part(args: Sequence[Term]) -> str:
    part, x = part_name(args), args[1]
    if part in ("hour", "minute", "second"):
        x = cast(x, TIMESTAMP)
    if part == "second":
        return _FRACTION.format(x.sql)
    field = f"{_DUCKDB_PARTS.get(part, part)}({x.sql})"
    return f"CAST({field}{' + 1' * (part == 'dayofweek')} AS INTEGER)"


def _part_type(args: Sequence[Term]) -> pa.DataType:
    if args[1].type not in (pa.date32(), TIMESTAMP):
        raise PlanError("HR-EXPR-003", "it takes a date or a timestamp", "Use cast.")
    return pa.decimal128(8, 6) if part_name(args) == "second" else pa.int32()


@function("word any ->", _part, returns=_part_type, aliases="datepart")
def date_part(part: str, column: Column) -> Expr:
    """A part of a time by its name; "second" is a decimal with the fraction."""
    return call("date_part", part, column_of(column))


# dates


@function("-> date", TODAY, aliases="curdate")
def current_date() -> Expr:
    """The date on which the epoch began, in UTC; a replayed epoch sees the same."""
    return call("current_date")


@function("date int -> date", "({0} + {1})", aliases="dateadd", may_fail=True)
def date_add(column: Column, days: Any) -> Expr:
    """The date so many days later."""
    return call("date_add", column_of(column), days)


@function("date int -> date", "({0} - {1})", may_fail=True)
def date_sub(column: Column, days: Any) -> Expr:
    """The date so many days earlier."""
    return call("date_sub", column_of(column), days)


@function("date date -> int", "CAST({0} - {1} AS INTEGER)", aliases="datediff")
def date_diff(end: Column, start: Column) -> Expr:
    """The number of days from `start` to `end`."""
    return call("date_diff", column_of(end), column_of(start))


@function("date int -> date", "CAST({0} + to_months({1}) AS DATE)", may_fail=True)
def add_months(column: Column, months: Any) -> Expr:
    """The date so many months later, at most the month's last day."""
    return call("add_months", column_of(column), months)


@function("date -> date", "last_day({0})")
def last_day(column: Column) -> Expr:
    """The last day of its month."""
    return call("last_day", column_of(column))


@function("int int int -> date", "make_date({0}, {1}, {2})", may_fail=True)
def make_date(year: Column, month: Column, day: Column) -> Expr:
    """A date of its parts."""
    return call("make_date", column_of(year), column_of(month), column_of(day))


def _time_of_parts(args: Sequence[Term]) -> str:
    """DuckDB's, which also takes 24 o'clock and 60.5 seconds, but only what Spark takes, and
    within the years 1 to 9999; seconds are rounded to microseconds by their decimal spelling."""
    parts = [*(a.sql for a in args[:5]), rounded_double(args[5].sql, 6)]
    missing = " OR ".join(f"{p} IS NULL" for p in parts)
    year, hour, minute, seconds = parts[0], *parts[3:]
    ok = f"{hour} BETWEEN 0 AND 23 AND {minute} BETWEEN 0 AND 59 AND {seconds} BETWEEN 0 AND 60"
    ok += f" AND {year} BETWEEN 1 AND 9999"
    time = f"'year ', {year}, ', ', {hour}, ':', {minute}, ':', {seconds}"
    fail = f"make_timestamp({failing(time, text_literal(' is no time'))})"
    whole = f"make_timestamp({', '.join(parts)})"
    return f"CASE WHEN {missing} THEN NULL WHEN {ok} THEN {whole} ELSE {fail} END"


@function("long long long long long double -> timestamp", _time_of_parts, may_fail=True)
def make_timestamp(
    year: Column, month: Column, day: Column, hour: Column, minute: Column, second: Column
) -> Expr:
    """A time of its parts; the seconds may have a fraction."""
    return call("make_timestamp", *map(column_of, (year, month, day, hour, minute, second)))


# since 1970


@function("date -> int", "CAST({0} - DATE '1970-01-01' AS INTEGER)")
def unix_date(column: Column) -> Expr:
    """Days since 1970."""
    return call("unix_date", column_of(column))


@function("int -> date", "(DATE '1970-01-01' + {0})", may_fail=True)
def date_from_unix_date(column: Column) -> Expr:
    """The date so many days after 1970 began."""
    return call("date_from_unix_date", column_of(column))


def _whole(per: int) -> str:
    """Microseconds to a larger unit, toward the past: also before 1970."""
    micros = "epoch_us({0})"
    return f"(({micros} - (({micros} % {per}) + {per}) % {per}) // {per})"


@function("timestamp -> long", "epoch_us({0})")
def unix_micros(column: Column) -> Expr:
    """Microseconds since 1970."""
    return call("unix_micros", column_of(column))


@function("timestamp -> long", _whole(1_000))
def unix_millis(column: Column) -> Expr:
    """Milliseconds since 1970."""
    return call("unix_millis", column_of(column))


@function("timestamp -> long", _whole(1_000_000))
def unix_seconds(column: Column) -> Expr:
    """Seconds since 1970."""
    return call("unix_seconds", column_of(column))


@function("long -> timestamp", "make_timestamp({0})", may_fail=True)
def timestamp_micros(column: Column) -> Expr:
    """The timestamp so many microseconds after 1970 began."""
    return call("timestamp_micros", column_of(column))


@function("long -> timestamp", "make_timestamp({0} * 1000)", may_fail=True)
def timestamp_millis(column: Column) -> Expr:
    """The timestamp so many milliseconds after 1970 began."""
    return call("timestamp_millis", column_of(column))


@function("long -> timestamp", "make_timestamp({0} * 1000000)", may_fail=True)
def timestamp_seconds(column: Column) -> Expr:
    """The timestamp so many seconds after 1970 began."""
    return call("timestamp_seconds", column_of(column))


# units

_TRUNCATED = ("millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year")
_MICROS = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
           "hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000}  # fmt: skip
_OF_DATES = {"year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month",
             "mon": "month", "mm": "month", "week": "week"}  # fmt: skip


def _unit(term: Term, units: Sequence[str]) -> str:
    word = str(term.literal).lower()
    if word in units:
        return word
    raise PlanError(
        "HR-EXPR-003", f"{term.literal!r} is not a unit here", f"Units are {', '.join(units)}."
    )


@function(
    "word timestamp -> timestamp",
    lambda args: f"date_trunc('{_unit(args[0], _TRUNCATED)}', {args[1].sql})",
)
def date_trunc(unit: str, column: Column) -> Expr:
    """The start of its hour, day, week, month ..."""
    return call("date_trunc", unit, column_of(column))


def _trunc(args: Sequence[Term]) -> str:
    unit = _OF_DATES[_unit(args[1], tuple(_OF_DATES))]
    return f"CAST(date_trunc('{unit}', {args[0].sql}) AS DATE)"


@function("timestamp word -> date", _trunc)
def trunc(column: Column, unit: str) -> Expr:
    """The date on which its week, month, quarter or year begins."""
    return call("trunc", column_of(column), unit)


def _elapsed(args: Sequence[Term]) -> str:
    """Whole units from the second argument to the third, toward zero."""
    per = _MICROS[_unit(args[0], tuple(_MICROS))]
    return f"((epoch_us({args[2].sql}) - epoch_us({args[1].sql})) // {per})"


@function("word timestamp timestamp -> long", _elapsed)
def timestamp_diff(unit: str, start: Column, end: Column) -> Expr:
    """Whole hours, days ... from `start` to `end`."""
    return call("timestamp_diff", unit, column_of(start), column_of(end))
