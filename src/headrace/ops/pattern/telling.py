"""From the matches of an epoch to rows: gathered once, then by column or by the user's function.

The rows of matches are this epoch's, or were kept; either way they are looked up for all matches
at once. A match on which the function or a column fails is a fault of its last row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.errors import StepError
from headrace.ops.contract import Fault, Step
from headrace.ops.pattern.machine import Machine, Run
from headrace.ops.pattern.match import Match
from headrace.ops.pattern.selection import PATTERN, Laid, Selection, kernel_of, whole_rows
from headrace.ops.pattern.store import Store
from headrace.ops.process.call import many
from headrace.rows import rows_of, table_of

Told = tuple[Machine, int, Run, int]  # by whom, number of the key, rows, time


@dataclass(frozen=True, slots=True)
class Gathered:
    """Matches, their rows, and when they were told."""

    laid: Laid
    told: Sequence[Told]
    rows: pa.Table  # with hidden columns
    ends: np.ndarray  # where the rows of each match end

    def fault(self, number: int, error: BaseException) -> Fault:
        last = self.rows.slice(int(self.ends[number]) - 1, 1)
        return Fault(last.select([n for n in last.column_names if n != HASH]), error)


class Teller:
    def __init__(self, selection: Selection, columns: pa.Schema, key: pa.Schema) -> None:
        self._selection, self._columns, self._key = selection, columns, key

    def gather(
        self,
        told: Sequence[Told],
        keys: pa.Table,
        fresh: pa.Table,
        base: int,
        store: Store,
        step: Step,
    ) -> Gathered:
        """`fresh` are the rows of this epoch, numbered from `base` on."""
        sizes = np.array([len(run[1]) for _, _, run, _ in told], np.int64)
        owner = np.repeat(np.arange(len(told)), sizes)
        ids = np.array([n for _, _, run, _ in told for n in run[1]], np.int64)
        number = np.array([key for _, key, _, _ in told], np.int64)[owner]
        old = np.flatnonzero(ids < base)
        names = [*self._columns.names, HASH, TIME, SOURCE, OFFSET]
        kept = store.rows(keys.take(pa.array(number[old])), ids[old].tolist(), step)
        pool = pa.concat_tables([fresh.select(names), kept.select(names)])
        at = ids - base
        at[old] = fresh.num_rows + np.arange(len(old))
        rows = pool.take(pa.array(at))
        called = np.array(
            [machine.automaton.places[p].name for machine, _, run, _ in told for p in run[2]],
            object,
        )
        whose = keys.take(pa.array([key for _, key, _, _ in told], pa.int64()))
        patterns = [machine.name for machine, _, _, _ in told]
        return Gathered(Laid(owner, called, rows, whose, patterns), told, rows, np.cumsum(sizes))

    def whole(self, found: Gathered) -> pa.Table:
        """Each match as a row, with hidden columns."""
        made = whole_rows(found.laid, self._selection.whole, self._columns)
        return self._hidden(made, found, np.arange(len(found.told)))

    def rows(self, found: Gathered, step: Step) -> pa.Table:
        """What is told of the matches."""
        if self._selection.function is not None:
            return self._called(found, step)
        made = whole_rows(found.laid, self._selection.whole, self._columns)
        of = np.arange(made.num_rows)
        if self._selection.columns is not None:
            texts = tuple((name, expr.sql()) for name, expr in self._selection.columns)
            made, bad = kernel_of(texts, self._selection.whole).run(made)
            for number, why in bad:
                step.faults.append(found.fault(number, StepError("HR-STEP-002", why)))
            of = np.delete(of, [number for number, _ in bad])
        return self._hidden(made.cast(self._selection.output), found, of)

    def _called(self, found: Gathered, step: Step) -> pa.Table:
        matches = self._matches(found)
        given, of, faults = self._call(matches, found, careful=False)
        try:
            made = table_of(given, self._selection.given)
        except ValueError:  # something does not fit: find out which, one match at a time
            given, of, faults = self._call(matches, found, careful=True)
            made = table_of(given, self._selection.given)
        step.faults += faults
        if self._selection.named:
            names = [matches[i].pattern for i in of]
            made = made.add_column(0, PATTERN, pa.array(names, pa.string()))
        made = made.select(self._selection.output.names).cast(self._selection.output)
        return self._hidden(made, found, np.array(of, np.int64))

    def _call(
        self, matches: list[Match], found: Gathered, careful: bool
    ) -> tuple[list[Any], list[int], list[Fault]]:
        """What the function gives for each match; where it raises, the match is set aside."""
        given: list[Any] = []
        of: list[int] = []
        faults = []
        assert self._selection.function is not None
        for i, match in enumerate(matches):
            try:
                rows = many(self._selection.function(match))
                if careful:
                    table_of(rows, self._selection.given)
            except Exception as error:
                faults.append(found.fault(i, error))
                continue
            given += rows
            of += [i] * len(rows)
        return given, of, faults

    def _matches(self, found: Gathered) -> list[Match]:
        rows = rows_of(found.rows.select(self._columns.names))
        keys = plain_keys(found.laid.keys, self._key)
        made, start = [], 0
        for i, (machine, _, _, _) in enumerate(found.told):
            stop = int(found.ends[i])
            mine = zip(found.laid.names[start:stop], rows[start:stop], strict=True)
            made.append(Match(machine.name, keys[i], machine.automaton.names, [*mine]))
            start = stop
        return made

    def _hidden(self, made: pa.Table, found: Gathered, of: np.ndarray) -> pa.Table:
        times = np.array([time for _, _, _, time in found.told], np.int64)[of]
        hashes = found.laid.keys.column(HASH).to_numpy()[of]
        made = made.append_column(TIME, pa.array(times))
        made = made.append_column(SOURCE, pa.array(np.full(len(of), -1, np.int32)))
        return made.append_column(OFFSET, pa.array(hashes.view(np.int64)))


def plain_keys(keys: pa.Table, key: pa.Schema) -> list[Any]:
    """Each key as users see it: a value, or a tuple where it has several columns."""
    if not len(key):
        return [()] * keys.num_rows
    rows = rows_of(keys.select(key.names))
    return [row[0] for row in rows] if len(key) == 1 else [tuple(row) for row in rows]
