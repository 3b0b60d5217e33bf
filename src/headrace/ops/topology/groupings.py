"""Groupings: which tasks of a bolt a row goes to.

A bolt has a fixed number of tasks, from 0. A grouping is a value that deals the rows of a chunk
out to them, where the rows are, before they travel; all but one's own function go by columns. The
same rows go to the same tasks after a crash, however they are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, integers
from headrace.callables import title
from headrace.chunk import OFFSET, SOURCE, visible
from headrace.hashing import Hashes, hash_keys, slots_of
from headrace.rows import rows_of

SHUFFLE, FIELDS, ALL, GLOBAL = "shuffle", "fields", "all", "global"
DIRECT, CUSTOM, PARTIAL_KEY = "direct", "custom", "partial_key"
TO = "$to"  # a column of direct streams: the task that the emitter named
MOST_TASKS = 4096
_EVEN = 64  # tasks: so many are placed evenly in the key space; more spread by themselves
_SECOND = 0x2545F4914F6CDD1D  # of the second choice of a key


@dataclass(frozen=True)
class StreamGrouping:
    """How rows are dealt out; `kind`, `fields` and the function's name are at rest."""

    kind: str
    fields: tuple[str, ...] = ()
    function: Callable[..., Any] | None = None

    def __str__(self) -> str:
        """Also at rest."""
        more = [title(self.function)] if self.function else list(self.fields)
        return " ".join([self.kind, ", ".join(more)]).strip()

    def deal(self, rows: pa.Table, tasks: int, *, stateful: bool = True) -> tuple[pa.Table, Index]:
        """The rows, each as often as it is sent, and the task of each: at rest if it has state."""
        count = rows.num_rows
        if self.kind == ALL:
            return rows.take(pa.array(np.repeat(np.arange(count), tasks))), np.tile(
                np.arange(tasks), count
            )
        if self.kind == CUSTOM:
            return self._chosen(rows, tasks)
        if self.kind == DIRECT:
            return rows.drop_columns([TO]), integers(rows.column(TO))
        if self.kind == GLOBAL or tasks == 1:
            return rows, np.zeros(count, np.int64)
        if self.kind == SHUFFLE:
            return rows, (_by_hash if stateful else _in_rounds)(rows, tasks)
        hashes = hash_keys([rows.column(name) for name in self.fields], count)
        if self.kind == PARTIAL_KEY:
            return rows, _of_two(hashes, rows, tasks)
        return rows, (hashes % np.uint64(tasks)).astype(np.int64)

    def unfit(self, rows: pa.Table, tasks: int) -> tuple[Mask, list[str]] | None:
        """The rows whose emitter named no task that there is, and why; None if there are none."""
        if self.kind != DIRECT:
            return None
        named = rows.column(TO).to_pylist()
        bad = np.array([t is None or not 0 <= t < tasks for t in named], np.bool_)
        if not bad.any():
            return None
        why = ("was not emitted by emit_direct", f"there are the tasks 0 to {tasks - 1}")
        return bad, [
            f"the tuple {why[0]}" if named[i] is None else f"there is no task {named[i]}: {why[1]}"
            for i in np.flatnonzero(bad)
        ]

    def _chosen(self, rows: pa.Table, tasks: int) -> tuple[pa.Table, Index]:
        assert self.function is not None
        places: list[int] = []
        chosen: list[int] = []
        for place, row in enumerate(rows_of(visible(rows))):
            for task in _several(self.function(row, tasks)):
                if not isinstance(task, int | np.integer) or not 0 <= task < tasks:
                    raise ValueError(f"{title(self.function)} chose the task {task!r} of {tasks}")
                places.append(place)
                chosen.append(int(task))
        return rows.take(pa.array(places, pa.int64())), np.array(chosen, np.int64)


def _several(chosen: Any) -> Iterable[Any]:
    return chosen if isinstance(chosen, list | tuple | set | range) else (chosen,)


def _in_rounds(rows: pa.Table, tasks: int) -> Index:
    """By where each row came from: of as many places one after the other as there are tasks, each
    goes to another task, in an order that is theirs, so that a filter which leaves every second
    row leaves no task without."""
    offsets, sources = (
        integers(rows.column(name)) if name in rows.column_names else np.zeros(len(rows), np.int64)
        for name in (OFFSET, SOURCE)
    )
    order = hash_keys([pa.array(sources), pa.array(offsets // tasks)], len(offsets))
    first = offsets % tasks + (order % np.uint64(tasks)).astype(np.int64)
    return _in_turn(first, _places(rows), tasks)


def _by_hash(rows: pa.Table, tasks: int) -> Index:
    """By a hash of where each row came from."""
    places = _places(rows)
    return _in_turn((places % np.uint64(tasks)).astype(np.int64), places, tasks)


def _in_turn(first: Index, places: Hashes, tasks: int) -> Index:
    """Several rows that came from one place go to tasks in turn, from its `first` on."""
    starts = np.flatnonzero(np.concatenate([[True], places[1:] != places[:-1]]))
    lengths = np.diff(np.append(starts, len(places)))
    turn = np.arange(len(places)) - np.repeat(starts, lengths)
    return (first + turn) % tasks


def _places(rows: pa.Table) -> Hashes:
    """A hash of where each row came from."""
    places = [rows.column(n) for n in (SOURCE, OFFSET) if n in rows.column_names]
    return hash_keys(places, rows.num_rows)


def _of_two(hashes: Hashes, rows: pa.Table, tasks: int) -> Index:
    """Of the two tasks of each key one, in rounds by where the rows came from: a row's task depends
    on nothing beside it, so what is read again after a loss is dealt out as before, however it is
    cut into chunks."""
    second = hash_keys([pa.array(hashes ^ np.uint64(_SECOND))])
    one = (hashes % np.uint64(tasks)).astype(np.int64)
    step = (second % np.uint64(max(1, tasks - 1))).astype(np.int64)
    other = (one + 1 + step) % tasks  # never the same task
    return np.where(_in_rounds(rows, 2) == 0, one, other)


@lru_cache(maxsize=64)
def task_keys(tasks: int) -> Index:
    """The key under which each task has its state: equal to the task modulo `tasks`.

    Slots are shares of the hashes of keys, so keys are chosen whose hashes are evenly spread: two
    tasks then run side by side where there are two processes. At rest.
    """
    keys = np.arange(tasks, dtype=np.int64)
    if tasks > _EVEN:
        return keys
    missing = set(range(tasks))
    numbers = np.arange(tasks * 1_024, dtype=np.int64)
    while missing:
        owners = slots_of(hash_keys([pa.array(numbers)]), tasks)
        for number in numbers[owners == numbers % tasks].tolist():
            if number % tasks in missing:
                missing.remove(number % tasks)
                keys[number % tasks] = number
        numbers = numbers + len(numbers)
    return keys
