"""Rows held in the program: for tests, notebooks and small reference data.

Bounded and replayable as long as the program gives the same rows. An offset is a row's
index within its split. A large table is put in a file in the job's folder, so that the
source stays small when it travels to tasks; nothing else here touches files.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import InputError
from headrace.rows import fitted, table_of
from headrace.schema import SchemaLike, schema_of
from headrace.sources.contract import Chunk, Range, Source
from headrace.sources.place import place, put

CHUNK_ROWS = 262_144
INLINE_BYTES = 1 << 20  # what may travel inside the source itself


class MemorySource(Source):
    bounded = True
    raw = False

    def __init__(self, table: pa.Table, splits: int = 1) -> None:
        self.schema = table.schema
        self._table: pa.Table | str = table
        self._bounds: list[int] = [table.num_rows * i // splits for i in range(splits + 1)]

    def placed(self, folder: str | None, name: str) -> MemorySource:
        """The same source with a large table put in `folder`."""
        if folder is None or isinstance(self._table, str) or self._table.nbytes <= INLINE_BYTES:
            return self
        path = place(folder, name) / "rows.arrow"
        put(path, _ipc(self._table))
        twin = MemorySource(self.schema.empty_table(), len(self._bounds) - 1)
        twin._bounds, twin._table = self._bounds, str(path)
        return twin

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
        if isinstance(self._table, str):
            return pa.ipc.open_file(pa.memory_map(self._table)).read_all()
        return self._table


def rows(
    values: Iterable[object] | pa.Table, schema: SchemaLike | None = None, *, splits: int = 1
) -> MemorySource:
    """An input made of rows: dicts, dataclasses, named tuples, or an Arrow table."""
    if splits < 1:
        raise InputError(f"{splits} splits", code="HR-INPUT-013", hint="Give one split or more.")
    table = values if isinstance(values, pa.Table) else _table(list(values), schema)
    if schema is not None:
        table = _conform(table, schema_of(schema))
    return MemorySource(table, splits)


def _table(values: list[Any], schema: SchemaLike | None) -> pa.Table:
    if schema is None and values and dataclasses.is_dataclass(values[0]):
        schema = type(values[0])
    try:
        if schema is not None:
            return table_of(values, schema_of(schema))
        if not values:
            raise ValueError("there are no rows to take the columns from")
        return pa.Table.from_pylist([v._asdict() if hasattr(v, "_asdict") else v for v in values])
    except (pa.ArrowException, ValueError, TypeError, AttributeError) as cause:
        raise InputError(
            f"the rows do not fit their schema: {_first_bad(values, schema)}{cause}",
            code="HR-INPUT-006",
            hint="Give rows(..., schema=...) the columns and types that the rows have.",
        ) from cause  # fmt: skip


def _first_bad(values: list[Any], schema: SchemaLike | None) -> str:
    """Which row it is that does not fit: the first that does not by itself."""
    for number, value in enumerate(values if schema is not None else ()):
        try:
            table_of([value], schema_of(schema))
        except (pa.ArrowException, ValueError, TypeError, AttributeError):
            return f"row {number}, "
    return ""


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [n for n in schema.names if n not in table.column_names]
    if missing:
        raise InputError(
            f"the table has no column {missing[0]!r}", code="HR-INPUT-005",
            hint=f"It has: {', '.join(table.column_names)}.",
        )  # fmt: skip
    try:
        return fitted(table, schema)
    except (pa.ArrowException, ValueError) as cause:
        raise InputError(
            f"the table does not fit its schema: {cause}", code="HR-INPUT-006",
            hint="Change the schema or cast the table.",
        ) from cause  # fmt: skip


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=CHUNK_ROWS)
    return bytes(sink.getvalue())
