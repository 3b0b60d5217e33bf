"""State of process functions and bolts brought to their changed declarations, before a run.

What may change is judged in `plan/step_changes.py`. See `aggregate_migration.py` for aggregates.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH, TIME
from headrace.clock import MIN_TIME
from headrace.driver.aggregate_migration import migrated_aggregates
from headrace.driver.rewritten_runs import State, fitted, rewritten
from headrace.driver.setting_migration import migrated_settings
from headrace.driver.window_migration import migrated_windows
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.key_state import EXPIRY, VALUES, stamp_of
from headrace.ops.process.migration import refitted, start_column
from headrace.ops.process.operator import ProcessSpec, life_of
from headrace.ops.process.operator_state import OPERATOR, TASK
from headrace.ops.process.shared_maps import KEY, VALUE, table_name
from headrace.ops.process.state_kinds import ValueState
from headrace.ops.topology.operator import BoltSpec
from headrace.ops.topology.waiting import WAITING, moved
from headrace.plan.lineage import roots
from headrace.plan.nodes import Stateful
from headrace.plan.program import Program
from headrace.plan.step_changes import StoredValue, known_values, sources
from headrace.state.manifest import StepFacts, table_key
from headrace.state.runs import RunCache, RunWriter
from headrace.state.sorted_run import sorted_run
from headrace.state.spec import GONE, TableSpec


def migrate_state(
    program: Program, folder: str, state: State, ops: Mapping[str, StepFacts], clock: int
) -> tuple[State, dict[str, StepFacts]]:
    """The tables of a manifest as the program's steps need them, and what is known of the steps.

    `ops` has for each step, by its name now, what its state looked like and its watermark.
    """
    writer = RunWriter(folder, f"adopted-{uuid.uuid4().hex[:12]}")
    cache, known = RunCache(folder), dict(ops)
    for node in program.stateful():
        old = ops.get(node.name)
        if old is None:
            continue
        old, state = migrated_windows(node, old, state, writer, cache, clock)
        old, state = migrated_settings(node, old, state, writer, cache)
        known[node.name] = old
        if node.what.aggregates:
            state = migrated_aggregates(node, old, state, writer, cache)
        if not isinstance(node.what, ProcessSpec):
            continue
        shape = old.shape or {}
        if {**shape, **node.what.values_shape()} != shape:
            kind = type(node.what.function)
            state = _Migration(node, kind, old, clock, writer, cache).apply(state)
    writer.close()
    return state, known


def migrate_waiting(
    program: Program, folder: str, state: State, moves: Mapping[str, str], retimed: set[str]
) -> State:
    """The tuples that wait in bolts, under the names of their inputs now; without the event time
    of those inputs that have another one. `moves` has the names before, by those now."""
    state = dict(state)
    writer, cache = RunWriter(folder, f"waiting-{uuid.uuid4().hex[:12]}"), RunCache(folder)
    for node in program.stateful():
        table = table_key(node.name, WAITING)
        if not isinstance(node.what, BoltSpec) or table not in state:
            continue
        names, untimed = node.what.renamed(moves), set[str]()
        for name, edge in zip(node.what.names, node.inputs, strict=True):
            if retimed & set(roots(edge)):
                untimed.add(name)
        if names or untimed:
            spec = next(s for s in node.operator().tables() if s.name == WAITING)
            change = partial(moved, names=names, untimed=untimed)
            state[table] = rewritten(state[table], partial(fitted, spec, change), writer, cache)
    writer.close()
    return state


class _Migration:
    """One step whose declarations have changed."""

    def __init__(
        self,
        node: Stateful,
        kind: type[KeyedProcess],
        old: StepFacts,
        clock: int,
        writer: RunWriter,
        cache: RunCache,
    ) -> None:
        self._node, self._writer, self._cache = node, writer, cache
        self._values, self._shared, self._by_task = kind.values, kind.shared, kind.by_task
        self._was = sources(kind._kept, known_values(old.shape or {}))
        watermark = old.watermark if old.watermark > MIN_TIME else clock
        self._now = {"event": watermark, "clock": clock}
        self._specs = {spec.name: spec for spec in node.operator().tables()}

    def apply(self, state: State) -> State:
        prefix = f"{self._node.name}/"
        own = {t.removeprefix(prefix): s for t, s in state.items() if t.startswith(prefix)}
        others = {t: s for t, s in state.items() if not t.startswith(prefix)}
        others |= {table_key(self._node.name, t): s for t, s in self._tables(own).items()}
        return others

    def _tables(self, stored: State) -> State:
        tables = {t: s for t, s in stored.items() if t in self._specs}  # timers, as they are
        if VALUES in tables:
            tables[VALUES] = self._rewritten(stored[VALUES], self._specs[VALUES], self._row_values)
            for name in EXPIRY.values():
                if name in self._specs:
                    tables[name] = self._rewritten(
                        tables[VALUES], self._specs[name], self._ends(name)
                    )
        if OPERATOR in tables:
            tables[OPERATOR] = self._rewritten(
                stored[OPERATOR], self._specs[OPERATOR], self._task_values
            )
        for name in self._shared:
            was, table = self._was[name], table_name(name)
            tables.pop(table, None)
            if was is not None and table_name(was.name) in stored:
                old = stored[table_name(was.name)]
                tables[table] = self._rewritten(old, self._specs[table], self._entries(name))
        return tables

    def _rewritten(
        self, state: Mapping[str, Any], spec: TableSpec, change: Callable[[pa.Table], pa.Table]
    ) -> dict[str, Any]:
        return rewritten(state, partial(fitted, spec, change), self._writer, self._cache)

    def _row_values(self, run: pa.Table) -> pa.Table:
        rows = run.select([n for n in run.column_names if n == HASH or n in self._key_names()])
        for name, declared in self._values.items():
            was = self._was[name]
            rows = rows.append_column(name, self._value(run, declared, was))
            if declared.ttl is not None:
                rows = rows.append_column(stamp_of(name), self._stamp(run, declared, was))
        return rows.append_column(GONE, run.column(GONE))

    def _task_values(self, run: pa.Table) -> pa.Table:
        rows = run.select([HASH, TASK])
        for name, declared in self._by_task.items():
            rows = rows.append_column(name, self._value(run, declared, self._was[name]))
        return rows.append_column(GONE, run.column(GONE))

    def _key_names(self) -> list[str]:
        return list(self._specs[VALUES].key.names)

    def _value(self, run: pa.Table, declared: ValueState, was: StoredValue | None) -> pa.Array:
        default = declared.stored(declared.start())
        start = start_column(default, declared.type, run.num_rows)
        if was is None:
            return start
        before = run.column(was.name).combine_chunks()
        column = refitted(before, declared.type, declared.whole, declared.was_fields)
        if not was.life:
            return column
        return pc.if_else(run.column(stamp_of(was.name)).combine_chunks().is_valid(), column, start)

    def _stamp(self, run: pa.Table, declared: ValueState, was: StoredValue | None) -> pa.Array:
        """When the value was last written; now, if that was not stored or not by this time."""
        if was is not None and was.life == life_of(declared):
            return run.column(stamp_of(was.name)).combine_chunks()
        if was is None:
            return pa.nulls(run.num_rows, pa.int64())
        now = np.full(run.num_rows, self._now[life_of(declared)], np.int64)
        return pa.array(now, mask=run.column(GONE).to_numpy())

    def _ends(self, table: str) -> Callable[[pa.Table], pa.Table]:
        domain = next(d for d, name in EXPIRY.items() if name == table)
        spec = self._specs[table]

        def ends(run: pa.Table) -> pa.Table:
            """When the keys of a run of values, as it is now, are forgotten."""
            last = np.full(run.num_rows, MIN_TIME, np.int64)
            for name, declared in self._values.items():
                if declared.ttl is not None and declared.by_clock == bool(domain):
                    at = run.column(stamp_of(name)).fill_null(MIN_TIME).to_numpy()
                    last = np.maximum(last, np.where(at > MIN_TIME, at + declared.ttl, MIN_TIME))
            rows = run.select([HASH, *spec.key.names]).append_column(TIME, pa.array(last))
            rows = rows.append_column(GONE, pa.repeat(False, run.num_rows))
            rows = rows.filter(pa.array(last > MIN_TIME)).select(spec.run.names)
            return sorted_run(spec, rows).table

        return ends

    def _entries(self, name: str) -> Callable[[pa.Table], pa.Table]:
        declared, kind = self._shared[name], self._shared[name].type

        def entries(run: pa.Table) -> pa.Table:
            before = run.column(VALUE).combine_chunks()
            value = refitted(before, kind.item_type, declared.kind, declared.was_fields)
            key = run.column(KEY).combine_chunks().cast(kind.key_type)
            columns = {HASH: run.column(HASH), KEY: key, VALUE: value, GONE: run.column(GONE)}
            return pa.table(columns)

        return entries
