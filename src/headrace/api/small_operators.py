"""The small operators: fewer rows, the best ones, rows together, rows split into branches.

On a stream without a key all rows count as one key, and are brought together in one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import pyarrow as pa

from headrace.api.graph import EdgeStream, edges_of
from headrace.api.handles import (
    JoinT,
    Results,
    StepBuilder,
    StreamT,
    TableT,
    TimedT,
    flat,
    names_of,
    not_in_order,
)
from headrace.api.joins import Joins
from headrace.api.learning import Learning
from headrace.api.looking import Looking
from headrace.api.lookups import Lookups
from headrace.api.loops import Loops
from headrace.api.ranking import from_input, leaves_all_changes, running_top, suppressed
from headrace.clock import Duration
from headrace.errors import PlanError
from headrace.expr import col
from headrace.ops.join.sides import GONE
from headrace.ops.stream.batch import Batch, packed_schema
from headrace.ops.stream.best_rows import Best
from headrace.ops.stream.changes import ChangesOnly
from headrace.ops.stream.chunk_steps import Explode, Share, is_array
from headrace.ops.stream.deduplicate import Deduplicate
from headrace.ops.stream.first_seen import FirstSeen, check_filter
from headrace.ops.stream.limit import Limit
from headrace.ops.stream.throttle import DROPPED, Throttle
from headrace.ops.tables import column_types
from headrace.ops.window.calendar import Calendar
from headrace.plan.columns import clashes
from headrace.plan.draft import UNKNOWN
from headrace.plan.lineage import unordered_results
from headrace.schema import ddl_type


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
        """Drop a row if one of the same key and columns was emitted `within` that time of it.

        Without key and columns, whole rows are compared. Without `within` it is one that was
        ever emitted, and all that was seen is stored: pass unbounded=True. Rows before the
        watermark are `.late`.
        """
        step, columns = self._step(name, was), tuple(flat(columns))
        step.require_columns(columns)
        if not (columns and from_input(step.edge)):
            leaves_all_changes(step, "deduplicate")
        keys = tuple(dict.fromkeys([*self._keys, *columns])) or tuple(step.schema.names)
        what = Deduplicate(None if within is None else step.span(within, "deduplicate(within=)"))
        return self._timed(step.stateful(what, (keys,), step.schema, unbounded=unbounded))

    def first_seen(
        self,
        *columns: str,
        per: Any,
        expected: int,
        error: float = 0.01,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """The first row of each key and columns in each period; approximate, in little memory.

        A row is never passed on twice in a period; a new one is dropped with a chance of at most
        `error`. State is a Bloom filter for `expected` different keys in a period, whose size
        `explain` says; if more come it grows, and the error holds. Periods are as long as `per`,
        or those of `hr.calendar("month")`. Rows of a period that is over are `.late`.
        """
        step, columns = self._step(name, was), tuple(flat(columns))
        step.require_columns(columns)
        leaves_all_changes(step, "first_seen")
        keys = tuple(dict.fromkeys([*self._keys, *columns])) or tuple(step.schema.names)
        length = per if isinstance(per, Calendar) else step.span(per, "first_seen(per=)")
        with self._draft.attempt(step.site):
            check_filter(error, expected)
            what = FirstSeen(length, float(error), expected)
            return self._timed(step.stateful(what, (keys,), step.schema))
        return self._timed(step.stateful(FirstSeen(length, 0.5, 1), (keys,), step.schema))

    def changes_only(
        self,
        *columns: str,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Drop a row if these columns are as in the previous row of its key.

        Without columns, all that are not part of the key count.
        """
        step, columns = self._step(name, was), tuple(flat(columns))
        step.require_columns(columns)
        leaves_all_changes(step, "changes_only")
        compared = columns or [n for n in step.schema.names if n not in self._keys]
        for column in compared:
            step.comparable(column, "changes_only compares")
        if not compared and len(step.schema):
            step.report(
                PlanError(
                    "HR-STREAM-004",
                    "changes_only has nothing to compare: every column is part of the key",
                    'Name a column: changes_only("status").',
                )
            )
        what = ChangesOnly.of(compared, step.schema)
        accepted = unbounded or not self._keys
        return self._timed(step.stateful(what, (self._keys,), step.schema, unbounded=accepted))

    def throttle(
        self,
        rows: int,
        per: Duration | None = None,
        *,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """At most so many rows of a key in each `per` of event time.

        The other rows are dropped; `.side("dropped")` emits them.
        """
        step = self._step(name, was)
        leaves_all_changes(step, "throttle")
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

    def limit(
        self,
        rows: int,
        *,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """The first so many rows of the stream, or of each key, and no more ever.

        The count is state: a restart does not begin anew. On a stream with a key it is stored for
        every key: pass unbounded=True. The job goes on; the other rows are dropped.
        """
        step = self._step(name, was)
        leaves_all_changes(step, "limit")
        what, accepted = Limit(step.count(rows, "limit")), unbounded or not self._keys
        return self._stream(step.stateful(what, (self._keys,), step.schema, unbounded=accepted))

    def top(
        self,
        rows: int,
        *,
        by: str,
        largest: bool = True,
        each: str | Sequence[str] = (),
        delete: Any = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """The best rows of each key so far, as changes: columns `rank` and `change`.

        After each batch, "-" is a row that has left a rank and "+" one that has taken it. `each`
        names columns that say what a row is about: a newer row about it replaces the older, be it
        better or worse, and a row for which `delete` is true ends it; others then come up.
        """
        step, subject, edge = self._step(), names_of(each), self._edge
        if delete is not None and not subject:
            hint = 'Say what a row is about: top(10, by="score", each="player", delete=...).'
            step.report(PlanError("HR-STREAM-015", "top(delete=) does not say what ends", hint))
        elif delete is not None:
            condition = step.condition(delete, "top(delete=)")
            columns: dict[str, Any] = {n: col(n) for n in step.schema.names}
            if condition is not None:
                edge = step.columns("delete", {**columns, GONE: condition})
        chosen = (rows, by, largest, subject)
        accepted = unbounded or not self._keys
        after = StepBuilder(self._draft, edge, name, was)
        return self._timed(running_top(after, self._keys, chosen, accepted))

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
        resolved = step.key_fields(self._keys) is not None and len(step.schema)
        schema = packed_schema(self._keys, into, step.schema) if resolved else UNKNOWN
        accepted = unbounded or not self._keys
        return self._timed(step.stateful(what, (self._keys,), schema, unbounded=accepted))

    def suppress(
        self,
        period: Duration | None = None,
        *,
        rows: int | None = None,
        time: str | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> TimedT:
        """Of the rows of a key in each `period` only the last, or the last of so many `rows`.

        `time` is "event", where periods begin at multiples of their length and end with the
        watermark, or "processing", where one begins with a row. What waits when the input ends is
        emitted. For rows that are retracted, use `table(..., delete=...).suppress(...)`.
        """
        step = self._step(name, was)
        leaves_all_changes(
            step,
            "suppress",
            'Make a table of them: .with_columns(gone="change = \'-\'").drop("change")'
            '.table("id", delete="gone").suppress("10s").changes(); or rename the column.',
        )
        if time != "processing" and (running := unordered_results(self._edge)) is not None:
            step.report(not_in_order("HR-STREAM-017", running, "suppress goes by event time"))
        edge = suppressed(step, self._keys, (period, rows, time), False, unbounded)
        return self._timed(edge)

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

        Which rows are taken depends on where they came from, on the names of job and step, on their
        key and on `seed`, on nothing else.
        """
        step = self._step(name, was)
        leaves_all_changes(step, "sample")
        seed = step.seed(seed, "sample")
        if per is not None:
            count, types = step.count(size, "sample"), column_types(step.schema)
            period = step.span(per, "sample(per=)")
            what = Best(count, None, period=period, seed=seed, types=types)
            return self._timed(step.stateful(what, (self._keys,), step.schema))
        is_share = isinstance(size, float | int) and not isinstance(size, bool) and 0 <= size <= 1
        if not is_share:
            step.report(
                PlanError(
                    "HR-STREAM-005",
                    f"sample takes {size!r} of the rows",
                    'Give a share from 0 to 1, or so many rows of a while: sample(10, per="1m").',
                )
            )
        return self._stream(step.chunks(Share(float(size) if is_share else 0.0, seed), step.schema))


# Branches of a stream, where each row goes to the first whose condition is true; and `explode`.
#
# A branch is an ordinary filter that also says "and none of those before", so it needs no
# operator of its own; a condition that is null is not true.


def exploded(schema: pa.Schema, what: Explode) -> pa.Schema:
    """The columns after `explode`: the elements take the place of their array."""
    kind = schema.field(what.column).type
    if not is_array(kind):
        raise PlanError(
            "HR-STREAM-012",
            f"explode takes an array, but {what.column!r} is of type {ddl_type(kind)}",
            "Of a map make an array first, by map_keys or map_values; of a text by split.",
        )
    if what.into != what.column and what.into in schema.names:
        raise PlanError(
            "HR-STREAM-012",
            f"explode would make a second column {what.into!r}",
            "Give the elements another name: as_=.",
        )
    place = schema.get_field_index(what.column)
    return schema.set(place, pa.field(what.into, kind.value_type))


class SharedMethods(
    SmallOperators[StreamT, TimedT, JoinT, TableT],
    Joins[StreamT, TimedT, JoinT, TableT],
    Learning[StreamT, TimedT, JoinT, TableT],
    Lookups[StreamT, TimedT, JoinT, TableT],
    Loops[StreamT, TimedT, JoinT, TableT],
    Looking,
):
    """Methods of streams with a key and without."""

    def edges(
        self, src: str, dst: str, *, name: str | None = None, was: str | None = None
    ) -> EdgeStream[StreamT, TimedT]:
        """The rows as edges of a graph between the vertices of two columns: see `EdgeStream`.

        On a keyed stream each key is a graph of its own. An edge has no direction; a row in which
        a vertex is null is a dead letter.
        """
        edge = edges_of(self._step(name, was), self._keys, src, dst)
        return EdgeStream(self._draft, edge, self._keys, (src, dst), self._kinds[:2])
