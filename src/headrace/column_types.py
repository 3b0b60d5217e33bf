"""Which Arrow columns can become a column of a schema: those whose values it would accept as rows.

Text is no number and a number no text, a fraction no time, and a struct has no field but those
that are declared. Here only types and the reach of times are judged; whether each value fits
is seen when it is cast.

`cast_exactly` changes no value: where Arrow would bend one, ValueError. Arrow refuses integers
that do not fit and fractions cut off, but cuts the time of day off a date, makes infinity of a
large double in a float, and rounds doubles to decimals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.arrays import beyond, flat, milliseconds
from headrace.schema import ddl_type

FAR = "a time is not within the years 1 to 9999"


def _any(*tests: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(test(kind) for test in tests)


_text = _any(pt.is_string, pt.is_large_string, pt.is_string_view)
_bytes = _any(pt.is_binary, pt.is_large_binary, pt.is_binary_view, pt.is_fixed_size_binary)
_list = _any(
    pt.is_list, pt.is_large_list, pt.is_fixed_size_list, pt.is_list_view, pt.is_large_list_view
)
_TAKES = (
    (pt.is_integer, _any(pt.is_integer, pt.is_floating, pt.is_decimal)),
    (pt.is_floating, _any(pt.is_integer, pt.is_floating)),
    (pt.is_decimal, _any(pt.is_integer, pt.is_decimal)),
    (pt.is_timestamp, _any(pt.is_integer, pt.is_timestamp, pt.is_date)),
    (pt.is_date, _any(pt.is_date, pt.is_timestamp)),
    (pt.is_boolean, pt.is_boolean),
    (_any(_text, _bytes), _any(_text, _bytes)),
    (_list, _list),
    (pt.is_map, pt.is_map),
    (pt.is_struct, pt.is_struct),
)


def check_compatible(source: pa.DataType, kind: pa.DataType) -> None:
    """ValueError if no column of type `source` can be one of type `kind`, whatever its values."""
    if pt.is_dictionary(source):
        source = source.value_type
    if source == kind or pt.is_null(source):
        return
    takes = next((theirs for ours, theirs in _TAKES if ours(kind)), None)
    if takes is None or not takes(source):
        raise ValueError(f"{source} is no {ddl_type(kind)}")
    if pt.is_struct(kind):
        extra = extra_field(source, kind, "")
        if extra is not None:
            raise ValueError(f"{ddl_type(kind)} has no field {extra[1:]!r}")
        inner = [(field.type, kind.field(field.name).type) for field in source]
    else:
        inner = list(zip(inside(source), inside(kind), strict=False))
    for theirs, ours in inner:
        check_compatible(theirs, ours)


def extra_field(source: pa.DataType, kind: pa.DataType, path: str) -> str | None:
    """The first field of a struct anywhere in `source` that `kind` does not have, as a path."""
    if pt.is_dictionary(source):
        source = source.value_type
    if not (pt.is_struct(source) and pt.is_struct(kind)):
        pairs = zip(inside(source), inside(kind), strict=False)
        return next((x for g, k in pairs if (x := extra_field(g, k, path))), None)
    for field in source:
        at = f"{path}.{field.name}"
        if kind.get_field_index(field.name) < 0:
            return at
        deeper = extra_field(field.type, kind.field(field.name).type, at)
        if deeper:
            return deeper
    return None


def inside(kind: pa.DataType) -> list[pa.DataType]:
    if pt.is_map(kind):
        return [kind.key_type, kind.item_type]
    return [kind.field(i).type for i in range(kind.num_fields)]


def holds_time(kind: pa.DataType) -> bool:
    return pt.is_timestamp(kind) or pt.is_date(kind) or any(map(holds_time, inside(kind)))


def check_times(column: Any) -> None:
    """ValueError if a time anywhere in the column is not within the years 1 to 9999."""
    if holds_time(column.type):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        for times in (times for chunk in chunks for times in _times(chunk)):
            if beyond(milliseconds(pa.chunked_array([times]))) is not None:
                raise ValueError(FAR)


def _times(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pt.is_timestamp(kind) or pt.is_date(kind):
        yield array
    elif pt.is_map(kind):
        for part in (array.keys, array.items):  # null maps have none
            yield from _times(part)
    elif pt.is_struct(kind):
        for part in array.flatten():
            yield from _times(part)
    elif pt.is_nested(kind):
        yield from _times(array.flatten())


# casts

_UNITS = ("s", "ms", "us", "ns")


def cast_exactly(column: Any, kind: pa.DataType) -> Any:
    """The array or chunked array as `kind`. Times finer than a microsecond are cut."""
    source = column.type
    if source == kind:
        return column
    if pt.is_dictionary(source) and not pt.is_dictionary(kind):
        return cast_exactly(column.cast(source.value_type), kind)
    if pt.is_timestamp(source) and source.tz and pt.is_date(kind):
        column = column.cast(pa.timestamp(source.unit, "UTC"))
    result = column.cast(kind, safe=not _coarser(source, kind))
    if _may_bend(source, kind):
        _compare(flat(column), flat(result))
    return result


def _coarser(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether times are cut: only then may the cast be unchecked, or far times would wrap."""
    both = pt.is_timestamp(source) and pt.is_timestamp(kind)
    return both and _UNITS.index(source.unit) > _UNITS.index(kind.unit)


def _may_bend(source: pa.DataType, kind: pa.DataType) -> bool:
    if pt.is_nested(kind):
        return bool(source != kind)
    to_date = pt.is_date(kind) and pt.is_timestamp(source)
    narrower = pt.is_floating(kind) and pt.is_floating(source) and kind.bit_width < source.bit_width
    return bool(to_date or narrower or (pt.is_decimal(kind) and pt.is_floating(source)))


def _compare(source: pa.Array, result: pa.Array) -> None:
    kind = result.type
    if source.type == kind or pt.is_null(source.type) or not _may_bend(source.type, kind):
        return
    if pt.is_struct(kind):
        theirs = {f.name: i for i, f in enumerate(source.type)}
        for field, inner in zip(kind, result.flatten(), strict=True):
            if field.name in theirs:
                _compare(source.flatten()[theirs[field.name]], inner)
    elif pt.is_map(kind):
        _compare(source.keys, result.keys)
        _compare(source.items, result.items)
    elif pt.is_nested(kind):
        _compare(source.flatten(), result.flatten())
    elif pc.any(_bent(source, result)).as_py():
        raise ValueError(f"a value of {source.type} is no {ddl_type(kind)}")


def _bent(source: pa.Array, result: pa.Array) -> pa.Array:
    if pt.is_date(result.type):
        days = result.cast(pa.timestamp(source.type.unit)).cast(pa.int64())
        return pc.not_equal(days, source.cast(pa.int64()))
    if pt.is_floating(result.type):
        return pc.and_(pc.is_inf(result), pc.invert(pc.is_inf(source)))
    return pc.not_equal(result.cast(pa.float64()), source.cast(pa.float64()))
