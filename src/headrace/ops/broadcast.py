"""Rows that every slot knows: what came on a control stream.

Each slot keeps a copy of its own, so that slots can go from task to task as they like. A
task writes the copy of each of its slots and reads one of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH
from headrace.ops.contract import Step
from headrace.state.table import TableSpec


class Broadcast:
    """A table of rows by `identity` that is the same in every slot."""

    def __init__(self, name: str, identity: pa.Schema, value: pa.Schema) -> None:
        self.spec = TableSpec(name, identity, value, everywhere=True)

    def put(self, rows: pa.Table, step: Step) -> None:
        """Add rows, or replace those of the same identity."""
        step.tables[self.spec.name].put(self._everywhere(rows, step.homes))

    def delete(self, identities: pa.Table, step: Step) -> None:
        step.tables[self.spec.name].delete(self._everywhere(identities, step.homes))

    def rows(self, step: Step) -> pa.Table:
        """All rows, without the hash that says where a copy lies."""
        here = np.array(step.homes[:1], np.uint64)
        return step.tables[self.spec.name].match(here).drop_columns([HASH])

    def _everywhere(self, rows: pa.Table, homes: Sequence[int]) -> pa.Table:
        hashes = np.repeat(np.array(homes, np.uint64), rows.num_rows)
        every = np.tile(np.arange(rows.num_rows), len(homes))
        return rows.take(pa.array(every)).append_column(HASH, pa.array(hashes))
