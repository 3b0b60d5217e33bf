"""Rows that wait for the watermark: a pattern sees rows in the order of their time.

A row is due when the watermark has passed its time. One that is due in the epoch in which it
comes never touches the table; what has been given out expires for free.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.ops.agg.groups import integers
from headrace.ops.contract import Step
from headrace.state.table import TableSpec

WAITING = "waiting"
_PLACE = {"$source": SOURCE, "$offset": OFFSET}
_EPOCH, _NUMBER = "$epoch", "$number"


class Buffer:
    def __init__(self, key: pa.Schema, rows: pa.Schema) -> None:
        """`rows` are the columns that are kept, the key's included, hidden ones not."""
        self._key, self._rows = key, rows
        place = [
            pa.field("$source", pa.int32()), pa.field("$offset", pa.int64()),
            pa.field(_EPOCH, pa.int64()), pa.field(_NUMBER, pa.int64()),
        ]  # fmt: skip
        values = [f for f in rows if f.name not in key.names]
        self.spec = TableSpec(WAITING, pa.schema([*key, *place]), pa.schema(values), timed=True)
        hidden = [(HASH, pa.uint64()), (TIME, pa.int64()), (SOURCE, pa.int32())]
        self.schema = pa.schema([*rows, *hidden, (OFFSET, pa.int64())])

    def turn(self, arrived: pa.Table | None, step: Step) -> pa.Table:
        """Keep what is not due yet; the rows that are, those that come first in each tie first."""
        table = step.tables[WAITING]
        due = self._known(table.scan(hi=step.after))
        table.expire(step.after)
        if arrived is None or not arrived.num_rows:
            return due
        rows = _placed(arrived).select(self.schema.names).cast(self.schema)
        ready = rows.column(TIME).to_numpy() < step.after
        self._keep(rows.filter(pa.array(~ready)), step)
        return pa.concat_tables([due, rows.filter(pa.array(ready))])

    def next(self, step: Step) -> int | None:
        """The watermark at which a row is due."""
        first = step.tables[WAITING].first_time()
        return None if first is None else first + 1

    def _keep(self, rows: pa.Table, step: Step) -> None:
        count = rows.num_rows
        names = [{v: k for k, v in _PLACE.items()}.get(n, n) for n in rows.column_names]
        kept = rows.rename_columns(names)
        kept = kept.append_column(_EPOCH, pa.array(np.full(count, step.epoch, np.int64)))
        step.tables[WAITING].put(kept.append_column(_NUMBER, pa.array(np.arange(count))))

    def _known(self, found: pa.Table) -> pa.Table:
        order = np.lexsort((integers(found[_NUMBER]), integers(found[_EPOCH])))
        found = found.take(pa.array(order))
        names = [_PLACE.get(n, n) for n in found.column_names]
        return found.rename_columns(names).select(self.schema.names).cast(self.schema)


def _placed(rows: pa.Table) -> pa.Table:
    """With a place in their source, known or not."""
    for name, blank in ((SOURCE, np.int32(-1)), (OFFSET, np.int64(0))):
        if name not in rows.column_names:
            rows = rows.append_column(name, pa.array(np.full(rows.num_rows, blank)))
    return rows
