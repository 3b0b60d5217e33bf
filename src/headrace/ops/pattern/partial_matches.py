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

from headrace.arrays import Mask, integers
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

Owned = tuple[str, int, Run]  # the pattern's name, since when it is known, a partial match


@dataclass(frozen=True, slots=True)
class KeyMatches:
    """All that a key has."""

    runs: tuple[Owned, ...] = ()
    due: int = MAX_TIME

    def ids(self) -> set[int]:
        return {number for _, _, run in self.runs for number in run[1]}


class MatchStore:
    def __init__(self, key: pa.Schema, rows: pa.Schema) -> None:
        self._key, self._identity = key, [HASH, *key.names]
        self._rows = rows
        values = [f for f in rows if f.name not in key.names]
        place = [("$at", pa.int64()), ("$source", pa.int32()), ("$offset", pa.int64())]
        self._specs = (
            TableSpec(RUNS, key, _RUN),
            TableSpec(
                ROWS, pa.schema([*key, pa.field(_ID, pa.int64())]), pa.schema([*values, *place])
            ),
            TableSpec(DUE, key, pa.schema([]), timed=True),
        )

    def tables(self) -> tuple[TableSpec, ...]:
        return self._specs

    def due(self, step: EpochStep) -> pa.Table:
        """The keys for which time alone does something up to `after`."""
        table = step.tables[DUE]
        until = min(step.after, MAX_TIME - 1) + 1
        found = table.scan(MIN_TIME, until).select(self._identity)
        table.expire(until)
        _, first = key_numbers(found)
        return found.take(pa.array(first))

    def everyone(self, step: EpochStep, names: set[str] | None = None) -> pa.Table:
        """The keys that have partial matches: of all patterns, or of some."""
        found = step.tables[RUNS].scan()
        if names is not None:
            there = [bool(names & set(own)) for own in found["$pattern"].to_pylist()]
            found = found.filter(pa.array(there, pa.bool_()))
        return found.select(self._identity)

    def known(self, keys: pa.Table, step: EpochStep) -> tuple[pa.Table, Mask]:
        """The state of these keys, by column, and which of them have any."""
        return step.tables[RUNS].get(keys)

    def matches_of(self, found: pa.Table) -> list[KeyMatches]:
        columns = [found.column(f.name).to_pylist() for f in _RUN]
        return [_key_matches(*values) for values in zip(*columns, strict=True)]

    def save(self, keys: pa.Table, matches_of: Sequence[KeyMatches], step: EpochStep) -> None:
        """What each of these keys has now; those with nothing are forgotten."""
        some = np.array([bool(one.runs) for one in matches_of], np.bool_)
        step.tables[RUNS].delete(keys.filter(pa.array(~some)))
        living = [one for one in matches_of if one.runs]
        if living:
            rows = keys.filter(pa.array(some))
            for field, values in zip(_RUN, _columns(living), strict=True):
                rows = rows.append_column(field, pa.array(values, field.type))
            step.tables[RUNS].put(rows)

    def wake(self, keys: pa.Table, times: Sequence[int], step: EpochStep) -> None:
        step.tables[DUE].put(keys.append_column(TIME, pa.array(times, pa.int64())))

    def next(self, step: EpochStep) -> int:
        first = step.tables[DUE].first_time()
        return MAX_TIME if first is None else first

    # rows

    def add_rows(self, keys: pa.Table, ids: Sequence[int], rows: pa.Table, step: EpochStep) -> None:
        """Keep rows under their numbers; `keys` says whose each is."""
        put = keys.append_column(_ID, pa.array(ids, pa.int64()))
        for field in self._rows:
            if field.name not in self._key.names:
                put = put.append_column(field, rows.column(field.name))
        for own, hidden in _HIDDEN.items():
            put = put.append_column(own, rows.column(hidden))
        step.tables[ROWS].put(put)

    def forget_rows(self, keys: pa.Table, ids: Sequence[int], step: EpochStep) -> None:
        step.tables[ROWS].delete(keys.append_column(_ID, pa.array(ids, pa.int64())))

    def rows(self, keys: pa.Table, ids: Sequence[int], step: EpochStep) -> pa.Table:
        """The rows under these numbers, as they came, with their hidden columns."""
        found, _ = step.tables[ROWS].get(keys.append_column(_ID, pa.array(ids, pa.int64())))
        columns = {
            n: keys.column(n) if n in self._key.names else found.column(n) for n in self._rows.names
        }
        columns |= {hidden: found.column(own) for own, hidden in _HIDDEN.items()}
        return pa.table(columns).append_column(HASH, keys.column(HASH))

    def ids(self, rows: pa.Table) -> list[int]:
        """The numbers under which rows are stored."""
        return rows.column(_ID).to_pylist()  # type: ignore[no-any-return]

    def among(self, keys: pa.Table, others: pa.Table) -> np.ndarray:
        """For each of `others` its place among `keys`, -1 if it is not there; all distinct."""
        both = pa.concat_tables([keys.select(self._identity), others.select(self._identity)])
        number, first = key_numbers(both)
        place = np.full(len(first), -1, np.int64)
        place[number[: keys.num_rows]] = np.arange(keys.num_rows)
        return np.asarray(place[number[keys.num_rows :]])


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


def _columns(matches_of: Sequence[KeyMatches]) -> list[list[Any]]:
    owned: list[list[Any]] = [[[o[i] for o in one.runs] for one in matches_of] for i in range(2)]
    parts = [[[o[2][i] for o in one.runs] for one in matches_of] for i in range(5)]
    return [*owned, *parts, [one.due for one in matches_of]]


def times_of(rows: pa.Table) -> np.ndarray:
    return integers(rows.column(TIME))
