"""Values of a user's functions as a column: one rule, whatever else is in the column.

Each value is judged by its own type and the column's, so a column of several types holds what
each value would be alone. A value is never bent: 1.5 is no integer, a time of day no date.

A whole number in a timestamp column is milliseconds since 1970; a datetime is itself, in UTC
if it has no zone; a date is its midnight in UTC; NumPy's and pandas' times are what they say,
to the microsecond. A date column takes dates, and datetimes at midnight. True is no number.
pandas' NA and NaT, and NumPy's NaT, are null. A struct has no fields but the declared ones.

A column of an Arrow table is taken if its values would be.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace.arrays import beyond, milliseconds
from headrace.column_types import (
    FAR,
    cast_exactly,
    check_compatible,
    check_times,
    holds_time,
    inside,
)
from headrace.schema import ddl_type

Values = Sequence[Any]
Maker = Callable[[Values, pa.DataType], pa.Array]


def array_of(values: Values, kind: pa.DataType) -> pa.Array:
    """The values as an array of this type; ValueError or an Arrow error if one does not fit."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return as_type(pa.array(values), kind)
    values = values if isinstance(values, list | tuple) else list(values)
    types = set(map(type, values))
    types.discard(type(None))
    if len(types) <= 1:
        return _maker(types.pop(), kind)(values, kind) if types else pa.nulls(len(values), kind)
    if types <= _TOGETHER.get(_family(kind), frozenset()):
        return _floats(values, kind) if pt.is_floating(kind) else pa.array(values, kind)
    return _by_type(values, kind)


def as_type(column: Any, kind: pa.DataType) -> Any:
    """An Arrow column that a user gave, as the type that it is to have: by the same rule."""
    if pt.is_dictionary(column.type) and not pt.is_dictionary(kind):
        column = column.cast(column.type.value_type)
    source = column.type
    check_compatible(source, kind)
    if source == kind:
        result = column
    elif pt.is_nested(kind) and (_cast_differs(kind) or _fields_differ(source, kind)):
        result = _value_by_value(column, kind)
    else:
        result = cast_exactly(_interpreted(column, kind), kind)
    check_times(result)
    return result


def _interpreted(column: Any, kind: pa.DataType) -> Any:
    """Numbers as the times that they stand for, and times with a zone as the local ones."""
    if pt.is_timestamp(kind) and pt.is_integer(column.type):
        return column.cast(pa.int64()).cast(pa.timestamp("ms", kind.tz))
    if pt.is_date(kind) and pt.is_timestamp(column.type) and column.type.tz:
        return pc.local_timestamp(column)
    if pt.is_decimal(kind) and pt.is_integer(column.type):  # Arrow asks for room for all integers
        return column.cast(pa.decimal256(76, kind.scale))
    return column


def _cast_differs(kind: pa.DataType) -> bool:
    """Whether Arrow may cast a column to this type otherwise than we mean it."""
    return holds_time(kind) or pt.is_decimal(kind) or any(map(_cast_differs, inside(kind)))


def _value_by_value(column: Any, kind: pa.DataType) -> Any:
    try:
        array = array_of(column.to_pylist(), kind)
    except OverflowError as error:
        raise ValueError(str(error)) from error
    return pa.chunked_array([array]) if isinstance(column, pa.ChunkedArray) else array


def _fields_differ(source: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a struct inside has its fields in another order, or fewer: Arrow casts neither."""
    if pt.is_null(source):
        return False
    names = [[field.name for field in of] for of in (source, kind) if pt.is_struct(of)]
    pairs = zip(inside(source), inside(kind), strict=False)
    return (bool(names) and names[0] != names[-1]) or any(_fields_differ(g, k) for g, k in pairs)


def _by_type(values: Values, kind: pa.DataType) -> pa.Array:
    """Convert the values of each type separately, then restore their order."""
    places: dict[type, list[int]] = {}
    for place, value in enumerate(values):
        places.setdefault(type(value), []).append(place)
    arrays = [array_of([values[i] for i in group], kind) for group in places.values()]
    order = np.empty(len(values), np.int64)
    order[np.concatenate([np.array(group) for group in places.values()])] = np.arange(len(values))
    return pa.concat_arrays(arrays).take(pa.array(order))


@lru_cache(maxsize=1024)
def _maker(type_: Any, kind: pa.DataType) -> Maker:
    """How values of this Python type become a column of that type."""
    if type_.__module__.startswith("pandas") and type_.__name__ in ("NAType", "NaTType"):
        return lambda values, kind: pa.nulls(len(values), kind)
    for types, make in _MAKERS[_family(kind)]:
        if issubclass(type_, types):
            return make
    return _refuse


def _family(kind: pa.DataType) -> str:
    for name, test in _FAMILIES:
        if test(kind):
            return name
    return "other"


def _refuse(values: Values, kind: pa.DataType) -> pa.Array:
    first = next(v for v in values if v is not None)
    raise ValueError(f"{_shown(first)} is no {ddl_type(kind)}")


def _shown(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}"
    return text if len(text) <= 80 else text[:77] + "..."


def _direct(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.array(values, kind)


def _each(change: Callable[[Any], Any]) -> Maker:
    """Converts each value first, to one that Arrow reads as it is meant."""
    return lambda values, kind: pa.array([None if v is None else change(v) for v in values], kind)


def _whole_floats(values: Values, kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.float64()).cast(kind)  # Arrow would cut the fraction off


def _floats(values: Values, kind: pa.DataType) -> pa.Array:
    floats = pa.array(values, pa.float64() if kind.bit_width < 64 else kind)
    return cast_exactly(floats, kind)  # what is too large for a float would be infinity


def _whole(value: decimal.Decimal) -> int:
    if not value.is_finite() or value != value.to_integral_value():
        raise ValueError(f"{_shown(value)} is not a whole number")
    return int(value)


def _from_millis(values: Values, kind: pa.DataType) -> pa.Array:
    millis = pa.array([None if v is None else int(v) for v in values], pa.int64())
    return _within(millis.cast(pa.timestamp("ms", kind.tz)), kind)


def _from_numpy(values: Values, kind: pa.DataType) -> pa.Array:
    times = [v for v in values if v is not None and not np.isnat(v)]
    if any(not -2_000 < v.astype("M8[Y]").astype(int) < 10_000 for v in times):  # since 1970
        raise ValueError(FAR)  # it may not fit microseconds
    fine = np.array([v if v is None else v.astype("M8[us]") for v in values], "M8[us]")
    return _within(pa.array(fine).cast(pa.timestamp("us", kind.tz)), kind)


def _within(times: pa.Array, kind: pa.DataType) -> pa.Array:
    if beyond(milliseconds(pa.chunked_array([times]))) is not None:
        raise ValueError(FAR)
    return times.cast(kind)


def _midnight(day: dt.date) -> dt.datetime:
    return dt.datetime.combine(day, dt.time(), dt.UTC)


def _day(moment: dt.datetime) -> dt.date:
    if moment.time() != dt.time():
        raise ValueError(f"{moment} has a time of day, and is not a date")
    return moment.date()


def _numpy_day(time: np.datetime64) -> dt.date | None:
    if np.isnat(time):
        return None
    if time != time.astype("M8[D]"):
        raise ValueError(f"{time} has a time of day, and is not a date")
    day = time.astype("M8[D]").tolist()
    if not isinstance(day, dt.date):  # NumPy gives a number for what is too far
        raise ValueError(FAR)
    return day


def _lists(values: Values, kind: pa.DataType) -> pa.Array:
    offsets, none = _bounds(values)
    inner = array_of(list(chain.from_iterable(v for v in values if v is not None)), kind.value_type)
    return pa.ListArray.from_arrays(offsets, inner, type=kind, mask=none)


def _maps(values: Values, kind: pa.DataType) -> pa.Array:
    pairs = [v.items() if isinstance(v, Mapping) else v for v in values if v is not None]
    keys, items = zip(*chain.from_iterable(pairs), strict=True) if any(pairs) else ((), ())
    offsets, none = _bounds(values)
    arrays = array_of(keys, kind.key_type), array_of(items, kind.item_type)
    return pa.MapArray.from_arrays(offsets, *arrays, type=kind, mask=none)


def _bounds(values: Values) -> tuple[pa.Array, pa.Array]:
    lengths = [0 if v is None else len(v) for v in values]
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return offsets, pa.array([v is None for v in values])


def _structs(values: Values, kind: pa.DataType, read: Callable[[Any, str], Any]) -> pa.Array:
    none = pa.array([v is None for v in values])
    columns = [
        array_of([None if v is None else read(v, f.name) for v in values], f.type) for f in kind
    ]
    if not columns:
        return pa.array([None if v is None else {} for v in values], kind)
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=none)


def _of_mappings(values: Values, kind: pa.DataType) -> pa.Array:
    _check_names(set(map(tuple, (v for v in values if v is not None))), kind)
    return _structs(values, kind, lambda value, name: value.get(name))


def _of_records(values: Values, kind: pa.DataType) -> pa.Array:
    """Dataclasses and named tuples; else values in the order of the fields, or pairs."""
    first = next(v for v in values if v is not None)
    if dataclasses.is_dataclass(first):
        names = tuple(field.name for field in dataclasses.fields(first))
    elif hasattr(first, "_fields"):
        names = tuple(first._fields)
    else:
        return _of_mappings([None if v is None else _mapping(v, kind) for v in values], kind)
    _check_names([names], kind)
    return _structs(values, kind, lambda value, name: getattr(value, name, None))


def _check_names(shapes: Iterable[tuple[Any, ...]], kind: pa.DataType) -> None:
    fields = {field.name for field in kind}
    for names in shapes:
        extra = [name for name in names if name not in fields]
        if extra:
            raise ValueError(f"{ddl_type(kind)} has no field {extra[0]!r}")


def _mapping(value: Any, kind: pa.DataType) -> dict[str, Any]:
    if isinstance(value, tuple) and len(value) == kind.num_fields:
        return dict(zip([field.name for field in kind], value, strict=True))
    pairs = isinstance(value, list) and all(isinstance(v, tuple) and len(v) == 2 for v in value)
    if pairs and len(dict(value)) == len(value):
        return dict(value)
    raise ValueError(f"{_shown(value)} is no {ddl_type(kind)}")


_FAMILIES: Sequence[tuple[str, Callable[[pa.DataType], bool]]] = (
    ("integer", pt.is_integer), ("floating", pt.is_floating), ("decimal", pt.is_decimal),
    ("timestamp", pt.is_timestamp), ("date", pt.is_date), ("boolean", pt.is_boolean),
    ("string", pt.is_string), ("map", pt.is_map), ("list", pt.is_list), ("struct", pt.is_struct),
)  # fmt: skip
_MAKERS: Mapping[str, Sequence[tuple[type | tuple[type, ...], Maker]]] = {
    "integer": (
        (bool, _refuse),
        ((int, np.integer), _direct),
        ((float, np.floating), _whole_floats),
        (decimal.Decimal, _each(_whole)),
    ),
    "floating": (
        (bool, _refuse),
        ((int, float, np.floating, np.integer), _floats),
    ),
    "decimal": ((bool, _refuse), ((decimal.Decimal, int), _direct), (np.integer, _each(int))),
    "timestamp": (
        (bool, _refuse),
        ((int, np.integer), _from_millis),
        (dt.datetime, _direct),
        (dt.date, _each(_midnight)),
        (np.datetime64, _from_numpy),
    ),
    "date": (
        (dt.datetime, _each(_day)),
        (dt.date, _direct),
        (np.datetime64, _each(_numpy_day)),
    ),
    "boolean": ((bool, _direct), (np.bool_, _each(bool))),
    "string": ((np.str_, _each(str)), (object, _direct)),
    "map": (((str, bytes), _refuse), ((Mapping, Collection), _maps)),
    "list": (((str, bytes, Mapping), _refuse), (Collection, _lists)),
    "struct": ((Mapping, _of_mappings), (object, _of_records)),
    "other": ((object, _direct),),
}
_TOGETHER = {  # types of which Arrow makes the same in one column as in several
    "floating": frozenset({int, float}),
    "decimal": frozenset({int, decimal.Decimal}),
}
