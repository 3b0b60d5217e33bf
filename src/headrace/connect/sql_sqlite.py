"""A SQLite database in a file, by Python's own library.

SQLite stores whole numbers, floating-point numbers, texts and bytes, whatever a column is declared
as: what is read is checked value by value against the declared type. Decimals, dates and times
are written as text (ISO 8601, UTC), which is exact.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.sql import (
    Column,
    Connection,
    Database,
    SqlFailure,
    TableName,
    UnmappedError,
    collated,
    quoted,
)
from headrace.schema import TIMESTAMP, ddl_type

_PATIENCE = 5.0  # seconds for a lock, in the library itself
_BATCH = 50_000  # rows
_ISO = "%Y-%m-%dT%H:%M:%SZ"  # with microseconds, as the column has them
# names and texts in quotes, which are left as they are, or a place for a value
_PLACE = re.compile(r"""(?:"[^"]*"|'[^']*'|\w\$)+|\$(\d+)""")
# by the declared type, without its length
_KINDS: dict[str, pa.DataType] = {
    **dict.fromkeys(
        ("INTEGER", "INT", "BIGINT", "SMALLINT", "TINYINT", "INT8", "INT4"), pa.int64()
    ),
    **dict.fromkeys(("REAL", "DOUBLE", "DOUBLE PRECISION", "FLOAT"), pa.float64()),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR", "CLOB", "NVARCHAR", "UUID", "JSON"), pa.string()),
    "BLOB": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "DATETIME": TIMESTAMP,
}
_WRITTEN = {
    **{name: kind for name, kind in _KINDS.items() if pa.types.is_primitive(kind)},
    **dict.fromkeys(("TEXT", "CLOB"), pa.string()),
    "BLOB": pa.binary(),
}


class Sqlite(Connection):
    dialect = "sqlite"

    def __init__(self, database: Database) -> None:
        path = database.url.partition(":")[2]
        with _failures():
            self._connection = sqlite3.connect(
                path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA synchronous = FULL")

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        if values:  # else there are no places for them, and a $1 is the user's own text
            sql = _PLACE.sub(lambda m: f"?{m[1]}" if m[1] else m[0], sql)
        with _failures():
            return self._connection.execute(sql, values).fetchall()

    def begin(self) -> None:
        self.run("BEGIN IMMEDIATE")

    def close(self) -> None:
        self._connection.close()

    def columns(self, table: TableName) -> list[Column] | None:
        rows = self.run("SELECT name, type, \"notnull\", dflt_value IS NOT NULL, hidden, pk "
                        "FROM pragma_table_xinfo($1)", table.name)  # fmt: skip
        return [
            Column(
                name,
                declared,
                _WRITTEN.get(_bare(declared)),
                bool(required),
                bool(filled) or (bool(pk) and _bare(declared) == "INTEGER"),
                hidden in (2, 3),
            )
            for name, declared, required, filled, hidden, pk in rows
        ] or None

    def keys(self, table: TableName) -> dict[frozenset[str], str]:
        primary = self.run("SELECT name FROM pragma_table_info($1) WHERE pk > 0", table.name)
        found = [([name for (name,) in primary], [""])] if primary else []
        for (index,) in self.run(
            'SELECT name FROM pragma_index_list($1) WHERE "unique" AND NOT partial', table.name
        ):
            sql = "SELECT name, replace(upper(coll), 'BINARY', '') FROM pragma_index_xinfo($1) "
            columns = self.run(f"{sql} WHERE key", index)
            found.append(([name for name, _ in columns], [c for _, c in columns]))
        return collated(found)

    def is_view(self, table: TableName) -> bool:
        sql = (
            "SELECT 1 FROM sqlite_schema v WHERE v.type = 'view' AND lower(v.name) = lower($1) AND "
            "NOT EXISTS (SELECT 1 FROM sqlite_schema t WHERE t.type = 'trigger' "
            "AND lower(t.tbl_name) = lower(v.name))"
        )
        return bool(self.run(sql, table.name))

    @classmethod
    def type_for(cls, kind: pa.DataType) -> str | None:
        is_a = pa.types
        if is_a.is_boolean(kind):
            return "BOOLEAN"
        if is_a.is_integer(kind) and kind != pa.uint64():
            return "INTEGER"
        if is_a.is_floating(kind):
            return "REAL"
        if is_a.is_timestamp(kind):
            return "TIMESTAMP"
        if is_a.is_date(kind):
            return "DATE"
        if is_a.is_string(kind) or is_a.is_decimal(kind):
            return "TEXT"
        return "BLOB" if is_a.is_binary(kind) else None

    def load(self, table: TableName, rows: pa.Table, *, temporary: bool = False) -> None:
        names = ", ".join(map(quoted, rows.schema.names))
        marks = ", ".join("?" * rows.num_columns)
        values = zip(*(_plain(c).to_pylist() for c in rows.columns), strict=True)
        with _failures():
            self._connection.executemany(
                f"INSERT INTO {table.sql} ({names}) VALUES ({marks})", values
            )

    def stage(self, name: str, rows: pa.Table) -> None:
        columns = ", ".join(f"{quoted(f.name)} {self.type_for(f.type)}" for f in rows.schema)
        self.run(f"DROP TABLE IF EXISTS temp.{quoted(name)}")
        self.run(f"CREATE TEMP TABLE {quoted(name)} ({columns})")
        self.load(TableName("temp", name), rows)

    def describe(self, query: str, declared: pa.Schema | None) -> pa.Schema:
        if declared is not None:
            there = {name.lower() for name in self.names(query)}  # as SQLite, ignoring case
            return pa.schema([f for f in declared if f.name.lower() in there])
        table = re.fullmatch(r'SELECT \* FROM ("(?:[^"]|"")+")', query)
        if table is None:
            hint = 'Pass them: schema="id bigint, name string".'
            raise UnmappedError("", "a query, whose columns have no types in SQLite", hint)
        name = table[1][1:-1].replace('""', '"')
        rows = self.run("SELECT name, type FROM pragma_table_info($1)", name)
        return pa.schema([pa.field(n, _kind(n, declared_type)) for n, declared_type in rows])

    def names(self, query: str) -> list[str]:
        with _failures():
            cursor = self._connection.execute(f"SELECT * FROM ({query}) LIMIT 0")
            return [name for name, *_ in cursor.description]

    def fetch(self, query: str, schema: pa.Schema) -> Iterator[pa.Table]:
        # q: a bare name in double quotes is a text where there is no such column
        names = ", ".join(f"q.{quoted(name)}" for name in schema.names)
        with _failures():
            cursor = self._connection.execute(f"SELECT {names} FROM ({query}) AS q")
            while rows := cursor.fetchmany(_BATCH):
                columns = zip(*rows, strict=True)
                arrays = [_array(list(c), f) for c, f in zip(columns, schema, strict=True)]
                yield pa.Table.from_arrays(arrays, schema=schema)


DOOR = Sqlite


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as cause:
        text = str(cause)
        busy = "locked" in text or "busy" in text
        raise SqlFailure(text, transient=busy, refused="unable to open" in text) from None
    except sqlite3.Error as cause:
        raise SqlFailure(str(cause)) from None


def _bare(declared: str) -> str:
    return re.sub(r"\(.*\)", "", declared).strip().upper()


def _kind(name: str, declared: str) -> pa.DataType:
    kind = _KINDS.get(_bare(declared))
    if kind is None:
        hint = f'Pass the columns: schema="{name} decimal(20,4), ...", or leave it out in a query.'
        raise UnmappedError(name, declared or "declared without a type", hint)
    return kind


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """As one of the four types that SQLite has."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        return pc.strftime(column.cast(pa.timestamp("us", tz="UTC")), _ISO)
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    return column


def _array(values: list[Any], field: pa.Field) -> pa.Array:
    """The values of a column, each checked: SQLite holds anything anywhere."""
    kind = field.type
    try:
        if pa.types.is_floating(kind):
            return _numbers(values).cast(kind)
        if pa.types.is_boolean(kind):
            return _booleans(values)
        if pa.types.is_integer(kind):
            return pa.array(values, pa.int64()).cast(kind)
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_decimal(kind):
            return pa.array(values, pa.string()).cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, OverflowError) as cause:
        hint = "Correct the values, or read the column as text by a query with a cast."
        what = f"not always {ddl_type(kind)} ({str(cause)[:120]})"
        raise UnmappedError(field.name, what, hint) from cause


def _numbers(values: list[Any]) -> pa.Array:
    """Floating point; a whole number is one only if nothing is lost."""
    for v in set(map(type, values)) - {float, int, type(None)}:
        raise TypeError(f"there is a {v.__name__}")
    whole = [v for v in values if type(v) is int]
    if any(int(float(v)) != v for v in whole):
        raise TypeError("a whole number has too many digits")
    return pa.array(values, pa.float64(), from_pandas=False) if not whole else pa.array(
        [None if v is None else float(v) for v in values], pa.float64()
    )  # fmt: skip


def _booleans(values: list[Any]) -> pa.Array:
    if set(values) - {0, 1, None}:
        raise TypeError("there are other values than 0 and 1")
    return pa.array(values, pa.int8()).cast(pa.bool_())
