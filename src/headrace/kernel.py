"""The kernel: chains of filters and projections, compiled once, run over Arrow chunks.

Invariant: the output has exactly the schema that `infer` announced, rows keep their order,
and columns whose name starts with "__" pass through untouched. One row's error never takes
the rest of the chunk with it: `Kernel.run` sets the bad rows aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from sqlglot import exp

from headrace import kernel_door as door
from headrace.errors import StepError
from headrace.expr import Expr
from headrace.expr_lower import Lowering, check, to_duckdb_sql, to_spark_sql
from headrace.expr_types import DUCKDB, quote
from headrace.kernel_errors import plain
from headrace.kernel_json import decode_json

__all__ = [
    "Kernel", "SelectStep", "compile_chain", "decode_json", "infer", "to_duckdb_sql",
    "to_spark_sql",
]  # fmt: skip

Bad = list[tuple[int, str]]


class Step(Protocol):
    """Anything with a condition and columns; `columns` None keeps them all."""

    @property
    def where(self) -> Expr | None: ...

    @property
    def columns(self) -> tuple[tuple[str, Expr], ...] | None: ...


@dataclass(frozen=True, slots=True)
class SelectStep:
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


def bare(expr: Expr) -> str | None:
    """The column that an expression merely is."""
    node = expr.node.this if isinstance(expr.node, exp.Alias) else expr.node
    return str(node.name) if isinstance(node, exp.Column) else None


def compile_chain(steps: Sequence[Step], schema: pa.Schema) -> Kernel:
    """A kernel that runs `steps` one after another over chunks of `schema`."""
    plain_steps = tuple(SelectStep(s.where, s.columns) for s in steps)
    return Kernel(plain_steps, schema)


class Kernel:
    """A compiled chain. Calling it gives the whole result or a StepError."""

    def __init__(self, steps: tuple[SelectStep, ...], schema: pa.Schema) -> None:
        self.steps = steps
        self.input = schema
        self._levels = [_Level(s, schema) for s in steps[:1]]
        for step in steps[1:]:
            self._levels.append(_Level(step, self._levels[-1].schema))
        self.schema: pa.Schema = self._levels[-1].schema if steps else schema
        self._origin = _origins(schema, steps)
        self._filters = any(s.where is not None for s in steps)
        self._queries: dict[tuple[str, ...], door.Query] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return (Kernel, (self.steps, self.input))

    def __call__(self, table: pa.Table) -> pa.Table:
        try:
            return self._run(table)
        except door.Error as error:
            raise StepError(plain(error), code="HR-STEP-002") from None

    def run(self, table: pa.Table) -> tuple[pa.Table, Bad]:
        """The result of the good rows, and (position in `table`, message) of each bad row."""
        try:
            return self._run(table), []
        except door.Error as error:
            return self._halves(table, 0, error)

    def _halves(self, table: pa.Table, start: int, error: door.Error) -> tuple[pa.Table, Bad]:
        if table.num_rows <= 1:
            return self._run(table.slice(0, 0)), [(start, plain(error))]
        middle = table.num_rows // 2
        goods: list[pa.Table] = []
        bads: Bad = []
        for at, part in ((0, table.slice(0, middle)), (middle, table.slice(middle))):
            try:
                goods.append(self._run(part))
            except door.Error as inner:
                good, bad = self._halves(part, start + at, inner)
                goods.append(good)
                bads += bad
        return pa.concat_tables(goods), bads

    def _run(self, table: pa.Table) -> pa.Table:
        hidden = tuple(n for n in table.column_names if n.startswith("__"))
        kept = {} if self._filters else {n: o for n, o in self._origin.items() if o is not None}
        computed = [n for n in self.schema.names if n not in kept]
        made = self._query(table, hidden, computed) if computed or self._filters else table
        return self._assembled(table, made, kept, hidden)

    def _query(self, table: pa.Table, hidden: tuple[str, ...], computed: list[str]) -> pa.Table:
        passed = hidden if self._filters else ()
        given = table.select([*self.input.names, *passed])
        given = given.rename_columns([*_slots(self.input), *passed])
        query = self._queries.get(passed)
        if query is None or query.owner != door.here():
            query = door.Query(self._sql(passed, computed), given.schema)
            self._queries[passed] = query
        return query(given)

    def _assembled(
        self, table: pa.Table, made: pa.Table, kept: Mapping[str, str], hidden: tuple[str, ...]
    ) -> pa.Table:
        columns = []
        for slot, field in zip(_slots(self.schema), self.schema, strict=True):
            source = kept.get(field.name)
            column = table.column(source) if source is not None else made.column(slot)
            columns.append(column if column.type == field.type else column.cast(field.type))
        behind = made if self._filters else table
        fields = [*self.schema, *(table.schema.field(n) for n in hidden)]
        columns += [behind.column(n) for n in hidden]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))

    def _sql(self, passed: tuple[str, ...], computed: list[str]) -> str:
        sql, wanted = "$feed", None
        for i, level in enumerate(self._levels):
            if i == len(self._levels) - 1:
                wanted = computed
            sql = level.sql(sql if i == 0 else f"({sql})", passed, wanted)
        return sql


class _Level:
    """One step over the names of the step before it."""

    def __init__(self, step: SelectStep, schema: pa.Schema) -> None:
        slots = dict(zip(schema.names, _slots(schema), strict=True))
        low = Lowering(schema, DUCKDB, lambda name: slots[name])
        self.where = None if step.where is None else low.truth(step.where.node).sql
        columns = {n: Expr(_column(n)) for n in schema.names} if step.columns is None else dict(
            step.columns
        )
        self.schema = infer(columns, schema)
        self.items = {name: low.top(expr).sql for name, expr in columns.items()}

    def sql(self, source: str, passed: tuple[str, ...], wanted: list[str] | None) -> str:
        items = [
            f"{sql} AS {slot}"
            for (name, sql), slot in zip(self.items.items(), _slots(self.schema), strict=True)
            if wanted is None or name in wanted
        ]
        items += [quote(n, DUCKDB) for n in passed]
        where = f" WHERE {self.where}" if self.where else ""
        return f"SELECT {', '.join(items)} FROM {source}{where}"


def _column(name: str) -> exp.Expression:
    return exp.Column(this=exp.Identifier(this=name, quoted=True))


def _slots(schema: pa.Schema) -> list[str]:
    """Names inside DuckDB, which ignores case: by position, so that any column name works."""
    return [f"c{i}" for i in range(len(schema))]


def _origins(schema: pa.Schema, steps: Sequence[SelectStep]) -> dict[str, str | None]:
    """For each output column the input column it is an unchanged copy of, if any."""
    origin: dict[str, str | None] = {n: n for n in schema.names}
    for step in steps:
        if step.columns is not None:
            origin = {n: origin.get(bare(e) or "") for n, e in step.columns}
    return origin
