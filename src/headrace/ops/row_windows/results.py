"""Windows that have ended, and the rows that are sent on for them.

A window lasts from the time of its earliest row to the millisecond after that of its latest;
without event time it has no bounds. Each ends once, so what is sent is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.ops.agg.groups import Column, Index, Mask, array, take
from headrace.ops.contract import Fault
from headrace.schema import TIMESTAMP

ON_TIME, AT_END = "on time", "end"


@dataclass(frozen=True, slots=True)
class Ended:
    """Windows: whose they are, where in time, and whether the end of the input ended them."""

    keys: pa.Table  # a row per window: "__h" and the key columns
    number: Index  # of each among its key's
    at_end: Mask
    begins: Index | None = None  # the bounds in ms; None without event time
    ends: Index | None = None

    def __len__(self) -> int:
        return len(self.number)

    @property
    def timings(self) -> list[str]:
        return [AT_END if end else ON_TIME for end in self.at_end.tolist()]

    def part(self, rows: slice) -> Ended:
        begins, ends = (None if t is None else t[rows] for t in (self.begins, self.ends))
        keys = self.keys.slice(rows.start, rows.stop - rows.start)
        return Ended(keys, self.number[rows], self.at_end[rows], begins, ends)

    def lasting(self, first: Index, last: Index) -> Ended:
        """With the times of the earliest and the latest row of each."""
        return replace(self, begins=first, ends=last + 1)


@dataclass(frozen=True, slots=True)
class Fired:
    """What came of some windows: rows, and the window that each is of."""

    windows: Ended
    values: pa.Table
    of: Index
    faults: Sequence[Fault] = field(default_factory=list)

    def chunk(self, schema: pa.Schema) -> pa.Table:
        """The columns of `schema`, and the hidden ones of derived rows."""
        keys = self.windows.keys
        made = {n: c for n, c in zip(self.values.column_names, self.values.columns, strict=True)}
        columns = [
            made[n] if n in made else take([self._column(n)], self.of)[0] for n in schema.names
        ]
        chunk = pa.table(columns, names=schema.names).cast(schema)
        if self.windows.ends is not None:
            chunk = chunk.append_column(TIME, pa.array(self.windows.ends[self.of] - 1))
        hashes = keys[HASH].to_numpy()[self.of]
        chunk = chunk.append_column(SOURCE, pa.array(np.full(len(hashes), -1, np.int32)))
        return chunk.append_column(OFFSET, pa.array(hashes.view(np.int64)))

    def _column(self, name: str) -> Column:
        """Something about each window."""
        windows, count = self.windows, len(self.windows)
        if name in windows.keys.column_names:  # it may be called "pane"
            return windows.keys[name]
        match name:
            case "window_start":
                return _stamps(windows.begins, count)
            case "window_end":
                return _stamps(windows.ends, count)
            case "pane":
                return array(windows.number, pa.int32())
            case "timing":
                return pa.array(windows.timings, pa.string())
            case "final":
                return pa.repeat(True, count)
        raise KeyError(name)


def _stamps(times: Index | None, count: int) -> pa.Array:
    if times is None:
        return pa.nulls(count, TIMESTAMP)
    return pa.array(times * 1_000).cast(TIMESTAMP)
