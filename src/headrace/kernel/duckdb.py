"""The one door to DuckDB: a private, in-memory database per process and thread.

Invariant: whatever runs here sees only the tables it is handed. No files, no network, no
extensions, one thread, UTC, IEEE arithmetic, rows in the order they came; the same settings
in every process. A fork gets a database of its own.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from headrace.expr.patterns import json_path
from headrace.expr.types import DIGEST, JSON_OBJECT
from headrace.kernel.json_documents import get_json_object

Error = duckdb.Error
LockedError = duckdb.IOException  # another process has the file open
ConflictError = duckdb.TransactionException
FEED = "\0feed"  # where a query takes its rows; no literal of a user can hold it

_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "ieee_floating_point_ops": True,
    "integer_division": False,
    "preserve_insertion_order": True,
    "default_null_order": "nulls_first",
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
    "enable_external_access": False,
}

_BOUNDED = {"memory_limit": "1GB", "temp_directory": ""}  # of a query that somebody else may send
_ROWS = 2_048  # of an answer, at once


class Feed:
    """What a compiled query reads: a fixed name for a table that changes."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.table: pa.Table = schema.empty_table()

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


class _Local(threading.local):
    pid = 0
    connection: duckdb.DuckDBPyConnection | None = None
    count = 0

    def __init__(self) -> None:
        self.plans: dict[object, Query] = {}


_PLANS = 64  # kept per thread by `once`
_LOCAL = _Local()
_OPEN: list[duckdb.DuckDBPyConnection] = []


def connection() -> duckdb.DuckDBPyConnection:
    """This thread's connection in this process."""
    if _LOCAL.connection is None or os.getpid() != _LOCAL.pid:
        _LOCAL.plans.clear()
        _LOCAL.connection = _open()
        _LOCAL.pid = os.getpid()
    return _LOCAL.connection


def ask(query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """The answer to a user's own query over these tables, in a database of its own."""
    with _asked(query, tables, _CONFIG) as result:
        return pa.table({}) if result is None else result.to_arrow_table()


def ask_some(query: str, tables: Mapping[str, pa.Table], most: int) -> tuple[pa.Table, int]:
    """The first rows of an answer, and how many more there are. What that takes of memory is
    bounded, and nothing is put on disk, whatever the query is."""
    with _asked(query, tables, {**_CONFIG, **_BOUNDED}) as result:
        if result is None:
            return pa.table({}), 0
        reader = result.to_arrow_reader(_ROWS)
        held, left, more = list[pa.RecordBatch](), most, 0
        for batch in reader:
            if left:
                held.append(batch.slice(0, left))
            more += max(0, batch.num_rows - left)
            left = max(0, left - batch.num_rows)
        return pa.Table.from_batches(held, reader.schema), more


@contextlib.contextmanager
def _asked(
    query: str, tables: Mapping[str, pa.Table], config: dict[str, Any]
) -> Iterator[duckdb.DuckDBPyRelation | None]:
    with duckdb.connect(":memory:", config=config) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET lock_configuration = true")
        for name, rows in tables.items():
            database.register(name, rows)
        yield database.sql(query)


def database(path: str) -> duckdb.DuckDBPyConnection:
    """A user's own database, in a file; times are UTC."""
    opened = duckdb.connect(path)
    opened.execute("SET TimeZone = 'UTC'")
    return opened


def _open() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(":memory:", config=_CONFIG)
    database.execute("SET TimeZone = 'UTC'")
    database.execute("PRAGMA disable_optimizer")  # a chain runs as it is written: no filter moves
    for name, function, takes in OWN_FUNCTIONS:
        database.create_function(
            name,
            function,
            [*takes],
            "VARCHAR",
            type=PythonUDFType.ARROW,
            null_handling=FunctionNullHandling.SPECIAL,
        )
    database.execute("SET lock_configuration = true")
    _OPEN.append(database)
    return database


@atexit.register
def _close() -> None:
    _LOCAL.plans.clear()
    _LOCAL.connection = None
    while _OPEN:
        _OPEN.pop().close()


class Query:
    """One SELECT over one feed, planned in the thread and process that runs it."""

    def __init__(self, sql: str, schema: pa.Schema) -> None:
        self.owner = (os.getpid(), threading.get_ident())
        _LOCAL.count += 1
        name = f"feed_{_LOCAL.count}"
        self._feed = Feed(schema)
        connection().register(name, self._feed)
        weakref.finalize(self, _forget, os.getpid(), connection(), name)
        self._relation = connection().sql(sql.replace(FEED, name))

    def __call__(self, table: pa.Table) -> pa.Table:
        self._feed.table = table
        try:
            return self._relation.to_arrow_table()
        finally:
            self._feed.table = self._feed.schema.empty_table()


def _forget(pid: int, database: duckdb.DuckDBPyConnection, name: str) -> None:
    if pid != os.getpid():  # a fork must not touch its parent's database
        return
    with contextlib.suppress(duckdb.Error):
        database.unregister(name)


def here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


def once(sql: str, table: pa.Table) -> pa.Table:
    """A query over a table; its plan is kept for the next table of the same kind."""
    connection()  # a fork starts with no plans
    key = (sql, *table.schema.names, *table.schema.types)
    query = _LOCAL.plans.get(key)
    if query is None:
        if len(_LOCAL.plans) >= _PLANS:
            _LOCAL.plans.clear()
        query = _LOCAL.plans[key] = Query(sql, table.schema)
    return query(table)


def value(expression: str) -> object:
    """One value of an expression without columns."""
    ((result,),) = connection().sql(f"SELECT {expression}").fetchall()
    return result


# Functions that DuckDB has not: Python over the distinct values of a vector.
#
# Invariant: each is pure; null where an argument is.


def _digests(values: Any, bits: Any) -> pa.Array:
    """SHA-2 of as many bits, in hexadecimal digits."""
    return _by_value(values, bits, lambda v, n: hashlib.new(f"sha{n}", v).hexdigest())


def _json_objects(documents: Any, paths: Any) -> pa.Array:
    return _by_value(documents, paths, lambda d, path: get_json_object(d, json_path(path)))


def _by_value(values: Any, others: Any, function: Callable[[Any, Any], str | None]) -> pa.Array:
    """`function` of each pair; called once for each distinct pair."""
    pairs = list(zip(values.to_pylist(), others.to_pylist(), strict=True))
    results = {pair: function(*pair) for pair in dict.fromkeys(pairs) if None not in pair}
    return pa.array([results.get(pair) for pair in pairs], pa.string())


# name, function, and what it takes; each gives text
OWN_FUNCTIONS: tuple[tuple[str, Callable[..., pa.Array], list[str]], ...] = (
    (DIGEST, _digests, ["BLOB", "INTEGER"]),
    (JSON_OBJECT, _json_objects, ["VARCHAR", "VARCHAR"]),
)
