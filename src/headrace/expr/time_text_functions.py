"""SQL functions of times as text, and of time zones.

Invariant: text is read by one strict grammar (ISO, or the format as `patterns` reads it);
what does not fit fails the row. Where a zone's clock shows a time twice, or not at all, the
offset before the change holds, as in Spark.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr.catalog import function
from headrace.expr.expression import Column, Expr, call, column_of, optional
from headrace.expr.patterns import time_reader, time_writer
from headrace.expr.types import Term, failing, text_literal
from headrace.expr.walk import read_text
from headrace.schema import TIMESTAMP

_SECONDS = "yyyy-MM-dd HH:mm:ss"


def _moment(args: Sequence[Term], to: pa.DataType, pattern: str = "") -> str:
    """A timestamp (or, of a text without a pattern, `to`) of text, a date or a timestamp."""
    x = args[0]
    if pt.is_null(x.type):
        return "CAST(NULL AS TIMESTAMP)"
    if x.type != pa.string():
        return x.sql if x.type == TIMESTAMP else f"CAST({x.sql} AS TIMESTAMP)"
    pattern = str(args[1].literal) if len(args) == 2 else pattern
    if not pattern:
        return read_text(x, to, "CAST")
    regex, iso = time_reader(pattern)
    grammar = text_literal(regex)
    respelt = f"regexp_replace({x.sql}, {grammar}, {text_literal(iso)})"
    test = f"regexp_matches({x.sql}, {grammar}) AND NOT starts_with({respelt}, '0000')"
    fail = f"make_timestamp({failing(x.sql, text_literal(f' is not {pattern}'))})"
    value = f"CAST({respelt} AS TIMESTAMP)"
    return f"(CASE WHEN {x.sql} IS NULL THEN NULL WHEN {test} THEN {value} ELSE {fail} END)"


def _read_as(to: pa.DataType) -> Callable[[Sequence[Term]], pa.DataType]:
    def result_type(args: Sequence[Term]) -> pa.DataType:
        text = args[0].type == pa.string() or pt.is_null(args[0].type)
        if not text and args[0].type not in (pa.date32(), TIMESTAMP):
            raise PlanError(
                "HR-EXPR-003",
                f"it takes text, a date or a timestamp, not {args[0].type}",
                "Of a number make one by timestamp_seconds.",
            )
        if not text and len(args) == 2:
            raise PlanError("HR-EXPR-003", "only text has a format", "Leave it out.")
        return to

    return result_type


def _date(args: Sequence[Term]) -> str:
    return f"CAST({_moment(args, pa.date32())} AS DATE)"


@function("any word? ->", _date, returns=_read_as(pa.date32()), may_fail=True)
def to_date(column: Column, format: str | None = None) -> Expr:
    """The date of a timestamp, in UTC, or of a text, in ISO or by a pattern."""
    return call("to_date", column_of(column), *optional(format))


@function(
    "any word? ->", lambda a: _moment(a, TIMESTAMP), returns=_read_as(TIMESTAMP), may_fail=True
)
def to_timestamp(column: Column, format: str | None = None) -> Expr:
    """The timestamp of a text, in ISO or by a pattern such as "dd/MM/yyyy HH:mm"."""
    return call("to_timestamp", column_of(column), *optional(format))


def _seconds(args: Sequence[Term]) -> str:
    return f"(epoch_us({_moment(args, TIMESTAMP, _SECONDS)}) // 1000000)"


@function(
    "any word? ->",
    _seconds,
    returns=_read_as(pa.int64()),
    may_fail=True,
    aliases="to_unix_timestamp",
)
def unix_timestamp(column: Column, format: str | None = None) -> Expr:
    """Seconds since 1970 of a text by a pattern ("yyyy-MM-dd HH:mm:ss"), or of a time."""
    return call("unix_timestamp", column_of(column), *optional(format))


_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # the seconds of the years 1 to 9999


def _spelt(args: Sequence[Term]) -> str:
    n = args[0].sql
    pattern = time_writer(args[1] if len(args) == 2 else Term("", pa.string(), _SECONDS))
    value = f"strftime(make_timestamp({n} * 1000000), {pattern})"
    message = failing(n, "' seconds are beyond the years 1 to 9999'")
    fail = f"CAST({message} AS VARCHAR)"
    return (
        f"(CASE WHEN {n} IS NULL THEN NULL WHEN {n} BETWEEN {_FIRST} AND {_LAST} THEN {value} "
        f"ELSE {fail} END)"
    )


@function("long word? -> text", _spelt, may_fail=True)
def from_unixtime(column: Column, format: str | None = None) -> Expr:
    """Seconds since 1970 as text by a pattern ("yyyy-MM-dd HH:mm:ss")."""
    return call("from_unixtime", column_of(column), *optional(format))


@function("timestamp word -> text", lambda a: f"strftime({a[0].sql}, {time_writer(a[1])})")
def date_format(column: Column, pattern: str) -> Expr:
    """Spelt by a pattern such as "yyyy-MM-dd HH:mm:ss"."""
    return call("date_format", column_of(column), pattern)


# zones


def _zone(term: Term) -> str:
    name = str(term.literal)
    if name == "UTC" or ("/" in name and name in zoneinfo.available_timezones()):
        return text_literal(name)
    raise PlanError(
        "HR-EXPR-003", f"{name!r} is not a time zone", "Use a name such as 'Europe/Rome' or 'UTC'."
    )


@function(
    "timestamp word -> timestamp",
    lambda a: f"timezone({_zone(a[1])}, timezone('UTC', {a[0].sql}))",
)
def from_utc_timestamp(column: Column, zone: str) -> Expr:
    """The wall clock of a zone at that instant, as a timestamp."""
    return call("from_utc_timestamp", column_of(column), zone)


def _to_utc(args: Sequence[Term]) -> str:
    """The instant at which a zone's clock shows the time: `local` minus an offset that is in
    force there and then, the earlier if there are two, or if there is none."""
    local, name = args[0].sql, _zone(args[1])

    def offset(at: str) -> str:
        return f"(timezone({name}, timezone('UTC', {at})) - {at})"

    before, after = (f"({local} - {offset(f'({local} {s} INTERVAL 1 DAY)')})" for s in "-+")

    def holds(at: str) -> str:
        return f"timezone({name}, timezone('UTC', {at})) = {local}"

    return (
        f"(CASE WHEN {holds(before)} THEN {before} WHEN {holds(after)} "
        f"THEN {after} ELSE {before} END)"
    )


@function("timestamp word -> timestamp", _to_utc)
def to_utc_timestamp(column: Column, zone: str) -> Expr:
    """The instant at which the wall clock of a zone shows that timestamp."""
    return call("to_utc_timestamp", column_of(column), zone)
