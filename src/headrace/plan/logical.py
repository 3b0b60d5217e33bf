"""A step in words: what the plan, the page and the errors call it.

`Step` is plain data (it goes into JSON as it is): the program as the user wrote it, before
anything was fused or moved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from headrace.clock import pretty
from headrace.expr import Expr
from headrace.ops.agg.named import Aggregate
from headrace.ops.stream.transform import Transform
from headrace.ops.watermarks import Custom
from headrace.plan.nodes import (
    OUT,
    AnyWindow,
    Apply,
    Chunks,
    Dead,
    Edge,
    Fold,
    Node,
    Process,
    PyFunction,
    Python,
    PythonChain,
    Read,
    Rolling,
    RowWindow,
    Select,
    SelectChain,
    Stateful,
    Union,
    WindowAgg,
    WindowFold,
    Write,
)
from headrace.plan.signature import title
from headrace.schema import ddl_of


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    kind: str
    detail: str
    inputs: tuple[str, ...]  # names of steps; "step.late" for a port other than the main one
    schema: str
    site: str | None
    python: str | None  # why it runs as Python; None when it does not


def logical_steps(graph: Sequence[Node]) -> tuple[Step, ...]:
    return tuple(step_of(node) for node in graph)


def step_of(node: Node) -> Step:
    site = str(node.site) if node.site else None
    inputs = tuple(map(port_name, node.inputs))
    return Step(
        node.name,
        kind_of(node),
        detail_of(node),
        inputs,
        ddl_of(node.schema),
        site,
        python_of(node),
    )


def port_name(edge: Edge) -> str:
    return edge.node.name if edge.port == OUT else f"{edge.node.name}.{edge.port}"


_KINDS: dict[type[Node], str] = {
    Read: "read", Dead: "dead letters", Union: "union", SelectChain: "select",
    PythonChain: "python", WindowAgg: "window", WindowFold: "window", AnyWindow: "window",
    RowWindow: "window", Rolling: "rolling",
    Fold: "fold", Process: "process", Write: "write",
}  # fmt: skip


def kind_of(node: Node) -> str:
    """One word for what a step does."""
    if isinstance(node, Python):
        return node.kind
    if isinstance(node, Select):
        return "where" if node.columns is None else "select"
    if isinstance(node, Apply | Chunks):
        return node.what.kind
    return _KINDS[type(node)]


def python_of(node: Node) -> str | None:
    """Why a step runs as Python, or None."""
    if isinstance(node, Python | Fold | WindowFold):
        return _function(node.function)
    if isinstance(node, AnyWindow | RowWindow):
        return _function(node.function) if node.function else None
    if isinstance(node, Process):
        path = "by chunk" if type(node.function).chunked() else "row by row"
        return f"{type(node.function).__name__}: a process function, {path}"
    if isinstance(node, Apply) and isinstance(node.what, Transform) and node.what.spark:
        return f"{title(node.what.fn)}: a function of Spark's DataFrames, called by the driver"
    if isinstance(node, Apply | Chunks) and node.what.functions:
        return f"{', '.join(map(title, node.what.functions))}: a Python function"
    if isinstance(node, Read) and isinstance(node.watermark, Custom):
        return f"{node.watermark.kind.__qualname__}: a watermark of your own"
    return None


def _function(function: PyFunction) -> str:
    where = f" ({function.site})" if function.site else ""
    return f"{title(function.fn)}{where}: {function.reason}"


@singledispatch
def detail_of(node: Node) -> str:
    """What a step does, in a few words."""
    return ""


@detail_of.register
def _(node: Read) -> str:
    uri = node.uri if isinstance(node.uri, str) else type(node.uri).__name__
    said = [f"time {node.time}"] if node.time is not None else []
    said += [_plain(str(node.watermark))] if isinstance(node.time, str) else []
    for name in ("idle", "max_skew", "align"):
        length = getattr(node, name)
        said += [f"{name} {pretty(length)}"] if length is not None else []
    return ", ".join([uri, *said])


@detail_of.register
def _(node: Select) -> str:
    where = words(node.where) if node.where is not None else ""
    columns = ", ".join(
        name if words(expr) == name else f"{words(expr)} AS {name}"
        for name, expr in node.columns or ()
    )
    return f"{columns} WHERE {where}" if where and columns else where or columns


@detail_of.register
def _(node: Python) -> str:
    return title(node.function.fn)


@detail_of.register
def _(node: WindowAgg) -> str:
    return f"{node.window}, {keyed_by(node)}: {aggregates(node.aggs)}"


@detail_of.register
def _(node: AnyWindow) -> str:
    windowing = node.windowing
    said = [str(windowing.assigner), f"by {'processing' if node.processing else 'event'} time"]
    said += [str(windowing.trigger)]
    said += [f"lateness {pretty(windowing.lateness)}"] if windowing.lateness else []
    said += [windowing.mode] if windowing.mode != "replace" else []
    said += [str(node.evictor)] if node.evictor else []
    return f"{', '.join(said)}, {keyed_by(node)}: {_computed(node)}"


@detail_of.register
def _(node: RowWindow) -> str:
    clock = ", by processing time" if node.processing else ""
    return f"{node.window}{clock}, {keyed_by(node)}: {_computed(node)}"


def _computed(node: AnyWindow | RowWindow) -> str:
    if node.function is None:
        return aggregates(node.aggs)
    what = "process" if node.process else _folding(node.zero)
    return f"{what} {title(node.function.fn)}"


@detail_of.register
def _(node: WindowFold) -> str:
    return f"{node.window}, {keyed_by(node)}: {_folding(node.zero)} {title(node.function.fn)}"


@detail_of.register
def _(node: Rolling) -> str:
    return f"{keyed_by(node)}: {aggregates(node.aggs)}"


@detail_of.register
def _(node: Fold) -> str:
    return f"{keyed_by(node)}: {_folding(node.zero)} {title(node.function.fn)}"


@detail_of.register
def _(node: Process) -> str:
    inputs = ", ".join(node.names)
    return f"{keyed_by(node)}: {type(node.function).__name__} over {inputs}"


@detail_of.register
def _(node: Apply) -> str:
    return f"{keyed_by(node)}: {node.what}"


@detail_of.register
def _(node: Chunks) -> str:
    return str(node.what)


@detail_of.register
def _(node: Write) -> str:
    options = ", ".join(f"{k} {v}" for k, v in node.options.items())
    return f"{node.uri}, {options}" if options else node.uri


def keyed_by(node: Stateful) -> str:
    sides = [", ".join(keys) for keys in dict.fromkeys(node.keys)]
    return f"by {' = '.join(sides)}" if any(sides) else "not keyed"


def aggregates(aggs: Sequence[tuple[str, Aggregate]]) -> str:
    return ", ".join(f"{name} = {_plain(str(agg))}" for name, agg in aggs)


def words(expr: Expr) -> str:
    """An expression for people: SQL, quoted only where it must be."""
    return _plain(expr.sql())


def _plain(sql: str) -> str:
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", sql)


def _folding(zero: PyFunction | None) -> str:
    return "reduce" if zero is None else "fold"
