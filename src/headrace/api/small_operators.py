"""Fewer rows, or the best, or rows together: the small operators, with a key and without.

On a stream without a key all rows count as one key, and are brought together in one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import pyarrow as pa

from headrace.api.handles import JoinT, Results, StreamT, TableT, TimedT
from headrace.api.joins import Joins
from headrace.api.lookups import Lookups
from headrace.api.loops import Loops
from headrace.api.step_builder import StepBuilder, names_of
from headrace.clock import Duration
from headrace.errors import PlanError
from headrace.ops.stream.batch import Batch, packed_schema
from headrace.ops.stream.best_rows import CHANGE, RANK, Best, Top
from headrace.ops.stream.changes import ChangesOnly
from headrace.ops.stream.chunk_steps import Share
from headrace.ops.stream.deduplicate import Deduplicate
from headrace.ops.stream.throttle import DROPPED, Throttle
from headrace.ops.tables import column_types
from headrace.plan.columns import clashes
from headrace.plan.draft import UNKNOWN


class SmallOperators(Results[StreamT, TimedT, JoinT, TableT]):
    """What a stream can do beyond expressions, functions and windows."""

    def deduplicate(
        self,
        *columns: str,
        within: Duration | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Leave out a row if one of the same key and columns went on `within` the time of it.

        Without key and columns, whole rows are compared. Without `within` it is one that ever
        went on, and all that was seen is kept: pass unbounded=True. Rows before the watermark
        are `.late`.
        """
        step = self._step(name, was)
        step.known(columns)
        keys = tuple(dict.fromkeys([*self._keys, *columns])) or tuple(step.schema.names)
        what = Deduplicate(None if within is None else step.span(within, "deduplicate(within=)"))
        return self._timed(step.stateful(what, (keys,), step.schema, unbounded=unbounded))

    def changes_only(
        self,
        *columns: str,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Leave out a row if these columns are as in the row of its key before.

        Without columns, all that are not part of the key count.
        """
        step = self._step(name, was)
        step.known(columns)
        watched = columns or [n for n in step.schema.names if n not in self._keys]
        for column in watched:
            step.comparable(column, "changes_only compares")
        if not watched and len(step.schema):
            step.report(
                PlanError(
                    "HR-STREAM-004",
                    "changes_only has nothing to compare: every column is part of the key",
                    'Name a column: changes_only("status").',
                )
            )
        what = ChangesOnly.of(watched, step.schema)
        sure = unbounded or not self._keys
        return self._timed(step.stateful(what, (self._keys,), step.schema, unbounded=sure))

    def throttle(
        self,
        rows: int,
        per: Duration | None = None,
        *,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """At most so many rows of a key in each `per` of event time.

        The rest is left out, or goes on as `.side("dropped")`.
        """
        step = self._step(name, was)
        if per is None:
            step.report(
                PlanError(
                    "HR-STREAM-009",
                    f"throttle does not say in which time {rows!r} rows may go on",
                    'Say per: throttle(10, per="1s").',
                )
            )
        length = 1 if per is None else step.span(per, "throttle(per=)")
        what = Throttle(step.count(rows, "throttle"), length)
        sides = {DROPPED: step.schema}
        return self._timed(step.stateful(what, (self._keys,), step.schema, sides=sides))

    def top(
        self,
        rows: int,
        *,
        by: str,
        largest: bool = True,
        each: str | Sequence[str] = (),
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """The best rows of each key so far, as changes: columns `rank` and `change`.

        After each batch, "-" tells what has left a rank and "+" what has taken it. `each` names
        columns that say what a row is about: a newer row about it replaces the older.
        """
        step, about = self._step(name, was), names_of(each)
        step.known(about)
        check_ranked(step, by, [RANK, CHANGE])
        what = Top.of(step.count(rows, "top"), by, largest, about, step.schema)
        schema = pa.schema([*step.schema, RANK, CHANGE]) if len(step.schema) else UNKNOWN
        sure = unbounded or not self._keys
        return self._timed(step.stateful(what, (self._keys,), schema, unbounded=sure))

    def batch(
        self,
        rows: int,
        within: Duration | None = None,
        *,
        time: str | None = None,
        into: str = "rows",
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Pack rows of a key into lists of so many, or of those that came `within` a time.

        The result has the key and the column `into`, a list of records. `time` is "event" or
        "processing"; without `within` a list that is not full waits until the input ends.
        """
        step, timed = self._step(name, was), self._edge.node.timed
        if time not in (None, "event", "processing"):
            step.report(
                PlanError(
                    "HR-STREAM-006",
                    f"batch(time=) is {time!r}",
                    'Write time="event" or time="processing".',
                )
            )
        by_clock = time == "processing" or (time is None and not timed)
        step.report(*clashes(self._keys, [pa.field(into, pa.null())], "part of the key"))
        length = None if within is None else step.span(within, "batch(within=)")
        what = Batch.of(step.count(rows, "batch"), length, by_clock, into, timed, step.schema)
        known = step.key_fields(self._keys) is not None and len(step.schema)
        schema = packed_schema(self._keys, into, step.schema) if known else UNKNOWN
        sure = unbounded or not self._keys
        return self._timed(step.stateful(what, (self._keys,), schema, unbounded=sure))

    @overload
    def sample(
        self, size: float, *, seed: int = 0, name: str | None = None, was: str | None = None
    ) -> StreamT: ...

    @overload
    def sample(
        self,
        size: int,
        per: Duration,
        *,
        seed: int = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT: ...

    def sample(
        self,
        size: float,
        per: Duration | None = None,
        *,
        seed: int = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT | TimedT:
        """A share of the rows (`sample(0.01)`), or so many of each key (`sample(10, per="1m")`).

        Which rows are taken depends on where they came from and on `seed`, on nothing else.
        """
        step = self._step(name, was)
        if per is not None:
            count, types = step.count(size, "sample"), column_types(step.schema)
            period = step.span(per, "sample(per=)")
            what = Best(count, None, period=period, seed=seed, types=types)
            return self._timed(step.stateful(what, (self._keys,), step.schema))
        fair = isinstance(size, float | int) and not isinstance(size, bool) and 0 <= size <= 1
        if not fair:
            step.report(
                PlanError(
                    "HR-STREAM-005",
                    f"sample takes {size!r} of the rows",
                    'Give a share from 0 to 1, or so many rows of a while: sample(10, per="1m").',
                )
            )
        return self._stream(step.chunks(Share(float(size) if fair else 0.0, seed), step.schema))


def check_ranked(step: StepBuilder, by: str, added: Sequence[pa.Field]) -> None:
    """Report a column that rows cannot be ranked by, and columns that are there already."""
    step.known([by])
    step.comparable(by, "top goes by")
    step.report(*clashes(step.schema.names, added, "a column of the rows"))


class SharedMethods(
    SmallOperators[StreamT, TimedT, JoinT, TableT],
    Joins[StreamT, TimedT, JoinT, TableT],
    Lookups[StreamT, TimedT, JoinT, TableT],
    Loops[StreamT, TimedT, JoinT, TableT],
):
    """Methods of streams with a key and without."""
