"""Fewer rows, or the best, or rows together: how the small operators are added to a program.

Each function adds one step; what is wrong with it is reported in the draft, as everywhere.
No keys mean that all rows are one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.api import stream
from headrace.api.step_builder import Adding
from headrace.clock import Duration, millis
from headrace.errors import PlanError
from headrace.ops.agg.order import is_sortable
from headrace.ops.contract import Spec
from headrace.ops.stream.batch import Batch, packed_schema
from headrace.ops.stream.best import Best, types_of
from headrace.ops.stream.changes import ChangesOnly
from headrace.ops.stream.deduplicate import Deduplicate
from headrace.ops.stream.sample import Share
from headrace.ops.stream.throttle import DROPPED, Throttle
from headrace.ops.stream.top import CHANGE, RANK, Top
from headrace.ops.window.spec import GeneralWindows
from headrace.plan.aggs import clashes
from headrace.plan.draft import UNKNOWN
from headrace.plan.nodes import Chunks, Stateful
from headrace.schema import ddl_type

Names = str | Sequence[str]


def deduplicate(
    at: Adding,
    keys: Sequence[str],
    columns: Sequence[str],
    within: Duration | None,
    unbounded: bool,
) -> stream.TimedResult:
    at.known(columns)
    wanted = tuple(dict.fromkeys([*keys, *columns])) or tuple(at.schema.names)
    length = None if within is None else span(at, within, "deduplicate(within=)")
    return applied(at, Deduplicate(length), wanted, at.schema, unbounded)


def changes_only(
    at: Adding, keys: Sequence[str], columns: Sequence[str], unbounded: bool
) -> stream.TimedResult:
    at.known(columns)
    watched = columns or [n for n in at.schema.names if n not in keys]
    for name in watched:
        plain(at, name, "changes_only compares")
    if not watched and len(at.schema):
        at.report(
            PlanError(
                "HR-STREAM-004",
                "changes_only has nothing to compare: every column is part of the key",
                'Name a column: changes_only("status").',
            )
        )
    what = ChangesOnly.of(watched, at.schema)
    return applied(at, what, keys, at.schema, unbounded or not keys)


def throttle(
    at: Adding, keys: Sequence[str], rows: int, per: Duration | None
) -> stream.TimedResult:
    if per is None:
        at.report(
            PlanError(
                "HR-STREAM-009",
                f"throttle does not say in which time {rows!r} rows may go on",
                'Say per: throttle(10, per="1s").',
            )
        )
    length = 1 if per is None else span(at, per, "throttle(per=)")
    what = Throttle(whole(at, rows, "throttle"), length)
    return applied(at, what, keys, at.schema, sides={DROPPED: at.schema})


def top(
    at: Adding,
    keys: Sequence[str],
    rows: int,
    by: str,
    largest: bool,
    each: Names,
    unbounded: bool,
) -> stream.TimedResult:
    things = names_of(each)
    at.known(things)
    _ranked(at, rows, by, [RANK, CHANGE])
    what = Top.of(whole(at, rows, "top"), by, largest, things, at.schema)
    schema = pa.schema([*at.schema, RANK, CHANGE]) if len(at.schema) else UNKNOWN
    return applied(at, what, keys, schema, unbounded or not keys)


def top_of_windows(at: Adding, rows: int, by: str, largest: bool, per: Names) -> stream.TimedResult:
    """The best results of each window, and of each `per` in it."""
    also = names_of(per)
    at.known(also)
    _ranked(at, rows, by, [RANK])
    window = at.edge.node
    told = window.keys[0] if isinstance(window, Stateful) else ()
    general = isinstance(window, Stateful) and isinstance(window.what, GeneralWindows)
    again = general and "pane" in at.schema.names
    if "change" in at.schema.names:
        at.report(
            PlanError(
                "HR-STREAM-007",
                "top cannot follow windows that take results back",
                'Leave mode="retract" out: top tells the final results.',
            )
        )
    groups = [n for n in dict.fromkeys(["window_start", "window_end", *also])]
    each = tuple(k for k in told if k not in groups)
    what = Best(
        whole(at, rows, "top"), by, largest, each=each, again=again, types=types_of(at.schema)
    )
    schema = pa.schema([*at.schema, RANK]) if len(at.schema) else UNKNOWN
    return applied(at, what, groups, schema)


def batch(
    at: Adding,
    keys: Sequence[str],
    rows: int,
    within: Duration | None,
    time: str | None,
    into: str,
    unbounded: bool,
) -> stream.TimedResult:
    timed = at.edge.node.timed
    if time not in (None, "event", "processing"):
        at.report(
            PlanError(
                "HR-STREAM-006",
                f"batch(time=) is {time!r}",
                'Write time="event" or time="processing".',
            )
        )
    by_clock = time == "processing" or (time is None and not timed)
    for problem in clashes(keys, [pa.field(into, pa.null())], "part of the key"):
        at.report(problem)
    length = None if within is None else span(at, within, "batch(within=)")
    what = Batch.of(whole(at, rows, "batch"), length, by_clock, into, timed, at.schema)
    known = set(keys) <= set(at.schema.names)
    schema = packed_schema(keys, into, at.schema) if known and len(at.schema) else UNKNOWN
    return applied(at, what, keys, schema, unbounded or not keys)


def sample(
    at: Adding, keys: Sequence[str], size: float, per: Duration | None, seed: int
) -> stream.Stream:
    if per is not None:
        what = Best(
            whole(at, size, "sample"),
            None,
            period=span(at, per, "sample(per=)"),
            seed=seed,
            types=types_of(at.schema),
        )
        return applied(at, what, keys, at.schema)
    fair = isinstance(size, float | int) and not isinstance(size, bool) and 0 <= size <= 1
    if not fair:
        at.report(
            PlanError(
                "HR-STREAM-005",
                f"sample takes {size!r} of the rows",
                'Give a share from 0 to 1, or so many rows of a while: sample(10, per="1m").',
            )
        )
    share = Share(float(size) if fair else 0.0, seed)
    node = Chunks(what=share, schema=at.schema, **at.common())
    return stream.Stream(at.draft, at.add(node, share.kind))


def applied(
    at: Adding,
    what: Spec,
    keys: Sequence[str],
    schema: pa.Schema,
    unbounded: bool = False,
    **more: Any,
) -> stream.TimedResult:
    """The stream after an operator that brings its own meaning."""
    node = Stateful(
        what=what,
        keys=(tuple(keys),),
        schema=schema,
        unbounded=unbounded,
        **{**at.common(), **more},
    )
    return stream.TimedResult(at.draft, at.add(node, what.kind))


def span(at: Adding, length: Duration, what: str) -> int:
    """A duration above zero; a stand-in where it is wrong."""
    with at.draft.attempt(at.site):
        found = millis(length)
        if found > 0:
            return found
        raise PlanError("HR-STREAM-001", f"{what} is {length!r}", "Choose a duration above zero.")
    return 1


def whole(at: Adding, count: object, what: str, of: str = "rows") -> int:
    """A number of rows or rounds above zero; a stand-in where it is wrong."""
    if isinstance(count, int) and not isinstance(count, bool) and count > 0:
        return count
    at.report(
        PlanError(
            "HR-STREAM-002",
            f"{what} takes {count!r} {of}",
            f"Choose a whole number of {of} above zero.",
        )
    )
    return 1


def plain(at: Adding, name: str, what: str) -> None:
    """Report a column of lists or records, which have no order and cannot be compared."""
    kind = at.schema.field(name).type if name in at.schema.names else pa.null()
    if not is_sortable(kind) and not pa.types.is_null(kind):
        at.report(
            PlanError(
                "HR-STREAM-003",
                f"{what} {name!r}, which is {ddl_type(kind)}",
                "Name columns of text, numbers, booleans, dates or times.",
            )
        )


def names_of(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _ranked(at: Adding, rows: object, by: str, added: Sequence[pa.Field]) -> None:
    at.known([by])
    plain(at, by, "top goes by")
    for problem in clashes(at.schema.names, added, "a column of the rows"):
        at.report(problem)
