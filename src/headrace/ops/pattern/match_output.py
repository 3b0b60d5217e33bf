"""From the matches of an epoch to rows: gathered once, then by column or by the user's function.

The rows of matches are this epoch's, or were stored; either way they are looked up for all
matches at once. If the function or a column fails on a match, its last row is a dead letter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.errors import StepError
from headrace.isolate import one_by_one
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.keys import key_values
from headrace.ops.pattern.machine import Machine, Run
from headrace.ops.pattern.matches import PATTERN, Match, MatchRows, Selection, kernel_of, whole_rows
from headrace.ops.pattern.partial_matches import MatchStore
from headrace.rows import as_rows, rows_of, table_of

EmittedMatch = tuple[Machine, int, Run, int]  # by whom, number of the key, rows, time


@dataclass(frozen=True, slots=True)
class GatheredMatches:
    """Matches, their rows, and when they were emitted."""

    rows_of_matches: MatchRows
    emitted: Sequence[EmittedMatch]
    rows: pa.Table  # with hidden columns
    ends: np.ndarray  # where the rows of each match end

    def fault(self, number: int, error: BaseException) -> Fault:
        last = self.rows.slice(int(self.ends[number]) - 1, 1)
        return Fault(last.select([n for n in last.column_names if n != HASH]), error)


class MatchOutput:
    def __init__(self, selection: Selection, columns: pa.Schema, key: pa.Schema) -> None:
        self._selection, self._columns, self._key = selection, columns, key

    def gather(
        self,
        emitted: Sequence[EmittedMatch],
        keys: pa.Table,
        fresh: pa.Table,
        base: int,
        store: MatchStore,
        step: EpochStep,
    ) -> GatheredMatches:
        """`fresh` are the rows of this epoch, numbered from `base` on."""
        sizes = np.array([len(run[1]) for _, _, run, _ in emitted], np.int64)
        owner = np.repeat(np.arange(len(emitted)), sizes)
        ids = np.array([n for _, _, run, _ in emitted for n in run[1]], np.int64)
        key_ids = np.array([key for _, key, _, _ in emitted], np.int64)[owner]
        old = np.flatnonzero(ids < base)
        column_names = [*self._columns.names, HASH, TIME, SOURCE, OFFSET]
        stored = store.rows(keys.take(pa.array(key_ids[old])), ids[old].tolist(), step)
        pool = pa.concat_tables([fresh.select(column_names), stored.select(column_names)])
        at = ids - base
        at[old] = fresh.num_rows + np.arange(len(old))
        rows = pool.take(pa.array(at))
        names = np.array(
            [machine.automaton.states[p].name for machine, _, run, _ in emitted for p in run[2]],
            object,
        )
        match_keys = keys.take(pa.array([key for _, key, _, _ in emitted], pa.int64()))
        patterns = [machine.name for machine, _, _, _ in emitted]
        return GatheredMatches(
            MatchRows(owner, names, rows, match_keys, patterns), emitted, rows, np.cumsum(sizes)
        )

    def whole(self, matches: GatheredMatches) -> pa.Table:
        """Each match as a row, with hidden columns."""
        rows = whole_rows(matches.rows_of_matches, self._selection.whole, self._columns)
        return self._hidden(rows, matches, np.arange(len(matches.emitted)))

    def rows(self, matches: GatheredMatches, step: EpochStep) -> pa.Table:
        """What is emitted of the matches."""
        if self._selection.function is not None:
            return self._called(matches, step)
        rows = whole_rows(matches.rows_of_matches, self._selection.whole, self._columns)
        of = np.arange(rows.num_rows)
        if self._selection.columns is not None:
            texts = tuple((name, expr.sql()) for name, expr in self._selection.columns)
            rows, bad = kernel_of(texts, self._selection.whole).run(rows)
            for number, why in bad:
                step.faults.append(matches.fault(number, StepError("HR-STEP-002", why)))
            of = np.delete(of, [number for number, _ in bad])
        return self._hidden(rows.cast(self._selection.output), matches, of)

    def _called(self, gathered: GatheredMatches, step: EpochStep) -> pa.Table:
        matches = self._matches(gathered)
        returned, of, faults = self._call(matches, gathered, careful=False)
        try:
            rows = table_of(returned, self._selection.function_schema)
        except ValueError:  # something does not fit: find out which, one match at a time
            returned, of, faults = self._call(matches, gathered, careful=True)
            rows = table_of(returned, self._selection.function_schema)
        step.faults += faults
        if self._selection.named:
            names = [matches[i].pattern for i in of]
            rows = rows.add_column(0, PATTERN, pa.array(names, pa.string()))
        rows = rows.select(self._selection.output.names).cast(self._selection.output)
        return self._hidden(rows, gathered, np.array(of, np.int64))

    def _call(
        self, matches: list[Match], gathered: GatheredMatches, careful: bool
    ) -> tuple[list[Any], list[int], list[Fault]]:
        """What the function returns for each match; where it raises, the match is a dead letter."""
        returned: list[Any] = []
        of: list[int] = []
        faults: list[Fault] = []
        function = self._selection.function
        assert function is not None

        def call(match: Match) -> list[Any]:
            rows = as_rows(function(match))
            if careful:
                table_of(rows, self._selection.function_schema)
            return rows

        def failed(number: int, error: Exception) -> None:
            faults.append(gathered.fault(number, error))

        for number, rows in one_by_one(matches, call, failed):
            returned += rows
            of += [number] * len(rows)
        return returned, of, faults

    def _matches(self, gathered: GatheredMatches) -> list[Match]:
        rows = rows_of(gathered.rows.select(self._columns.names))
        keys = key_values(gathered.rows_of_matches.keys, self._key.names)
        matches, start = [], 0
        for i, (machine, _, _, _) in enumerate(gathered.emitted):
            stop = int(gathered.ends[i])
            own = zip(gathered.rows_of_matches.names[start:stop], rows[start:stop], strict=True)
            matches.append(Match(machine.name, keys[i], machine.automaton.names, [*own]))
            start = stop
        return matches

    def _hidden(self, rows: pa.Table, matches: GatheredMatches, of: np.ndarray) -> pa.Table:
        times = np.array([time for _, _, _, time in matches.emitted], np.int64)[of]
        hashes = matches.rows_of_matches.keys.column(HASH).to_numpy()[of]
        rows = rows.append_column(TIME, pa.array(times))
        rows = rows.append_column(SOURCE, pa.array(np.full(len(of), -1, np.int32)))
        return rows.append_column(OFFSET, pa.array(hashes.view(np.int64)))
