"""Staging what a task writes to the job's outputs.

Rows are gathered by output and staged when there are enough, and at the end of the task.
Staged files are durable and invisible; only the manifest makes them count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.sinks import Sink
from headrace.state.faults import point

_STAGE_BYTES = 256 << 20


class Outputs:
    def __init__(self, sinks: Mapping[str, Sink], epoch: int, unique: str) -> None:
        self._sinks, self._epoch, self._unique = sinks, epoch, unique
        self._held: dict[str, list[pa.Table]] = defaultdict(list)
        self._bytes: dict[str, int] = defaultdict(int)
        self._count = 0
        self.staged: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.rows: dict[str, int] = defaultdict(int)

    def add(self, name: str, rows: pa.Table) -> None:
        self._held[name].append(rows)
        self._bytes[name] += rows.nbytes
        self.rows[name] += rows.num_rows
        if self._bytes[name] > _STAGE_BYTES:
            self._stage(name)

    def finish(self) -> None:
        for name in list(self._held):
            self._stage(name)

    def _stage(self, name: str) -> None:
        table = pa.concat_tables(self._held.pop(name))
        self._bytes.pop(name)
        self._count += 1
        unique = f"{self._unique}-{self._count}"
        self.staged[name].extend(self._sinks[name].stage(table, self._epoch, unique))
        point("sink.stage")
