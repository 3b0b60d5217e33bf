"""What a process function keeps: state per key, timers, and when it is forgotten."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Step
from headrace.ops.process.call import CLOCK, EVENT
from headrace.ops.process.keyed import KeyedProcess
from headrace.rows import pylist, table_of
from headrace.state.table import TableSpec

VALUES, TIMERS, CLOCK_TIMERS, EXPIRY = "values", "timers", "clock_timers", "expiry"
_TABLES = {EVENT: TIMERS, CLOCK: CLOCK_TIMERS}
_AT = "$at."


class KeyState:
    def __init__(self, function: KeyedProcess, key: pa.Schema) -> None:
        self._declared, self._key = type(function).values, key
        self._schema = function.state()
        self._timed, self._forgets = function.timed(), function.forgets()
        self._lived = {n: v for n, v in self._declared.items() if v.ttl is not None}
        self._by_clock = any(v.by_clock for v in self._lived.values())

    def tables(self) -> tuple[TableSpec, ...]:
        stamps = [pa.field(f"{_AT}{n}", pa.int64()) for n in self._lived]
        found = [TableSpec(VALUES, self._key, pa.schema([*self._schema, *stamps]))]
        names = [
            *([TIMERS, CLOCK_TIMERS] if self._timed else []),
            *([EXPIRY] if self._forgets else []),
        ]
        found += [TableSpec(n, self._key, pa.schema([]), timed=True) for n in names]
        return tuple(found)

    # timers

    def due(self, step: Step) -> pa.Table:
        """The timers that are due, and never again."""
        parts = []
        for domain, now in ((EVENT, step.after), (CLOCK, step.clock)):
            if self._timed:
                table = step.tables[_TABLES[domain]]
                limit = MAX_TIME if step.after >= MAX_TIME else now + 1  # at the end, all
                rows = table.scan(MIN_TIME, limit)
                table.expire(limit)
                kind = pa.array(np.full(rows.num_rows, domain, np.int32))
                parts.append(rows.append_column("domain", kind))
        if parts:
            return pa.concat_tables(parts)
        identity = [(HASH, pa.uint64()), *((f.name, f.type) for f in self._key)]
        return pa.schema([(TIME, pa.int64()), *identity, ("domain", pa.int32())]).empty_table()

    def arm(
        self, keys: pa.Table, armed: set[tuple[int, int, int]],
        cancelled: set[tuple[int, int, int]], step: Step,
    ) -> None:  # fmt: skip
        for timers, write in ((cancelled, "delete"), (armed, "put")):
            for domain, name in _TABLES.items():
                mine = [(number, at) for number, d, at in timers if d == domain]
                if mine:
                    numbers, times = zip(*mine, strict=True)
                    rows = keys.take(pa.array(numbers, pa.int64()))
                    rows = rows.append_column(TIME, pa.array(times, pa.int64()))
                    getattr(step.tables[name], write)(rows)

    def look_ahead(self, step: Step) -> None:
        if self._timed:
            first = [step.tables[n].first_time() for n in (TIMERS, CLOCK_TIMERS)]
            step.next, step.wake = (MAX_TIME if t is None else t for t in first)

    # state

    def load(self, keys: pa.Table, step: Step) -> list[dict[str, Any]]:
        """What is kept of each key; a fresh start where nothing is, or where it is too old."""
        held, known = step.tables[VALUES].get(keys)
        columns = {n: pylist(held.column(n)) for n in self._schema.names}
        stamps = {n: held.column(f"{_AT}{n}").to_pylist() for n in self._lived}
        self._before: list[dict[str, Any]] = []
        found = []
        for i, is_known in enumerate(known.tolist()):
            state = {}
            for name, declared in self._declared.items():
                now = step.clock if declared.by_clock else step.before
                old = name in stamps and is_known and _over(stamps[name][i], declared.ttl, now)
                state[name] = (
                    declared.loaded(columns[name][i]) if is_known and not old else declared.start()
                )
            found.append(state)
            self._before.append({n: (state[n], stamps[n][i] if is_known else None) for n in stamps})
        return found

    def accept(self, state: dict[str, Any]) -> None:
        """Refuse what does not fit its columns."""
        if len(self._schema):
            table_of([self._row(state)], self._schema)

    def _row(self, state: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(d.stored(state[n]) for n, d in self._declared.items())

    def store(
        self, keys: pa.Table, states: list[dict[str, Any]], touched: dict[int, int], step: Step
    ) -> None:
        if not self._declared:
            return
        values = table_of(list(map(self._row, states)), self._schema)
        rows = keys
        for field in values.schema:
            rows = rows.append_column(field, values.column(field.name))
        for name, declared in self._lived.items():
            stamps = [self._stamp(i, name, s[name], touched, step) for i, s in enumerate(states)]
            rows = rows.append_column(f"{_AT}{name}", pa.array(stamps, pa.int64()))
            assert declared.ttl is not None
        step.tables[VALUES].put(rows)
        if self._forgets:
            step.tables[EXPIRY].put(keys.append_column(TIME, pa.array(self._ends(rows))))

    def _stamp(
        self, i: int, name: str, now: Any, touched: dict[int, int], step: Step
    ) -> int | None:
        """When the value was last written: now, if it is another one."""
        declared = self._declared[name]
        before, stamp = self._before[i][name]
        known: int | None = stamp
        written = declared.mutable or now is not before
        if not written and known is not None:
            return known
        return step.clock if declared.by_clock else touched[i]

    def _ends(self, rows: pa.Table) -> np.ndarray:
        """When the last of a key's values is forgotten."""
        ends = [
            np.asarray(rows.column(f"{_AT}{n}").to_numpy()) + (v.ttl or 0)
            for n, v in self._lived.items()
        ]
        last: np.ndarray = np.maximum.reduce(ends)
        return last

    def forget(self, step: Step) -> None:
        """Delete what has outlived its time, of keys that nobody asked for."""
        if not self._forgets:
            return
        table, now = step.tables[EXPIRY], step.clock if self._by_clock else step.after
        if now >= MAX_TIME:
            return
        due = table.scan(MIN_TIME, now + 1)
        table.expire(now + 1)
        if due.num_rows:
            keys = due.drop_columns([TIME])
            held, known = step.tables[VALUES].get(keys)
            ends = self._ends(held.filter(pa.array(known))) if known.any() else np.array([])
            gone = np.zeros(len(known), np.bool_)
            gone[known] = ends <= now
            step.tables[VALUES].delete(keys.filter(pa.array(gone)))


def _over(stamp: int | None, ttl: int | None, now: int) -> bool:
    return stamp is not None and ttl is not None and now > MIN_TIME and stamp + ttl <= now
