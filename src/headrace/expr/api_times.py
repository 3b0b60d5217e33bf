"""Functions of dates and timestamps, for `headrace.functions`.

A text where a column is expected is the column's name; elsewhere it is the text itself.
"""

from __future__ import annotations

from typing import Any

from headrace.expr.expression import Column, Expr, call, column_of


def year(column: Column) -> Expr:
    """The year."""
    return call("year", column_of(column))


def quarter(column: Column) -> Expr:
    """The quarter, 1 to 4."""
    return call("quarter", column_of(column))


def month(column: Column) -> Expr:
    """The month, 1 to 12."""
    return call("month", column_of(column))


def dayofmonth(column: Column) -> Expr:
    """The day of the month, 1 to 31."""
    return call("dayofmonth", column_of(column))


def dayofyear(column: Column) -> Expr:
    """The day of the year, 1 to 366."""
    return call("dayofyear", column_of(column))


def dayofweek(column: Column) -> Expr:
    """The day of the week: Sunday is 1, Saturday 7."""
    return call("dayofweek", column_of(column))


def weekday(column: Column) -> Expr:
    """The day of the week: Monday is 0, Sunday 6."""
    return call("weekday", column_of(column))


def weekofyear(column: Column) -> Expr:
    """The ISO week of the year, 1 to 53."""
    return call("weekofyear", column_of(column))


def hour(column: Column) -> Expr:
    """The hour in UTC."""
    return call("hour", column_of(column))


def minute(column: Column) -> Expr:
    """The minute."""
    return call("minute", column_of(column))


def second(column: Column) -> Expr:
    """The second."""
    return call("second", column_of(column))


def date_add(column: Column, days: Any) -> Expr:
    """The date so many days later."""
    return call("date_add", column_of(column), days)


def date_sub(column: Column, days: Any) -> Expr:
    """The date so many days earlier."""
    return call("date_sub", column_of(column), days)


def date_diff(end: Column, start: Column) -> Expr:
    """The number of days from `start` to `end`."""
    return call("date_diff", column_of(end), column_of(start))


def add_months(column: Column, months: Any) -> Expr:
    """The date so many months later, at most the month's last day."""
    return call("add_months", column_of(column), months)


def last_day(column: Column) -> Expr:
    """The last day of its month."""
    return call("last_day", column_of(column))


def make_date(year: Column, month: Column, day: Column) -> Expr:
    """A date of its parts."""
    return call("make_date", column_of(year), column_of(month), column_of(day))


def to_date(column: Column, format: str | None = None) -> Expr:
    """The date of a timestamp, in UTC, or of a text, in ISO or by a pattern."""
    return call("to_date", column_of(column), *_given(format))


def to_timestamp(column: Column, format: str | None = None) -> Expr:
    """The timestamp of a text, in ISO or by a pattern such as "dd/MM/yyyy HH:mm"."""
    return call("to_timestamp", column_of(column), *_given(format))


def unix_timestamp(column: Column, format: str | None = None) -> Expr:
    """Seconds since 1970 of a text by a pattern ("yyyy-MM-dd HH:mm:ss"), or of a time."""
    return call("unix_timestamp", column_of(column), *_given(format))


def from_unixtime(column: Column, format: str | None = None) -> Expr:
    """Seconds since 1970 as text by a pattern ("yyyy-MM-dd HH:mm:ss")."""
    return call("from_unixtime", column_of(column), *_given(format))


def trunc(column: Column, unit: str) -> Expr:
    """The date on which its week, month, quarter or year begins."""
    return call("trunc", column_of(column), unit)


def date_part(part: str, column: Column) -> Expr:
    """A part of a time by its name; "second" is a decimal with the fraction."""
    return call("date_part", part, column_of(column))


def to_utc_timestamp(column: Column, zone: str) -> Expr:
    """The instant at which the wall clock of a zone shows that timestamp."""
    return call("to_utc_timestamp", column_of(column), zone)


def _given(format: str | None) -> tuple[str, ...]:
    return () if format is None else (format,)


def unix_date(column: Column) -> Expr:
    """Days since 1970."""
    return call("unix_date", column_of(column))


def date_from_unix_date(column: Column) -> Expr:
    """The date so many days after 1970 began."""
    return call("date_from_unix_date", column_of(column))


def unix_micros(column: Column) -> Expr:
    """Microseconds since 1970."""
    return call("unix_micros", column_of(column))


def unix_millis(column: Column) -> Expr:
    """Milliseconds since 1970."""
    return call("unix_millis", column_of(column))


def unix_seconds(column: Column) -> Expr:
    """Seconds since 1970."""
    return call("unix_seconds", column_of(column))


def timestamp_micros(column: Column) -> Expr:
    """The timestamp so many microseconds after 1970 began."""
    return call("timestamp_micros", column_of(column))


def timestamp_millis(column: Column) -> Expr:
    """The timestamp so many milliseconds after 1970 began."""
    return call("timestamp_millis", column_of(column))


def timestamp_seconds(column: Column) -> Expr:
    """The timestamp so many seconds after 1970 began."""
    return call("timestamp_seconds", column_of(column))


def date_trunc(unit: str, column: Column) -> Expr:
    """The start of its hour, day, week, month ..."""
    return call("date_trunc", unit, column_of(column))


def timestamp_diff(unit: str, start: Column, end: Column) -> Expr:
    """Whole hours, days ... from `start` to `end`."""
    return call("timestamp_diff", unit, column_of(start), column_of(end))


def from_utc_timestamp(column: Column, zone: str) -> Expr:
    """The wall clock of a zone at that instant, as a timestamp."""
    return call("from_utc_timestamp", column_of(column), zone)


def date_format(column: Column, pattern: str) -> Expr:
    """Spelt by a pattern such as "yyyy-MM-dd HH:mm:ss"."""
    return call("date_format", column_of(column), pattern)
