"""Loops as an operator: the user's body over Arrow tables, again and again.

Over turns, rows go round within a batch until the loop is over. Over batches, what the body
gives back waits in state and goes in with the next batch, committed as all state is; at the end
of the input it goes round until nothing waits, and what still does then is dead letters. A body
that fails changes nothing: the new rows of the batch are dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, visible
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.hashing import Hashes
from headrace.ops.agg.groups import flat
from headrace.ops.contract import Operator, Step
from headrace.ops.grouping import in_order
from headrace.ops.loop.kept import IDENTITY, KeptTables, table_of
from headrace.ops.loop.turns import Endless, Loop, Until, is_over
from headrace.ops.stream.base import Basic, Plain, described
from headrace.ops.stream.whole import all_failed, as_table, placed, timed
from headrace.ops.view import plain_view
from headrace.state.table import KeyedTable, TableSpec

BACK = "$back"


@dataclass(frozen=True, eq=False)
class Iterate(Basic):
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

    @property
    def endless(self) -> bool:
        return self.keyed and bool(self.keep)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.body, self.until) if callable(self.until) else (self.body,)

    def __str__(self) -> str:
        if self.over_batches:
            return "rows go back into the next batch"
        said = [f"{self.times} times"] if self.times else []
        until = "a condition" if callable(self.until) else self.until
        return " or ".join([*said, *([f"until {until}"] if until else [])])

    @property
    def stores_input(self) -> bool:
        """Whether rows like the input's wait in its state."""
        return self.over_batches and self.feed is None

    def shape(self) -> dict[str, Any]:
        kept = {name: described(schema) for name, schema in self.keep}
        back = described(self.feed) if self.over_batches and self.feed is not None else None
        return {"kept": kept, "back": back, "over_batches": self.over_batches}

    def operator(
        self, keys: Sequence[Sequence[str]], inputs: Sequence[pa.Schema], output: pa.Schema
    ) -> Operator:
        return _Looping(self, list(keys[0]), inputs[0], output)


class _Looping(Plain):
    def __init__(self, what: Iterate, keys: list[str], input: pa.Schema, output: pa.Schema) -> None:
        self._what, self._keys, self._input, self._output = what, keys, input, output
        self._feed = input if what.feed is None else what.feed
        self._schemas = dict(what.keep)
        if what.over_batches:
            self._schemas[BACK] = self._feed

    def tables(self) -> tuple[TableSpec, ...]:
        return tuple(table_of(name, schema) for name, schema in self._schemas.items())

    def beside(self) -> Mapping[str, Sequence[str]]:
        return {name: self._keys for name, _ in self._what.keep}

    def beside_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        return plain_view(tables[name], MIN_TIME, MAX_TIME)

    def step(self, step: Step) -> None:
        arrived, over = step.inputs[0], self._what.over_batches
        if arrived is not None and arrived.num_rows:
            rows = visible(in_order(arrived)).select(self._input.names).cast(self._input)
        else:
            rows = self._input.empty_table()
        ended, failed = step.after >= MAX_TIME, None
        goes_on = over and (ended or self._what.pause is not None)  # even without new rows
        if rows.num_rows or (goes_on and self._rows_wait(step)):
            kept = KeptTables(self._schemas, self._keys, self._hashes(arrived, step), step.tables)
            try:
                self._run(Loop(rows, kept), kept, arrived, step)
            except Exception as error:
                failed = error
                step.faults.extend(all_failed(arrived, error))
        if over and ended:
            self._give_up(failed, step)
        elif over and self._what.pause is not None and self._rows_wait(step):
            step.wake = step.clock + self._what.pause

    def _give_up(self, failed: Exception | None, step: Step) -> None:
        """No batch will come: rows that still wait are dead letters."""
        table = step.tables[BACK]
        left = table.scan()
        why = failed or Endless(
            f"the input has ended, and rows still went round after {self._what.most} turns"
        )
        step.faults.extend(all_failed(left.select(self._feed.names), why))
        table.delete(left.select(IDENTITY))

    def _rows_wait(self, step: Step) -> bool:
        return bool(step.tables[BACK].rows_held) and bool(step.tables[BACK].scan().num_rows)

    def _hashes(self, arrived: pa.Table | None, step: Step) -> Hashes:
        """The hashes of the keys that this batch is about."""
        here = [] if arrived is None else [flat(arrived.column(HASH)).to_numpy()]
        if self._what.over_batches and self._keys:
            here.append(flat(step.tables[BACK].scan().column(HASH)).to_numpy())
        if not self._keys:
            return np.zeros(1, np.uint64)
        return np.unique(np.concatenate([np.zeros(0, np.uint64), *here]))

    def _run(self, loop: Loop, kept: KeptTables, arrived: pa.Table | None, step: Step) -> None:
        if self._what.over_batches:
            left = self._once(loop, kept, step)
        else:
            first = loop.rows if self._what.feed is None else self._feed.empty_table()
            left = self._round(loop, first)
        given = [as_table(t, self._output) for t in loop.emitted] if self._what.emits else [left]
        found = pa.concat_tables([self._output.empty_table(), *given])
        if self._what.timed:
            found = timed(found, arrived, self._what.time, step)
        kept.write()
        if found.num_rows:
            step.out.append(placed(found))

    def _round(self, loop: Loop, rows: pa.Table) -> pa.Table:
        """Rows go round until the loop is over; what is left then."""
        for turn in range(self._what.times or self._what.most):
            loop.turn = turn
            before, rows = rows, as_table(self._what.body(rows, loop), self._feed)
            if is_over(self._what.until, before, rows):
                return rows
        if self._what.times is None:
            raise Endless(f"the loop was not over after {self._what.most} turns")
        return rows

    def _once(self, loop: Loop, kept: KeptTables, step: Step) -> pa.Table:
        """One turn a batch; at the end of input, as many as there are rows to go round."""
        back, given = kept[BACK], list[pa.Table]()
        rows = back
        if self._what.feed is None:  # columns may have been `not null` when rows began to wait
            rows = pa.concat_tables([back.cast(loop.rows.schema), loop.rows])
        for turn in range(self._what.most if step.after >= MAX_TIME else 1):
            loop.turn = turn
            rows = as_table(self._what.body(rows, loop), self._feed)
            given.append(rows)
            loop.rows = self._input.empty_table()
            if not rows.num_rows:
                break
        kept[BACK] = rows
        return pa.concat_tables(given)
