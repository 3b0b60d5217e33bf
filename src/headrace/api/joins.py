"""Joins: rows that agree on a key, and are near in time, in the same window, or in a table.

A join of two streams must say for how long rows wait for each other: one without bound would
hold all rows for ever, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, Self

import pyarrow as pa

from headrace.api import join_keys
from headrace.api.handles import (
    AnyBroadcast,
    AnyStream,
    AnyTable,
    Handle,
    JoinT,
    Results,
    StepBuilder,
    StreamT,
    TableT,
    TimedT,
    not_in_order,
)
from headrace.api.join_keys import JoinArguments, add_join
from headrace.api.looking import Looking
from headrace.api.window_cut import BOUNDS
from headrace.clock import Duration
from headrace.errors import PlanError, Site
from headrace.expr import col
from headrace.ops.contract import Spec
from headrace.ops.join.interval import HOWS, IntervalJoin
from headrace.ops.join.latest import HOWS as LATEST_HOWS
from headrace.ops.join.latest import Latest
from headrace.ops.join.sides import GONE
from headrace.ops.join.table_changes import CHANGE, Changes
from headrace.ops.join.table_join import HOWS as TABLE_HOWS
from headrace.ops.join.table_join import TableJoin
from headrace.ops.join.window_joins import Cogroup, WindowJoin
from headrace.ops.stream.running_top import Top
from headrace.ops.tables import free_name
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import AlignedAssigner
from headrace.plan.columns import clashes, key_clashes
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.lineage import stateful_before, unordered_results
from headrace.plan.nodes import Edge, Stateful
from headrace.plan.part import Part, part_for
from headrace.plan.signature import any_schema, check_takes
from headrace.schema import SchemaLike, ddl_of


class Joins(Results[StreamT, TimedT, JoinT, TableT]):
    """Streams whose rows can be joined, or taken for the changes of a table."""

    def join(
        self,
        other: AnyStream | AnyTable,
        *,
        on: join_keys.On = None,
        how: str = "inner",
        within: Any = None,
        window: Any = None,
        time: str = "event",
        suffix: str = "_right",
        lateness: Duration = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> JoinT:
        """Rows of this stream with rows of another that agree on the columns `on`, or on the key.

        `within` is how far their times may be apart: "5m", or (earliest, latest) as in
        ("-1m", "5m"), from this row to the other; `window` joins rows of the same window. A
        table gives the latest row at this row's time, at most `within` old, or with
        time="processing" the latest that has come. `how` is inner, left, right, full, semi or
        anti: rows of an outer side without a match are emitted alone, once no match can come any
        more. `lateness`: how long to wait for late rows.
        """
        step = self._step(name, was)
        args = JoinArguments(on, how, within, window, time, suffix, lateness)
        if isinstance(other, AnyTable):
            return self._joined(join_with_table(step, self, other, args))
        return self._joined(_join_streams(step, self, other, args))

    def cogroup(
        self,
        other: AnyStream,
        fn: Callable[[Any, list[Any], list[Any]], Any],
        *,
        window: Any = None,
        on: join_keys.On = None,
        schema: SchemaLike | None = None,
        lateness: Duration = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> JoinT:
        """fn(key, rows, other_rows) for each key and window that has rows on either side."""
        step = self._step(name, was)
        other = _joinable(step, self, other)
        keys = join_keys.keys_of(step, (self, other), on)
        with step.draft.attempt(step.site):
            check_takes(fn, 3, "cogroup")
        value = step.attempt(lambda: any_schema(fn, schema, "cogroup"))
        before = [*(self.schema.field(k) for k in keys[0]), *BOUNDS]
        problems = clashes([f.name for f in before], list(value), "part of every result")
        problems += key_clashes(keys[0], BOUNDS)
        step.report(*problems)
        rows = (ddl_of(self.schema), ddl_of(other.schema))
        what = Cogroup(fn, AlignedAssigner(Window(1, 1)), 0, rows)
        with step.draft.attempt(step.site):
            if window is None:
                raise unbounded_join("cogroup", 'window=hr.tumbling("5m")')
            cut = join_keys.windows(step, window, self.schema, other.schema)
            what = Cogroup(fn, cut, join_keys.patience(lateness), rows)
        resolved = len(value) and keys[0] and not problems
        output = pa.schema([*before, *value]) if resolved else UNKNOWN
        return self._joined(add_join(step, (self, other), keys, what, output))

    def table(
        self, *keys: str, delete: Any = None, unbounded: bool = False, name: str | None = None
    ) -> TableT:
        """The latest row of each key; rows for which `delete` is true end their key."""
        step, edge = self._step(name), self._edge
        keys = keys or self._keys
        if not keys:
            hint = 'Name the columns that say which row is meant: changes.table("id").'
            step.report(PlanError("HR-JOIN-002", "table names no key", hint))
        step.require_columns(keys)
        if (top := _list_before(edge)) is not None:
            hint = 'Take the best rows of a table: stream.table("id").top(10, by="score").'
            fact = f"the changes of {top!r} are not in order of event time, as those of a table are"
            step.report(PlanError("HR-JOIN-028", fact, hint))
        if (running := unordered_results(edge)) is not None:
            step.report(not_in_order("HR-JOIN-029", running, "table has the latest by event time"))
        if delete is not None:
            condition = step.condition(delete, "table(delete=)")
            columns: dict[str, Any] = {n: col(n) for n in self.schema.names}
            if condition is not None:
                edge = step.columns("table", {**columns, GONE: condition})
        kind = self._kinds[3]
        return kind(self._draft, edge, keys, edge is not self._edge, unbounded)


def _list_before(edge: Edge) -> str | None:
    """The `top` of a stream whose changes these rows are, if they are."""
    node = stateful_before(edge)
    if not isinstance(node, Stateful) or not isinstance(node.what, Top):
        return None
    before = stateful_before(node.inputs[0])  # of a table, whose changes are in order
    of_table = isinstance(before, Stateful) and isinstance(before.what, Changes)
    return None if of_table else node.name


def _join_streams(
    step: StepBuilder, left: AnyStream, right: AnyStream, args: JoinArguments
) -> Edge:
    """Two streams, bounded by an interval or by windows."""
    right = _joinable(step, left, right)
    keys = join_keys.keys_of(step, (left, right), args.on)
    bounds = BOUNDS if args.window is not None else ()
    columns, schema = join_keys.result_of(
        step, left.schema, right.schema, keys, args.suffix, bounds, left_only=args.left_only
    )
    rows = (ddl_of(left.schema), ddl_of(right.schema))
    what: Spec = IntervalJoin("inner", 0, 0, 0, columns, rows)
    with step.draft.attempt(step.site):
        wait = _bounded_patience(args)
        if args.window is not None:
            cut = join_keys.windows(step, args.window, left.schema, right.schema)
            what = WindowJoin(args.how, cut, wait, columns, rows)
        else:
            what = IntervalJoin(args.how, *join_keys.interval(args.within), wait, columns, rows)
    return add_join(step, (left, right), keys, what, schema)


def _bounded_patience(args: JoinArguments) -> int:
    """How long a join of streams waits for late rows; refused if nothing bounds the join."""
    join_keys.one_of(args.how, HOWS, "how")
    if args.time != "event":
        hint = "Rows meet by event time. Read them with time=hr.ingestion() to go by the clock."
        raise PlanError("HR-JOIN-005", f"time of a join of streams cannot be {args.time!r}", hint)
    wait = join_keys.patience(args.lateness)
    if args.within is None and args.window is None:
        raise unbounded_join("join", 'within="5m" or window=hr.tumbling("5m")')
    if args.within is not None and args.window is not None:
        hint = "Say one of them: they bound the join differently."
        raise PlanError("HR-JOIN-007", "join has both within= and window=", hint)
    return wait


def unbounded_join(join: str, bound: str) -> PlanError:
    also = ', or join with a table: b.table("id")' if join == "join" else ""
    also += "; for a table that is not a stream, use lookup(...)" if join == "join" else ""
    return PlanError(
        "HR-JOIN-001",
        f"{join} does not say how long rows wait for each other",
        f"Say {bound}{also}.",
    )


def _joinable(step: StepBuilder, left: AnyStream, right: Any) -> Any:
    """The right stream; the left one in its place if the right one cannot be joined."""
    problem = not_joinable(right)
    if problem is None:
        return join_keys.same_job(step, left, right)
    step.report(problem)
    return left


def not_joinable(other: object) -> PlanError | None:
    if isinstance(other, AnyBroadcast):
        return PlanError(
            "HR-JOIN-013",
            "a join cannot use .broadcast(): rows meet by their key, in one task",
            "Leave .broadcast() out; to have rows in every task, give them to a process function "
            'by hr.connect, or keep them outside and use lookup(..., on="id").',
        )
    if isinstance(other, AnyTable):
        return PlanError(
            "HR-JOIN-014",
            "a table can only be in a join of two: a.join(table)",
            "Join it by itself before or after, or give the stream that it is made of.",
        )
    return None


# Joins with tables: a stream with a table, and two tables.
#
# A table is not a stream of rows but what such a stream says about each key; it holds one row
# for every key ever seen, unless the join says how old one may be. What changes in a table, or
# in a join of two, is a stream of rows that are retracted and added.


CHANGES = pa.field(CHANGE, pa.string())
TIMES = ("event", "processing")


class TableJoins(AnyTable, Looking, Generic[JoinT]):
    """A table whose changes, and those of its join with another, are streams; it can be shown."""

    def changes(
        self, *, time: str = "event", name: str | None = None, was: str | None = None
    ) -> JoinT:
        """What changes in it: the old row of a key with `change` "-", then the new one with "+"."""
        step = self._step(name, was)
        if CHANGE in self.schema.names:
            fact = f"the column {CHANGE!r} would be there twice"
            step.report(PlanError("HR-JOIN-006", fact, "Rename it."))
        with step.draft.attempt(step.site):
            join_keys.one_of(time, TIMES, "time")
        schema = pa.schema([*(f for f in self.schema if f.name != CHANGE), CHANGES])
        what, keys = self._as_changes(time == "processing")
        return self._joined(add_join(step, (self,), keys, what, schema, unbounded=self._unbounded))

    def _as_changes(self, processing: bool) -> tuple[Changes, join_keys.Keys]:
        """What makes its changes of its versions, and its key; none where that is not known."""
        has_keys = all(k in self.schema.names for k in self._keys)
        timed, rows = self._edge.node.timed, (ddl_of(self.schema),)
        return Changes(processing, timed, self._deleted, rows), (self._keys if has_keys else (),)

    def _part(self, site: Site | None) -> Part:
        """A look at a table: its changes, to the end of what there is."""
        what, keys = self._as_changes(processing=not self._edge.node.timed)
        change = pa.field(free_name(CHANGE, self.schema.names), pa.string())
        schema = pa.schema([*self.schema, change]) if all(keys) else UNKNOWN

        def changes(draft: Draft, end: Edge) -> Edge:
            return StepBuilder(draft, end).stateful(what, keys, schema, unbounded=True)

        return part_for(self._draft, self._edge, site, changes, self._keys)

    def join(
        self,
        other: Self,
        *,
        on: join_keys.On = None,
        how: str = "inner",
        time: str = "event",
        suffix: str = "_right",
        name: str | None = None,
        was: str | None = None,
    ) -> JoinT:
        """What changes in the join of two tables, with the column `change`: "-" or "+".

        `on` are the columns of this table that hold the key of the other; left out, both have
        the same key. By event time a change counts when the watermark has passed it, with
        time="processing" at once.
        """
        step = self._step(name, was)
        if not isinstance(other, AnyTable):
            fact = f"a table can be joined with a table, not {other!r}"
            step.report(PlanError("HR-JOIN-008", fact, 'Make it one: stream.table("id").'))
            other = self
        join_keys.same_job(step, self, other)
        keys = join_keys.table_keys(step, self, other, on)
        own_key = self._keys if set(keys[0]) != set(self._keys) else ()
        left_only = how in ("semi", "anti")
        columns, schema = join_keys.result_of(
            step, self.schema, other.schema, keys, suffix, (CHANGES,), left_only=left_only
        )
        with step.draft.attempt(step.site):
            join_keys.one_of(how, TABLE_HOWS, "how of a join of tables")
            join_keys.one_of(time, TIMES, "time")
        deleted, rows = (
            (self._deleted, other._deleted),
            (ddl_of(self.schema), ddl_of(other.schema)),
        )
        what = TableJoin(
            how, own_key, time == "processing", _timed(self, other), deleted, columns, rows
        )
        left: Handle = self
        if own_key:
            left = self.changes(time=time, **step.part("changes"))
            what = replace(what, gone=(None, deleted[1]))
        accepted = self._unbounded and other._unbounded
        return self._joined(add_join(step, (left, other), keys, what, schema, unbounded=accepted))

    def _joined(self, edge: Edge) -> JoinT:
        raise NotImplementedError


def join_with_table(
    step: StepBuilder, left: AnyStream, right: AnyTable, args: JoinArguments
) -> Edge:
    """Each row of a stream with the latest row of its key in a table."""
    other = join_keys.same_job(step, left, right)
    keys = join_keys.table_keys(step, left, right, args.on)
    columns, schema = join_keys.result_of(
        step, left.schema, right.schema, keys, args.suffix, left_only=args.left_only
    )
    timed, by_clock = _timed(left, right), args.time == "processing"
    rows = (ddl_of(left.schema), ddl_of(right.schema))
    what = Latest("inner", False, None, 0, timed, right._deleted, columns, rows)
    with step.draft.attempt(step.site):
        join_keys.one_of(args.how, LATEST_HOWS, "how of a join with a table")
        join_keys.one_of(args.time, TIMES, "time")
        wait, age = join_keys.patience(args.lateness), join_keys.age(args.within)
        if args.window is not None or (by_clock and (wait or age is not None)):
            raise PlanError(
                "HR-JOIN-007",
                f"a join with a table by {args.time} time cannot have "
                f"{'window=' if args.window is not None else 'within= or lateness='}",
                "Leave it out.",
            )
        what = Latest(args.how, by_clock, age, wait, timed, right._deleted, columns, rows)
    return add_join(step, (left, other), keys, what, schema, unbounded=right._unbounded)


def _timed(*inputs: Handle) -> bool:
    return all(i._edge.node.timed for i in inputs)
