"""Rows dealt out evenly to so many tasks, as they are: what follows runs there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH
from headrace.hashing import hash_keys
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.tables import emit_some
from headrace.ops.topology.groupings import StreamGrouping, task_keys
from headrace.state.table import TableSpec


@dataclass(frozen=True)
class Repartition(Spec):
    tasks: int
    grouping: StreamGrouping

    kind = "repartition"
    stateless = True

    def __str__(self) -> str:
        return f"{self.grouping}, to {self.tasks} task{'s' if self.tasks > 1 else ''}"

    @property
    def passes(self) -> bool:  # type: ignore[override]
        return self.grouping.function is None

    @property
    def by_event_time(self) -> bool:
        return False

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return () if self.grouping.function is None else (self.grouping.function,)

    @property
    def runs_user_code(self) -> bool:
        return self.grouping.function is not None

    def dealt(self, port: int) -> str:
        return str(self)

    def detail(self, keyed_by: str, processing: bool) -> str:
        return str(self)

    def operator(self, place: Place) -> Operator:
        return _RepartitionOperator(self, place.output)


class _RepartitionOperator(Operator):
    def __init__(self, spec: Repartition, output: pa.Schema) -> None:
        self._spec, self._output = spec, output
        self._keys = task_keys(spec.tasks)

    def tables(self) -> tuple[TableSpec, ...]:
        return ()

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        rows, tasks = self._spec.grouping.deal(rows, self._spec.tasks)
        hashes = hash_keys([pa.array(self._keys[tasks])], rows.num_rows)
        return rows.append_column(HASH, pa.array(hashes))

    def step(self, step: EpochStep) -> None:
        if step.arrived is not None:
            all_rows = np.ones(step.arrived.num_rows, np.bool_)
            emit_some(step.arrived, all_rows, self._output.names, step)
