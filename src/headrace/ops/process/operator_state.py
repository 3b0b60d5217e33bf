"""Operator state: what a task of a process function stores, whatever the key.

One row per task, at the first of its slots: so it is read and written with the task's other state.
It is loaded before the calls of an epoch, passes from call to call, and is stored after them if it
has changed. A task without rows costs nothing. When a start has another number of tasks,
`driver/redistribution.py` deals the rows out anew before any task runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.chunk import HASH
from headrace.errors import StateError
from headrace.ops.contract import EpochStep
from headrace.ops.process.function import KeyedProcess
from headrace.ops.tables import free_name
from headrace.rows import pylist, table_of
from headrace.state.table import KeyedTable, TableSpec

OPERATOR = "operator"
TASK = "$task"
TaskValues = dict[str, Any]  # by name, as the user's code sees them; a deleted one is not there


def operator_table(kind: type[KeyedProcess]) -> TableSpec:
    """The table of a class that has operator state."""
    columns = [(name, declared.type) for name, declared in kind.by_task.items()]
    return TableSpec(OPERATOR, pa.schema([(TASK, pa.int32())]), pa.schema(columns))


class OperatorState:
    def __init__(self, function: KeyedProcess) -> None:
        kind = type(function)
        self._declared = kind.by_task
        self._spec = operator_table(kind) if self._declared else None
        self._schema = pa.schema([(n, d.type) for n, d in self._declared.items()])
        self._copiers = {n: d.copier() for n, d in self._declared.items()}

    def __bool__(self) -> bool:
        return bool(self._declared)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._declared)

    def tables(self) -> tuple[TableSpec, ...]:
        return () if self._spec is None else (self._spec,)

    def load(self, step: EpochStep) -> TaskValues:
        """What this task has stored; what it starts with if it has stored nothing."""
        if self._spec is None:
            return {}
        rows = self._stored(step)
        if not rows.num_rows:
            return {name: declared.start() for name, declared in self._declared.items()}
        return {n: d.loaded(pylist(rows.column(n))[0]) for n, d in self._declared.items()}

    def _stored(self, step: EpochStep) -> pa.Table:
        rows = step.tables[OPERATOR].scan()
        found = rows.column(TASK).to_pylist()
        if found not in ([], [step.task]):
            raise StateError(
                "HR-STATE-036",
                f"task {step.task} finds the operator state of the tasks {found}",
                "This is a defect of Headrace: please report it with the job's plan.",
            )
        return rows

    def copied(self, values: TaskValues) -> TaskValues:
        """Values of which a call may change nothing that is in these."""
        return {n: v if (own := self._copiers[n]) is None else own(v) for n, v in values.items()}

    def of(self, state: Mapping[str, Any]) -> TaskValues:
        """The values in an object's dict."""
        return {name: state[name] for name in self._declared if name in state}

    def row(self, values: Mapping[str, Any]) -> pa.Table:
        """The values as a row; refuses what does not fit its column."""
        stored = [
            d.stored(values[n] if n in values else d.start()) for n, d in self._declared.items()
        ]
        return table_of([tuple(stored)], self._schema)

    def store(self, values: TaskValues, step: EpochStep) -> None:
        if self._spec is None:
            return
        row, before = self.row(values), self._stored(step)
        if before.num_rows and before.select(self._schema.names).equals(row):
            return
        row = row.append_column(TASK, pa.array([step.task], pa.int32()))
        step.tables[OPERATOR].put(row.append_column(HASH, pa.array([step.homes[0]], pa.uint64())))

    # to look at

    def all_values(self, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """The values of all tasks."""
        rows = tables[OPERATOR].scan().drop_columns([HASH]).sort_by(TASK)
        names = self._schema.names
        return rows.rename_columns([free_name("task", names), *names])

    def one_value(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """One of the values, of all tasks."""
        rows = tables[OPERATOR].scan().sort_by(TASK).select([TASK, name])
        return rows.rename_columns(["task", "value"])
