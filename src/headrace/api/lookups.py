"""Lookups: a stream completed from a table outside of the job."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from headrace.api import join_keys
from headrace.api.handles import JoinT, Results, StreamT, TableT, TimedT
from headrace.clock import Duration, millis
from headrace.errors import HeadraceError, PlanError
from headrace.ops.join.lookup import MISSING, Lookup
from headrace.ops.join.lookup_tables import (
    FixedTable,
    FunctionTable,
    LookupSource,
    SparkTable,
    SqlTable,
    as_table,
)
from headrace.plan.draft import UNKNOWN
from headrace.plan.signature import check_takes
from headrace.schema import SchemaLike, ddl_of, schema_of
from headrace.sources.columns import plain
from headrace.sources.table_file import TableFile


class Lookups(Results[StreamT, TimedT, JoinT, TableT]):
    """Streams whose rows can be completed from a table outside of the job."""

    def lookup(
        self,
        table: Any,
        *,
        on: join_keys.On = None,
        refresh: Duration | None = None,
        on_missing: str = "null",
        patience: Duration | None = None,
        schema: SchemaLike | None = None,
        suffix: str = "_right",
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """Each row completed from a table outside: `hr.table_file`, `hr.sql_table`,
        `hr.spark_table`, a function that returns an Arrow or pandas table, or such a table.

        It is loaded again every `refresh`. A row that is not there gets nulls, becomes a "dead"
        letter, or will "wait" until it is there or its `patience` is over.
        """
        step = self._step(name, was)
        loaded = step.attempt(lambda: _table_of(table, schema).schema())
        on = on or self._keys or None
        keys = (
            join_keys.keys_of(step, (self, _TableColumns(loaded)), on) if len(loaded) else ((), ())
        )
        _, output = join_keys.result_of(step, self.schema, loaded, keys, suffix)
        what = Lookup(FixedTable(pa.table({})), "", (), UNKNOWN, None, "null", 0)
        with step.draft.attempt(step.site):
            period = None if refresh is None else millis(refresh)
            wait = 0 if patience is None else millis(patience)
            join_keys.one_of(on_missing, MISSING, "on_missing")
            _check(on_missing, period, wait)
            _check_snapshot(table, period)
            value = pa.schema([pa.field(f.name, f.type) for f in loaded if f.name not in keys[1]])
            source = _table_of(table, schema, tuple(value.names)).source
            if isinstance(source, TableFile):  # what was guessed holds for every refresh
                source = TableFile(source.path, loaded)
            rows = (ddl_of(self.schema),)
            what = Lookup(source, uuid4().hex, keys[1], value, period, on_missing, wait, rows)
        return self._stream(step.stateful(what, (keys[0],), output))


class LookupTable:
    """A table outside of the job, and its columns if they were declared."""

    def __init__(self, source: LookupSource, schema: pa.Schema | None) -> None:
        self.source, self.declared = source, schema

    def schema(self) -> pa.Schema:
        if self.declared is not None:
            return self.declared
        if isinstance(self.source, FixedTable) and self.source.table.column_names:
            return pa.schema([f.with_type(plain(f.type)) for f in self.source.table.schema])
        if isinstance(self.source, TableFile):
            try:
                return self.source.schema()
            except (OSError, ValueError, HeadraceError) as error:
                fact = f"the columns of {self.source.path!r} are not known: {error}"
                raise PlanError(
                    "HR-JOIN-021", fact, "Pass schema=, or make sure that the file exists."
                ) from error
        raise PlanError(
            "HR-JOIN-021",
            "lookup does not know the columns of its table",
            'Pass schema="id bigint, name string".',
        )


def table_file(path: str | Path, *, schema: SchemaLike | None = None) -> LookupTable:
    """A Parquet, CSV or JSON-lines file (or folder of Parquet files) for `lookup`."""
    declared = None if schema is None else schema_of(schema)
    return LookupTable(TableFile(str(Path(path).absolute()), declared), declared)


def sql_table(connect: str | Callable[[], Any], query: str, *, schema: SchemaLike) -> LookupTable:
    """What a query returns, for `lookup`; `connect` opens a DB-API connection, or "sqlite:path"."""
    if isinstance(connect, str):
        kind, _, path = connect.partition(":")
        if kind != "sqlite" or not path:
            hint = 'Write "sqlite:path", or a function such as lambda: psycopg.connect(...).'
            # the rest of an address may hold a password, and so may what is none
            what = repr(f"{kind}:") if re.fullmatch(r"[a-z0-9+]+", kind) else "this text"
            raise PlanError("HR-JOIN-022", f"sql_table does not know how to open {what}", hint)
        database = f"{Path(path).absolute().as_uri()}?mode=rw"  # it does not make a file
        connect = partial(sqlite3.connect, database, uri=True)
    elif hasattr(connect, "cursor"):
        hint = "Give a function that opens one: each worker opens its own, for each load."
        raise PlanError("HR-JOIN-022", "sql_table needs a function, not a connection", hint)
    check_takes(connect, 0, "sql_table")
    return LookupTable(SqlTable(connect, query), schema_of(schema))


def spark_table(make: Callable[[Any], Any], *, schema: SchemaLike) -> LookupTable:
    """What `make(spark)` returns, a Spark DataFrame, for `lookup`.

    The driver of a run calls it before the first batch, and again every `refresh` of the lookup.
    """
    if hasattr(make, "toArrow"):
        hint = "Write spark_table(lambda spark: ...): it is called anew for every refresh."
        raise PlanError("HR-JOIN-022", "spark_table needs a function, not a DataFrame", hint)
    check_takes(make, 1, "spark_table")
    return LookupTable(SparkTable(make), schema_of(schema))


class _TableColumns:
    """Only the columns of a table, in the place of a stream."""

    _keys: tuple[str, ...] = ()

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema


def _table_of(table: Any, schema: SchemaLike | None, names: tuple[str, ...] = ()) -> LookupTable:
    """The table; rows of a list may leave out the columns in `names`."""
    declared = None if schema is None else schema_of(schema)
    if isinstance(table, LookupTable):
        return table if declared is None else LookupTable(table.source, declared)
    if callable(table):
        return LookupTable(FunctionTable(table, names), declared)
    try:
        return LookupTable(FixedTable(as_table(table, names)), declared)
    except Exception as error:
        hint = (
            "Give hr.table_file, hr.sql_table, hr.spark_table, a function, or an Arrow or "
            "pandas table."
        )
        why = f": {error}" if isinstance(table, list) else f", not {table!r}"
        raise PlanError("HR-JOIN-008", f"lookup needs a table{why}", hint) from error


def _check(on_missing: str, refresh: int | None, patience: int) -> None:
    if refresh is not None and refresh <= 0:
        raise PlanError("HR-JOIN-023", "refresh is not above zero", 'Write refresh="1m".')
    if on_missing == "wait" and (refresh is None or patience <= 0):
        hint = 'Say how often to look again and for how long: refresh="1m", patience="1h".'
        raise PlanError("HR-JOIN-023", "rows that wait need refresh= and patience=", hint)
    if on_missing != "wait" and patience:
        hint = 'Pass on_missing="wait", or leave patience out.'
        raise PlanError("HR-JOIN-023", f"rows do not wait: on_missing is {on_missing!r}", hint)


def _check_snapshot(table: Any, refresh: int | None) -> None:
    """What is given as a table becomes part of the program, whatever becomes of its source."""
    if refresh is None or isinstance(table, LookupTable) or callable(table):
        return
    if hasattr(table, "toArrow"):
        fact = "a DataFrame is collected once, when the program is built, and never refreshed"
        hint = "Give hr.spark_table(lambda spark: ..., schema=...), or leave refresh out."
    else:
        fact = "a table that is passed as a value cannot be refreshed"
        hint = "Give a function that makes it, with schema=, or leave refresh out."
    raise PlanError("HR-JOIN-026", fact, hint)
