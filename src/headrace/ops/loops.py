"""Loops: rows go back to where they came from, within a batch or with the next.

Over turns, rows go round within a batch until the loop ends. Over batches, what the body
returns waits in state and goes in with the next batch, committed as all state is; at the end of
the input it goes round until nothing waits, and rows that still do then are dead letters. If
the body fails, nothing changes: the new rows of the batch are dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, flat, integers
from headrace.at_rest import described
from headrace.chunk import HASH, visible
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import Hashes, hash_keys
from headrace.ops.agg.order import sorted_by
from headrace.ops.contract import EpochStep, Operator, Place, Spec
from headrace.ops.keys import in_order
from headrace.ops.stream.key_groups import place_in_group, same_values
from headrace.ops.stream.whole_batches import (
    as_table,
    faults_of_all,
    with_event_time,
    with_output_place,
)
from headrace.ops.tables import plain_view
from headrace.state.table import KeyedTable, TableSpec

SAME, EMPTY = "same", "empty"
Until = str | Callable[[pa.Table, pa.Table], bool] | None


class Loop:
    """The loop that the body is called by."""

    def __init__(self, rows: pa.Table, kept: MutableMapping[str, pa.Table]) -> None:
        self.rows = rows  # the new rows of this batch
        self.kept = kept  # Arrow tables by name; assign to store another one
        self.turn = 0  # how often the rows went round
        self.scratch: dict[str, Any] = {}  # for the body, forgotten after the batch
        self.emitted: list[Any] = []

    def emit(self, rows: Any) -> None:
        """Give rows to the output."""
        self.emitted.append(rows)


class Endless(Exception):
    """A loop that did not come to its end."""


def is_over(until: Until, before: pa.Table, after: pa.Table) -> bool:
    """Whether to stop after a turn; with nothing left to go round, always."""
    if not after.num_rows:
        return True
    if until == SAME:
        return bool(after.equals(before))
    return bool(until(before, after)) if callable(until) else False


BACK = "$back"


@dataclass(frozen=True, eq=False)
class Iterate(Spec):
    body: Callable[[pa.Table, Loop], Any]
    feed: pa.Schema | None  # what goes round, if it is not rows like the input's
    emits: bool  # its output is what the body emits, not what is left at the end
    keep: tuple[tuple[str, pa.Schema], ...]
    times: int | None
    until: Until
    most: int
    over_batches: bool
    pause: int | None  # how long what was fed back waits for new rows; None: as long as it takes
    time: str | None
    timed: bool
    keyed: bool

    kind = "iterate"
    widens_keys = True

    @property
    def endless(self) -> bool:
        return self.keyed and bool(self.keep)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.body, self.until) if callable(self.until) else (self.body,)

    def __str__(self) -> str:
        if self.over_batches:
            return "rows go back into the next batch"
        words = [f"{self.times} times"] if self.times else []
        until = "a condition" if callable(self.until) else self.until
        return " or ".join([*words, *([f"until {until}"] if until else [])])

    @property
    def stores_input(self) -> bool:
        """Whether rows like the input's wait in its state."""
        return self.over_batches and self.feed is None

    @property
    def bound(self) -> str:
        return "unbounded=True; otherwise leave keep= out."

    def shape(self) -> dict[str, Any]:
        stored = {name: described(schema) for name, schema in self.keep}
        back = described(self.feed) if self.over_batches and self.feed is not None else None
        return {"kept": stored, "back": back, "over_batches": self.over_batches}

    @property
    def emits_time(self) -> str | None:
        return self.time

    def operator(self, place: Place) -> Operator:
        return _LoopOperator(self, list(place.key), place.input, place.output)


class _LoopOperator(Operator):
    def __init__(self, spec: Iterate, keys: list[str], input: pa.Schema, output: pa.Schema) -> None:
        self._spec, self._keys, self._input, self._output = spec, keys, input, output
        self._feed = input if spec.feed is None else spec.feed
        self._schemas = dict(spec.keep)
        if spec.over_batches:
            self._schemas[BACK] = self._feed

    def tables(self) -> tuple[TableSpec, ...]:
        return tuple(table_of(name, schema) for name, schema in self._schemas.items())

    def side_views(self) -> Mapping[str, Sequence[str]]:
        return {name: self._keys for name, _ in self._spec.keep}

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        return plain_view(tables[name], MIN_TIME, MAX_TIME)

    def step(self, step: EpochStep) -> None:
        arrived, over = step.arrived, self._spec.over_batches
        if arrived is not None:
            rows = visible(in_order(arrived)).select(self._input.names).cast(self._input)
        else:
            rows = self._input.empty_table()
        ended, failed = step.after >= MAX_TIME, None
        goes_on = over and (ended or self._spec.pause is not None)  # even without new rows
        if rows.num_rows or (goes_on and self._rows_wait(step)):
            stored = LoopTables(self._schemas, self._keys, self._hashes(arrived, step), step.tables)
            try:
                self._run(Loop(rows, stored), stored, arrived, step)
            except Exception as error:
                failed = error
                step.faults.extend(faults_of_all(arrived, error))
        if over and ended:
            self._give_up(failed, step)
        elif over and self._spec.pause is not None and self._rows_wait(step):
            step.wake = step.clock + self._spec.pause

    def _give_up(self, failed: Exception | None, step: EpochStep) -> None:
        """No batch will come: rows that still wait are dead letters."""
        table = step.tables[BACK]
        left = table.scan()
        why = failed or Endless(
            f"the input has ended, and rows still went round after {self._spec.most} turns"
        )
        step.faults.extend(faults_of_all(left.select(self._feed.names), why, port=-1))
        table.delete(left.select(IDENTITY))

    def _rows_wait(self, step: EpochStep) -> bool:
        return bool(step.tables[BACK].rows_held) and bool(step.tables[BACK].scan().num_rows)

    def _hashes(self, arrived: pa.Table | None, step: EpochStep) -> Hashes:
        """The hashes of the keys that this batch is about."""
        here = [] if arrived is None else [flat(arrived.column(HASH)).to_numpy()]
        if self._spec.over_batches and self._keys:
            here.append(flat(step.tables[BACK].scan().column(HASH)).to_numpy())
        if not self._keys:
            return np.zeros(1, np.uint64)
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *here]))

    def _run(
        self, loop: Loop, tables: LoopTables, arrived: pa.Table | None, step: EpochStep
    ) -> None:
        if self._spec.over_batches:
            left = self._once(loop, tables, step)
        else:
            first = loop.rows if self._spec.feed is None else self._feed.empty_table()
            left = self._round(loop, first)
        returned = [as_table(t, self._output) for t in loop.emitted] if self._spec.emits else [left]
        output = pa.concat_tables([self._output.empty_table(), *returned])
        if self._spec.timed:
            output = with_event_time(output, arrived, self._spec.time, step)
        tables.write()
        if output.num_rows:
            step.out.append(with_output_place(output))

    def _round(self, loop: Loop, rows: pa.Table) -> pa.Table:
        """Rows go round until the loop is over; what is left then."""
        for turn in range(self._spec.times or self._spec.most):
            loop.turn = turn
            before, rows = rows, as_table(self._spec.body(rows, loop), self._feed)
            if is_over(self._spec.until, before, rows):
                return rows
        if self._spec.times is None:
            raise Endless(f"the loop was not over after {self._spec.most} turns")
        return rows

    def _once(self, loop: Loop, tables: LoopTables, step: EpochStep) -> pa.Table:
        """One turn a batch; at the end of input, as many as there are rows to go round."""
        back, returned = tables[BACK], list[pa.Table]()
        rows = back
        if self._spec.feed is None:  # columns may have been `not null` when rows began to wait
            rows = pa.concat_tables([back.cast(loop.rows.schema), loop.rows])
        for turn in range(self._spec.most if step.after >= MAX_TIME else 1):
            loop.turn = turn
            rows = as_table(self._spec.body(rows, loop), self._feed)
            returned.append(rows)
            loop.rows = self._input.empty_table()
            if not rows.num_rows:
                break
        tables[BACK] = rows
        return pa.concat_tables(returned)


# Tables that a loop stores from batch to batch: loaded on access, written where changed.
#
# A table is stored by the hash of its key and the place of a row among those of one hash; without a
# key all of it has one hash. Only the rows of the keys that a batch touches are loaded. Two keys
# that share a hash are loaded and stored together, which changes nothing for either.


_PLACE = "$place"
IDENTITY = [HASH, _PLACE]


def table_of(name: str, schema: pa.Schema) -> TableSpec:
    """How a table named `name` is stored."""
    return TableSpec(name, pa.schema([(_PLACE, pa.int64())]), schema)


class LoopTables(MutableMapping[str, pa.Table]):
    """The tables of one batch, as the body sees them."""

    def __init__(
        self,
        schemas: Mapping[str, pa.Schema],
        keys: Sequence[str],
        hashes: Hashes,
        tables: Mapping[str, KeyedTable],
    ) -> None:
        self._schemas, self._keys, self._hashes = schemas, list(keys), hashes
        self._tables = tables
        self._loaded: dict[str, pa.Table] = {}
        self._current: dict[str, pa.Table] = {}

    def __getitem__(self, name: str) -> pa.Table:
        if name not in self._current:
            self._current[name] = self._stored(name).select(self._schemas[name].names)
        return self._current[name]

    def __setitem__(self, name: str, rows: pa.Table) -> None:
        if name not in self._schemas:
            raise KeyError(f"the loop stores no {name!r}; it stores {', '.join(self._schemas)}")
        self._current[name] = as_table(rows, self._schemas[name])

    def __delitem__(self, name: str) -> None:
        self[name] = self._schemas[name].empty_table()

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def write(self) -> None:
        """Put what is new or changed, delete what is no longer there."""
        arranged = {name: self._placed(rows) for name, rows in self._current.items()}
        for name, rows in arranged.items():
            self._write(name, rows)

    def _stored(self, name: str) -> pa.Table:
        if name not in self._loaded:
            rows = self._tables[name].match(self._hashes)
            hashes, places = flat(rows[HASH]).to_numpy(), integers(rows[_PLACE])
            self._loaded[name] = rows.take(pa.array(np.lexsort((places, hashes))))
        return self._loaded[name]

    def _write(self, name: str, rows: pa.Table) -> None:
        stored = self._stored(name)
        at, there = _positions(rows, stored)
        unchanged = there.copy()
        unchanged[there] = _equal(rows.filter(pa.array(there)), stored.take(pa.array(at[there])))
        self._tables[name].put(rows.filter(pa.array(~unchanged)))
        dropped = np.ones(stored.num_rows, np.bool_)
        dropped[at[there]] = False
        self._tables[name].delete(stored.select(IDENTITY).filter(pa.array(dropped)))

    def _placed(self, rows: pa.Table) -> pa.Table:
        """The rows with hash and place, in the order of the hash."""
        hashes = hash_keys([rows.column(k) for k in self._keys], rows.num_rows)
        foreign = ~np.isin(hashes, self._hashes)
        if foreign.any():
            raise ValueError(
                "a row that is stored or fed back has a key that no row of this batch has; "
                "without key_by it may have any"
            )
        order = sorted_by([hashes.view(np.int64)])
        places = place_in_group(hashes[order].view(np.int64))
        arranged = rows.take(pa.array(order)).append_column(HASH, pa.array(hashes[order]))
        return arranged.append_column(_PLACE, pa.array(places))


def _positions(rows: pa.Table, stored: pa.Table) -> tuple[Index, Mask]:
    """Where in `stored` each row's hash and place are, and whether they are there at all."""
    hashes = [flat(t[HASH]).to_numpy() for t in (rows, stored)]
    distinct = np.unique(np.concatenate(hashes))
    targets, places = (
        (np.searchsorted(distinct, h) << 32) + integers(t[_PLACE])
        for h, t in zip(hashes, (rows, stored), strict=True)
    )
    if not len(places):
        return np.zeros(len(targets), np.int64), np.zeros(len(targets), np.bool_)
    at = np.searchsorted(places, targets)
    matches = np.take(places, at, mode="clip") == targets
    return at, matches & (at < len(places))


def _equal(left: pa.Table, right: pa.Table) -> Mask:
    """Row by row, whether all columns agree; lists and records count as changed."""
    alike = np.ones(left.num_rows, np.bool_)
    for name in left.column_names:
        if name in (HASH, _PLACE):
            continue
        if pa.types.is_nested(left.column(name).type):
            return np.zeros(left.num_rows, np.bool_)
        alike &= same_values(flat(left.column(name)), flat(right.column(name)))
    return alike
