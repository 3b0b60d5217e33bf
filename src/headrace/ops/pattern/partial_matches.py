"""The state of patterns by key: partial matches, their rows, and when they end.

Partial matches are lists of numbers, one row per key. The rows they hold are stored once each,
under a number that rises with their order; they are read only when a match is emitted or a
function looks at them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep
from headrace.ops.keys import key_numbers
from headrace.ops.pattern.machine import Run
from headrace.state.table import TableSpec

RUNS, ROWS, DUE = "runs", "rows", "due"
_ID = "$id"
_HIDDEN = {"$at": TIME, "$source": SOURCE, "$offset": OFFSET}
_RUN = pa.schema(
    [
        ("$pattern", pa.list_(pa.string())),
        ("$since", pa.list_(pa.int64())),
        ("$alive", pa.list_(pa.int64())),
        ("$ids", pa.list_(pa.list_(pa.int64()))),
        ("$places", pa.list_(pa.list_(pa.int32()))),
        ("$began", pa.list_(pa.int64())),
        ("$last", pa.list_(pa.int64())),
        ("$due", pa.int64()),
    ]
)

StoredRun = tuple[str, int, Run]  # the pattern's name, since when it counts, a partial match


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """The partial matches of a key, and when time next ends one of them."""

    runs: tuple[StoredRun, ...] = ()
    due: int = MAX_TIME

    def ids(self) -> set[int]:
        return {number for _, _, run in self.runs for number in run[1]}


class MatchStore:
    def __init__(self, key: pa.Schema, rows: pa.Schema) -> None:
        self._key, self._identity = key, [HASH, *key.names]
        self._rows = rows
        values = [f for f in rows if f.name not in key.names]
        place_fields = [("$at", pa.int64()), ("$source", pa.int32()), ("$offset", pa.int64())]
        self._specs = (
            TableSpec(RUNS, key, _RUN),
            TableSpec(
                ROWS,
                pa.schema([*key, pa.field(_ID, pa.int64())]),
                pa.schema([*values, *place_fields]),
            ),
            TableSpec(DUE, key, pa.schema([]), timed=True),
        )

    def tables(self) -> tuple[TableSpec, ...]:
        return self._specs

    def due(self, step: EpochStep) -> pa.Table:
        """The keys whose partial matches time alone changes up to `after`."""
        table = step.tables[DUE]
        until = min(step.after, MAX_TIME - 1) + 1
        keys = table.scan(MIN_TIME, until).select(self._identity)
        table.expire(until)
        _, first = key_numbers(keys)
        return keys.take(pa.array(first))

    def keys_with_matches(self, step: EpochStep, names: set[str] | None = None) -> pa.Table:
        """The keys that have partial matches: of all patterns, or of some."""
        stored = step.tables[RUNS].scan()
        if names is not None:
            named = [bool(names & set(own)) for own in stored["$pattern"].to_pylist()]
            stored = stored.filter(pa.array(named, pa.bool_()))
        return stored.select(self._identity)

    def load(self, keys: pa.Table, step: EpochStep) -> tuple[pa.Table, Mask]:
        """The state of these keys, by column, and which of them have any."""
        return step.tables[RUNS].get(keys)

    def matches_of(self, stored: pa.Table) -> list[KeyMatches]:
        columns = [stored.column(f.name).to_pylist() for f in _RUN]
        return [_key_matches(*values) for values in zip(*columns, strict=True)]

    def save(self, keys: pa.Table, matches: Sequence[KeyMatches], step: EpochStep) -> None:
        """Store the partial matches of these keys; keys without any are deleted."""
        some = np.array([bool(one.runs) for one in matches], np.bool_)
        step.tables[RUNS].delete(keys.filter(pa.array(~some)))
        present = [one for one in matches if one.runs]
        if present:
            rows = keys.filter(pa.array(some))
            for field, values in zip(_RUN, _columns(present), strict=True):
                rows = rows.append_column(field, pa.array(values, field.type))
            step.tables[RUNS].put(rows)

    def wake(self, keys: pa.Table, times: Sequence[int], step: EpochStep) -> None:
        step.tables[DUE].put(keys.append_column(TIME, pa.array(times, pa.int64())))

    def next(self, step: EpochStep) -> int:
        first = step.tables[DUE].first_time()
        return MAX_TIME if first is None else first

    # rows

    def add_rows(self, keys: pa.Table, ids: Sequence[int], rows: pa.Table, step: EpochStep) -> None:
        """Store rows under their numbers, each for one of `keys`."""
        stored = keys.append_column(_ID, pa.array(ids, pa.int64()))
        for field in self._rows:
            if field.name not in self._key.names:
                stored = stored.append_column(field, rows.column(field.name))
        for column, hidden in _HIDDEN.items():
            stored = stored.append_column(column, rows.column(hidden))
        step.tables[ROWS].put(stored)

    def forget_rows(self, keys: pa.Table, ids: Sequence[int], step: EpochStep) -> None:
        step.tables[ROWS].delete(keys.append_column(_ID, pa.array(ids, pa.int64())))

    def rows(self, keys: pa.Table, ids: Sequence[int], step: EpochStep) -> pa.Table:
        """The rows under these numbers, as they came, with their hidden columns."""
        stored, _ = step.tables[ROWS].get(keys.append_column(_ID, pa.array(ids, pa.int64())))
        columns = {
            n: keys.column(n) if n in self._key.names else stored.column(n)
            for n in self._rows.names
        }
        columns |= {hidden: stored.column(column) for column, hidden in _HIDDEN.items()}
        return pa.table(columns).append_column(HASH, keys.column(HASH))

    def ids(self, rows: pa.Table) -> list[int]:
        """The numbers under which rows are stored."""
        return rows.column(_ID).to_pylist()  # type: ignore[no-any-return]

    def among(self, keys: pa.Table, others: pa.Table) -> np.ndarray:
        """For each of `others` its place among `keys`, -1 if it is not there; all distinct."""
        both = pa.concat_tables([keys.select(self._identity), others.select(self._identity)])
        key_ids, first = key_numbers(both)
        index = np.full(len(first), -1, np.int64)
        index[key_ids[: keys.num_rows]] = np.arange(keys.num_rows)
        return np.asarray(index[key_ids[keys.num_rows :]])


def _key_matches(
    names: list[str],
    since: list[int],
    alive: list[int],
    ids: Any,
    places: Any,
    began: list[int],
    last: list[int],
    due: int,
) -> KeyMatches:
    if names is None:
        return KeyMatches()
    runs = zip(alive, map(tuple, ids), map(tuple, places), began, last, strict=True)
    return KeyMatches(tuple(zip(names, since, runs, strict=True)), due)


def _columns(matches: Sequence[KeyMatches]) -> list[list[Any]]:
    owned: list[list[Any]] = [[[o[i] for o in one.runs] for one in matches] for i in range(2)]
    parts = [[[o[2][i] for o in one.runs] for one in matches] for i in range(5)]
    return [*owned, *parts, [one.due for one in matches]]
