"""Tables from outside for lookups: where they come from, and the copy that a process holds.

A copy is loaded when it is first asked for, and anew when the clock has entered the next
stretch of `refresh`; that of a table made by Spark, when another has been made. All tasks of
a process share it. It is sorted once, so a lookup pays for the rows that ask, not for the
table.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from threading import Lock
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from headrace.chunk import HASH
from headrace.errors import HeadraceError, StepError
from headrace.hashing import hash_keys
from headrace.ops.join.side import null_keys
from headrace.schema import ddl_type
from headrace.state.table import KeyedTable, TableSpec


class Source(Protocol):
    """Where a table comes from."""

    def load(self) -> pa.Table: ...


@dataclass(frozen=True)
class TableFile:
    """A Parquet, CSV or JSON-lines file, or a folder of Parquet files."""

    path: str

    def load(self) -> pa.Table:
        match Path(self.path).suffix:
            case ".csv":
                return pyarrow.csv.read_csv(self.path)
            case ".json" | ".jsonl":
                return pyarrow.json.read_json(self.path)
        if os.path.isdir(self.path):
            return pyarrow.parquet.read_table(self.path)
        return read_once(self.path)

    def schema(self) -> pa.Schema:
        """The columns, as far as they can be known without reading all of it."""
        whole = Path(self.path).suffix in (".csv", ".json", ".jsonl")
        return self.load().schema if whole else pyarrow.parquet.read_schema(self._one())

    def _one(self) -> str:
        folder = Path(self.path)
        return str(min(folder.glob("**/*.parquet"))) if folder.is_dir() else self.path


@dataclass(frozen=True, eq=False)
class SqlTable:
    """What a query gives; `connect` opens a DB-API connection, once for each load."""

    connect: Callable[[], Any]
    query: str

    def load(self) -> pa.Table:
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute(self.query)
            if cursor.description is None:
                raise TypeError(f"the query gives no table: {self.query!r}")
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        finally:
            connection.close()
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pa.table([_array(n, c) for n, c in zip(names, columns, strict=True)], names)


def _array(name: str, values: Iterable[Any]) -> pa.Array:
    """A column of what a driver gives; ids and addresses are objects there, and text here."""
    texts = (UUID, IPv4Address, IPv6Address)
    try:
        return pa.array([str(v) if isinstance(v, texts) else v for v in values])
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise TypeError(f"column {name!r} of the query is of no one type: {error}") from error


@dataclass(frozen=True, eq=False)
class Called:
    """What a user's function gives."""

    function: Callable[[], Any]

    def load(self) -> pa.Table:
        return as_table(self.function())


@dataclass(frozen=True, eq=False)
class Fixed:
    """A table that is part of the program."""

    table: pa.Table

    def load(self) -> pa.Table:
        return self.table


@dataclass(frozen=True, eq=False)
class SparkTable:
    """What a function of a Spark session gives.

    Only the driver of a run has a session: it makes the table and writes it down, and tasks
    find a `MadeFile` in the place of this. So the function stays where it is.
    """

    make: Callable[[Any], Any] | None

    def load(self) -> pa.Table:
        raise StepError(
            "a table made by Spark cannot be made here: there is no Spark session",
            code="HR-JOIN-024",
            hint='Say Harness(job, on="spark"), or give the job another table in this test.',
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (SparkTable, (None,))


@dataclass(frozen=True)
class MadeFile:
    """A Parquet file that is replaced as a whole: once it is open, it stays what it was."""

    path: str

    def load(self) -> pa.Table:
        return read_once(self.path)

    def version(self) -> int:
        """Another number for another file; it may be one that is gone."""
        try:
            return os.stat(self.path).st_mtime_ns
        except FileNotFoundError:
            return -1


def read_once(path: str) -> pa.Table:
    """A Parquet file that may be replaced meanwhile: `read_table` would open it twice."""
    with open(path, "rb") as file:
        return pyarrow.parquet.ParquetFile(file).read()


def as_table(given: Any) -> pa.Table:
    """An Arrow table of what users have: Arrow, pandas, Polars, Spark, or a list of dicts."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    for method in ("toArrow", "to_arrow"):
        if hasattr(given, method):
            return getattr(given, method)()
    if isinstance(given, list):  # rows may leave columns out
        names = dict.fromkeys(name for row in given for name in row)
        return pa.table({name: [row.get(name) for row in given] for name in names})
    if not hasattr(given, "columns"):
        known = "an Arrow, pandas or Polars table or a list of dicts"
        raise TypeError(f"expected {known}, got {type(given).__name__}")
    return pa.Table.from_pandas(given, preserve_index=False)


_COPIES: dict[str, tuple[int, pa.Table | None]] = {}
_LOCK = Lock()


def copy_of(
    token: str, source: Source, spec: TableSpec, keys: list[str], stretch: int
) -> pa.Table | None:
    """The copy that this process holds of a table, loaded for this stretch of the clock, or
    version of the table.

    It is a run of a keyed table; None for a table without rows.
    """
    with _LOCK:
        held = _COPIES.get(token)
        if held is None:  # it goes with the program
            weakref.finalize(source, _COPIES.pop, token, None)
        if held is None or held[0] != stretch:
            held = _COPIES[token] = (stretch, _load(source, spec, keys))
        return held[1]


def column_of(table: pa.Table, name: str, type: pa.DataType) -> pa.ChunkedArray:
    """A column as it was declared."""
    if table.column_names.count(name) != 1:
        there = ", ".join(table.column_names) or "none"
        raise LookupError(f"there is not one column {name!r}, the columns are: {there}")
    column = table.column(name)
    try:
        return column.cast(type)
    except pa.ArrowException as error:
        said = ddl_type(type)
        raise TypeError(f"column {name!r} is {column.type}, declared as {said}: {error}") from error


def _without_passwords(text: str) -> str:
    """A driver that cannot read a connection string may repeat it, password and all."""
    return re.sub(r"""(:/*[^\s:/@"']*:)[^\s"']+@|(password\s*=\s*)[^\s"']+""", _starred, text)


def _starred(found: re.Match[str]) -> str:
    return f"{found[1]}***@" if found[1] else f"{found[2]}***"


def _load(source: Source, spec: TableSpec, keys: list[str]) -> pa.Table | None:
    try:
        table = source.load()
        if not table.column_names:  # an empty list
            return None
        named = zip([*keys, *spec.value.names], [*spec.key, *spec.value], strict=True)
        columns = [column_of(table, name, field.type) for name, field in named]
    except HeadraceError:
        raise
    except Exception as error:
        text = _without_passwords(str(error)).strip()
        raise StepError(
            f"the table of a lookup cannot be loaded: {type(error).__name__}: {text}",
            code="HR-JOIN-020", hint="See that it is there, with the columns that were declared.",
        ) from (error if text == str(error).strip() else None)  # fmt: skip
    rows = pa.table(columns, [*spec.key.names, *spec.value.names])
    nulls = null_keys(rows, spec.key.names)
    rows = rows if nulls is None else rows.filter(pa.array(~nulls))
    hashes = hash_keys([rows.column(n) for n in spec.key.names], rows.num_rows)
    sorted_once = KeyedTable(spec)
    sorted_once.put(rows.append_column(HASH, pa.array(hashes)))
    return sorted_once.changes()
