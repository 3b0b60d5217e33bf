"""Outside tables for lookups: where they come from, and the copy that a process holds.

A copy is loaded at the first lookup, and again when the clock has entered the next `refresh`
period; that of a table built by Spark, when a new one has been built. All tasks of a process
share it. It is sorted once, so a lookup pays for the rows that ask, not for the table.
"""

from __future__ import annotations

import os
import re
import sqlite3
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from threading import Lock
from typing import Any, Protocol
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet

from headrace.arrays import owned
from headrace.chunk import HASH
from headrace.errors import HeadraceError, StepError
from headrace.hashing import hash_keys
from headrace.ops.join.sides import null_keys
from headrace.schema import ddl_type
from headrace.state.table import KeyedTable, TableSpec
from headrace.values import as_type


class LookupSource(Protocol):
    """Where a table comes from."""

    def load(self) -> pa.Table: ...


@dataclass(frozen=True, eq=False)
class SqlTable:
    """What a query returns; `connect` opens a DB-API connection, once for each load."""

    connect: Callable[[], Any]
    query: str

    def load(self) -> pa.Table:
        connection = self._opened()
        try:
            cursor = connection.cursor()
            cursor.execute(self.query)
            if cursor.description is None:
                raise TypeError(f"the query returns no table: {self.query!r}")
            names = [column[0] for column in cursor.description]
            rows = cursor.fetchall()
        finally:
            connection.close()
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pa.table([_array(n, c) for n, c in zip(names, columns, strict=True)], names)

    def _opened(self) -> Any:
        """A connection. The message of a driver may repeat an address with its password, so it is
        not shown: only the reason, if it is one of the usual."""
        try:
            return self.connect()
        except (ImportError, sqlite3.Error):  # these know no password
            raise
        except Exception as error:
            words = str(error).lower()
            why = "".join(f": {reason}" for reason in _REASONS if reason in words)
            raise StepError(
                "HR-JOIN-020",
                f"the database of a lookup cannot be opened: {type(error).__name__}{why}",
                "The driver's message is not shown, as it may hold a password: call the "
                "function that connects in a Python shell, where the job's workers are.",
            ) from None


_REASONS = (
    "connection refused", "timeout", "timed out", "authentication failed", "access denied",
    "name or service not known", "does not exist",
)  # fmt: skip
_TEXTS = (UUID, IPv4Address, IPv6Address, IPv4Network, IPv6Network)


def _array(name: str, values: Sequence[Any]) -> pa.Array:
    """A column that a driver returns; ids and addresses are objects there, and text here."""
    try:
        return pa.array([_plain(v) for v in values])
    except (pa.ArrowException, ValueError, TypeError) as error:
        kinds = sorted({type(v).__name__ for v in values if v is not None})
        fact = f"column {name!r} of the query does not fit: it has {' and '.join(kinds)}"
        raise TypeError(f"{fact} ({error}); cast it there, such as x::text") from error


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, _TEXTS) else value


@dataclass(frozen=True, eq=False)
class FunctionTable:
    """What a user's function returns."""

    function: Callable[[], Any]
    names: tuple[str, ...] = ()  # columns that all rows of a list may leave out

    def load(self) -> pa.Table:
        return owned(as_table(self.function(), self.names))


@dataclass(frozen=True, eq=False)
class FixedTable:
    """A table that is part of the program."""

    table: pa.Table

    def load(self) -> pa.Table:
        return self.table


@dataclass(frozen=True, eq=False)
class SparkTable:
    """What a function of a Spark session returns.

    Only the driver of a run has a session: it writes the table to a file, and tasks get a
    `SparkTableFile` in place of this. So the function never leaves the driver.
    """

    make: Callable[[Any], Any] | None

    def load(self) -> pa.Table:
        raise StepError(
            "HR-JOIN-024",
            "a table built by Spark cannot be built here: there is no Spark session",
            'Say Harness(job, on="spark"), or give the job another table in this test.',
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (SparkTable, (None,))


@dataclass(frozen=True)
class SparkTableFile:
    """A Parquet file that is replaced as a whole: once it is open, it stays what it was."""

    path: str

    def load(self) -> pa.Table:
        return read_once(self.path)

    def version(self) -> int:
        """Another number for another file, also for one that was deleted."""
        try:
            return os.stat(self.path).st_mtime_ns
        except FileNotFoundError:
            return -1


def read_once(path: str) -> pa.Table:
    """A Parquet file that may be replaced meanwhile: `read_table` would open it twice."""
    with open(path, "rb") as file:
        return pyarrow.parquet.ParquetFile(file).read()


def as_table(rows: Any, names: Iterable[str] = ()) -> pa.Table:
    """An Arrow table of what a user passes: Arrow, pandas, Polars, Spark, or a list of dicts.

    The rows of a list may leave columns out, all of them those in `names`.
    """
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    for method in ("toArrow", "to_arrow"):
        if hasattr(rows, method):
            return getattr(rows, method)()
    if isinstance(rows, list):
        return _of_dicts(rows, names)
    if not hasattr(rows, "columns"):
        expected = "an Arrow, pandas or Polars table or a list of dicts"
        raise TypeError(f"expected {expected}, got {type(rows).__name__}")
    return pa.Table.from_pandas(rows, preserve_index=False)


def _of_dicts(rows: list[Any], names: Iterable[str]) -> pa.Table:
    strange = sorted({type(row).__name__ for row in rows if not isinstance(row, Mapping)})
    if strange:
        shape = 'write each as {"id": 1, "name": "one"}'
        raise TypeError(f"the rows of the list are {' and '.join(strange)}, not dict: {shape}")
    present = [name for row in rows for name in row]
    columns = dict.fromkeys([*present, *names]) if rows else {}
    return pa.table({name: [row.get(name) for row in rows] for name in columns})


_COPIES: dict[str, tuple[int, pa.Table | None]] = {}
_LOCK = Lock()


def copy_of(
    token: str, source: LookupSource, spec: TableSpec, keys: list[str], version: int
) -> pa.Table | None:
    """The copy that this process has of a table, loaded for this `refresh` period or version.

    It is a run of a keyed table; None for a table without rows.
    """
    with _LOCK:
        copy = _COPIES.get(token)
        if copy is None:  # it lives as long as the program
            weakref.finalize(source, _COPIES.pop, token, None)
        if copy is None or copy[0] != version:
            copy = _COPIES[token] = (version, _load(source, spec, keys))
        return copy[1]


def column_of(table: pa.Table, name: str, type: pa.DataType) -> pa.ChunkedArray:
    """A column as it was declared."""
    if table.column_names.count(name) != 1:
        columns = ", ".join(table.column_names) or "none"
        raise LookupError(f"there is not one column {name!r}, the columns are: {columns}")
    column = table.column(name)
    try:
        return as_type(column, type)
    except (pa.ArrowException, ValueError) as error:
        declared = f"column {name!r} is {column.type}, declared as {ddl_type(type)}"
        raise TypeError(f"{declared}: {error}") from error


def _without_passwords(text: str) -> str:
    """A message of a function or a database, without what looks like a password."""
    text = re.sub(r"""([^\s:/@"']:)[^\s"'/][^\s"']*@""", r"\1***@", text)
    words = r"""((?:password|passwd|pwd)["']?\s*[=:]\s*)("[^"]*"?|'[^']*'?|[^\s;,&"']+)"""
    return re.sub(words, r"\1***", text, flags=re.IGNORECASE)


def _load(source: LookupSource, spec: TableSpec, keys: list[str]) -> pa.Table | None:
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
            "HR-JOIN-020",
            f"the table of a lookup cannot be loaded: {type(error).__name__}: {text}",
            "See that it is there, with the columns that were declared.",
        ) from (error if text == str(error).strip() else None)
    rows = pa.table(columns, [*spec.key.names, *spec.value.names])
    nulls = null_keys(rows, spec.key.names)
    rows = rows if nulls is None else rows.filter(pa.array(~nulls))
    hashes = hash_keys([rows.column(n) for n in spec.key.names], rows.num_rows)
    sorted_once = KeyedTable(spec)
    sorted_once.put(rows.append_column(HASH, pa.array(hashes)))
    return sorted_once.changes()
