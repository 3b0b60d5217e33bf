"""Whether a new aggregate can be computed of past rows, read again from the inputs.

Goes by the program alone: a step can be recomputed if what it stores of a row does not depend on
how rows were cut into batches, nor on the clock, and if an aggregate that goes on can prove it.
What is read, and the proof, is in `driver/recompute.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from headrace.clock import MIN_TIME
from headrace.ops.agg.named import Aggregate
from headrace.ops.graph.edges import EdgeColumns
from headrace.ops.stream.chunk_steps import Explode, Share
from headrace.ops.stream.python_columns import PythonColumns
from headrace.ops.stream.repartition import Repartition
from headrace.ops.stream.running_aggregates import RunningAggregates
from headrace.ops.watermarks import ComputedTime, Ingestion
from headrace.ops.window.aligned import floor_of
from headrace.ops.window.firing_spec import GeneralWindows
from headrace.ops.window.spec import PaneWindows
from headrace.plan.nodes import Chunks, Dead, Node, Python, Read, Select, Stateful, parts_of
from headrace.plan.program import Program, consumers_in, levels_of

BEGINNING = "beginning"
_REPEATABLE = (Explode, Share, PythonColumns, EdgeColumns)
_PROOFS = (  # their results are the same in whatever order, and cuts, the rows came
    "count", "sum", "min", "max", "mean", "first", "last", "min_by", "max_by", "collect",
    "count_distinct", "percentile",
)  # fmt: skip


def why_not(node: Stateful, sources: Mapping[str, str | None]) -> str:
    """Why new aggregates of the step cannot be computed of past rows; empty if they can.

    `sources` has the name in what is stored of each aggregate, None of a new one.
    """
    if because := _of_windows(node):
        return because
    for above in _above(node):
        if because := _of_step(above):
            return because
    if not any(proves(agg) for name, agg in node.what.aggregates if sources[name] is not None):
        return (
            "none of the aggregates that go on is exact, so nothing could prove that the inputs "
            "still have the same rows"
        )
    return ""


def _of_windows(node: Stateful) -> str:
    what = node.what
    if node.processing:
        return "its windows go by the clock, and when past rows came is not recorded"
    match what:
        case RunningAggregates():
            return ""
        case PaneWindows():
            return "panes are kept to be looked at, late rows left out" if what.keep else ""
        case GeneralWindows():
            if what.windowing.mode != "replace":
                return 'with mode="delta" it counts since a window last fired'
            return ""
    return "where its windows end depends on the order in which rows came"


def _of_step(node: Node) -> str:
    """Why what the step made of a past row cannot be had again."""
    shown = f"the step {node.name!r} before it"
    match node:
        case Stateful(what=Repartition()):
            return ""
        case Stateful() if node.what.stateless:
            return f"what {shown} emits depends on more than its rows"
        case Stateful():
            return f"{shown} has state, so what it emits depends on how its rows came in batches"
        case Dead():
            return "it reads the job's dead letters"
        case Chunks():
            if not isinstance(node.what, _REPEATABLE):
                return f"{shown} asks elsewhere, where the answer may be another by now"
        case Read():
            if isinstance(node.time, Ingestion):
                return f"the event time of {node.name!r} is the clock's when rows were read"
            if isinstance(node.time, ComputedTime) and "current_date" in str(node.time).lower():
                return f"the event time of {node.name!r} uses current_date()"
            if getattr(node.uri, "loops", False) or str(node.uri).startswith("loop:"):
                return f"the job itself writes {node.name!r}, and forgets what has gone round"
    for part in parts_of(node):
        if isinstance(part, Python) and part.kind == "tap":
            return f"{shown} is a tap, whose function would see the past rows again"
        if isinstance(part, Select) and _reads_date(part):
            return f"{shown} uses current_date(), which was another for past rows"
    return ""


def _reads_date(select: Select) -> bool:
    computed = [expr for _, expr in select.columns or ()]
    texts = [expr.sql() for expr in [*computed, select.where] if expr is not None]
    return any("current_date" in text.lower() for text in texts)


def proves(agg: Aggregate) -> bool:
    return agg.own is None and agg.sketch is None and agg.kind in _PROOFS


def counts_rows(agg: Aggregate) -> bool:
    return agg.kind == "count" and agg.column is None


def _above(node: Stateful) -> Iterator[Node]:
    """All steps before it, once each."""
    waiting, seen = [edge.node for edge in node.inputs], set[str]()
    while waiting:
        above = waiting.pop()
        if above.name not in seen:
            seen.add(above.name)
            yield above
            waiting += [edge.node for edge in above.inputs]


def inputs_of(node: Stateful) -> tuple[Read, ...]:
    """The inputs that have to be read again."""
    return tuple(sorted((n for n in _above(node) if isinstance(n, Read)), key=lambda n: n.name))


def part_before(program: Program, step: str) -> Program:
    """The program up to the step, with nothing after it."""
    node = program.nodes[step]
    assert isinstance(node, Stateful)
    names = {step, *(above.name for above in _above(node))}
    graph = [n for n in program.nodes.values() if n.name in names]
    return replace(
        program,
        nodes={n.name: n for n in graph},
        consumers=consumers_in(graph),
        levels=levels_of(graph),
        logical=(),
        dead_limit=None,
    )


# Which rows count, of those that are read again.
#
# What is over is of no use any more, and what is not over has lost no row for being late: a
# watermark never goes back, so the last one has been the furthest. Sessions are the exception: a
# row may be late by itself, and yet lie within a session that is open. So of sessions all rows
# are taken, and each open one must come out with the same bounds and as many rows.


def late_by(node: Stateful, watermark: int) -> int:
    """The watermark under which past rows are late."""
    what = node.what
    merges = isinstance(what, GeneralWindows) and what.windowing.assigner.merges
    return MIN_TIME if merges or isinstance(what, RunningAggregates) else watermark


def oldest_used(node: Stateful, watermark: int) -> int:
    """What is stored of earlier times is of no use: panes, of which a block may hold some more."""
    return oldest_needed(node, watermark) if isinstance(node.what, PaneWindows) else MIN_TIME


def oldest_needed(node: Stateful, watermark: int) -> int:
    """What past rows make of earlier times is over."""
    what = node.what
    if isinstance(what, PaneWindows):
        return what.window.oldest_needed_pane(watermark)
    if isinstance(what, GeneralWindows):
        return floor_of(watermark, what.windowing.lateness)
    return MIN_TIME
