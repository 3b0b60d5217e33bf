"""One pass over the keys of an epoch: the rows of a key and its timers that are due, by event time.

The first pass is quick: any failure abandons it. The second checks every call by itself; one
that fails leaves the key as it was, and its row is a dead letter. One object of the user's class
serves all keys; between two keys its state is swapped.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from headrace.clock import MAX_TIME
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.process.due_timers import TimerLimits, TimersOfKey
from headrace.ops.process.function import CLOCK, HELD, Call, KeyedProcess
from headrace.ops.process.key_state import KeyState, LoadedState, State, Timer
from headrace.ops.process.operator_state import OperatorState, TaskValues
from headrace.ops.process.rows_by_key import RowOrigins, RowsByKey
from headrace.ops.process.shared_maps import SharedMapGuard
from headrace.ops.user_metrics import UserMetrics
from headrace.rows import RowCopier, as_rows

PIECE = 16_384  # rows of a key that are Python objects at a time, where it may have many


@dataclass(frozen=True, slots=True)
class CallChecks:
    """How every call is checked: `accept` refuses rows, `blame` returns the record of a timer."""

    accept: Callable[[list[Any], list[tuple[str, Any]]], None]
    arrived: Callable[[int], pa.Table]  # the record of a row
    blame: Callable[[int, int | None], pa.Table]  # the record of a call without a row
    guard: SharedMapGuard | None = None  # checked after every call, if a shared map was changed


class KeyPass:
    def __init__(
        self,
        function: KeyedProcess,
        own: dict[str, Any],
        handlers: list[tuple[Any, str]],
        ignores_context: bool,
        rows_by_key: RowsByKey,
        columns: Sequence[pa.Table | None],
        step: EpochStep,
        limits: TimerLimits,
        values: KeyState,
        loaded: LoadedState,
        copier: RowCopier,
        operator: OperatorState,
        by_task: TaskValues,
        call: Call,
    ) -> None:
        self._operator, self._has_operator = operator, bool(operator)
        self.by_task = by_task  # it passes from key to key
        self._own, self._names = own, {*type(function).values, *operator.names, HELD}
        self._life = getattr(
            type(function), "_life", None
        )  # called before, after, and for the rows of a key
        self._unstored = own  # the attributes during the calls of a key that are not state
        self._one, self._call, self._handlers = copy.copy(function), call, handlers
        self._work, self._step = rows_by_key, step
        self._values, self._has_ttl = values, bool(values.with_ttl)
        self._copier, self._quick = copier, tuple if copier.plain else None
        self._columns = columns
        self._at_once = getattr(type(function), "rows_at_once", False)
        self._every_key = getattr(type(function), "_every_key", False)
        self._ignores_context = ignores_context  # no method looks at its context
        self._times: list[Any] = []
        if self._at_once:
            self._gather()
        self._limits, self._ordered = limits, limits.ordered
        self.loaded = loaded
        self.states, self.stamps = values.states(loaded)
        self.outs: list[Any] = []
        self.firings: list[tuple[int, int | None]] = []
        self.places = RowOrigins([], self.firings)
        self.sides: dict[str, tuple[list[Any], RowOrigins]] = {}
        self.armed: set[Timer] = set()
        self.cancelled: set[Timer] = set()
        self.faults: list[Fault] = []

    @cached_property
    def _rows(self) -> list[Any]:
        return self._work.rows(self._columns)

    @property
    def metrics(self) -> UserMetrics:
        return self._call.metrics

    def run(self, keys: list[Any], checks: CallChecks | None = None) -> KeyPass:
        """Go through all keys; with `checks`, check every call."""
        rows_by_key = self._work
        if checks is not None or not self._ignores_context or any(rows_by_key.timers):
            self._times = rows_by_key.times()
        for key_id, timers in enumerate(rows_by_key.timers):
            indexes = range(rows_by_key.starts[key_id], rows_by_key.starts[key_id + 1])
            due = TimersOfKey(timers)
            self._enter(key_id, keys[key_id])
            if self._life is not None:
                self._begin(key_id, indexes, due)
            self._run_key(key_id, indexes, due, checks)
            if self._life is not None:
                self._life[1](self._one, self._call)
            self._values.own(self._one.__dict__)
            self.states[key_id] = self._one.__dict__
            if self._has_operator:
                self.by_task = self._operator.of(self._one.__dict__)
        return self

    def begun(self, key_id: int, key: Any, begin: Callable[[Any, list[Any]], None]) -> bool:
        """Of a key whose calls are made elsewhere: `begin` sets its timers; whether one is due."""
        due = TimersOfKey(self._work.timers[key_id])
        self._call.key, self._call.time, self._call.place = key, None, -1
        begin(self._call, list(due))
        self._apply_requests(key_id, due, 0)
        return due.pop(None) is not None

    def _gather(self) -> None:
        """Replace the last row of each key by the list of all its rows."""
        starts, rows = self._work.starts, list(self._rows)
        for first, end in itertools.pairwise(starts):
            if end > first:
                self._rows[end - 1] = rows[first:end]

    def _enter(self, key_id: int, key: Any) -> None:
        state = self.states[key_id]
        self._one.__dict__ = {**self._own, **state} if self._own else state
        if self._has_operator:
            self._one.__dict__.update(self.by_task)
        self._call.key, self._call.watermark = key, self._step.before
        self._call.by_clock = False

    def _begin(self, key_id: int, indexes: range, due: TimersOfKey) -> None:
        """What a class does before the calls of a key."""
        assert self._life is not None
        self._call.time = self._times[indexes.start] if len(indexes) else None
        self._call.place = indexes.start if len(indexes) else -1
        self._life[0](self._one, self._call, list(due))
        self._unstored = {n: v for n, v in vars(self._one).items() if n not in self._names}
        self._apply_requests(key_id, due, 0)

    def _run_key(
        self, key_id: int, indexes: range, due: TimersOfKey, checks: CallChecks | None
    ) -> None:
        """The rows and the timers of a key in the order of event time, then what else is due."""
        left = indexes
        while left:
            rows = range(left.start, due.end_of_rows(self._times, left))
            if not rows:
                self._call_timers(key_id, due, self._times[left.start], checks)
            elif checks is not None:
                left = range(self._check_rows(key_id, rows, due, checks), left.stop)
            else:
                left = range(self._call_rows(key_id, rows, due), left.stop)
        if self._every_key and not indexes:
            self._call_without_rows(key_id, due, checks)
        if self._ordered:  # before those by the clock, which have no place in event time
            self._call_timers(key_id, due, MAX_TIME, checks)
        self._call_timers(key_id, due, None, checks)

    def _call_rows(self, key_id: int, indexes: range, due: TimersOfKey) -> int:
        """The calls for these rows, up to one that sets a timer which comes before the next."""
        if self._ignores_context:
            self._call_without_context(indexes)
        elif self._life is not None and not self._has_ttl:
            self._call_as_it_does(key_id, indexes, due)
        else:
            return self._call_with_context(key_id, indexes, due)
        return indexes.stop

    def _call_timers(
        self, key_id: int, due: TimersOfKey, before: int | None, checks: CallChecks | None
    ) -> None:
        """The timers by event time before the next row; without one, all that are due."""
        for timer in self._fire(key_id, due, before):
            if checks is not None:
                self._check_timer(key_id, due, timer, checks)
                continue
            if self._has_ttl:
                self._expire(key_id)
            self._emit(self._one.on_timer(self._call.time, self._call), timer)  # type: ignore[attr-defined]
            if self._has_ttl:
                self._record_writes(key_id)
            self._apply_requests(key_id, due, timer)

    def _call_without_rows(self, key_id: int, due: TimersOfKey, checks: CallChecks | None) -> None:
        """The call for a key that is called in every batch, and has no rows in this one."""
        handler, self._call.input = self._handlers[0]
        self._call.time, self._call.place = None, -1
        self.firings.append((key_id, None))
        place = -len(self.firings)
        if checks is None:
            self._emit(handler(self._one, [], self._call), place)
            return
        error = self._attempt(key_id, due, place, checks, handler, [])
        if error is not None:
            self.faults.append(Fault(checks.blame(key_id, None), error))

    def _call_without_context(self, indexes: range) -> None:
        """Calls that do not look at their context, and so cannot request anything."""
        one, call, outs, places = self._one, self._call, self.outs, self.places.of
        (handler, call.input), quick = self._handlers[0], self._quick
        for i, row in enumerate(self._rows[indexes.start : indexes.stop], indexes.start):
            returned = handler(one, row, call)
            if type(returned) is quick:
                outs.append(returned)
                places.append(i)
            elif returned is not None:
                self._emit(returned, i)

    def _call_as_it_does(self, key_id: int, indexes: range, due: TimersOfKey) -> None:
        """Calls of a class that has a loop of its own over the rows of a key."""
        assert self._life is not None
        inputs = None
        if len(self._handlers) > 1:
            ports = self._work.ports[indexes.start : indexes.stop].tolist()
            inputs = [self._handlers[port][1] for port in ports]
        else:
            self._call.input = self._handlers[0][1]
        self._life[2](
            self._one,
            self._call,
            self._work.rows_of_key(key_id, indexes, self._columns, PIECE),
            self._times[indexes.start : indexes.stop],
            inputs,
            self.outs,
            self.places.of,
            indexes.start,
            lambda place: self._apply_requests(key_id, due, place),
        )

    def _call_with_context(self, key_id: int, indexes: range, due: TimersOfKey) -> int:
        one, call, outs, places = self._one, self._call, self.outs, self.places.of
        handler, call.input = self._handlers[0]
        end, indexes = indexes.stop, indexes[-1:] if self._at_once else indexes
        several, has_ttl = len(self._handlers) > 1, self._has_ttl
        times, rows, quick, ordered = self._times, self._rows, self._quick, self._ordered
        requests, side_rows = call.timer_requests, call.side_rows  # the lists stay the same
        for i in indexes:
            call.time, call.place = times[i], i
            if ordered:
                call.watermark = times[i]
            if several:
                handler, call.input = self._handlers[self._work.ports[i]]
            if has_ttl:
                self._expire(key_id)
            returned = handler(one, rows[i], call)
            if type(returned) is quick:
                outs.append(returned)
                places.append(i)
            elif returned is not None:
                self._emit(returned, i)
            if has_ttl:
                self._record_writes(key_id)
            if self._life is not None or requests or side_rows:
                self._apply_requests(key_id, due, i)
                end = due.end_of_rows(times, range(i + 1, end))  # it may have set a timer
            if i + 1 >= end:
                break
        return end

    def _emit(self, returned: Any, place: int) -> None:
        rows = self._rows_of(returned)
        self.outs.extend(rows)
        self.places.of.extend([place] * len(rows))

    def _rows_of(self, returned: Any) -> list[Any]:
        return self._copier.all(returned if isinstance(returned, Iterator) else as_rows(returned))

    def _check_rows(self, key_id: int, indexes: range, due: TimersOfKey, checks: CallChecks) -> int:
        call, all_indexes = self._call, indexes
        indexes = indexes[-1:] if self._at_once else indexes
        for i in indexes:
            call.time, call.place = self._times[i], i
            if self._ordered:
                call.watermark = self._times[i]
            handler, call.input = self._handlers[self._work.ports[i]]
            error = self._attempt(key_id, due, i, checks, handler, self._rows[i])
            if error is not None:
                failed = all_indexes if self._at_once else (i,)
                ports = self._work.ports
                self.faults += [Fault(checks.arrived(j), error, int(ports[j]), j) for j in failed]
            if due.end_of_rows(self._times, range(i + 1, all_indexes.stop)) == i + 1:
                return i + 1
        return all_indexes.stop

    def _check_timer(self, key_id: int, due: TimersOfKey, timer: int, checks: CallChecks) -> None:
        on_timer: Any = getattr(type(self._one), "on_timer")  # noqa: B009
        at = self._call.time or 0
        error = self._attempt(key_id, due, timer, checks, on_timer, at)
        if error is not None:
            self.faults.append(Fault(checks.blame(key_id, at), error))

    def _attempt(
        self,
        key_id: int,
        due: TimersOfKey,
        place: int,
        checks: CallChecks,
        handler: Any,
        subject: Any,
    ) -> Exception | None:
        """One call; if it fails, what it did is undone and the failure returned."""
        one, call = self._one, self._call
        before = {n: copy.deepcopy(v) for n, v in one.__dict__.items() if n in self._names}
        metrics, stamps = call.metrics.copy(), dict(self.stamps[key_id]) if self._has_ttl else {}
        try:
            if self._has_ttl:
                self._expire(key_id)
            returned = self._rows_of(handler(one, subject, call))
            if self._has_ttl:
                self._record_writes(key_id)
            checks.accept(returned, call.side_rows)
            self._values.accept(one.__dict__)
            if self._has_operator:
                self._operator.row(one.__dict__)
            if checks.guard is not None:
                checks.guard.check()
        except Exception as error:
            one.__dict__ = {**self._unstored, **before}
            call.metrics = metrics
            if self._has_ttl:
                self.stamps[key_id] = stamps
            rescued, sides = call.rescued()
            call.clear()
            if checks.guard is not None:
                checks.guard.restore()
            if rescued or sides:
                error = self._rescue(key_id, due, place, checks, rescued, sides) or error
            return error
        self._emit(returned, place)
        self._apply_requests(key_id, due, place)
        return None

    def _rescue(
        self,
        key_id: int,
        due: TimersOfKey,
        place: int,
        checks: CallChecks,
        rows: list[Any],
        sides: list[tuple[str, Any]],
    ) -> Exception | None:
        """Emit what a call that failed has emitted nevertheless; an error if it does not fit."""
        try:
            checks.accept(rows, sides)
        except Exception as error:
            return error
        self._emit(rows, place)
        self._call.side_rows.extend(sides)
        self._apply_requests(key_id, due, place, counts=False)
        return None

    def _fire(self, key_id: int, due: TimersOfKey, before: int | None) -> Iterator[int]:
        """Let timers fire in the order of their times; yields the origin of what each emits."""
        call = self._call
        call.input, call.place = "", -1
        while (timer := due.pop(before)) is not None:
            call.time, domain = timer
            call.by_clock = domain == CLOCK
            reached = max(call.watermark, call.time)
            call.watermark = self._step.after if before is None else reached
            emits = reached if self._ordered else call.time  # in order nothing is emitted late
            self.firings.append((key_id, None if call.by_clock else emits))
            yield -len(self.firings)

    def _apply_requests(
        self, key_id: int, due: TimersOfKey, place: int, *, counts: bool = True
    ) -> None:
        """What a call requested: timers set and cancelled, rows for side outputs."""
        if counts:
            self._call.settle()
        ending = place < 0 and self._step.after >= MAX_TIME and self._beyond()
        for domain, at, arm in self._call.timer_requests:
            timer = (key_id, domain, at)
            if arm and ending:
                continue
            self.armed.discard(timer)
            if not arm:
                self.cancelled.add(timer)
                due.discard(at, domain)
            elif at > self._limits.of(domain):
                self.armed.add(timer)
                self.cancelled.discard(timer)
            else:
                due.add(at, domain)
        for name, row in self._call.side_rows:
            rows, places = self.sides.setdefault(name, ([], RowOrigins([], self.firings)))
            rows.append(row)
            places.of.append(place)
        self._call.clear()

    def _beyond(self) -> bool:
        """At the end of the input: whether the timer is beyond the rows; then it sets no other."""
        call = self._call
        return call.by_clock or (call.time or 0) > self._step.newest

    # time to live

    def _expire(self, key_id: int) -> None:
        step = self._step
        self._values.expire(self._state(), self.stamps[key_id], self._now(), step.clock)

    def _record_writes(self, key_id: int) -> None:
        self._values.record_writes(
            self._state(), self.stamps[key_id], self._now(), self._step.clock
        )

    def _state(self) -> State:
        return self._one.__dict__

    def _now(self) -> int:
        """The event time of a call: its row's or timer's, and not before the watermark."""
        call, before = self._call, self._step.before
        if call.time is None or call.by_clock:
            return before
        return max(call.watermark if self._ordered else before, call.time)
