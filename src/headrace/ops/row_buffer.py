"""Rows that wait for the watermark, so that a step sees them in the order of their time.

A row is due when the watermark has passed its time. One that is due in the epoch in which it
comes never touches the table; what was due expires for free.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask, integers
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MIN_TIME
from headrace.ops.contract import EpochStep
from headrace.state.table import TableSpec

WAITING = "waiting"
_PLACE = {"$source": SOURCE, "$offset": OFFSET}
_EPOCH, _NUMBER = "$epoch", "$number"


class RowBuffer:
    def __init__(self, key: pa.Schema, rows: pa.Schema, name: str = WAITING) -> None:
        """`rows` are the columns that are stored, the key's included, hidden ones not."""
        self._key, self._rows = key, rows
        place_fields = [
            pa.field("$source", pa.int32()),
            pa.field("$offset", pa.int64()),
            pa.field(_EPOCH, pa.int64()),
            pa.field(_NUMBER, pa.int64()),
        ]
        values = [f for f in rows if f.name not in key.names]
        self.spec = TableSpec(name, pa.schema([*key, *place_fields]), pa.schema(values), timed=True)
        hidden = [(HASH, pa.uint64()), (TIME, pa.int64()), (SOURCE, pa.int32())]
        self.schema = pa.schema([*rows, *hidden, (OFFSET, pa.int64())])

    def advance(self, arrived: pa.Table | None, step: EpochStep) -> pa.Table:
        """Store the rows that are not due yet; those that are, the first of each tie first."""
        table = step.tables[self.spec.name]
        due = self._restored(table.scan(hi=step.after))
        table.expire(step.after)
        if arrived is None or not arrived.num_rows:
            return due
        rows = _placed(arrived).select(self.schema.names).cast(self.schema)
        ready = rows.column(TIME).to_numpy() < step.after
        self._store(rows.filter(pa.array(~ready)), step)
        return pa.concat_tables([due, rows.filter(pa.array(ready))])

    def next(self, step: EpochStep) -> int | None:
        """The watermark at which a row is due."""
        first = step.tables[self.spec.name].first_time()
        return None if first is None else first + 1

    def _store(self, rows: pa.Table, step: EpochStep) -> None:
        count = rows.num_rows
        names = [{v: k for k, v in _PLACE.items()}.get(n, n) for n in rows.column_names]
        stored = rows.rename_columns(names)
        stored = stored.append_column(_EPOCH, pa.array(np.full(count, step.epoch, np.int64)))
        step.tables[self.spec.name].put(stored.append_column(_NUMBER, pa.array(np.arange(count))))

    def _restored(self, stored: pa.Table) -> pa.Table:
        order = np.lexsort((integers(stored[_NUMBER]), integers(stored[_EPOCH])))
        stored = stored.take(pa.array(order))
        names = [_PLACE.get(n, n) for n in stored.column_names]
        return stored.rename_columns(names).select(self.schema.names).cast(self.schema)


def passed_by(rows: pa.Table, watermark: int) -> Mask | None:
    """Which rows come after the watermark has passed them; None before there is one."""
    if watermark <= MIN_TIME:
        return None
    return np.asarray(rows.column(TIME).to_numpy() < watermark)


def _placed(rows: pa.Table) -> pa.Table:
    """Rows with a place in their source; a neutral one for those that have none."""
    for name, blank in ((SOURCE, np.int32(-1)), (OFFSET, np.int64(0))):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array(np.full(rows.num_rows, blank)))
    return rows
