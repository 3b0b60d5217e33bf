"""Joins with tables as the user writes them: a stream with a table, and two tables.

The latter give what changes in the result, as a stream of rows that are taken back and given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.api import join_keys, joins, stream, tables
from headrace.api.step_builder import Adding
from headrace.clock import Duration
from headrace.errors import PlanError
from headrace.ops.contract import Spec
from headrace.ops.join.changes import CHANGE, Changes
from headrace.ops.join.latest import HOWS as LATEST_HOWS
from headrace.ops.join.latest import Latest
from headrace.ops.join.side import GONE
from headrace.ops.join.tables import HOWS as TABLE_HOWS
from headrace.ops.join.tables import TableJoin
from headrace.schema import ddl_of

if TYPE_CHECKING:
    from headrace.api.connected import AnyStream
    from headrace.api.tables import Table

CHANGES = pa.field(CHANGE, pa.string())


def join_table(
    left: AnyStream,
    right: Table,
    on: join_keys.On,
    how: str,
    within: Any,
    window: Any,
    time: str,
    suffix: str,
    lateness: Duration,
    name: str | None,
    was: str | None,
) -> stream.JoinResult:
    """Each row of a stream with the latest row of its key in a table."""
    at = Adding(left._draft, left._edge, name, was)
    other = join_keys.same_job(at, left, right)
    keys = join_keys.table_keys(at, left, right, on)
    columns, schema = join_keys.result_of(
        at, left.schema, right.schema, keys, suffix, alone=how in ("semi", "anti")
    )
    timed = left._edge.node.timed and right._edge.node.timed
    gone = GONE if right._deletes else None
    rows = (ddl_of(left.schema), ddl_of(right.schema))
    what: Spec = Latest("inner", False, None, 0, timed, gone, columns, rows)
    with at.draft.attempt(at.site):
        join_keys.one_of(how, LATEST_HOWS, "how of a join with a table")
        join_keys.one_of(time, ("event", "processing"), "time")
        wait, age = join_keys.patience(lateness), join_keys.age(within)
        if window is not None or (time == "processing" and (wait or age is not None)):
            raise PlanError(
                "HR-JOIN-007",
                f"a join with a table by {time} time cannot have "
                f"{'window=' if window is not None else 'within= or lateness='}",
                "Leave it out.",
            )
        what = Latest(how, time == "processing", age, wait, timed, gone, columns, rows)
    return joins.added(at, (left, other), keys, what, schema, unbounded=right._unbounded)


def changes(of: Table, time: str, name: str | None, was: str | None = None) -> stream.JoinResult:
    """What changes in a table, as a stream."""
    at = Adding(of._draft, of._edge, name, was)
    if CHANGE in of.schema.names:
        at.report(
            PlanError("HR-JOIN-006", f"the column {CHANGE!r} would be there twice", "Rename it.")
        )
    with at.draft.attempt(at.site):
        join_keys.one_of(time, ("event", "processing"), "time")
    schema = pa.schema([*(f for f in of.schema if f.name != CHANGE), CHANGES])
    known = all(k in of.schema.names for k in of.keys)
    what = Changes(
        time == "processing",
        of._edge.node.timed,
        GONE if of._deletes else None,
        (ddl_of(of.schema),),
    )
    keys = (of.keys if known else (),)
    return joins.added(at, (of,), keys, what, schema, unbounded=of._unbounded)


def join_tables(
    left: Table,
    right: Table,
    on: join_keys.On,
    how: str,
    time: str,
    suffix: str,
    name: str | None,
    was: str | None,
) -> stream.JoinResult:
    """What changes in the join of two tables, as a stream."""
    at = Adding(left._draft, left._edge, name, was)
    if not isinstance(right, tables.Table):
        fact = f"a table can be joined with a table, not {right!r}"
        at.report(PlanError("HR-JOIN-008", fact, 'Make it one: stream.table("id").'))
        right = left
    join_keys.same_job(at, left, right)
    keys = join_keys.table_keys(at, left, right, on)
    own = left.keys if set(keys[0]) != set(left.keys) else ()
    alone = how in ("semi", "anti")
    columns, schema = join_keys.result_of(
        at, left.schema, right.schema, keys, suffix, (CHANGES,), alone=alone
    )
    timed = left._edge.node.timed and right._edge.node.timed
    gone = tuple(GONE if t._deletes else None for t in (left, right))
    with at.draft.attempt(at.site):
        join_keys.one_of(how, TABLE_HOWS, "how of a join of tables")
        join_keys.one_of(time, ("event", "processing"), "time")
    rows = (ddl_of(left.schema), ddl_of(right.schema))
    what = TableJoin(how, own, time == "processing", timed, (gone[0], gone[1]), columns, rows)
    source: Any = left
    if own:
        source = changes(left, time, f"{name} changes" if name else None)
        what = replace(what, gone=(None, gone[1]))
    sure = left._unbounded and right._unbounded
    return joins.added(at, (source, right), keys, what, schema, unbounded=sure)
