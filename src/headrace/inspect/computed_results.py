"""Results that a program computes of aggregates, as in agg("sum(v) / count(*) as mean"), of state.

State holds the aggregates, under names that begin with "$"; a projection after the step makes the
results of them. Here it is applied to the rows of a look at the state. A result that also reads
columns of the row it was emitted with is not of the state: its aggregates are shown instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.expr import Expr
from headrace.kernel.compiled import compile_chain
from headrace.kernel.sql import SelectStep
from headrace.plan.nodes import OUT, SelectChain, Stateful
from headrace.plan.program import Program

Computed = tuple[tuple[str, Expr], ...]
_OURS = "$"


def computed_of(program: Program, node: Stateful) -> Computed:
    """The columns that the projection after a step makes; none if its results are as they are."""
    for chain in program.nodes.values():
        if isinstance(chain, SelectChain) and chain.steps[0].finishes:
            edge = chain.inputs[0]
            if edge.node.name == node.name and edge.port == OUT:
                return chain.steps[0].columns or ()
    return ()


def with_computed(rows: pa.Table, computed: Computed) -> pa.Table:
    """Rows of state with the results in the place of what they are computed of."""
    if not computed:
        return rows
    ours = {c for _, expr in computed for c in expr.columns if c.startswith(_OURS)}
    shown = {c.removeprefix(_OURS): c for c in ours if c not in rows.column_names}
    rows = rows.rename_columns([shown.get(n, n) for n in rows.column_names])
    known = set(rows.column_names)
    made = [(n, e) for n, e in computed if n not in known and e.columns and e.columns <= known]
    lacking = {c for n, e in computed for c in e.columns & ours if not e.columns <= known}
    results = _results(rows, made)
    order = [n for n in rows.column_names if n not in ours and n not in dict(computed)]
    order += [n for n, _ in computed if n in results or n in known]
    columns = [results[n] if n in results else rows.column(n) for n in order]
    rest = [n for n in rows.column_names if n in lacking]
    names = [*order, *(n.removeprefix(_OURS) for n in rest)]
    return pa.table([*columns, *(rows.column(n) for n in rest)], names)


def _results(rows: pa.Table, made: list[tuple[str, Expr]]) -> dict[str, Any]:
    """What is computed of each row; null where that fails, as where the row is a dead letter."""
    if not made:
        return {}
    kernel = compile_chain([SelectStep(None, tuple(made))], rows.schema)
    table, bad = kernel.run(rows)
    good = np.ones(rows.num_rows, np.bool_)
    good[[at for at, _ in bad]] = False
    at = pa.array(np.cumsum(good) - 1, mask=~good)
    return {name: table.column(name).take(at) for name, _ in made}
