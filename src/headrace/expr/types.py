"""Types of expressions: which values meet, what comes out, what DuckDB calls it.

Invariant: inside an expression there is one type of each kind. A float is a double, an
unsigned integer the next signed one, every timestamp is UTC in microseconds (in DuckDB one
without a zone, which is many times faster there than one with). What two types have in common
is decided here, never by an engine's own implicit casts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.schema import TIMESTAMP, ddl_type

TODAY = "\0today"  # where a query takes the epoch's date
NAN = "CAST('NaN' AS DOUBLE)"
UNREAD = "\N{SYMBOL FOR SUBSTITUTE}"  # before text that DuckDB might read and must not

DIGEST, JSON_OBJECT = "hr_digest", "hr_json_object"  # functions that the kernel adds to DuckDB

_INTS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_SIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
}
_NAMES = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER",
    pa.int64(): "BIGINT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "VARCHAR",
    pa.binary(): "BLOB", pa.date32(): "DATE", TIMESTAMP: "TIMESTAMP",
}  # fmt: skip


class Term(NamedTuple):
    """A lowered expression: its SQL, its type, and its value if it is a literal."""

    sql: str
    type: pa.DataType
    literal: object = None


def is_int(t: pa.DataType) -> bool:
    return t in _INTS


def is_number(t: pa.DataType) -> bool:
    return t in _INTS or t == pa.float64() or pt.is_decimal128(t)


def is_nested(t: pa.DataType) -> bool:
    return bool(pt.is_nested(t))


def computed(t: pa.DataType) -> pa.DataType:
    """The type in which a column of type `t` takes part in an expression."""
    if t in _SIGNED:
        return _SIGNED[t]
    if pt.is_floating(t):
        return pa.float64()
    if pt.is_large_string(t) or t == pa.string_view():
        return pa.string()
    if pt.is_large_binary(t) or pt.is_fixed_size_binary(t) or t == pa.binary_view():
        return pa.binary()
    if pt.is_timestamp(t):
        return TIMESTAMP
    if pt.is_date64(t):
        return pa.date32()
    if pt.is_dictionary(t):
        return computed(t.value_type)
    return _computed_nested(t)


def _computed_nested(t: pa.DataType) -> pa.DataType:
    if pt.is_list(t) or pt.is_large_list(t) or pt.is_fixed_size_list(t):
        return pa.list_(computed(t.value_type))
    if pt.is_struct(t):
        return pa.struct([(f.name, computed(f.type)) for f in t])
    if pt.is_map(t):
        return pa.map_(computed(t.key_type), computed(t.item_type))
    return t


def zoneless(t: pa.DataType) -> pa.DataType:
    """The type as it enters DuckDB: timestamps in UTC without a zone."""
    if pt.is_timestamp(t):
        return pa.timestamp(t.unit)
    if pt.is_struct(t):
        return pa.struct([f.with_type(zoneless(f.type)) for f in t])
    if pt.is_list(t):
        return pa.list_(t.value_field.with_type(zoneless(t.value_type)))
    if pt.is_map(t):
        return pa.map_(zoneless(t.key_type), zoneless(t.item_type))
    return t


def type_name(t: pa.DataType) -> str:
    """What DuckDB calls a type."""
    plain = _NAMES.get(t)
    if plain is not None:
        return plain
    if pt.is_decimal(t):
        return f"DECIMAL({t.precision},{t.scale})"
    if pt.is_list(t):
        return f"{type_name(t.value_type)}[]"
    if pt.is_map(t):
        return f"MAP({type_name(t.key_type)}, {type_name(t.item_type)})"
    if pt.is_struct(t):
        return f"STRUCT({', '.join(f'{quote(f.name)} {type_name(f.type)}' for f in t)})"
    raise TypeError(f"no DuckDB type for {t}")


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text_literal(value: str) -> str:
    if "\0" in value:  # which no SQL text can hold, and marks our own places
        return f"({' || chr(0) || '.join(map(text_literal, value.split(chr(0))))})"
    return "'" + value.replace("'", "''") + "'"


def failing(*parts: str) -> str:
    """A long in DuckDB whose computation fails with the message of these parts."""
    return f"CAST(concat('{UNREAD * 2}', {', '.join(parts)}) AS BIGINT)"


def type_text(t: pa.DataType) -> str:
    """A type as the user would write it."""
    return "null" if pt.is_null(t) else ddl_type(t)


def common(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """The type in which all of `types` can be held without loss of kind; None if there is none."""
    result = pa.null()
    for t in types:
        joined = _join(result, t)
        if joined is None:
            return None
        result = joined
    return result


def _join(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if a == b or pt.is_null(b):
        return a
    if pt.is_null(a):
        return b
    if is_number(a) and is_number(b):
        return _join_numbers(a, b)
    if {a, b} == {pa.date32(), TIMESTAMP}:
        return TIMESTAMP
    if pt.is_list(a) and pt.is_list(b):
        inner = _join(a.value_type, b.value_type)
        return None if inner is None else pa.list_(inner)
    return None


def _join_numbers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pa.float64() in (a, b):
        return pa.float64()
    if is_int(a) and is_int(b):
        return a if _DIGITS[a] >= _DIGITS[b] else b
    a, b = as_decimal(a), as_decimal(b)
    scale = max(a.scale, b.scale)
    digits = max(a.precision - a.scale, b.precision - b.scale) + scale
    return pa.decimal128(digits, scale) if digits <= 38 else None


def as_decimal(t: pa.DataType) -> pa.Decimal128Type:
    return pa.decimal128(_DIGITS[t], 0) if is_int(t) else t


def cast(term: Term, to: pa.DataType) -> Term:
    """`term` in a type that holds it: only widening happens here; see `cast` for the rest."""
    if term.type == to:
        return term
    value = term.literal
    if type(value) is int and (is_int(to) or to == pa.float64()):
        return int_literal(value, to)
    if to == pa.float64() and _long_decimal(term.type):
        return Term(f"CAST(CAST({term.sql} AS VARCHAR) AS DOUBLE)", to)
    return Term(f"CAST({term.sql} AS {type_name(to)})", to)


def _long_decimal(t: pa.DataType) -> bool:
    """Beyond 15 digits DuckDB's own cast to double may be off by a bit."""
    return bool(pt.is_decimal(t) and t.precision > 15)


def int_literal(value: int, t: pa.DataType) -> Term:
    if t == pa.float64():
        return Term(f"CAST('{value}' AS DOUBLE)", t, value)
    return Term(f"CAST({value} AS {type_name(t)})", t, value)


def ordered(kind: pa.DataType) -> pa.DataType:
    """The type, if its values have one order in both engines; HR-EXPR-003 if not."""
    if is_nested(kind):  # a null inside one is the largest in DuckDB and the smallest in Spark
        raise PlanError(
            "HR-EXPR-003", f"{type_text(kind)} cannot be compared", "Compare its parts."
        )
    return kind
