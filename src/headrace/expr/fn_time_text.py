"""Text to dates and timestamps and back, parts of them, and zones.

Invariant: text is read by one strict grammar (ISO, or the pattern as `time_formats` reads it);
what does not fit fails the row. Where a zone's clock shows a time twice, or not at all, the
offset before the change holds, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr import time_formats
from headrace.expr.cast import read_text
from headrace.expr.catalog import offer
from headrace.expr.fn_time import TIME, zone
from headrace.expr.types import DUCKDB, SPARK, TODAY, Term, cast, failing, text_literal
from headrace.schema import TIMESTAMP

Sql = Callable[[Sequence[Term]], str]
_SECONDS = "yyyy-MM-dd HH:mm:ss"


def _moment(args: Sequence[Term], dialect: str, to: pa.DataType, pattern: str = "") -> str:
    """A timestamp (or, of a text without a pattern, `to`) of text, a date or a timestamp."""
    x = args[0]
    if pt.is_null(x.type):
        return "CAST(NULL AS TIMESTAMP)"
    if x.type != pa.string():
        return x.sql if x.type == TIMESTAMP else f"CAST({x.sql} AS TIMESTAMP)"
    pattern = str(args[1].literal) if len(args) == 2 else pattern
    if not pattern:
        return read_text(x, to, dialect, "CAST")
    regex, iso = time_formats.read(pattern)
    grammar = text_literal(regex, dialect)
    if dialect == SPARK:
        value = f"to_timestamp({x.sql}, {text_literal(pattern, SPARK)})"
        test = f"({x.sql} RLIKE {grammar})"
        message = f"concat({x.sql}, {text_literal(f' is not {pattern}', SPARK)})"
        fail = f"CAST(raise_error({message}) AS TIMESTAMP)"
    else:
        found = f"regexp_replace({x.sql}, {grammar}, {text_literal(iso, DUCKDB)})"
        value = f"CAST({found} AS TIMESTAMP)"
        test = f"regexp_matches({x.sql}, {grammar}) AND NOT starts_with({found}, '0000')"
        message = failing(x.sql, text_literal(f" is not {pattern}", DUCKDB))
        fail = f"make_timestamp({message})"
    return f"(CASE WHEN {x.sql} IS NULL THEN NULL WHEN {test} THEN {value} ELSE {fail} END)"


def _taken(to: pa.DataType) -> Callable[[Sequence[Term]], pa.DataType]:
    def gives(args: Sequence[Term]) -> pa.DataType:
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

    return gives


def _timestamp(dialect: str) -> Callable[[Sequence[Term]], str]:
    return lambda args: _moment(args, dialect, TIMESTAMP)


def _date(dialect: str) -> Callable[[Sequence[Term]], str]:
    return lambda args: f"CAST({_moment(args, dialect, pa.date32())} AS DATE)"


def _seconds(args: Sequence[Term]) -> str:
    return f"(epoch_us({_moment(args, DUCKDB, TIMESTAMP, _SECONDS)}) // 1000000)"


def _spark_seconds(args: Sequence[Term]) -> str:
    return f"unix_timestamp({_moment(args, SPARK, TIMESTAMP, _SECONDS)})"


def _offer(
    name: str, to: pa.DataType, make: Callable[[str], Callable[[Sequence[Term]], str]]
) -> None:
    offer(TIME, name, "any word? ->", make(DUCKDB), make(SPARK), gives=_taken(to), may_fail=True)


_offer("to_timestamp", TIMESTAMP, _timestamp)
_offer("to_date", pa.date32(), _date)
_offer("unix_timestamp", pa.int64(), lambda d: _seconds if d == DUCKDB else _spark_seconds)


_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # the seconds of the years 1 to 9999


_BEYOND = "seconds are beyond the years 1 to 9999"


def _pattern(args: Sequence[Term]) -> Term:
    return args[1] if len(args) == 2 else Term("", pa.string(), _SECONDS)


def _spelt(args: Sequence[Term]) -> str:
    n = args[0].sql
    pattern = time_formats.written(_pattern(args))
    value = f"strftime(make_timestamp({n} * 1000000), {pattern})"
    message = failing(n, f"' {_BEYOND}'")
    fail = f"CAST({message} AS VARCHAR)"
    return (
        f"(CASE WHEN {n} IS NULL THEN NULL WHEN {n} BETWEEN {_FIRST} AND {_LAST} THEN {value} "
        f"ELSE {fail} END)"
    )


def _spark_spelt(args: Sequence[Term]) -> str:
    n, pattern = args[0].sql, _pattern(args)
    time_formats.written(pattern)
    fail = f"CAST(raise_error('{_BEYOND}') AS STRING)"
    value = f"from_unixtime({n}, {text_literal(str(pattern.literal), SPARK)})"
    return (
        f"(CASE WHEN {n} IS NULL THEN NULL WHEN {n} BETWEEN {_FIRST}L AND {_LAST}L THEN {value} "
        f"ELSE {fail} END)"
    )


offer(TIME, "from_unixtime", "long word? -> text", _spelt, _spark_spelt, may_fail=True)

offer(TIME, "current_date", "-> date", TODAY, "current_date()")

_UNITS = {"year": "year", "yyyy": "year", "yy": "year", "quarter": "quarter", "month": "month",
          "mon": "month", "mm": "month", "week": "week"}  # fmt: skip


def _trunc(dialect: str) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        unit = _UNITS.get(str(args[1].literal).lower())
        if unit is None:
            raise PlanError(
                "HR-EXPR-003",
                f"{args[1].literal!r} is not a unit here",
                f"Units are {', '.join(_UNITS)}.",
            )
        if dialect == SPARK:
            return f"trunc(CAST({args[0].sql} AS DATE), '{unit}')"
        return f"CAST(date_trunc('{unit}', {args[0].sql}) AS DATE)"

    return sql


offer(TIME, "trunc", "timestamp word -> date", _trunc(DUCKDB), _trunc(SPARK))


def _to_utc(args: Sequence[Term]) -> str:
    """The instant at which a zone's clock shows the time: `local` minus an offset that is in
    force there and then, the earlier if there are two, or if there is none."""
    local, name = args[0].sql, zone(args[1], DUCKDB)

    def offset(at: str) -> str:
        return f"(timezone({name}, timezone('UTC', {at})) - {at})"

    before, after = (f"({local} - {offset(f'({local} {s} INTERVAL 1 DAY)')})" for s in "-+")

    def holds(at: str) -> str:
        return f"timezone({name}, timezone('UTC', {at})) = {local}"

    return (
        f"(CASE WHEN {holds(before)} THEN {before} WHEN {holds(after)} "
        f"THEN {after} ELSE {before} END)"
    )


offer(
    TIME,
    "to_utc_timestamp",
    "timestamp word -> timestamp",
    _to_utc,
    lambda a: f"to_utc_timestamp({a[0].sql}, {zone(a[1], SPARK)})",
)

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


def _field(args: Sequence[Term]) -> str:
    part = _NAMES.get(str(args[0].literal).lower())
    if part is not None:
        return part
    raise PlanError(
        "HR-EXPR-003",
        f"{args[0].literal!r} is not a part of a time",
        f"Parts are {', '.join(_PARTS)}.",
    )


def _part(args: Sequence[Term]) -> str:
    part, x = _field(args), args[1]
    if part in ("hour", "minute", "second"):
        x = cast(x, TIMESTAMP, DUCKDB)
    if part == "second":
        return _FRACTION.format(x.sql)
    made = f"{_DUCKDB_PARTS.get(part, part)}({x.sql})"
    return f"CAST({made}{' + 1' * (part == 'dayofweek')} AS INTEGER)"


def _part_type(args: Sequence[Term]) -> pa.DataType:
    if args[1].type not in (pa.date32(), TIMESTAMP):
        raise PlanError("HR-EXPR-003", "it takes a date or a timestamp", "Use cast.")
    return pa.decimal128(8, 6) if _field(args) == "second" else pa.int32()


offer(
    TIME,
    "date_part",
    "word any ->",
    _part,
    lambda a: f"date_part('{_field(a)}', {a[1].sql})",
    gives=_part_type,
)
