"""Stored state brought to wider columns and to settings that were others, before a run.

What may be another is judged in `plan/setting_changes.py`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from headrace.clock import MIN_TIME
from headrace.driver.rewritten_runs import State, fitted, rewritten
from headrace.ops.fold import FoldSpec
from headrace.ops.process.migration import widens
from headrace.ops.tables import with_column
from headrace.plan.fold_changes import is_other_fold
from headrace.plan.nodes import Stateful
from headrace.plan.setting_changes import changed_settings
from headrace.plan.shapes import shape
from headrace.plan.wider_columns import wider_columns
from headrace.state.manifest import StepFacts, table_key
from headrace.state.runs import RunCache, RunWriter
from headrace.state.sorted_run import sorted_run
from headrace.state.spec import TableSpec


def migrated_settings(
    node: Stateful, old: StepFacts, state: State, writer: RunWriter, cache: RunCache
) -> tuple[StepFacts, State]:
    """What is known of the step, and the tables of all steps, this under its key and settings."""
    if not old.shape or old.kind != node.what.at_rest:
        return old, state
    new = shape(node)
    wider, changed = wider_columns(node, old.shape, new), changed_settings(node, old.shape, new)
    folded = is_other_fold(node, old.shape, new)
    for spec in node.operator().tables():
        table = table_key(node.name, spec.name)
        if table not in state:
            continue
        if wider:
            state = state | {table: rewritten(state[table], partial(_widened, spec), writer, cache)}
        if folded:
            change = partial(fitted, spec, partial(_folded, node))
            state = state | {table: rewritten(state[table], change, writer, cache)}
        if changed and spec.timed:
            recut = partial(_recut, node, spec, old.watermark)
            state = state | {table: rewritten(state[table], recut, writer, cache, living=True)}
    return (due_at_once(old) if changed else old), state


def _widened(spec: TableSpec, run: pa.Table) -> pa.Table:
    """A wider key has the same hash, and the same order: each row stays where it is."""
    for field in (*spec.key, *spec.value):
        if field.name in run.column_names and _wider(run.schema.field(field.name).type, field.type):
            run = with_column(run, field.name, run.column(field.name).cast(field.type))
    return run


def _wider(was: pa.DataType, now: pa.DataType) -> bool:
    """Also of rows that are stored as lists, one for each column."""
    if pt.is_list(was) and pt.is_list(now):
        return _wider(was.value_type, now.value_type)
    return widens(was, now)


def _folded(node: Stateful, run: pa.Table) -> pa.Table:
    """With what the zero has in the fields that are new; a row of a reduce has nothing there."""
    assert isinstance(node.what, FoldSpec)
    folding, place = node.what.folding, pa.array(np.zeros(run.num_rows, np.int64))
    start = None if folding.zero is None else folding.start()
    for field in folding.value:
        if field.name not in run.column_names:
            nothing = pa.nulls(run.num_rows, field.type)
            column = nothing if start is None else start.column(field.name).take(place)
            run = run.append_column(field.name, column)
    return run


def _recut(node: Stateful, spec: TableSpec, watermark: int, run: pa.Table) -> pa.Table:
    return sorted_run(spec, node.what.recut(spec.name, run, watermark)).table


def due_at_once(facts: StepFacts) -> StepFacts:
    """Under other settings something else may be due: the step is to look itself."""
    return replace(facts, next=MIN_TIME, wake=MIN_TIME)
