"""PostgreSQL by ADBC: rows go in by COPY and come out as Arrow, both in binary.

Values that ADBC would change are asked for as text and cast here: numeric, uuid, json. An array of
several dimensions, which ADBC would flatten, is an error.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.extras import needed
from headrace.connect.sql import (
    Column,
    Connection,
    Database,
    SqlFailure,
    TableName,
    UnmappedError,
    close_idle,
    collated,
    quoted,
)
from headrace.connect.sql_times import AS_A_TEXT, in_range
from headrace.schema import TIMESTAMP
from headrace.secrets import Secret, hidden

# what may pass: the server stops or starts, a lock or a conflict, no room for a connection
_TRANSIENT = re.compile(r"08...|40001|40P01|55P03|57P0[1-3]|53[0-9]{3}|25P03")
_FOR_GOOD = ("authentication failed", "does not exist", "no password supplied", "no pg_hba.conf",
             "not permitted", "permission denied")  # fmt: skip
_BROKEN = ("terminating connection", "closed the connection", "closed unexpectedly",
           "no connection", "could not receive data", "starting up", "shutting down",
           "canceling statement due to lock timeout", "deadlock detected")  # fmt: skip
_SESSION = (
    "SET client_encoding = 'UTF8'; SET timezone = 'UTC'; SET datestyle = 'ISO'; "
    "SET bytea_output = 'hex'; "
    "SET extra_float_digits = 3; SET lock_timeout = '30s'; "
    "SET idle_in_transaction_session_timeout = '60s'"
)
_KINDS: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamptz": TIMESTAMP,
    "uuid": pa.string(),
    "json": pa.string(),
    "jsonb": pa.string(),
}
_AS_TEXT = ("numeric", "uuid", "json", "jsonb")
_WRITTEN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "real": pa.float32(),
    "double precision": pa.float64(),
    "text": pa.string(),
    "character varying": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "timestamp with time zone": TIMESTAMP,
    "timestamp without time zone": pa.timestamp("us"),
    "uuid": pa.string(),
}
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum"""
_VIEW = """
SELECT 1 FROM pg_class c WHERE c.oid = to_regclass($1) AND c.relkind IN ('v', 'm') AND NOT EXISTS
  (SELECT 1 FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgtype & 68 = 68)"""
_KEYS = """
SELECT i.indexrelid::bigint, a.attname, coalesce(min(c.collname), '') FROM pg_index i
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
LEFT JOIN pg_collation c ON NOT c.collisdeterministic
  AND (c.oid = a.attcollation OR c.oid = ANY(i.indcollation))
WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indpred IS NULL
  AND i.indexprs IS NULL AND i.indisvalid GROUP BY 1, 2"""


class Postgres(Connection):
    dialect = "postgresql"
    pooled = True

    def __init__(self, database: Database) -> None:
        library = needed("adbc_driver_postgresql.dbapi", "sql", "a PostgreSQL database")
        self._secret = database.secret
        with _failures(self._secret):
            self._connection = library.connect(_with_password(database), autocommit=True)
        try:
            for statement in _SESSION.split("; "):
                self.run(statement)
        except BaseException:
            self.close()
            raise

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with _failures(self._secret), self._connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            rows = cursor.fetchall() if cursor.description else []
            return [tuple(row) for row in rows]

    def close(self) -> None:
        with suppress(Exception):  # it may be broken
            self._connection.close()

    def resolve(self, table: TableName) -> TableName:
        if table.schema:
            return table
        ((schema,),) = self.run(
            "SELECT coalesce((SELECT n.nspname FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)), current_schema())::text",
            quoted(table.name),
        )
        return TableName(str(schema), table.name)

    # writing

    def columns(self, table: TableName) -> list[Column] | None:
        rows = self.run(_COLUMNS, table.sql)
        if not rows:
            return None
        return [_column(*row) for row in rows]

    def keys(self, table: TableName) -> dict[frozenset[str], str]:
        found: dict[int, dict[str, str]] = {}
        for index, name, collation in self.run(_KEYS, table.sql):
            found.setdefault(index, {})[name] = collation
        return collated((names, names.values()) for names in found.values())

    def is_view(self, table: TableName) -> bool:
        return bool(self.run(_VIEW, table.sql))

    @classmethod
    def type_for(cls, kind: pa.DataType) -> str | None:
        is_a = pa.types
        if is_a.is_list(kind) or is_a.is_large_list(kind):
            inner = cls.type_for(kind.value_type)
            return None if inner is None or inner.endswith("[]") else f"{inner}[]"
        if is_a.is_decimal(kind):
            return f"numeric({kind.precision},{kind.scale})"
        if is_a.is_timestamp(kind):
            return "timestamptz" if kind.tz else "timestamp"
        names = {
            pa.bool_(): "boolean",
            pa.int8(): "smallint",
            pa.int16(): "smallint",
            pa.uint8(): "smallint",
            pa.int32(): "integer",
            pa.uint16(): "integer",
            pa.int64(): "bigint",
            pa.uint32(): "bigint",
            pa.float32(): "real",
            pa.float64(): "double precision",
            pa.string(): "text",
            pa.binary(): "bytea",
            pa.date32(): "date",
        }
        return names.get(kind)

    def load(self, table: TableName, rows: pa.Table, *, temporary: bool = False) -> None:
        schema = {"db_schema_name": table.schema} if table.schema and not temporary else {}
        with _failures(self._secret), self._connection.cursor() as cursor:
            cursor.adbc_ingest(table.name, rows, mode="append", temporary=temporary, **schema)

    def stage(self, name: str, rows: pa.Table) -> None:
        columns = ", ".join(f"{quoted(f.name)} {self.type_for(f.type)}" for f in rows.schema)
        self.run(f"CREATE TEMP TABLE {quoted(name)} ({columns}) ON COMMIT DROP")
        self.load(TableName("", name), rows, temporary=True)

    # reading

    def describe(self, query: str, declared: pa.Schema | None) -> pa.Schema:
        return pa.schema([_held(f, declared) for f in self._answer(query)])

    def fetch(self, query: str, schema: pa.Schema) -> Iterator[pa.Table]:
        answer = {f.name: f for f in self._answer(query)}
        lists = [n for n in schema.names if pa.types.is_list(schema.field(n).type)]
        columns = [_asked(answer[name]) for name in schema.names]
        columns += [f"array_ndims(q.{quoted(n)}) AS {quoted(f'__{n}')}" for n in lists]
        with _failures(self._secret), self._connection.cursor() as cursor:
            cursor.execute(f"SELECT {', '.join(columns)} FROM ({query}) AS q")
            for batch in _batches(cursor.fetch_record_batch(), self._secret):
                rows = pa.Table.from_batches([batch])
                for name in lists:
                    _refuse_flattened(rows, name)
                yield pa.Table.from_arrays(
                    [in_range(_cast(rows.column(f.name), f), f.name) for f in schema],
                    schema=schema,
                )

    def _answer(self, query: str) -> pa.Schema:
        """The columns of a query as ADBC would return them."""
        with _failures(self._secret), self._connection.cursor() as cursor:
            return cursor.adbc_execute_schema(f"SELECT * FROM ({query}) AS q")


DOOR = Postgres


atexit.register(close_idle)


def _with_password(database: Database) -> str:
    """The address for libpq, which reads what is missing from its environment and PGPASSFILE."""
    if database.secret is None:
        return database.url
    joint = "&" if "?" in database.url else "?"
    return f"{database.url}{joint}password={quote(database.secret.text, safe='')}"


@contextmanager
def _failures(secret: Secret | None) -> Iterator[None]:
    library = needed("adbc_driver_manager", "sql", "a PostgreSQL database")
    try:
        yield
    except library.Error as cause:
        state = str(cause.sqlstate or "")
        text = hidden(_shortened(str(cause)), secret)
        unreached = not state and cause.status_code == library.AdbcStatusCode.IO
        for_good = unreached and any(words in text for words in _FOR_GOOD)
        transient = (unreached and not for_good) or bool(_TRANSIENT.fullmatch(state))
        raise SqlFailure(text, transient=transient, refused=unreached, state=state) from None


def _shortened(text: str) -> str:
    """The server's own words, on one line, without the statement."""
    text = re.sub(r"\n\nQuery was:.*", "", text, flags=re.DOTALL)
    text = re.sub(r"^\w+: (\[libpq\] )?", "", text)
    text = re.sub(r"Failed to execute (query '.*?'|COPY statement): (PGRES_\w+ )?", "", text,
                  flags=re.DOTALL)  # fmt: skip
    text = re.sub(r"\.? ?SQLSTATE: \w+", "", text)
    return " ".join(text.split()).removesuffix(" .")


def _column(name: str, declared: str, required: bool, filled: bool, computed: bool) -> Column:
    kind, longest, cast = _WRITTEN.get(declared), None, ""
    if sized := re.fullmatch(r"character varying\((\d+)\)", declared):
        kind, longest = pa.string(), int(sized[1])
    elif number := re.fullmatch(r"numeric\((\d+),(\d+)\)", declared):
        kind = pa.decimal128(int(number[1]), int(number[2])) if int(number[1]) <= 38 else None
    elif declared == "numeric":
        kind = pa.null()  # any decimal
    elif declared.endswith("[]"):
        inner = _column(name, declared[:-2], False, False, False)
        exact = inner.kind is not None and not inner.cast and inner.longest is None
        kind = pa.list_(inner.kind) if exact and inner.kind != pa.null() else None
    if declared == "uuid":
        cast = "uuid"
    return Column(name, declared, kind, required, filled, computed, longest, cast)


def _typname(field: pa.Field) -> tuple[str, int]:
    about = field.metadata or {}
    return about.get(b"POSTGRESQL:type", b"").decode(), int(about.get(b"POSTGRESQL:typmod", b"-1"))


def _held(field: pa.Field, declared: pa.Schema | None) -> pa.Field:
    """The column as Headrace holds it."""
    name, modifier = _typname(field)
    if name.startswith("_") and pa.types.is_list(field.type):
        inner = _held(field.type.value_field.with_name(field.name), declared)
        return pa.field(field.name, pa.list_(inner.type))
    if name == "numeric":
        return pa.field(field.name, _decimal(field.name, modifier, declared))
    kind = _KINDS.get(name)
    if kind is None:
        hint = f'Cast it in a query, as in query="SELECT {field.name}::text ...".'
        raise UnmappedError(field.name, name or str(field.type), hint)
    return pa.field(field.name, kind)


def _decimal(name: str, modifier: int, declared: pa.Schema | None) -> pa.DataType:
    if declared is not None and name in declared.names:
        asked = declared.field(name).type
        asked = asked.value_type if pa.types.is_list(asked) else asked
        if pa.types.is_decimal(asked):
            return asked
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
    if modifier < 0 or precision > 38 or scale > precision:
        hint = (
            f'Say how many digits it has: schema="{name} decimal(20,4), ..."; or cast it in a '
            f'query, as in query="SELECT {name}::numeric(20,4) ...".'
        )
        sized = "numeric" if modifier < 0 else f"numeric({precision},{scale})"
        raise UnmappedError(name, sized, hint)
    return pa.decimal128(precision, scale)


def _asked(field: pa.Field) -> str:
    name, _ = _typname(field)
    column = f"q.{quoted(field.name)}"
    if name in _AS_TEXT:
        return f"{column}::text AS {quoted(field.name)}"
    if name.startswith("_") and name[1:] in _AS_TEXT:
        return f"{column}::text[] AS {quoted(field.name)}"
    return column


def _refuse_flattened(rows: pa.Table, name: str) -> None:
    deepest = pc.max(rows.column(f"__{name}")).as_py()
    if deepest is not None and deepest > 1:
        raise UnmappedError(name, f"an array of {deepest} dimensions", "Read it as text: cast it.")


def _batches(reader: Iterable[pa.RecordBatch], secret: Secret | None) -> Iterator[pa.RecordBatch]:
    """What the reader gives; it has errors of Arrow, without the server's code."""
    try:
        yield from reader
    except OSError as cause:
        text = hidden(_shortened(str(cause)), secret)
        raise SqlFailure(text, transient=any(words in text for words in _BROKEN)) from cause
    except pa.ArrowInvalid as cause:
        if "lower bound" not in str(cause):
            raise
        declared = "an array whose first element is not number 1"
        raise UnmappedError("", f"at one place {declared}", AS_A_TEXT) from cause


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowException as cause:
        hint = "Cast it in the query to what it can be, or read it as text."
        raise UnmappedError(field.name, f"not always {field.type} ({cause})", hint) from cause
