"""Chains of steps as one SQL query: nested subqueries over one chunk.

Invariant: a chain runs in the order in which it is written; an expression is evaluated only
on rows that earlier conditions kept. Inside, columns are named by position, so any name works
outside (DuckDB itself ignores case); columns that a chain without filters merely passes on
never enter DuckDB.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr import Expr, all_columns
from headrace.expr.lower import Lowering, bare, check
from headrace.expr.operator_rules import condition
from headrace.expr.types import TODAY, quote, zoneless
from headrace.kernel import duckdb
from headrace.kernel.arrow import Mask

_ROW = "__row"


class ChainStep(Protocol):
    """Anything with a condition and columns; `columns` None keeps them all."""

    @property
    def where(self) -> Expr | None: ...

    @property
    def columns(self) -> tuple[tuple[str, Expr], ...] | None: ...


@dataclass(frozen=True, slots=True)
class SelectStep:
    """Keep the rows where `where` holds, then make `columns` of them."""

    where: Expr | None = None
    columns: tuple[tuple[str, Expr], ...] | None = None


def infer(columns: Mapping[str, Expr], schema: pa.Schema) -> pa.Schema:
    """The schema of `columns` over `schema`; PlanError HR-EXPR-001 to -003 if it has none."""
    return pa.schema([_field(name, expr, schema) for name, expr in columns.items()])


def _field(name: str, expr: Expr, schema: pa.Schema) -> pa.Field:
    source = bare(expr)
    if source is not None and source in schema.names:
        return schema.field(source).with_name(name)
    return pa.field(name, check(expr, schema))


def sql_mask(condition: Expr, schema: pa.Schema) -> Mask:
    """A function that returns the mask of the rows where `condition` holds."""
    chain = Chain((SelectStep(where=condition, columns=()),), schema)

    def mask(table: pa.Table) -> pa.Array:
        rows = pa.array(np.arange(table.num_rows))
        selected = np.zeros(table.num_rows, bool)
        selected[chain(table.select(schema.names).append_column(_ROW, rows)).column(_ROW)] = True
        return pa.array(selected)

    return mask


class Chain:
    """Steps over a schema, as a function of chunks."""

    def __init__(self, steps: Sequence[SelectStep], schema: pa.Schema) -> None:
        self.input = schema
        self.filters = any(s.where is not None for s in steps)
        self._levels: list[_Subquery] = []
        self._origin: dict[str, str | None] = {n: n for n in schema.names}
        for step in steps:
            self._levels.append(_Subquery(step, schema))
            schema = self._levels[-1].schema
            if step.columns is not None:
                self._origin = {n: self._origin.get(bare(e) or "") for n, e in step.columns}
        self.schema = schema
        self._passed_on = {} if self.filters else {n: o for n, o in self._origin.items() if o}
        self._computed = [n for n in self.schema.names if n not in self._passed_on]
        self._needs = self._trimmed()
        self._dated = any(level.dated for level in self._levels)
        self._queries: dict[object, duckdb.Query] = {}

    def _trimmed(self) -> list[list[str]]:
        """The columns that are needed of the input and of each step, and no others."""
        needs = [self._computed]
        for level in reversed(self._levels):
            needs.insert(0, level.reads(needs[0]))
        return needs

    def __call__(self, table: pa.Table) -> pa.Table:
        hidden = [n for n in table.column_names if n.startswith("__")]
        passed = hidden if self.filters else []
        result = self._ask(table, passed) if self._computed or self.filters else table
        columns = []
        for slot, field in zip(_slots(self.schema), self.schema, strict=True):
            source = self._passed_on.get(field.name)
            column = result.column(slot) if source is None else table.column(source)
            columns.append(column if column.type == field.type else column.cast(field.type))
        columns += [(result if self.filters else table).column(n) for n in hidden]
        fields = [*self.schema, *(table.schema.field(n) for n in hidden)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def failing(self, table: pa.Table) -> np.ndarray:
        """The positions of the rows on which some step fails, in order."""
        rows = _zoneless(table.select(self.input.names)).rename_columns(_slots(self.input))
        rows = rows.append_column(_ROW, pa.array(np.arange(table.num_rows)))
        sql = f"SELECT *, FALSE AS failed FROM {duckdb.FEED}"
        for level in self._levels:
            sql = level.tried(sql)
        failed = duckdb.once(dated(f"SELECT {_ROW} FROM ({sql}) WHERE failed"), rows)
        return np.sort(failed.column(_ROW).to_numpy())

    def _ask(self, table: pa.Table, passed: list[str]) -> pa.Table:
        slots = dict(zip(self.input.names, _slots(self.input), strict=True))
        needed = self._needs[0] or self.input.names[:1]  # of no column at all, DuckDB sees no rows
        table = _zoneless(table.select([*needed, *passed]))
        table = table.rename_columns([*(slots[n] for n in needed), *passed])
        today = date_now() if self._dated else None
        key = (duckdb.here(), today, *table.schema.names, *table.schema.types)
        if key not in self._queries:
            self._queries[key] = duckdb.Query(dated(self._sql(passed)), table.schema)
        return self._queries[key](table)

    def _sql(self, passed: list[str]) -> str:
        sql = duckdb.FEED
        for level, needed in zip(self._levels, self._needs[1:], strict=True):
            sql = level.sql(sql if sql == duckdb.FEED else f"({sql})", passed, needed)
        return sql


class _Subquery:
    """One step over the names of the step before it."""

    def __init__(self, step: SelectStep, schema: pa.Schema) -> None:
        slots = dict(zip(schema.names, _slots(schema), strict=True))
        low = Lowering(schema, lambda name: slots[name])
        columns = all_columns(schema) if step.columns is None else dict(step.columns)
        self.where = None if step.where is None else condition(low, step.where).sql
        self.schema = infer(columns, schema)
        self.items = {name: low.top(expr).sql for name, expr in columns.items()}
        self._order = schema.names
        self._reads = {name: expr.columns for name, expr in columns.items()}
        self._condition_reads = frozenset() if step.where is None else step.where.columns
        self.dated = any(TODAY in sql for sql in (*self.items.values(), self.where or ""))

    def reads(self, needed: Sequence[str]) -> list[str]:
        """The columns of the previous step that are needed to compute `needed`."""
        read = self._condition_reads.union(*(self._reads[n] for n in needed))
        return [n for n in self._order if n in read]

    def sql(self, source: str, passed: Sequence[str], needed: Sequence[str]) -> str:
        pairs = zip(self.items.items(), _slots(self.schema), strict=True)
        items = [f"{sql} AS {slot}" for (name, sql), slot in pairs if name in needed]
        items = [*items, *(quote(n) for n in passed)] or ["0 AS none"]
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {', '.join(items)} FROM {source}{where}"

    def tried(self, source: str) -> str:
        """The step over rows some of which have failed; a value is boxed to tell null from
        failure."""
        if self.where is not None:
            source = f"SELECT *, TRY(row({self.where})) AS box FROM ({source})"
            source = (
                f"SELECT * REPLACE (failed OR box IS NULL AS failed) FROM ({source}) "
                "WHERE failed OR box IS NULL OR struct_extract_at(box, 1)"
            )
        boxes = [f"TRY(row({sql})) AS b{i}" for i, sql in enumerate(self.items.values())]
        broken = " OR ".join(["failed", *(f"b{i} IS NULL" for i in range(len(boxes)))])
        values = [f"struct_extract_at(b{i}, 1) AS c{i}" for i in range(len(boxes))]
        inner = f"SELECT {', '.join([*boxes, _ROW, 'failed'])} FROM ({source})"
        return f"SELECT {', '.join([*values, _ROW])}, {broken} AS failed FROM ({inner})"


def _zoneless(table: pa.Table) -> pa.Table:
    """Timestamps as DuckDB computes with them; only the type changes, not the values."""
    schema = pa.schema([f.with_type(zoneless(f.type)) for f in table.schema])
    return table if schema.types == table.schema.types else table.cast(schema)


def _slots(schema: pa.Schema) -> list[str]:
    return [f"c{i}" for i in range(len(schema))]


# The date of the epoch, for `current_date()`: the one thing that an expression reads besides
# rows. It is the clock that was recorded when the epoch was planned, in UTC, so a replayed epoch
# computes with the same date. Where no epoch runs there is no date, and asking is HR-EXPR-006.

_CLOCK: ContextVar[int | None] = ContextVar("epoch_clock", default=None)


@contextmanager
def epoch_clock(millis: int) -> Iterator[None]:
    """Within, `current_date()` is the date of this time."""
    token = _CLOCK.set(millis)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def date_now() -> dt.date:
    clock = _CLOCK.get()
    if clock is None:
        raise PlanError(
            "HR-EXPR-006",
            "current_date() is asked for where there is no epoch",
            "Compute it by with_columns before this step, and use the column here.",
        )
    return (dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=clock)).date()


def dated(sql: str) -> str:
    """The query with the epoch's date in its places."""
    return sql.replace(TODAY, f"DATE '{date_now().isoformat()}'") if TODAY in sql else sql
