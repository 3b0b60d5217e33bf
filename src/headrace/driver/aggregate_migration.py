"""Stored aggregates of a step brought to its changed list of them, before a run.

What is gone leaves, what is new begins with the partial of no rows, and the others continue, in
wider columns or under other names if need be. What may change is judged in
`plan/aggregate_changes.py`.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from headrace.arrays import Column
from headrace.driver.rewritten_runs import State, fitted, rewritten
from headrace.ops.agg.named import part_names
from headrace.plan.aggregate_changes import AGGREGATES, aggregate_sources
from headrace.plan.nodes import Stateful
from headrace.plan.shapes import shape
from headrace.state.manifest import StepFacts, table_key
from headrace.state.runs import RunCache, RunWriter
from headrace.state.spec import TableSpec


def migrated_aggregates(
    node: Stateful, old: StepFacts, state: State, writer: RunWriter, cache: RunCache
) -> State:
    """The tables of all steps, those of this one with its aggregates as they are now."""
    before = (old.shape or {}).get(AGGREGATES)
    if old.kind != node.what.at_rest or before in (None, shape(node)[AGGREGATES]):
        return state
    tables = {table_key(node.name, spec.name): spec for spec in node.operator().tables()}
    return state | {
        table: rewritten(
            state[table], partial(fitted, spec, partial(_changed, node, old, spec)), writer, cache
        )
        for table, spec in tables.items()
        if table in state
    }


def _changed(node: Stateful, old: StepFacts, spec: TableSpec, run: pa.Table) -> pa.Table:
    """A run of one table, with the columns that the table has now."""
    columns: dict[str, Column] = {}
    sources = aggregate_sources(node, old.shape or {})
    for name, agg in node.what.aggregates:
        source, names = sources[name], part_names(name, agg)
        if source is None:
            columns |= zip(names, agg.nothing(node.place.input, run.num_rows), strict=True)
        elif part_names(source, agg)[0] in run.column_names:  # and not of rows that are stored
            parts = (run.column(part) for part in part_names(source, agg))
            columns |= zip(names, parts, strict=True)
    found = {n: columns[n] if n in columns else run.column(n) for n in spec.run.names}
    return pa.table(found)
