"""Rows held in the program: for tests, notebooks and small reference data.

Bounded and replayable as long as the program gives the same rows. An offset is a row's
index within its split. A large table travels to tasks as a file in the job's folder, which
is written when the source is pickled; nothing else here touches files.
"""

from __future__ import annotations

import copy
import dataclasses
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import owned
from headrace.errors import InputError, call_site
from headrace.kernel.text_cast import cast_text
from headrace.rows import fitted, table_of, values_of
from headrace.schema import TIMESTAMP, SchemaLike, ddl_of, ddl_type, schema_of
from headrace.sources.contract import (
    BEGINNING,
    Chunk,
    Offset,
    Range,
    Source,
    damaged,
    refuse_shorter,
    write_durably,
)

CHUNK_ROWS = 262_144
INLINE_BYTES = 1 << 20  # up to this, the table is pickled with the source


class MemorySource(Source):
    because = "the rows are part of the program"
    label = "memory"  # at rest
    bounded = True
    raw = False
    dense = True

    def __init__(self, table: pa.Table, splits: int = 1) -> None:
        self.schema = table.schema
        self._table: pa.Table | None = table
        self._bounds: list[int] = [table.num_rows * i // splits for i in range(splits + 1)]
        self._home: Path | None = None  # in the job's folder
        self._file: TableOnDisk | None = None

    def for_job(self, home: Path | None) -> MemorySource:
        """The same source as an input of a job."""
        source = copy.copy(self)
        source._home = home
        return source

    def with_time(self, name: str) -> MemorySource:
        """The same rows, with the ISO texts of this column read as timestamps."""
        kind = self.schema.field(name).type if name in self.schema.names else None
        if self._table is None or kind is None or not pa.types.is_string(kind):
            return self
        timed = _read_times(self._table, pa.field(name, TIMESTAMP))
        return MemorySource(timed, len(self._bounds) - 1)

    def __getstate__(self) -> dict[str, Any]:
        if self._home is None or self._table is None or self._table.nbytes <= INLINE_BYTES:
            return self.__dict__
        if self._file is None:
            self._file = TableOnDisk.of(self._table, self._home / "rows.arrow")
        return self.__dict__ | {"_table": None}

    def identity(self) -> dict[str, str]:
        """The columns; of several splits, also the number of splits and rows."""
        splits = len(self._bounds) - 1
        dealt = f"{self._bounds[-1]} rows in {splits} splits of " if splits > 1 else ""
        return {"kind": "rows", "place": "", "thing": f"{dealt}{ddl_of(self.schema)}"}

    def check(self, offsets: Mapping[str, Offset] = BEGINNING) -> None:
        for split, offset in offsets.items():
            refuse_shorter(split, offset, self.latest(split))

    def splits(self) -> list[str]:
        return [str(i) for i in range(len(self._bounds) - 1)]

    def latest(self, split: str) -> int:
        return self._bounds[int(split) + 1] - self._bounds[int(split)]

    def read(self, range: Range) -> Iterator[Chunk]:
        table, base = self._rows(), self._bounds[int(range.split)]
        start = range.start
        while start < range.end:
            end = min(range.end, start + CHUNK_ROWS)
            yield table.slice(base + start, end - start), np.arange(start, end, dtype=np.int64)
            start = end

    def _rows(self) -> pa.Table:
        if self._table is None:
            assert self._file is not None
            self._table = self._file.load()
        return self._table


@dataclasses.dataclass(frozen=True, slots=True)
class TableOnDisk:
    """A table in an Arrow file, and the checksum of its bytes."""

    path: Path
    crc: int

    @staticmethod
    def of(table: pa.Table, path: Path) -> TableOnDisk:
        content = _ipc(table)
        write_durably(path, content)
        return TableOnDisk(path, zlib.crc32(content))

    def load(self) -> pa.Table:
        """The table, mapped; an error if the file is not the one that was written."""
        what = "the file with the rows of an input"
        try:
            content = pa.memory_map(str(self.path)).read_buffer()
        except (OSError, pa.ArrowException) as cause:
            raise damaged(what, self.path, "cannot be read") from cause
        if zlib.crc32(content) != self.crc:
            raise damaged(what, self.path, "is not as it was written")
        return pa.ipc.open_file(content).read_all()


def rows(
    values: Iterable[object] | pa.Table, schema: SchemaLike | None = None, *, splits: int = 1
) -> MemorySource:
    """An input made of rows: dicts, dataclasses, named tuples, or an Arrow table.

    A timestamp or date of the schema may be ISO text, "2026-01-01T00:00:00Z", in UTC if it has no
    zone; so may the column that `read` names as `time=`. Without either, text stays text.
    """
    if splits < 1:
        raise InputError("HR-INPUT-013", f"{splits} splits", "Give one split or more.")
    table = owned(values) if isinstance(values, pa.Table) else _table(list(values), schema)
    if schema is not None:
        table = _conform(table, schema_of(schema))
    return MemorySource(table, splits)


def _table(values: list[Any], schema: SchemaLike | None) -> pa.Table:
    if schema is None and values and dataclasses.is_dataclass(values[0]):
        schema = type(values[0])
    try:
        if schema is not None:
            return _with_times(values, schema_of(schema))
        if not values:
            raise ValueError("there are no rows to take the columns from")
        return pa.Table.from_pylist([v._asdict() if hasattr(v, "_asdict") else v for v in values])
    except (pa.ArrowException, ValueError, TypeError, AttributeError) as cause:
        where = _first_bad(values, schema)
        raise InputError(
            "HR-INPUT-006",
            f"the rows do not fit their schema: {where or cause}",
            "Give rows(..., schema=...) the columns and types that the rows have.",
            site=call_site(),
        ) from cause


def _with_times(values: list[Any], schema: pa.Schema) -> pa.Table:
    """The rows as columns; a column of times may be one of ISO texts instead."""
    try:
        return table_of(values, schema)
    except (pa.ArrowException, ValueError, TypeError, AttributeError):
        as_text = _texts(values, schema)
        if not as_text:
            raise
    fields = [pa.field(f.name, pa.string()) if f.name in as_text else f for f in schema]
    table = table_of(values, pa.schema(fields))
    for name in as_text:
        table = _read_times(table, schema.field(name))
    return table


def _texts(values: list[Any], schema: pa.Schema) -> list[str]:
    """The columns of times that hold nothing but texts."""
    times = [f for f in schema if pa.types.is_timestamp(f.type) or pa.types.is_date(f.type)]
    found = []
    for field in times:
        try:
            place = schema.get_field_index(field.name)
            column = [values_of(row, tuple(schema.names))[place] for row in values]
        except (ValueError, TypeError, AttributeError, LookupError):
            return []
        if {type(v) for v in column} - {type(None)} == {str}:
            found.append(field.name)
    return found


def _read_times(table: pa.Table, field: pa.Field) -> pa.Table:
    """The table with a column of ISO texts read as times; InputError names a wrong one's row."""
    texts = table.column(field.name).combine_chunks()
    times, bad = cast_text(texts.cast(pa.binary()), field.type)
    if bad:
        raise InputError(
            "HR-INPUT-006",
            f"row {bad[0]}, column {field.name!r}: {texts[bad[0]].as_py()!r} is not a "
            f"{ddl_type(field.type)}",
            'Write ISO text, "2026-01-01", or a date.'
            if pa.types.is_date(field.type)
            else 'Write ISO text, "2026-01-01T00:00:00Z", or a datetime.',
            site=call_site(),
        )
    return table.set_column(table.column_names.index(field.name), field, times)


def _first_bad(values: list[Any], schema: SchemaLike | None) -> str:
    """What is wrong with the first row that does not fit by itself, in words."""
    for number, value in enumerate(values):
        if not isinstance(value, Mapping | tuple) and not dataclasses.is_dataclass(value):
            shown = f"{value!r} ({type(value).__name__})"
            return f"row {number} is {shown}, not a dict, a dataclass or a named tuple"
    if schema is None:
        return _mixed([v._asdict() if hasattr(v, "_asdict") else v for v in values])
    for number, value in enumerate(values):
        try:
            table_of([value], schema_of(schema))
        except (pa.ArrowException, ValueError, TypeError, AttributeError) as cause:
            return f"row {number}, {cause}"
    return ""


def _mixed(rows: list[Any]) -> str:
    """The first value that is of another type than those before it in its column."""
    if not all(isinstance(row, Mapping) for row in rows):
        return ""
    wrong = {n for n in dict.fromkeys(n for r in rows for n in r) if not _alike(rows, n)}
    first: dict[str, tuple[int, Any]] = {}
    for number, row in enumerate(rows):
        for name, value in ((n, v) for n, v in row.items() if n in wrong):
            before, other = first.setdefault(name, (number, value))
            if other is None:
                first[name] = (number, value)
            elif value is not None and type(value) is not type(other):
                return (
                    f"row {number}, column {name!r}: {value!r} ({type(value).__name__}) is not "
                    f"like {other!r} ({type(other).__name__}) of row {before}"
                )
    return ""


def _alike(rows: list[Any], name: str) -> bool:
    try:
        pa.array([row.get(name) for row in rows])
    except (pa.ArrowException, ValueError, TypeError):
        return False
    return True


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [n for n in schema.names if n not in table.column_names]
    if missing:
        raise InputError(
            "HR-INPUT-005",
            f"the table has no column {missing[0]!r}",
            f"It has: {', '.join(table.column_names)}.",
        )
    try:
        return fitted(table, schema)
    except (pa.ArrowException, ValueError) as cause:
        raise InputError(
            "HR-INPUT-006",
            f"the table does not fit its schema: {cause}",
            "Change the schema or cast the table.",
        ) from cause


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=CHUNK_ROWS)
    return bytes(sink.getvalue())
