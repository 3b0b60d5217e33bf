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


class TimersByKey:
    """The timers of an epoch's keys, by the ids of the keys."""

    def __init__(self, due: Sequence[Sequence[tuple[int, int]]], step: EpochStep) -> None:
        timers = [(key_id, domain, at) for key_id, some in enumerate(due) for at, domain in some]
        known = np.array(timers, np.int64).reshape(-1, 3)
        self._timers, self._armed = known, np.ones(len(known), np.bool_)
        ends = step.after >= MAX_TIME
        self._limits = {EVENT: step.after, CLOCK: MAX_TIME if ends else step.clock}

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
        limits = np.where(self._timers[:, 1] == CLOCK, self._limits[CLOCK], self._limits[EVENT])
        due: Mask = self._timers[:, 2] <= limits
        return due

    def next_round(self) -> DueTimers | None:
        """The earliest timer of each key that has any which is due; they fire now."""
        due = self._timers[self._armed & self._is_due()]
        if not len(due):
            return None
        due = due[np.lexsort((due[:, 1], due[:, 2], due[:, 0]))]
        first = np.ones(len(due), np.bool_)
        first[1:] = due[1:, 0] != due[:-1, 0]
        ids, domains, times = due[first].T
        self._record(ids, domains, times, False)
        return DueTimers(ids, times, domains == CLOCK)

    def store(self, tables: Timers, keys: pa.Table, step: EpochStep) -> None:
        """Write the timers that were set and are not due, and delete those that were cancelled."""
        later = ~self._is_due()
        for armed in (False, True):
            for domain in (EVENT, CLOCK):
                chosen = later & (self._armed == armed) & (self._timers[:, 1] == domain)
                ids, _, times = self._timers[chosen].T
                tables.write(keys, ids, times, domain, armed, step)


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
