"""An epoch's work for a process function, arranged by key: rows in order, timers that are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Step
from headrace.ops.grouping import group, in_order

_PORT, _ROW = "__port", "__row"


@dataclass(frozen=True, slots=True)
class Arranged:
    """Rows key by key, each key's in order, and each key's timers."""

    keys: pa.Table  # "__h" and k0, k1, ...: keys with rows first
    ordered: pa.Table  # the hidden columns of the rows, in the order of their calls
    starts: list[int]  # where each key's rows start, and the end of all
    ports: list[int]
    indexes: list[int]
    times: list[Any]
    timers: list[list[tuple[int, int]]]  # (time, domain) of each key

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    def placed(self, rows: pa.Table, sources: list[tuple[int, int | None]], step: Step) -> pa.Table:
        """Rows with the hidden columns of those they came from; a timer's have its time."""
        at = np.array([i for i, _ in sources], np.int64)
        hidden = [n for n in (TIME, SOURCE, OFFSET) if n in self.ordered.column_names]
        stand_in = {TIME: _now(step), SOURCE: -1, OFFSET: 0}
        times = np.array([_now(step) if t is None else t for _, t in sources], np.int64)
        for name in hidden:
            column = self.ordered.column(name)
            known = column.to_numpy()
            values = np.full(len(at), stand_in[name], known.dtype)
            if name == TIME:
                values = times.astype(known.dtype)
            values[at >= 0] = known[at[at >= 0]]
            rows = rows.append_column(name, pa.array(values, column.type))
        return rows


class Arranger:
    def __init__(self, key: pa.Schema, keys: Sequence[Sequence[str]]) -> None:
        self._key, self._keys = key, keys
        self._last: Arranged | None = None

    def arrange(self, inputs: Sequence[pa.Table | None], due: pa.Table) -> Arranged:
        """`due` has "__h", the key columns, "__t" and "domain" of the timers that are due."""
        parts = [self._skeleton(port, rows) for port, rows in enumerate(inputs)]
        arrived = [part for part in parts if part is not None]
        identity = [HASH, *self._key.names]
        if arrived:
            ordered = in_order(pa.concat_tables(arrived, promote_options="default"))
        else:
            fields = [(HASH, pa.uint64()), *((f.name, f.type) for f in self._key)]
            places = [(TIME, pa.int64()), (SOURCE, pa.int32()), (OFFSET, pa.int64())]
            ports = [(_PORT, pa.int32()), (_ROW, pa.int64())]
            ordered = pa.schema([*fields, *places, *ports]).empty_table()
        both = pa.concat_tables([ordered.select(identity), due.select(identity)])
        found = group(both, identity)
        codes = found.codes[: ordered.num_rows]
        turn = np.argsort(codes, kind="stable")
        ordered = ordered.take(pa.array(turn))
        count = found.keys.num_rows
        starts = np.searchsorted(codes[turn], np.arange(count + 1)).tolist()
        timers: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        owners = found.codes[len(codes) :].tolist()
        dues = zip(
            owners, due.column(TIME).to_pylist(), due.column("domain").to_pylist(), strict=True
        )
        for owner, at, domain in dues:
            timers[owner].append((at, domain))
        timed = TIME in ordered.column_names
        times = ordered.column(TIME).to_pylist() if timed else [None] * ordered.num_rows
        self._last = Arranged(
            found.keys, ordered.select([n for n in ordered.column_names if n not in identity]),
            starts, ordered.column(_PORT).to_pylist(), ordered.column(_ROW).to_pylist(), times,
            timers,
        )  # fmt: skip
        return self._last

    def row(self, step: Step, i: int) -> pa.Table:
        """The row of call `i`, as it arrived."""
        assert self._last is not None
        arrived = step.inputs[self._last.ports[i]]
        assert arrived is not None
        return arrived.slice(self._last.indexes[i], 1)

    def _skeleton(self, port: int, rows: pa.Table | None) -> pa.Table | None:
        """Key, order and whereabouts of each row of one input: what all inputs share."""
        if rows is None or not rows.num_rows:
            return None
        hidden = [n for n in (TIME, SOURCE, OFFSET, HASH) if n in rows.column_names]
        table = rows.select(hidden)
        for field, column in zip(self._key, self._keys[port], strict=True):
            table = table.append_column(field.name, rows.column(column).cast(field.type))
        table = table.append_column(_PORT, pa.array(np.full(rows.num_rows, port, dtype=np.int32)))
        return table.append_column(_ROW, pa.array(np.arange(rows.num_rows)))


def _now(step: Step) -> int:
    """The event time of what a clock timer gives."""
    return step.after if MIN_TIME < step.after < MAX_TIME else step.clock
