"""The timers of a process function over chunks: what calls request, and which are due next.

The same timers as those of functions over rows, as arrays: the id of a key, the domain (event
time or clock) and the time. In each round the earliest timer of every key fires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import PlanError
from headrace.ops.contract import EpochStep
from headrace.ops.process.due_timers import TimerLimits
from headrace.ops.process.function import CLOCK, EVENT
from headrace.ops.process.key_state import Timers


@dataclass(frozen=True, slots=True)
class TimerRequest:
    """Timers that a call sets, or cancels; keys by their numbers in the call."""

    domain: int
    keys: Index
    times: Index
    arm: bool


def timer_request(domain: int, at: Any, keys: Any, arm: bool, count: int) -> TimerRequest:
    """What a call asks for: a time for each key, null for none; or times for some keys."""
    some = np.arange(count) if keys is None else np.asarray(keys, np.int64)
    times = _times(at, len(some))
    if len(times) != len(some) or ((some < 0) | (some >= count)).any():
        raise ValueError(f"{len(times)} times of timers for {len(some)} of {count} keys")
    wanted = ~times.mask
    chosen = times.data[wanted]
    far = (chosen <= MIN_TIME) | (chosen >= MAX_TIME)
    if far.any():
        raise ValueError(
            f"a timer at {chosen[far][0]} ms would never fire: times are within ±2**62"
        )
    return TimerRequest(domain, some[wanted], chosen, arm)


def _times(at: Any, count: int) -> Any:
    """Times, those that are missing masked."""
    if isinstance(at, int | np.integer):
        at = np.full(count, int(at))
    column = at if isinstance(at, pa.Array | pa.ChunkedArray) else pa.array(at, from_pandas=True)
    column = column.cast(pa.int64())
    none = np.asarray(column.is_null())
    return np.ma.array(np.asarray(column.fill_null(0)), mask=none)


def refuse_timer(why_not: str) -> None:
    if why_not:
        raise PlanError(
            "HR-PROCESS-010",
            f"a timer cannot be set here: {why_not}",
            "See docs/guide/state-and-process.md, Timers.",
        )


@dataclass(slots=True)
class DueTimers:
    """The timers that fire in one round, at most one for each key."""

    keys: Index  # ids
    times: Index
    by_clock: Mask
    emits: Index  # the event times of what they emit


class TimersByKey:
    """The timers of an epoch's keys, by the ids of the keys."""

    def __init__(self, due: Sequence[Sequence[tuple[int, int]]], limits: TimerLimits) -> None:
        timers = [(key_id, domain, at) for key_id, some in enumerate(due) for at, domain in some]
        known = np.array(timers, np.int64).reshape(-1, 3)
        self._timers, self._armed = known, np.ones(len(known), np.bool_)
        self._limits = limits

    def apply(self, request: TimerRequest, ids: Index) -> None:
        """What a call requested for the keys with these ids; the last request counts."""
        self._record(ids[request.keys], request.domain, request.times, request.arm)

    def _record(self, ids: Index, domain: Index | int, times: Index, arm: bool) -> None:
        domains = np.broadcast_to(domain, len(ids))
        timers = np.concatenate([self._timers, np.stack([ids, domains, times], axis=1)])
        armed = np.concatenate([self._armed, np.full(len(ids), arm)])
        order = np.lexsort((np.arange(len(timers)), *timers.T))
        timers, armed = timers[order], armed[order]
        last = np.ones(len(timers), np.bool_)
        last[:-1] = (timers[1:] != timers[:-1]).any(axis=1)
        self._timers, self._armed = timers[last], armed[last]

    def _is_due(self) -> Mask:
        by_clock = self._timers[:, 1] == CLOCK
        limits = np.where(by_clock, self._limits.clock, self._limits.event)
        due: Mask = self._timers[:, 2] <= limits
        return due

    def first_by_event(self, count: int) -> Index:
        """For each of `count` keys the time of its first due timer by event time, MAX_TIME for
        none: the rows up to it come before."""
        chosen = self._timers[self._armed & self._is_due() & (self._timers[:, 1] == EVENT)]
        first = np.full(count, MAX_TIME, np.int64)
        np.minimum.at(first, chosen[:, 0], chosen[:, 2])
        return first

    def next_round(self, rows: Index) -> DueTimers | None:
        """The earliest timer of each key that has any which is due; they fire now.

        `rows` are the times of the next row of each key, MAX_TIME where there is none. Only timers
        by event time come before a row.
        """
        due = self._timers[self._armed & self._is_due()]
        next_row = rows[due[:, 0]]
        by_clock = due[:, 1] == CLOCK
        due = due[(next_row == MAX_TIME) | (~by_clock & (due[:, 2] < next_row))]
        if not len(due):
            return None
        domains = due[:, 1] if self._limits.ordered else np.zeros(len(due), np.int64)
        due = due[np.lexsort((due[:, 1], due[:, 2], domains, due[:, 0]))]
        first = np.ones(len(due), np.bool_)
        first[1:] = due[1:, 0] != due[:-1, 0]
        ids, domains, times = due[first].T
        self._record(ids, domains, times, False)
        return DueTimers(ids, times, domains == CLOCK, times)

    def store(self, tables: Timers, keys: pa.Table, step: EpochStep) -> None:
        """Write the timers that were set and are not due, and delete those that were cancelled."""
        later = ~self._is_due()
        for armed in (False, True):
            for domain in (EVENT, CLOCK):
                chosen = later & (self._armed == armed) & (self._timers[:, 1] == domain)
                ids, _, times = self._timers[chosen].T
                tables.write(keys, ids, times, domain, armed, step)


class RowsBetweenTimers:
    """The rows of an epoch, sorted by key and time, in turns: of each key those up to its next
    timer. Without timers among them all rows are one turn."""

    def __init__(self, starts: Sequence[int], times: Index | None) -> None:
        self._next, self._ends = np.array(starts[:-1], np.int64), np.array(starts[1:], np.int64)
        self._times = times
        self.last: Index = np.full(len(self._next), MIN_TIME, np.int64)  # time of a key's last row

    def take(self, timers: Index) -> tuple[Index, Index, Index]:
        """The keys that have rows up to their next timer, where the rows of each start among those
        of the turn, and the numbers of these rows."""
        stops = self._ends
        if self._times is not None and (timers < MAX_TIME).any():
            counts = self._ends - self._next
            rows = _ranges(self._next, counts)
            first = np.zeros(int(self._ends[-1]) + 1, np.int64)
            first[1:][rows] = self._times[rows] <= np.repeat(timers, counts)
            first = np.cumsum(first)
            stops = self._next + first[self._ends] - first[self._next]
        counts = stops - self._next
        ids: Index = np.flatnonzero(counts)
        rows = _ranges(self._next, counts)
        if self._times is not None:
            self.last[ids] = self._times[stops[ids] - 1]
        self._next = stops
        return ids, np.append(0, np.cumsum(counts[ids])), rows

    def next_times(self) -> Index:
        """The time of each key's next row, MAX_TIME where there is none."""
        times = np.full(len(self._next), MAX_TIME, np.int64)
        left = self._next < self._ends
        times[left] = MIN_TIME if self._times is None else self._times[self._next[left]]
        return times


def _ranges(starts: Index, counts: Index) -> Index:
    """The numbers from each start on, as many as its count."""
    ends = np.cumsum(counts)
    begins: Index = np.repeat(starts - ends + counts, counts) + np.arange(counts.sum())
    return begins


def beyond(due: DueTimers, step: EpochStep) -> Mask:
    """At the end of the input: which timers are beyond the rows, and set no others."""
    if step.after < MAX_TIME:
        return np.zeros(len(due.keys), np.bool_)
    return due.by_clock | (due.times > step.newest)


def armed_within(request: TimerRequest, past: Mask) -> TimerRequest:
    """The request without timers that are set by those which may set none."""
    if not request.arm or not past.any():
        return request
    stays = ~past[request.keys]
    return TimerRequest(request.domain, request.keys[stays], request.times[stays], True)
