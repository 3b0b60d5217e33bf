"""Fewer rows of a key: the best ones of all, of a window, or of a table; the last of several.

A stream and a table have the same steps here: a table's rows are changes that may end a key.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.api.handles import StepBuilder
from headrace.clock import Duration
from headrace.errors import PlanError
from headrace.expr import col
from headrace.ops.join.sides import GONE
from headrace.ops.stream.best_rows import Best
from headrace.ops.stream.rank_order import CHANGE, RANK
from headrace.ops.stream.running_top import Top
from headrace.ops.stream.suppress import Suppress
from headrace.ops.tables import column_types
from headrace.ops.window.firing_spec import GeneralWindows, TriggeredRowWindows
from headrace.plan.columns import clashes
from headrace.plan.draft import UNKNOWN
from headrace.plan.lineage import lifted
from headrace.plan.nodes import Edge, Read, Stateful, step_of

_BEFORE = (
    "Put it before the step whose results are changes; or pass on only what was emitted as new: "
    '.where("change = \'+\'").drop("change"); or rename the column, if nothing is retracted.'
)


def leaves_all_changes(step: StepBuilder, what: str, hint: str = _BEFORE) -> None:
    """Refuse a step that drops rows where some retract others: each needs its other half."""
    if CHANGE.name in step.schema.names and step.schema.field(CHANGE.name).type == CHANGE.type:
        step.report(
            PlanError(
                "HR-STREAM-014",
                f"{what} would drop rows that retract others, or are retracted: the column "
                f"{CHANGE.name!r} says which",
                hint,
            )
        )


def from_input(edge: Edge) -> bool:
    """Whether the changes are rows of an input: what comes twice there is the same change."""
    if CHANGE.name not in edge.schema.names:
        return False
    return all(isinstance(base.node, Read) for base, _ in lifted(edge, col(CHANGE.name)))


def suppressed(
    step: StepBuilder,
    keys: tuple[str, ...],
    limits: tuple[Duration | None, int | None, str | None],
    table: bool,
    unbounded: bool,
) -> Edge:
    """The rows that suppress(period, rows=, time=) leaves, of a stream or of a table."""
    (period, rows, time), timed = limits, step.edge.node.timed
    if period is None and rows is None:
        step.report(
            PlanError(
                "HR-STREAM-014",
                "suppress does not say how many changes become one",
                'Say in which time, or how many: suppress("10s"), suppress(rows=100).',
            )
        )
    if time not in (None, "event", "processing"):
        step.report(
            PlanError(
                "HR-STREAM-006",
                f"suppress(time=) is {time!r}",
                'Write time="event" or time="processing".',
            )
        )
    length = None if period is None else step.span(period, "suppress")
    count = None if rows is None else step.count(rows, "suppress")
    by_clock = time == "processing" or (time is None and not timed)
    what = Suppress.of(length, count, by_clock, timed, table, step.schema)
    known = keys if all(k in step.schema.names for k in keys) else ()
    accepted = unbounded or not keys or rows is None
    return step.stateful(what, (known,), step.schema, unbounded=accepted)


def window_top(step: StepBuilder, chosen: tuple[int, str, bool, tuple[str, ...]]) -> Edge:
    """The best results of each window, and of each of the groups in it."""
    rows, by, largest, partition = chosen
    step.require_columns(partition)
    check_ranked(step, by, [RANK])
    if "change" in step.schema.names:
        step.report(
            PlanError(
                "HR-STREAM-007",
                "top cannot follow windows that take results back",
                'Leave mode="retract" out: top emits the final results only.',
            )
        )
    groups = tuple(dict.fromkeys(["window_start", "window_end", *partition]))
    window = step_of(step.edge.node)
    what = window.what if isinstance(window, Stateful) else None
    if isinstance(what, TriggeredRowWindows) and not what.windowing.fires_once:
        step.report(
            PlanError(
                "HR-STREAM-016",
                f"top cannot follow the early results of {what.window}: the bounds of a window "
                "of rows move with its rows, so there is no saying which results belong "
                "together",
                "Leave trigger= out, or use a window of time.",
            )
        )
    keys = window.keys[0] if isinstance(window, Stateful) else ()
    best = Best(
        step.count(rows, "top"),
        by,
        largest,
        each=tuple(k for k in keys if k not in groups),
        again=isinstance(what, GeneralWindows) and "pane" in step.schema.names,
        types=column_types(step.schema),
    )
    schema = pa.schema([*step.schema, RANK]) if len(step.schema) else UNKNOWN
    return step.stateful(best, (groups,), schema)


def running_top(
    step: StepBuilder,
    keys: tuple[str, ...],
    chosen: tuple[int, str, bool, tuple[str, ...]],
    unbounded: bool,
) -> Edge:
    """The changes of the best rows; rows with a true `GONE`, if they have it, end their thing."""
    (rows, by, largest, each), input = chosen, step.schema
    step.require_columns(each)
    for column in each:
        step.comparable(column, "top has one row of each")
    check_ranked(step, by, [RANK, CHANGE])
    gone = GONE if GONE in input.names else None
    what = Top.of(step.count(rows, "top"), by, largest, each, input, gone=gone)
    schema = UNKNOWN
    if len(input):
        schema = pa.schema([*(f for f in input if f.name != GONE), RANK, CHANGE])
    return step.stateful(what, (keys,), schema, unbounded=unbounded)


def check_ranked(step: StepBuilder, by: str, added: Sequence[pa.Field]) -> None:
    """Report a column that rows cannot be ranked by, and columns that are there already."""
    if not isinstance(by, str):
        hint = 'Name one column: top(10, by="score").'
        step.report(PlanError("HR-STREAM-003", f"top goes by a column, not by {by!r}", hint))
        return
    step.require_columns([by])
    step.comparable(by, "top goes by")
    step.report(*clashes(step.schema.names, added, "a column of the rows"))
