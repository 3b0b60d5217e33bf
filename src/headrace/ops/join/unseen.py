"""Versions of a table that no row of the stream has seen: right and full joins tell them alone.

A version is over when a later one of its key has taken its place, when its key is deleted, when
it is too old, or when the input has ended; only then is it sure that nobody saw it. Of the
versions that are not over, the keys of those that nobody has seen so far are kept: a set that is
written where it changes and read for the keys of an epoch, whole only at the end of the input.
Times here are event times without lateness.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.ops.agg.groups import Index, Mask
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.side import AT, Side
from headrace.ops.join.versions import Versions, one_before
from headrace.ops.window.aligned import Times
from headrace.state.table import KeyedTable, TableSpec

UNSEEN = "unseen"
Told = tuple[pa.Table, Times]  # versions, and when each was over


class Unseen:
    def __init__(self, side: Side, versions: Versions, within: int | None) -> None:
        self._side, self._versions, self._within = side, versions, within
        self.spec = TableSpec(UNSEEN, side.key, pa.schema([]))

    def passing(self, versions: pa.Table, known: int, seen: Index, step: Step) -> Told:
        """Take note of an epoch; the versions that are over because others took their place.

        `versions` are in order, of which `known` were there before; `seen` are those that rows
        saw, and -1.
        """
        if not versions.num_rows:
            return versions, np.zeros(0, np.int64)
        number, first = key_numbers(versions.select(self._side.identity))
        waited = self._waits(versions.slice(0, known), step)
        alone = ~self._versions.deletes(versions)
        alone[:known] = waited
        alone[seen[seen >= 0]] = False
        after = _one_after(number)
        was, now = np.zeros(len(first), np.bool_), np.zeros(len(first), np.bool_)
        was[number[:known]] = waited
        now[number[alone & (after < 0)]] = True
        keys = versions.select(self._side.identity).take(pa.array(first))
        self._table(step).put(keys.filter(pa.array(now & ~was)))
        self._table(step).delete(keys.filter(pa.array(was & ~now)))
        told, at = np.flatnonzero(alone & (after >= 0)), numbers(versions[AT])
        ends: Times = at[after[told]]
        if self._within is not None:
            ends = np.minimum(ends, at[told] + self._within)
        return versions.take(pa.array(told)), ends

    def aged(self, old: pa.Table, step: Step) -> Told:
        """Of the versions that are too old now, those that nobody saw."""
        old = old.filter(pa.array(self._waits(old, step)))
        self._table(step).delete(old.select(self._side.identity))
        return old, numbers(old[AT]) + (self._within or 0)

    def rest(self, step: Step) -> Told:
        """At the end of the input, all that nobody saw: over where the watermarks ended."""
        keys = self._table(step).scan()
        self._table(step).delete(keys)
        rows = self._versions.known(keys, step)
        return rows, np.maximum(numbers(rows[AT]), step.newest)

    def next(self, step: Step) -> int:
        """When the next version may be over, by what is known of it."""
        return min(self._versions.next(step), self._versions.next_old(step))

    def _waits(self, versions: pa.Table, step: Step) -> Mask:
        """Which of these, the latest of their keys, nobody has seen so far."""
        found: Mask = self._table(step).get(versions.select(self._side.identity))[1]
        return found

    def _table(self, step: Step) -> KeyedTable:
        return step.tables[self.spec.name]


def _one_after(number: Index) -> Index:
    """For each row the next one with the same key number, or -1."""
    before, after = one_before(number), np.full(len(number), -1)
    there = np.flatnonzero(before >= 0)
    after[before[there]] = there
    return after
