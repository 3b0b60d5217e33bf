"""The state of a process function by key: loaded before its calls, stored after them.

A plain value is in the object's dict. One with a TTL is separate, under HELD, with the moment of
its last write: the object's class returns it when it is read, so that a write is distinguished
from none. A value that is not stored reads as its start; a key of which nothing is left is
deleted. Keys that no row touches cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep
from headrace.ops.process.due_timers import TimerLimits
from headrace.ops.process.function import CLOCK, EVENT, HELD, KeyedProcess
from headrace.ops.process.state_kinds import ValueState
from headrace.ops.tables import plain_view
from headrace.rows import pylist, table_of
from headrace.state.table import KeyedTable, TableSpec

VALUES = "values"
EXPIRY = {EVENT: "expiry", CLOCK: "clock_expiry"}
State = dict[str, Any]
Stamps = dict[str, int | None]  # when each value with a time to live was last written


def stamp_of(name: str) -> str:
    """The column that says when a value was last written."""
    return f"$at.{name}"


@dataclass(frozen=True, slots=True)
class LoadedState:
    """The stored state of some keys, and which of them have any."""

    rows: pa.Table
    present: np.ndarray

    def slice(self, start: int, count: int) -> LoadedState:
        return LoadedState(self.rows.slice(start, count), self.present[start : start + count])


@dataclass(frozen=True, slots=True)
class NewState:
    """The state of some keys after their calls, as columns, and which of them have none."""

    rows: pa.Table
    empty: np.ndarray


class KeyState:
    def __init__(self, function: KeyedProcess, key: pa.Schema) -> None:
        self._declared, self._key = type(function).values, key
        self._schema = type(function).state()
        self.with_ttl = {n: v for n, v in self._declared.items() if v.ttl is not None}
        self._plain = [n for n in self._declared if n not in self.with_ttl]
        domains = {CLOCK if v.by_clock else EVENT for v in self.with_ttl.values()}
        copiers = {n: v.copier() for n, v in self._declared.items()}
        self._copiers = [(n, copied) for n, copied in copiers.items() if copied is not None]
        self._domains = sorted(domains) if type(function).forgets() else []

    def tables(self) -> tuple[TableSpec, ...]:
        if not self._declared:
            return ()
        stamps = [pa.field(stamp_of(n), pa.int64()) for n in self.with_ttl]
        values = TableSpec(VALUES, self._key, pa.schema([*self._schema, *stamps]))
        expiry = (TableSpec(EXPIRY[d], self._key, pa.schema([]), timed=True) for d in self._domains)
        return (values, *expiry)

    # before the calls

    def keys(self, step: EpochStep) -> pa.Table:
        """The keys that have state: reads all of it."""
        return step.tables[VALUES].scan().select([HASH, *self._key.names])

    def load(self, keys: pa.Table, step: EpochStep) -> LoadedState:
        if not self._declared:
            return LoadedState(keys.select([]), np.zeros(keys.num_rows, np.bool_))
        return LoadedState(*step.tables[VALUES].get(keys))

    def states(self, loaded: LoadedState) -> tuple[list[State], list[Stamps]]:
        """The state of each key, and when it was last written."""
        rows, present = loaded.rows, loaded.present.tolist()
        columns = [_read(self._declared[n], pylist(rows.column(n)), present) for n in self._plain]
        states: list[State] = [{} for _ in present]
        if columns:
            states = [
                dict(zip(self._plain, row, strict=True)) for row in zip(*columns, strict=True)
            ]
        return states, self._load_with_ttl(states, rows) if self.with_ttl else []

    def _load_with_ttl(self, states: list[State], rows: pa.Table) -> list[Stamps]:
        values = {n: pylist(rows.column(n)) for n in self.with_ttl}
        written = {n: rows.column(stamp_of(n)).to_pylist() for n in self.with_ttl}
        stamps: list[Stamps] = []
        for i, state in enumerate(states):
            written_at = {n: written[n][i] for n in self.with_ttl}
            stored = (n for n, at in written_at.items() if at is not None)
            state[HELD] = {n: self.with_ttl[n].loaded(values[n][i]) for n in stored}
            stamps.append(written_at)
        return stamps

    def expire(self, state: State, stamps: Stamps, now: int, clock: int) -> None:
        """Drop values that have outlived their TTL, before a call at `now`."""
        for name, declared in self.with_ttl.items():
            at, ttl = stamps[name], declared.ttl
            if at is not None and ttl and at + ttl <= (clock if declared.by_clock else now):
                stamps[name] = None
                state[HELD].pop(name, None)

    def record_writes(self, state: State, stamps: Stamps, now: int, clock: int) -> None:
        """Record the values that a call at `now` has written: those in the object's dict."""
        stored = state[HELD]
        for name, declared in self.with_ttl.items():
            if name in state:
                stored[name] = state.pop(name)
                at = clock if declared.by_clock else now
                stamps[name] = max(at, stamps[name] or at)
            elif name not in stored:
                stamps[name] = None

    # after the calls

    def own(self, state: State) -> None:
        """Copy what the user's code may still refer to, before it is called for another key."""
        held = state.get(HELD)
        for name, copied in self._copiers:
            of = held if held is not None and name in self.with_ttl else state
            if name in of:
                of[name] = copied(of[name])

    def accept(self, state: State) -> None:
        """Refuse what does not fit its columns."""
        if self._declared:
            table_of(zip(*self._columns([state]), strict=True), self._schema)

    def new_state(self, states: list[State], stamps: list[Stamps], loaded: LoadedState) -> NewState:
        """The state after the calls, as columns; refuses what does not fit."""
        rows = table_of(zip(*self._columns(states), strict=True), self._schema)
        for name in self.with_ttl:
            written = pa.array([s[name] for s in stamps], pa.int64())
            rows = rows.append_column(stamp_of(name), written)
        whole = self._plain and all(self._plain[0] in s for s in states)
        if whole and loaded.present.all():
            return NewState(rows, np.zeros(len(states), np.bool_))
        starts = {n: v.start() for n, v in self._declared.items()}
        pairs = zip(states, loaded.present.tolist(), strict=True)
        return NewState(rows, np.array([_is_empty(s, k, starts) for s, k in pairs], np.bool_))

    def store(
        self, keys: pa.Table, loaded: LoadedState, parts: Sequence[NewState], step: EpochStep
    ) -> None:
        """Keys of which nothing is left are deleted."""
        if not self._declared:
            return
        values, rows = pa.concat_tables([part.rows for part in parts]), keys
        for field in values.schema:
            rows = rows.append_column(field, values.column(field.name))
        empty = np.concatenate([part.empty for part in parts])
        if empty.any():
            step.tables[VALUES].delete(keys.filter(pa.array(empty & loaded.present)))
            rows = rows.filter(pa.array(~empty))
        self.write(rows, keys.column_names, step)

    def write(self, rows: pa.Table, identity: list[str], step: EpochStep) -> None:
        """Put keys, values and when they were written; and when they will expire."""
        step.tables[VALUES].put(rows)
        for domain in self._domains:
            ends = self._ends(rows, domain)
            keys = rows.select(identity).append_column(TIME, pa.array(ends))
            step.tables[EXPIRY[domain]].put(keys.filter(pa.array(ends > MIN_TIME)))

    def _columns(self, states: list[State]) -> list[list[Any]]:
        columns = []
        for name, declared in self._declared.items():
            has_ttl = name in self.with_ttl
            dicts = [s.get(HELD, s) for s in states] if has_ttl else states
            stored, empty = declared.stored, None if has_ttl else declared.stored(declared.start())
            columns.append([stored(s[name]) if name in s else empty for s in dicts])
        return columns

    def _ends(self, rows: pa.Table, domain: int) -> np.ndarray:
        """When the last of a key's values expires; MIN_TIME where there is none."""
        last = np.full(rows.num_rows, MIN_TIME, np.int64)
        for name, declared in self.with_ttl.items():
            if declared.by_clock == (domain == CLOCK):
                written = rows.column(stamp_of(name)).fill_null(MIN_TIME).to_numpy()
                ends = np.where(written > MIN_TIME, written + (declared.ttl or 0), MIN_TIME)
                last = np.maximum(last, ends)
        return last

    def expire_keys(self, step: EpochStep) -> None:
        """Delete the state of keys whose values have all outlived their TTL."""
        now = {EVENT: step.after, CLOCK: step.clock}
        if not self._domains or step.after >= MAX_TIME:
            return
        due = [self._due(EXPIRY[d], now[d], step) for d in self._domains]
        keys = pa.concat_tables(due)
        if not keys.num_rows:
            return
        stored, present = step.tables[VALUES].get(keys)
        ended = [self._ends(stored, d) <= now[d] for d in self._domains]
        expired = np.logical_and.reduce([present, *ended])
        step.tables[VALUES].delete(keys.filter(pa.array(expired)))

    def _due(self, name: str, now: int, step: EpochStep) -> pa.Table:
        table = step.tables[name]
        due = table.scan(MIN_TIME, now + 1)
        table.expire(now + 1)
        return due.drop_columns([TIME])


def _is_empty(state: State, stored: bool, starts: State) -> bool:
    """Whether nothing is left of a key; of a new one, whether it is as it started."""
    if state.get(HELD):
        return False
    if stored:
        return not any(name in state for name in starts)
    return all(name not in state or state[name] == start for name, start in starts.items())


def _read(declared: ValueState, stored: list[Any], present: list[bool]) -> list[Any]:
    """A column as the user's code sees it, with a new start value for every new key."""
    plain = type(declared) is ValueState and declared.make is None
    if plain and not declared.mutable:
        start = declared.default
        return [v if k else start for v, k in zip(stored, present, strict=True)]
    make, fresh = declared.loaded, declared.start
    return [make(v) if k else fresh() for v, k in zip(stored, present, strict=True)]


# The timers of a process function: two tables, one by event time and one by the clock.


TABLES = {EVENT: "timers", CLOCK: "clock_timers"}
DOMAIN = "domain"
Timer = tuple[int, int, int]  # key id, domain, time


class Timers:
    """With `ordered` a timer is due when the watermark has passed its time, as a row that is held
    is; otherwise when the watermark has reached it."""

    def __init__(self, used: bool, key: pa.Schema, *, ordered: bool = False) -> None:
        self._used, self._key, self._ordered = used, key, ordered

    def tables(self) -> tuple[TableSpec, ...]:
        names = TABLES.values() if self._used else ()
        return tuple(TableSpec(n, self._key, pa.schema([]), timed=True) for n in names)

    def limits(self, step: EpochStep) -> TimerLimits:
        """Up to which times timers are due: at the end of the input all are."""
        if step.after >= MAX_TIME:
            return TimerLimits(MAX_TIME, MAX_TIME, self._ordered)
        passed = step.after
        if self._ordered:  # a version of the program without order= may have come further
            over = step.tables[TABLES[EVENT]].floor if self._used else MIN_TIME
            passed = max(step.after, over) - 1
        return TimerLimits(passed, step.clock, self._ordered)

    def due(self, step: EpochStep, limits: TimerLimits) -> pa.Table:
        """Remove the timers that are due, and return them."""
        due = [self._none()]
        for domain in TABLES:
            if self._used:
                table = step.tables[TABLES[domain]]
                limit = min(limits.of(domain) + 1, MAX_TIME)
                rows = table.scan(MIN_TIME, limit)
                table.expire(limit)
                kind = pa.array(np.full(rows.num_rows, domain, np.int32))
                due.append(rows.append_column(DOMAIN, kind))
        return pa.concat_tables(due)

    def _none(self) -> pa.Table:
        identity = [(HASH, pa.uint64()), *((f.name, f.type) for f in self._key)]
        return pa.schema([(TIME, pa.int64()), *identity, (DOMAIN, pa.int32())]).empty_table()

    def store(
        self, keys: pa.Table, armed: Iterable[Timer], cancelled: Iterable[Timer], step: EpochStep
    ) -> None:
        for timers, arm in ((cancelled, False), (armed, True)):
            for domain in TABLES:
                chosen = [(key_id, at) for key_id, d, at in timers if d == domain]
                key_ids, times = zip(*chosen, strict=True) if chosen else ((), ())
                self.write(keys, key_ids, times, domain, arm, step)

    def write(
        self, keys: pa.Table, key_ids: Any, times: Any, domain: int, arm: bool, step: EpochStep
    ) -> None:
        """Store timers of one domain, or delete them."""
        if len(key_ids):
            rows = keys.take(pa.array(key_ids, pa.int64()))
            rows = rows.append_column(TIME, pa.array(times, pa.int64()))
            table = step.tables[TABLES[domain]]
            (table.put if arm else table.delete)(rows)

    def look_ahead(self, step: EpochStep) -> None:
        if self._used:
            first = [step.tables[n].first_time() for n in TABLES.values()]
            step.next, step.wake = (MAX_TIME if t is None else t for t in first)
            step.next += int(self._ordered and step.next < MAX_TIME)


def seen_by_key(
    tables: Mapping[str, KeyedTable], by: Sequence[str], key: pa.Schema, since: int, until: int
) -> pa.Table:
    """Keys by the names of the first input, and the state of each."""
    if VALUES not in tables:
        fields = [f.with_name(n) for n, f in zip(by, key, strict=True)]
        return pa.schema(fields).empty_table()
    rows = plain_view(tables[VALUES], since, until)
    return rows.rename_columns([*by, *rows.column_names[len(by) :]])
