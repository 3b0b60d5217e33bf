"""The state of one level task in one epoch: tables opened, changed, written as one file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.state.runs import RunWriter, cache_of
from headrace.state.store import SlotState, open_table, store_changes
from headrace.state.table import KeyedTable, TableSpec


def table_key(op: str, table: str) -> str:
    """The name of a table in a manifest."""
    return f"{op}/{table}"


class TaskState:
    def __init__(
        self,
        folder: str,
        unique: str,
        held: tuple[int, int],
        slots: int,
        state: Mapping[str, Any],
    ) -> None:
        self._held, self._slots, self._state = held, slots, state
        self._cache = cache_of(folder)
        self._writer = RunWriter(folder, unique)

    def open(self, op: str, spec: TableSpec) -> KeyedTable:
        lo, hi = self._held
        return open_table(spec, self._before(op, spec), lo, hi, self._slots, self._cache)

    def store(self, op: str, table: KeyedTable) -> dict[str, Any]:
        """Write what changed; which runs make up this task's slots from now on."""
        lo, hi = self._held
        before = self._before(op, table.spec)
        after = store_changes(table, before, lo, hi, self._slots, self._writer, self._cache)
        return after.to_json()

    def _before(self, op: str, spec: TableSpec) -> SlotState:
        known = self._state.get(table_key(op, spec.name))
        return SlotState.from_json(known) if known else SlotState.empty(self._slots)

    def close(self) -> None:
        self._writer.close()
