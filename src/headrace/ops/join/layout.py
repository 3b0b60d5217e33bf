"""The rows that a join gives: which column comes from where.

A key column is the same on all sides and comes from whichever is there. Results carry the
event time that the join says, and the hash of their key as their place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.ops.agg.groups import Index
from headrace.ops.join.columns import numbers
from headrace.ops.window.aligned import Times

KEY = -1
Column = tuple[int, str]  # the input's number, or KEY, and the name of the column there
Columns = tuple[Column, ...]  # of every column of the result, in order


class Layout:
    def __init__(self, columns: Columns, output: pa.Schema) -> None:
        self._columns, self._schema = columns, output

    def pairs(
        self,
        parts: Sequence[pa.Table],
        at: Sequence[Index],
        times: Times | None,
        keys: pa.Table | None = None,
    ) -> pa.Table:
        """Results of the rows `at` of each input: only what is shown of them is copied.

        With `keys`, as in `rows`, a number of -1 stands for a row that is not there.
        """
        needed = [{n for p, n in self._columns if p == port} for port in range(len(parts))]
        needed[0] |= {HASH, *(n for p, n in self._columns if p == KEY)}
        taken = [
            part.select([n for n in part.column_names if n in names])
            .combine_chunks()
            .take(pa.array(rows, mask=None if keys is None else rows < 0))
            for part, rows, names in zip(parts, at, needed, strict=True)
        ]
        return self.rows(taken, times, keys=keys)

    def rows(
        self,
        parts: Sequence[pa.Table | None],
        at: Times | None,
        extra: Sequence[pa.Array] = (),
        keys: pa.Table | None = None,
        source: int = -1,
    ) -> pa.Table:
        """Held rows of the inputs side by side, None for one that is not there.

        `extra` are the last columns; `at` is the event time, None where there is none. `keys`
        has the keys, where no input has all of them; `source` is their rank at one moment.
        """
        known = next(part for part in (keys, *parts) if part is not None)
        made = [self._column(parts, known, *c) for c in self._columns]
        fields = list(self._schema)[: len(made)]
        made = [
            pa.nulls(known.num_rows, f.type) if c is None else c
            for c, f in zip(made, fields, strict=True)
        ]
        table = pa.Table.from_arrays([*made, *extra], self._schema.names).cast(self._schema)
        return placed(table, at, numbers(known[HASH]), source)

    def _column(
        self, parts: Sequence[pa.Table | None], known: pa.Table, port: int, name: str
    ) -> pa.ChunkedArray | None:
        part = known if port == KEY else parts[port]
        return None if part is None else part.column(name)


def placed(rows: pa.Table, at: Times | None, hashes: np.ndarray, source: int = -1) -> pa.Table:
    """Rows made by a join with the hidden columns of derived rows."""
    if at is not None:
        rows = rows.append_column(TIME, pa.array(at))
    rows = rows.append_column(SOURCE, pa.array(np.full(rows.num_rows, source, np.int32)))
    return rows.append_column(OFFSET, pa.array(hashes.view(np.int64)))
