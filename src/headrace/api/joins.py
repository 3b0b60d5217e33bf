"""Joins as the user writes them: each function adds one step to the job's draft.

A join of two streams must say for how long rows wait for each other: one without bound would
keep all rows for ever, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.api import connected, join_keys, stream, table_joins, tables
from headrace.api.join_keys import BOUNDS
from headrace.api.step_builder import Adding
from headrace.clock import Duration
from headrace.errors import PlanError, call_site
from headrace.ops.contract import Spec
from headrace.ops.join.cogroup import Cogroup
from headrace.ops.join.interval import HOWS, Interval
from headrace.ops.join.many import MANY_HOWS, ManyJoin
from headrace.ops.join.windowed import WindowJoin
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import AlignedAssigner
from headrace.plan.aggs import clashes, key_clashes
from headrace.plan.draft import UNKNOWN
from headrace.plan.nodes import Stateful
from headrace.plan.signature import any_schema, check_takes
from headrace.schema import SchemaLike, ddl_of

if TYPE_CHECKING:
    from headrace.api.connected import AnyStream
    from headrace.api.tables import Table


def join(
    left: AnyStream,
    right: AnyStream | Table,
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
    """Two streams, bounded by an interval or by windows."""
    if isinstance(right, tables.Table):
        return table_joins.join_table(
            left, right, on, how, within, window, time, suffix, lateness, name, was
        )
    at = Adding(left._draft, left._edge, name, was)
    right = _other(at, left, right)
    keys = join_keys.keys_of(at, (left, right), on)
    columns, schema = join_keys.result_of(
        at,
        left.schema,
        right.schema,
        keys,
        suffix,
        BOUNDS if window is not None else (),
        alone=how in ("semi", "anti"),
    )
    rows = (ddl_of(left.schema), ddl_of(right.schema))
    what: Spec = Interval("inner", 0, 0, 0, columns, rows)
    with at.draft.attempt(at.site):
        join_keys.one_of(how, HOWS, "how")
        if time != "event":
            hint = "Rows meet by event time. Read them with time=hr.ingestion() to go by the clock."
            raise PlanError("HR-JOIN-005", f"time of a join of streams cannot be {time!r}", hint)
        wait = join_keys.patience(lateness)
        if within is None and window is None:
            raise _unbounded("join", 'within="5m" or window=hr.tumbling("5m")')
        if within is not None and window is not None:
            hint = "Say one of them: they bound the join differently."
            raise PlanError("HR-JOIN-007", "join has both within= and window=", hint)
        if window is not None:
            cut = join_keys.windows(at, window, left.schema, right.schema)
            what = WindowJoin(how, cut, wait, columns, rows)
        else:
            what = Interval(how, *join_keys.interval(within), wait, columns, rows)
    return added(at, (left, right), keys, what, schema)


def join_all(
    *,
    on: str | Sequence[str] | None = None,
    how: str = "inner",
    within: Any = None,
    lateness: Duration = 0,
    name: str | None = None,
    was: str | None = None,
    **streams: AnyStream,
) -> stream.JoinResult:
    """One row of each of several streams with the same key, all `within` a time of each other.

    `hr.join_all(on="id", within="1m", order=a, payment=b, parcel=c)`. A column that several
    have is called by their names: `price_order`, `price_payment`. `how="left"` and
    `how="full"` also give what lacks some of the streams, if no row could be added to it:
    with a row of the first stream, or of any.
    """
    hint = 'Name them: hr.join_all(on="id", within="1m", order=a, payment=b).'
    for label, one in streams.items():  # an option that join_all has not, such as suffix=
        if not hasattr(one, "_draft"):
            fact = f"join_all needs streams, but {label}= is {one!r}"
            rest = " Besides them it takes on, how, within, lateness, name and was."
            raise _at_once(PlanError("HR-JOIN-008", fact, hint + rest))
        if (wrong := _no_stream(one)) is not None:
            raise _at_once(wrong)
    if len(streams) < 2:
        raise _at_once(PlanError("HR-JOIN-012", f"join_all joins {len(streams)} streams", hint))
    first, *others = streams.values()
    at = Adding(first._draft, first._edge, name, was)
    all_ = (first, *(join_keys.same_job(at, first, other) for other in others))
    keys = join_keys.keys_of(at, all_, on)
    columns, schema = join_keys.result_of_all(at, [s.schema for s in all_], keys, tuple(streams))
    rows, names = tuple(ddl_of(s.schema) for s in all_), tuple(streams)
    what = ManyJoin("inner", names, 0, 0, columns, rows)
    with at.draft.attempt(at.site):
        _how_of_all(how)
        if within is None:
            raise _unbounded("join_all", 'within="5m"')
        lower, upper = join_keys.interval(within)
        if lower != -upper:
            hint = 'Write within="5m": no two rows are further apart.'
            raise PlanError("HR-JOIN-004", "join_all takes one length as within=", hint)
        what = ManyJoin(how, names, upper, join_keys.patience(lateness), columns, rows)
    return added(at, all_, keys, what, schema)


def cogroup(
    left: AnyStream,
    right: AnyStream,
    fn: Callable[..., Any],
    on: join_keys.On,
    window: Any,
    schema: SchemaLike | None,
    lateness: Duration,
    name: str | None,
    was: str | None,
) -> stream.JoinResult:
    """A function over the rows of both streams, key by key and window by window."""
    at = Adding(left._draft, left._edge, name, was)
    right = _other(at, left, right)
    keys = join_keys.keys_of(at, (left, right), on)
    with at.draft.attempt(at.site):
        check_takes(fn, 3, "cogroup")
    value = at.attempt(lambda: any_schema(fn, schema, "cogroup"))
    before = [left.schema.field(k) for k in keys[0]] + list(BOUNDS)
    problems = clashes([f.name for f in before], list(value), "part of every result")
    problems += key_clashes(keys[0], BOUNDS)
    for problem in problems:
        at.report(problem)
    known = len(value) and keys[0] and not problems
    rows = (ddl_of(left.schema), ddl_of(right.schema))
    what: Spec = Cogroup(fn, AlignedAssigner(Window(1, 1)), 0, rows)
    with at.draft.attempt(at.site):
        if window is None:
            raise _unbounded("cogroup", 'window=hr.tumbling("5m")')
        cut = join_keys.windows(at, window, left.schema, right.schema)
        what = Cogroup(fn, cut, join_keys.patience(lateness), rows)
    return added(at, (left, right), keys, what, pa.schema([*before, *value]) if known else UNKNOWN)


def _how_of_all(how: str) -> None:
    if how in MANY_HOWS:
        return
    hint = f"Choose one of {', '.join(MANY_HOWS)}."
    if how == "right":
        hint += " For the rows of another stream, name that one first and say left."
    if how in ("semi", "anti"):
        hint += f' Or join two at a time: a.join(b, on="id", within="1m", how="{how}").'
    raise PlanError("HR-JOIN-005", f"how of join_all cannot be {how!r}", hint)


def _at_once(problem: PlanError) -> PlanError:
    """A problem that leaves no stream to go on with."""
    problem.site = call_site()
    return problem


def _unbounded(join: str, bound: str) -> PlanError:
    also = ', or join with a table: b.table("id")' if join == "join" else ""
    return PlanError(
        "HR-JOIN-001",
        f"{join} does not say how long rows wait for each other",
        f"Say {bound}{also}.",
    )


def _other(at: Adding, left: AnyStream, right: Any) -> Any:
    """The right stream, or where it is none that can be joined the left one in its place."""
    wrong = _no_stream(right)
    if wrong is None:
        return join_keys.same_job(at, left, right)
    at.report(wrong)
    return left


def _no_stream(one: object) -> PlanError | None:
    if isinstance(one, connected.BroadcastStream):
        return PlanError(
            "HR-JOIN-013",
            "a join cannot use .broadcast(): rows meet by their key, in one task",
            "Leave .broadcast() out; to have rows in every task, give them to a process function "
            'by hr.connect, or keep them outside and use lookup(..., on="id").',
        )
    if isinstance(one, tables.Table):
        return PlanError(
            "HR-JOIN-014",
            "a table can only be in a join of two: a.join(table)",
            "Join it by itself before or after, or give the stream that it is made of.",
        )
    return None


def added(
    at: Adding, streams: Any, keys: join_keys.Keys, what: Any, schema: Any, **more: Any
) -> stream.JoinResult:
    """The stream after a join; its late rows are streams too."""
    edges = tuple(s._edge for s in streams)
    known = keys if len(schema) else tuple(() for _ in streams)
    fields = {**at.common(), "inputs": edges, "timed": all(e.node.timed for e in edges), **more}
    node = Stateful(what=what, keys=known, schema=schema if all(known) else UNKNOWN, **fields)
    return stream.JoinResult(at.draft, at.add(node, what.kind))
