"""Keyed process functions: the user's code sees one key's rows, one at a time, in order.

The keys that have rows or timers in an epoch are gone through one after the other: all
rows of a key, then its timers that are due. One object of the user's class serves them all;
between two keys its declared state is swapped. What it gave and kept leaves by column.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Fault, Step
from headrace.ops.process.call import CLOCK, EVENT, Call, many
from headrace.ops.process.keyed import KeyedProcess
from headrace.ops.process.state import KeyState
from headrace.ops.process.work import Arranged, Arranger
from headrace.rows import collector_paused, rows_of, table_of
from headrace.state.table import TableSpec


class _Again(Exception):
    """A call failed: go through the rows again, with care."""


class ProcessOperator:
    version = 2

    def __init__(
        self,
        function: KeyedProcess,
        names: Sequence[str],
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:
        self._function, self._names, self._schema = function, names, output
        self._sides = function.sides()
        types = [inputs[0].field(k).type for k in keys[0]]
        self._key = pa.schema([(f"k{i}", kind) for i, kind in enumerate(types)])
        self._arranger = Arranger(self._key, keys)
        self._state = KeyState(function, self._key)

    def tables(self) -> tuple[TableSpec, ...]:
        return self._state.tables()

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return None

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return rows

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    @collector_paused()
    def step(self, step: Step) -> None:
        work = self._arranger.arrange(step.inputs, self._state.due(step))
        if len(work):
            for check in (False, True):
                # Only if a call fails or does not fit is every call checked by itself.
                try:
                    self._finish(self._run(work, step, check), work, step)
                    break
                except (_Again, ValueError):
                    if check:
                        raise
        self._state.forget(step)
        self._state.look_ahead(step)

    def _run(self, work: Arranged, step: Step, check: bool) -> _Round:
        made = _Round(self._function, step, work.keys, self._key)
        made.states = self._state.load(work.keys, step)
        rows = [rows_of(t.select([n for n in t.column_names if not n.startswith("__")]))
                if t is not None else [] for t in step.inputs]  # fmt: skip
        handlers = [_handler(type(self._function), name) for name in self._names]
        calls = [
            (handlers[port], self._names[port], rows[port][index])
            for port, index in zip(work.ports, work.indexes, strict=True)
        ]
        run = made.carefully if check else made.quickly
        for number, timers in enumerate(work.timers):
            mine = range(work.starts[number], work.starts[number + 1])
            run(number, mine, calls, work.times, timers, self)
        return made

    def accept(self, rows: list[Any], sides: list[tuple[str, Any]]) -> None:
        """Refuse what does not fit its columns."""
        table_of(rows, self._schema)
        for name, row in sides:
            table_of([row], self._sides[name])

    def _finish(self, made: _Round, work: Arranged, step: Step) -> None:
        chunk = table_of(made.outs, self._schema) if made.outs else None
        sides = {
            n: table_of([r for r, _ in rows], self._sides[n]) for n, rows in made.sides.items()
        }
        self._state.store(work.keys, made.states, made.touched, step)
        self._state.arm(work.keys, made.armed, made.cancelled, step)
        step.faults.extend(made.faults)
        if chunk is not None:
            step.out.append(work.placed(chunk, made.sources, step))
        for name, table in sides.items():
            placed = work.placed(table, [source for _, source in made.sides[name]], step)
            step.sides.setdefault(name, []).append(placed)


class _Round:
    """One pass over the keys of an epoch: what was given, set, kept."""

    def __init__(self, function: KeyedProcess, step: Step, keys: pa.Table, key: pa.Schema) -> None:
        self._step, self._own = step, vars(function)
        self._one = copy.copy(function)
        self._keys = _plain_keys(keys, key)
        self._call = Call(step.before, step.clock)
        self._limits = {
            EVENT: step.after,
            CLOCK: MAX_TIME if step.after >= MAX_TIME else step.clock,
        }
        self.states: list[dict[str, Any]] = []
        self.touched: dict[int, int] = {}  # the newest time of a key's rows, by number of the key
        self.outs: list[Any] = []
        self.sources: list[tuple[int, int | None]] = []  # row, or -1 and the time of a timer
        self.sides: dict[str, list[tuple[Any, tuple[int, int | None]]]] = {}
        self.armed: set[tuple[int, int, int]] = set()
        self.cancelled: set[tuple[int, int, int]] = set()
        self.faults: list[Fault] = []

    def quickly(
        self, number: int, mine: range, calls: list[Any], times: list[Any],
        timers: list[tuple[int, int]], operator: ProcessOperator,
    ) -> None:  # fmt: skip
        """All of one key; the first failure stops everything."""
        one, call = self._one, self._call
        one.__dict__ = {**self._own, **self.states[number]}
        call.key = self._keys[number]
        outs, sources = self.outs, self.sources
        due = list(timers)
        try:
            for i in mine:
                handler, call.input, row = calls[i]
                call.time = times[i]
                given = handler(one, row, call)
                if given is not None:
                    listed = many(given)
                    outs.extend(listed)
                    sources.extend([(i, None)] * len(listed))
                if call.asked or call.given:
                    self._asked(number, due, (i, None))
            self._timers(number, due)
        except Exception as error:
            raise _Again from error
        self._leave(number, mine, times)

    def carefully(
        self, number: int, mine: range, calls: list[Any], times: list[Any],
        timers: list[tuple[int, int]], operator: ProcessOperator,
    ) -> None:  # fmt: skip
        """The same, call by call: one that fails leaves the key as it was, and is set aside."""
        one, call = self._one, self._call
        one.__dict__ = {**self._own, **self.states[number]}
        call.key = self._keys[number]
        due = list(timers)
        for i in mine:
            handler, call.input, row = calls[i]
            call.time = times[i]
            before = copy.deepcopy(one.__dict__)
            try:
                given = many(handler(one, row, call))
                operator.accept(given, call.given)
                operator._state.accept(one.__dict__)
            except Exception as error:
                one.__dict__ = before
                call.forget()
                self.faults.append(Fault(operator._arranger.row(self._step, i), error))
                continue
            self.outs.extend(given)
            self.sources.extend([(i, None)] * len(given))
            self._asked(number, due, (i, None))
        self._timers(number, due)
        self._leave(number, mine, times)

    def _timers(self, number: int, due: list[tuple[int, int]]) -> None:
        """Timers in the order of their times; at the end of input none is set anew."""
        heapq.heapify(due)
        call, last = self._call, self._step.after >= MAX_TIME
        call.input = ""
        while due:
            at, domain = heapq.heappop(due)
            call.time, call.by_clock = at, domain == CLOCK
            place = (-1, at if domain == EVENT else None)
            listed = many(self._one.on_timer(at, call))
            self.outs.extend(listed)
            self.sources.extend([place] * len(listed))
            if last:
                call.asked.clear()
            self._asked(number, due, place)

    def _asked(self, number: int, due: list[tuple[int, int]], place: tuple[int, Any]) -> None:
        """What a call asked for: timers set and cancelled, rows for side outputs."""
        for domain, at, wanted in self._call.asked:
            soon = at <= self._limits[domain]
            timer = (number, domain, at)
            self.armed.discard(timer)
            if not wanted:
                self.cancelled.add(timer)
                if (at, domain) in due:
                    due.remove((at, domain))
                    heapq.heapify(due)
            elif soon:
                if (at, domain) not in due:
                    heapq.heappush(due, (at, domain))
            else:
                self.armed.add(timer)
                self.cancelled.discard(timer)
        for name, row in self._call.given:
            self.sides.setdefault(name, []).append((row, place))
        self._call.forget()

    def _leave(self, number: int, mine: range, times: list[Any]) -> None:
        self.states[number] = self._one.__dict__
        newest = times[mine[-1]] if len(mine) else None
        fallback = self._step.before if self._step.before > MIN_TIME else self._step.clock
        self.touched[number] = fallback if newest is None else newest


def _handler(kind: type, name: str) -> Any:
    handler = getattr(kind, f"on_{name}", None)
    return handler if handler is not None else kind.on_row  # type: ignore[attr-defined]


def _plain_keys(keys: pa.Table, key: pa.Schema) -> list[Any]:
    rows = rows_of(keys.select(key.names))
    return [row[0] for row in rows] if len(key) == 1 else list(map(tuple, rows))
