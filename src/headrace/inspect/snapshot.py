"""The tables of a step as they are after the last epoch, read from the job's folder.

Goes by the newest manifest, so what is seen is whole and of one epoch, whatever the job
writes meanwhile. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import StateError
from headrace.plan.nodes import Stateful
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest, StepFacts
from headrace.state.runs import cache_of
from headrace.state.slots import SlotState
from headrace.state.store import open_table
from headrace.state.table import KeyedTable, TableSpec
from headrace.task.tables import table_key

_PATIENCE = 3  # a file may be merged away between reading its name and opening it


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one step keeps after one epoch."""

    epoch: int
    watermark: int
    tables: Mapping[str, KeyedTable]


def snapshot(log: EpochLog, node: Stateful, slots: int) -> Snapshot:
    """The state of `node` after the newest epoch; empty before the first."""
    for attempt in range(_PATIENCE):
        try:
            return _snapshot(log, node, slots)
        except (FileNotFoundError, StateError):
            if attempt == _PATIENCE - 1:
                raise
    raise AssertionError("unreachable")


def _snapshot(log: EpochLog, node: Stateful, slots: int) -> Snapshot:
    latest, folder = log.latest() or Manifest(), str(log.folder)
    tables = {
        spec.name: _table(folder, latest.state.get(table_key(node.name, spec.name)), spec, slots)
        for spec in node.operator().tables()
    }
    watermark = latest.ops.get(node.name, StepFacts()).watermark
    return Snapshot(latest.epoch, watermark, tables)


def _table(folder: str, known: dict[str, Any] | None, spec: TableSpec, slots: int) -> KeyedTable:
    held = SlotState.from_json(known) if known else SlotState.empty(slots)
    last = 1 if spec.everywhere else slots
    return open_table(spec, held, 0, last, slots, cache_of(folder))
