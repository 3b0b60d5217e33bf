"""Which Arrow columns a column of a schema takes: those whose values, as rows, it would take.

Text is no number and a number no text, a fraction no time, and a struct has no field but those
that are declared. Here only types and the reach of times are judged; whether each value fits
is seen when it is cast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types as pt

from headrace.schema import ddl_type
from headrace.times import beyond, milliseconds

FAR = "a time is not within the years 1 to 9999"


def _any(*are: Callable[[pa.DataType], bool]) -> Callable[[pa.DataType], bool]:
    return lambda kind: any(is_one(kind) for is_one in are)


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


def check_taken(given: pa.DataType, kind: pa.DataType) -> None:
    """ValueError if a column of type `given` is none of type `kind`, whatever it holds."""
    if pt.is_dictionary(given):
        given = given.value_type
    if given == kind or pt.is_null(given):
        return
    takes = next((theirs for ours, theirs in _TAKES if ours(kind)), None)
    if takes is None or not takes(given):
        raise ValueError(f"{given} is no {ddl_type(kind)}")
    if pt.is_struct(kind):
        extra = extra_field(given, kind, "")
        if extra is not None:
            raise ValueError(f"{ddl_type(kind)} has no field {extra[1:]!r}")
        inner = [(field.type, kind.field(field.name).type) for field in given]
    else:
        inner = list(zip(inside(given), inside(kind), strict=False))
    for theirs, ours in inner:
        check_taken(theirs, ours)


def extra_field(given: pa.DataType, kind: pa.DataType, path: str) -> str | None:
    """The first field of a struct anywhere in `given` that `kind` does not have, as a path."""
    if pt.is_dictionary(given):
        given = given.value_type
    if not (pt.is_struct(given) and pt.is_struct(kind)):
        pairs = zip(inside(given), inside(kind), strict=False)
        return next((x for g, k in pairs if (x := extra_field(g, k, path))), None)
    for field in given:
        at = f"{path}.{field.name}"
        if kind.get_field_index(field.name) < 0:
            return at
        found = extra_field(field.type, kind.field(field.name).type, at)
        if found:
            return found
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
