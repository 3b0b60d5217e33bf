"""Rows for user functions: named tuples made of a chunk, and a chunk made of what came back.

Rows are for user functions only: everything else stays in columns. A value that does not
fit its column is refused, never bent: 1.5 is no integer.
"""

from __future__ import annotations

import copy
import dataclasses
import datetime as dt
import gc
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from contextlib import contextmanager
from decimal import Decimal
from functools import lru_cache
from itertools import chain, repeat
from keyword import iskeyword
from operator import attrgetter, is_, itemgetter
from typing import Any, cast
from unicodedata import normalize

import numpy as np
import pyarrow as pa

from headrace.arrays import owned
from headrace.schema import ddl_type
from headrace.values import array_of, as_type

# Arrow's times as NumPy's, and the moment from which they count.
_EPOCH = dt.datetime(1970, 1, 1)
_TIMES: dict[pa.DataType, tuple[str, Any]] = {
    pa.timestamp(unit, zone): (f"m8[{unit}]", epoch)
    for unit in ("s", "ms", "us")
    for zone, epoch in ((None, _EPOCH), ("UTC", _EPOCH.replace(tzinfo=dt.UTC)))
} | {pa.date32(): ("m8[D]", _EPOCH.date())}

Reader = Callable[[Any], Sequence[Any]]


@lru_cache(maxsize=256)
def row_class(names: tuple[str, ...]) -> type[Any]:
    """The named tuple that user functions see as a row of these columns.

    A column whose name is no Python name is called by its position: c0, c1, ...
    """
    fields: list[str] = []
    for i, name in enumerate(names):
        good = _is_field(name) and name not in fields
        fields.append(name if good else _unused(f"c{i}", {*names, *fields}))
    base = namedtuple("Row", fields)  # type: ignore[misc]
    row = type("Row", (base,), {"__slots__": (), "_columns": names})
    if fields:
        row._replace = _replacing(row, fields)  # type: ignore[attr-defined]
    return row


def _replacing(row: type[Any], fields: Sequence[str]) -> Callable[..., Any]:
    """A `_replace` for rows of these fields: the inherited one takes three times as long.

    Written out as text, as `namedtuple` does; fields are names that do not begin with "_".
    """
    arguments = ", ".join(f"{name}=_same" for name in fields)
    values = ", ".join(f"_self[{i}] if {n} is _same else {n}" for i, n in enumerate(fields))
    scope = {"_same": object(), "_new": tuple.__new__, "_row": row}
    source = f"def _replace(_self, /, *, {arguments}): return _new(_row, ({values},))"
    exec(source, scope)
    return cast("Callable[..., Any]", scope["_replace"])


def _is_field(name: str) -> bool:
    written = normalize("NFKC", name) == name  # Python reads the ligature "ﬁ" as "fi"
    return written and name.isidentifier() and not name.startswith("_") and not iskeyword(name)


def _unused(name: str, taken: set[str]) -> str:
    return _unused(f"{name}x", taken) if name in taken else name


def rows_of(table: pa.Table) -> list[Any]:
    """The table as named tuples, column by column: no dictionary per row."""
    return rows_from(table.column_names, map(pylist, table.columns))


def rows_from(names: Sequence[str], columns: Iterable[Iterable[Any]]) -> list[Any]:
    """Columns of Python values as named tuples."""
    row, new = row_class(tuple(names)), tuple.__new__  # `_make` counts every row
    return list(map(new, repeat(row), zip(*columns, strict=True)))


def as_rows(returned: Any) -> list[Any]:
    """What a user's function returns, as rows: nothing, one row, a list of rows or a generator."""
    if isinstance(returned, list):
        return returned
    if returned is None:
        return []
    if isinstance(returned, tuple | dict):  # checking for iterators takes longer
        return [returned]
    return list(returned) if isinstance(returned, Iterator) else [returned]


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles while rows are made: it would go through them again and again.

    As a decorator it searches again when the rows are gone.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def pylist(column: pa.ChunkedArray) -> list[Any]:
    """As `column.to_pylist()`, but a time takes 0.2 µs instead of 9, and maps are dicts."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return pylist(column.cast(kind.value_type))
    if kind in _TIMES:
        return _times(column, *_TIMES[kind])
    if _has_map(kind):
        return column.to_pylist(maps_as_pydicts="lossy")  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _times(column: pa.ChunkedArray, unit: str, epoch: Any) -> list[Any]:
    counts = column.cast(pa.int32() if unit == "m8[D]" else pa.int64()).cast(pa.int64())
    ticks = counts.fill_null(np.iinfo(np.int64).min).to_numpy().view(unit).tolist()
    try:
        return [None if t is None else epoch + t for t in ticks]
    except (OverflowError, TypeError) as error:  # NumPy gives a number for what is too far
        raise ValueError("a time is not within the years 1 to 9999") from error


@lru_cache(maxsize=256)
def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(
        _has_map(kind.field(i).type) for i in range(kind.num_fields)
    )


def values_of(row: object, names: Sequence[str]) -> Sequence[Any]:
    """A row that a user function returned, as values in the order of `names`."""
    kind: Any = type(row)
    return _reader(kind, tuple(names))(row)


@lru_cache(maxsize=256)
def _reader(kind: Any, names: tuple[str, ...]) -> Reader:
    """How rows of this type give their values."""
    if issubclass(kind, tuple):
        columns = getattr(kind, "_columns", getattr(kind, "_fields", names))
        return _as_is if columns == names else _getter(itemgetter, _places(kind, columns, names))
    if issubclass(kind, Mapping):
        return _of_mapping(names)
    if dataclasses.is_dataclass(kind):
        _places(kind, [n for n in names if hasattr(kind, n)] + _field_names(kind), names)
        return _getter(attrgetter, names)
    return lambda row: (row,)


def _of_mapping(names: Sequence[str]) -> Reader:
    columns = frozenset(names)

    def read(row: Mapping[str, Any]) -> Sequence[Any]:
        keys = row.keys()
        if not (keys <= columns or keys >= columns):  # there may be more, or fewer; not others
            wrong, missing = min(keys - columns, key=str), min(columns - keys)
            raise ValueError(f"a row has {wrong!r}, which is not a column, and no {missing!r}")
        return [row.get(n) for n in names]

    return read


def _as_is(row: Any) -> Any:
    return row


def _getter(make: Callable[..., Callable[[Any], Any]], keys: Sequence[Any]) -> Reader:
    get = make(*keys)
    return get if len(keys) > 1 else lambda row: (get(row),)


def _field_names(kind: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(kind)]


def _places(kind: Any, columns: Sequence[str], names: Sequence[str]) -> list[int]:
    missing = [n for n in names if n not in columns]
    if missing:
        raise ValueError(f"a {kind.__name__} has no field {missing[0]!r}")
    return [columns.index(n) for n in names]


def table_of(
    rows: Iterable[Any], schema: pa.Schema, source: tuple[list[Any], pa.Table] | None = None
) -> pa.Table:
    """Rows that a user function returned (tuples, dicts, dataclasses) as a table.

    `source` holds the rows that the function was called with, and their table: a column of times
    that it passed on unchanged is then taken from there.
    """
    names = tuple(schema.names)
    rows = list(rows)
    kinds: set[Any] = set(map(type, rows))
    readers = {kind: _reader(kind, names) for kind in kinds}
    as_they_are = all(reader is _as_is for reader in readers.values())
    values = rows if as_they_are else [readers[type(row)](row) for row in rows]
    if not values:
        return schema.empty_table()
    named = as_they_are and all(hasattr(kind, "_fields") for kind in kinds)
    wrong = set() if named else set(map(len, values)) - {len(names)}
    if wrong:
        listed = ", ".join(names)
        raise ValueError(f"a row has {wrong.pop()} values, expected {len(names)}: {listed}")
    arrays = []
    for column, field in zip(zip(*values, strict=True), schema, strict=True):
        same = _passed_on(column, field, source) if source and field.type in _TIMES else None
        arrays.append(_array(column, field) if same is None else same)
    return pa.Table.from_arrays(arrays, schema=schema)


def _passed_on(
    values: tuple[Any, ...], field: pa.Field, source: tuple[list[Any], pa.Table]
) -> pa.ChunkedArray | None:
    """The column that these very objects came from, if there is one."""
    rows, table = source
    if len(values) != len(rows) or field.name not in table.column_names:
        return None
    place = table.column_names.index(field.name)
    column = table.column(place)
    if column.type != field.type or (column.null_count and not field.nullable):
        return None
    return column if all(map(is_, values, map(itemgetter(place), rows))) else None


def _array(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    try:
        array = array_of(values, field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {field.name!r} ({ddl_type(field.type)}): {error}") from error
    if array.null_count and not field.nullable:
        raise ValueError(f"column {field.name!r} has no value")
    return array


def fitted(table: pa.Table, schema: pa.Schema, source: pa.Table | None = None) -> pa.Table:
    """A user's table, made of `source`, cast to the schema that it is to have."""
    columns = {f.name: as_type(table.column(f.name), f.type) for f in schema}
    return owned(pa.table(columns).cast(schema), source)


def plainly(value: Any) -> Any:
    """Records and sets inside a value, as what Arrow takes for structs and lists."""
    if dataclasses.is_dataclass(value):
        return {name: plainly(getattr(value, name)) for name in _field_names(value)}
    if isinstance(value, Mapping):
        return {key: plainly(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        named = getattr(value, "_asdict", None)
        return plainly(named()) if named else [plainly(inner) for inner in value]
    return value


# Defensive copies of rows that user code may go on changing.
#
# A function may return its state as a row, `return self.stats`, or within one, and change it at
# the next call; or fill the same dict for every row. Rows become columns only after many calls, so
# such a row is copied on return.


@dataclasses.dataclass(frozen=True, slots=True)
class RowCopier:
    """Rows of the types `plain` stay what they are; others are copied by `take`."""

    plain: Any
    take: Callable[[Any], Any]

    def all(self, rows: Any) -> list[Any]:
        plain, take = self.plain, self.take
        return [row if isinstance(row, plain) else take(row) for row in rows]

    def each(self, rows: Iterator[Any]) -> Iterator[Any]:
        """The same as they come; the first decides whether copies are needed, so that rows of a
        type that needs none cost nothing. See `reused` for those of another type after it."""
        for first in rows:
            if isinstance(first, self.plain):
                return chain((first,), rows)
            return chain((self.take(first),), map(self.take, rows))
        return iter(())

    def reused(self, rows: list[Any]) -> set[int]:
        """The places of rows that are one object, returned for several, and can be changed."""
        if not any(not issubclass(kind, self.plain) for kind in set(map(type, rows))):
            return set()
        places: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            if not isinstance(row, self.plain):
                places.setdefault(id(row), []).append(place)
        return {place for several in places.values() if len(several) > 1 for place in several}


_UNCHANGING = (tuple, str, bytes, int, float, dt.date, Decimal, type(None))
LEAVES = frozenset({bool, dt.datetime, dt.time, dt.timedelta, *_UNCHANGING} - {tuple})
NO_COPY = RowCopier(object, lambda row: row)  # no value can be changed in place


def row_copier(schema: pa.Schema) -> RowCopier:
    """For rows of these columns."""
    names = tuple(schema.names)
    copies = {i: _copier(f.type) for i, f in enumerate(schema) if changeable(f.type)}

    def take(row: Any) -> Any:
        values = list(values_of(row, names))
        for place, copied in copies.items():
            if place < len(values):  # a row of too few is refused later
                values[place] = copied(values[place])
        return tuple(values)

    return RowCopier(() if copies else _UNCHANGING, take)


def value_copier(kind: pa.DataType) -> RowCopier:
    """For single values that become a column."""
    return RowCopier((), _copier(kind)) if changeable(kind) else NO_COPY


def changeable(kind: pa.DataType) -> bool:
    """Whether a value of this type may be one that can be changed in place: a bytearray, too."""
    return bool(pa.types.is_nested(kind) or _is_binary(kind))


def _is_binary(kind: pa.DataType) -> bool:
    kinds = pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary
    return any(is_kind(kind) for is_kind in kinds)


def _copier(kind: pa.DataType) -> Callable[[Any], Any]:
    """A copy of a list of numbers takes a thirtieth of a deep one."""
    if _is_binary(kind):
        return _as_bytes
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    return own_copy if any(map(changeable, inner)) else _shallow_copy


def _as_bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def own_copy(value: Any) -> Any:
    """The containers of a value copied, at every depth; what they hold is taken as it is."""
    if type(value) in LEAVES:
        return value
    if isinstance(value, Mapping):
        return {key: own_copy(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        inner = map(own_copy, value)
        return type(value)(*inner) if hasattr(value, "_fields") else tuple(inner)
    if isinstance(value, list | Set | ValuesView):
        return [own_copy(inner) for inner in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        twin = copy.copy(value)
        for name in _field_names(value):
            object.__setattr__(twin, name, own_copy(getattr(value, name)))
        return twin
    return _shallow_copy(_as_bytes(value))


def _shallow_copy(value: Any) -> Any:
    if isinstance(value, list):
        return value.copy()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set | ValuesView):
        return list(value)
    try:
        return copy.copy(value)
    except TypeError:  # it is not something that holds rows
        return value
