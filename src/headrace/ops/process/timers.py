"""The timers of a process function: two tables, one by event time and one by the clock."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Step
from headrace.ops.process.call import CLOCK, EVENT
from headrace.state.table import TableSpec

TABLES = {EVENT: "timers", CLOCK: "clock_timers"}
DOMAIN = "domain"
Timer = tuple[int, int, int]  # number of the key, domain, time


class Timers:
    def __init__(self, used: bool, key: pa.Schema) -> None:
        self._used, self._key = used, key

    def tables(self) -> tuple[TableSpec, ...]:
        names = TABLES.values() if self._used else ()
        return tuple(TableSpec(n, self._key, pa.schema([]), timed=True) for n in names)

    def due(self, step: Step) -> pa.Table:
        """The timers that are due, and never again; at the end of input, all."""
        parts = [self._nothing()]
        for domain, now in ((EVENT, step.after), (CLOCK, step.clock)):
            if self._used:
                table = step.tables[TABLES[domain]]
                limit = MAX_TIME if step.after >= MAX_TIME else now + 1
                rows = table.scan(MIN_TIME, limit)
                table.expire(limit)
                kind = pa.array(np.full(rows.num_rows, domain, np.int32))
                parts.append(rows.append_column(DOMAIN, kind))
        return pa.concat_tables(parts)

    def _nothing(self) -> pa.Table:
        identity = [(HASH, pa.uint64()), *((f.name, f.type) for f in self._key)]
        return pa.schema([(TIME, pa.int64()), *identity, (DOMAIN, pa.int32())]).empty_table()

    def store(
        self, keys: pa.Table, armed: Iterable[Timer], cancelled: Iterable[Timer], step: Step
    ) -> None:
        for timers, write in ((cancelled, "delete"), (armed, "put")):
            for domain, name in TABLES.items():
                mine = [(number, at) for number, d, at in timers if d == domain]
                if mine:
                    numbers, times = zip(*mine, strict=True)
                    rows = keys.take(pa.array(numbers, pa.int64()))
                    rows = rows.append_column(TIME, pa.array(times, pa.int64()))
                    getattr(step.tables[name], write)(rows)

    def look_ahead(self, step: Step) -> None:
        if self._used:
            first = [step.tables[n].first_time() for n in TABLES.values()]
            step.next, step.wake = (MAX_TIME if t is None else t for t in first)
