"""A DuckDB database in a file: Arrow in and out, by the kernel's door.

One process at a time may have the file open, so it is open only while it is used; while another
process has it, the caller waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

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
from headrace.connect.sql_times import in_range
from headrace.kernel import duckdb
from headrace.schema import TIMESTAMP

_BATCH = 1 << 17
_ROW_GROUPS = 2 * 122_880  # rows
_KINDS: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "UTINYINT": pa.uint8(),
    "USMALLINT": pa.uint16(),
    "UINTEGER": pa.uint32(),
    "UBIGINT": pa.uint64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "JSON": pa.string(),
    "UUID": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMP,
}
_WRITTEN = {**_KINDS, "TIMESTAMP": pa.timestamp("us")}
_NAMES = {kind: name for name, kind in reversed(_WRITTEN.items())} | {pa.string(): "VARCHAR"}


class DuckDb(Connection):
    dialect = "duckdb"

    def __init__(self, database: Database) -> None:
        with _failures():
            self._connection = duckdb.database(database.url.partition(":")[2])

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with _failures():
            return self._connection.execute(sql, list(values)).fetchall()

    def close(self) -> None:
        with suppress(duckdb.Error):
            self._connection.close()

    def resolve(self, table: TableName) -> TableName:
        return TableName(table.schema or "main", table.name)

    def columns(self, table: TableName) -> list[Column] | None:
        where = table if table.schema else TableName("main", table.name)
        try:
            rows = self.run(f"DESCRIBE {where.sql}")
        except SqlFailure as failure:
            if "does not exist" in str(failure):
                return None
            raise
        return [_column(n, kind, null == "NO", default is not None)
                for n, kind, null, _, default, *_ in rows]  # fmt: skip

    def keys(self, table: TableName) -> dict[frozenset[str], str]:
        rows = self.run(
            "SELECT constraint_column_names, sql FROM duckdb_constraints() c JOIN duckdb_tables() "
            "USING (database_oid, table_oid) WHERE c.schema_name = $1 AND c.table_name = $2 AND "
            "constraint_type IN ('PRIMARY KEY', 'UNIQUE')",
            table.schema or "main",
            table.name,
        )
        return collated((names, [_collation(n, sql) for n in names]) for names, sql in rows)

    def is_view(self, table: TableName) -> bool:
        sql = (
            "SELECT 1 FROM information_schema.tables WHERE table_type = 'VIEW' "
            "AND lower(table_name) = lower($1) AND lower(table_schema) = lower($2)"
        )
        return bool(self.run(sql, table.name, table.schema or "main"))

    @classmethod
    def type_for(cls, kind: pa.DataType) -> str | None:
        if pa.types.is_list(kind):
            inner = cls.type_for(kind.value_type)
            return f"{inner}[]" if inner else None
        if pa.types.is_decimal(kind):
            return f"DECIMAL({kind.precision},{kind.scale})" if kind.precision <= 38 else None
        return _NAMES.get(kind)

    def load(self, table: TableName, rows: pa.Table, *, temporary: bool = False) -> None:
        names = ", ".join(map(quoted, rows.schema.names))
        with _failures():
            self._connection.register("__rows", _in_row_groups(rows))
            try:
                self._connection.execute(
                    f"INSERT INTO {table.sql} ({names}) SELECT {names} FROM __rows"
                )
            finally:
                self._connection.unregister("__rows")

    def stage(self, name: str, rows: pa.Table) -> None:
        with _failures():
            self._connection.register("__rows", _in_row_groups(rows))
            try:
                self._connection.execute(
                    f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT * FROM __rows"
                )
            finally:
                self._connection.unregister("__rows")

    def describe(self, query: str, declared: pa.Schema | None) -> pa.Schema:
        rows = self.run(f"DESCRIBE {query}")
        return pa.schema([pa.field(row[0], _held(row[0], row[1])) for row in rows])

    def fetch(self, query: str, schema: pa.Schema) -> Iterator[pa.Table]:
        types = {row[0]: row[1] for row in self.run(f"DESCRIBE {query}")}
        columns = [
            f"CAST({quoted(n)} AS VARCHAR) AS {quoted(n)}" if types[n] == "UUID" else quoted(n)
            for n in schema.names
        ]
        with _failures():
            reader = self._connection.sql(
                f"SELECT {', '.join(columns)} FROM ({query})"
            ).to_arrow_reader(_BATCH)
            for batch in reader:
                rows = pa.Table.from_batches([batch]).cast(schema)
                for name in rows.schema.names:
                    in_range(rows.column(name), name)
                yield rows


DOOR = DuckDb


def _in_row_groups(rows: pa.Table) -> pa.Table:
    """In batches of whole row groups, which its threads compress side by side."""
    if rows.num_rows > _ROW_GROUPS and rows.column(0).num_chunks > rows.num_rows // _ROW_GROUPS + 1:
        rows = rows.combine_chunks()
    return pa.Table.from_batches(rows.to_batches(max_chunksize=_ROW_GROUPS), rows.schema)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except duckdb.LockedError as cause:
        locked = "lock" in str(cause).lower()
        raise SqlFailure(_line(cause), transient=locked, refused=not locked) from None
    except duckdb.ConflictError as cause:
        raise SqlFailure(_line(cause), transient=True) from None
    except duckdb.Error as cause:
        raise SqlFailure(_line(cause)) from None


def _collation(name: str, table: str) -> str:
    """Of a column, in the statement that makes the table as DuckDB writes it."""
    said = re.search(rf'[(,] ?"?{re.escape(name)}"? VARCHAR COLLATE ([\w.]+)', table)
    return said[1] if said and said[1].upper() not in ("C", "POSIX", "BINARY") else ""


def _line(cause: Exception) -> str:
    return str(cause).strip().partition("\n")[0]


def _column(name: str, declared: str, required: bool, filled: bool) -> Column:
    try:
        kind = _kind(name, declared, _WRITTEN)
    except UnmappedError:
        kind = None
    if declared == "JSON":
        kind = None  # not every text is one
    cast = "UUID" if declared == "UUID" else ""
    return Column(name, declared, kind, required, filled, cast=cast)


def _held(name: str, declared: str) -> pa.DataType:
    return _kind(name, declared, _KINDS)


def _kind(name: str, declared: str, known: dict[str, pa.DataType]) -> pa.DataType:
    if declared.endswith("[]"):
        return pa.list_(_kind(name, declared[:-2], known))
    if number := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", declared):
        return pa.decimal128(int(number[1]), int(number[2]))
    kind = known.get(declared)
    if kind is None:
        hint = f'Cast it in a query, as in query="SELECT CAST({name} AS VARCHAR) AS {name} ...".'
        raise UnmappedError(name, declared, hint)
    return kind
