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
import pyarrow.compute as pc

from headrace import kernel_door as door
from headrace.errors import StepError
from headrace.expr import Expr
from headrace.expr_lower import bare, check, to_duckdb_sql, to_spark_sql
from headrace.kernel_arrow import Mask, simple_mask
from headrace.kernel_errors import plain
from headrace.kernel_json import decode_json
from headrace.kernel_sql import Chain, sql_mask

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


def compile_chain(steps: Sequence[Step], schema: pa.Schema) -> Kernel:
    """A kernel that runs `steps` one after another over chunks of `schema`."""
    return Kernel(tuple(SelectStep(s.where, s.columns) for s in steps), schema)


class Kernel:
    """A compiled chain. Calling it gives the whole result or a StepError.

    It may be pickled, and used from any process and thread: each prepares its own queries.
    """

    def __init__(self, steps: tuple[SelectStep, ...], schema: pa.Schema) -> None:
        self.steps = steps
        self.input = schema
        levels = [schema]
        for step in steps:
            levels.append(levels[-1] if step.columns is None else infer(dict(step.columns), levels[-1]))
        self.schema: pa.Schema = levels[-1]
        self._masks, rest = _front(steps, schema)
        self._chain = Chain(rest, levels) if rest else None

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
        for mask in self._masks:
            table = _filtered(table, mask(table))
        return table if self._chain is None else self._chain(table)
