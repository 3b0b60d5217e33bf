"""A step in words: what the plan, the page and the errors call it.

`LogicalStep` is plain data (it goes into JSON as it is): the program as the user wrote it, before
anything was fused or moved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch

from headrace.callables import title
from headrace.clock import pretty
from headrace.expr import Expr
from headrace.ops.agg.named import bare_sql
from headrace.ops.watermarks import ComputedTime, CustomWatermark
from headrace.plan.nodes import (
    OUT,
    Chunks,
    Dead,
    Edge,
    Node,
    Python,
    PythonChain,
    Read,
    Select,
    SelectChain,
    Stateful,
    Union,
    Write,
)
from headrace.schema import ddl_of


@dataclass(frozen=True, slots=True)
class LogicalStep:
    name: str
    kind: str
    detail: str
    inputs: tuple[str, ...]  # names of steps; "step.late" for a port other than the main one
    schema: str
    site: str | None
    python: str | None  # why it runs as Python; None when it does not


def logical_steps(graph: Sequence[Node]) -> tuple[LogicalStep, ...]:
    return tuple(step_of(node) for node in graph)


def step_of(node: Node) -> LogicalStep:
    site = str(node.site) if node.site else None
    inputs = tuple(map(port_name, node.inputs))
    return LogicalStep(
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
    PythonChain: "python", Write: "write",
}  # fmt: skip


def kind_of(node: Node) -> str:
    """One word for what a step does."""
    if isinstance(node, Python):
        return node.kind
    if isinstance(node, Select):
        return "where" if node.columns is None else "select"
    if isinstance(node, Stateful | Chunks):
        return node.what.kind
    return _KINDS[type(node)]


def python_of(node: Node) -> str | None:
    """Why a step runs as Python, or None."""
    if isinstance(node, Python):
        return str(node.function)
    if isinstance(node, Stateful | Chunks):
        return node.what.python
    if isinstance(node, Read) and isinstance(node.watermark, CustomWatermark):
        return f"{node.watermark.kind.__qualname__}: a watermark of your own"
    return None


@singledispatch
def detail_of(node: Node) -> str:
    """What a step does, in a few words."""
    return ""


@detail_of.register
def _(node: Read) -> str:
    made = getattr(node.uri, "title", type(node.uri).__name__)
    uri = node.uri if isinstance(node.uri, str) else made
    parts = [bare_sql(f"time {node.time}")] if node.time is not None else []
    parts += [bare_sql(str(node.watermark))] if isinstance(node.time, str | ComputedTime) else []
    for name in ("idle", "max_skew", "align"):
        length = getattr(node, name)
        parts += [f"{name} {pretty(length)}"] if length is not None else []
    parts += [f"sheds {bare_sql(str(node.shed))}"] if node.shed is not None else []
    return ", ".join([uri, *parts])


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
def _(node: Stateful) -> str:
    return node.what.detail(keyed_by(node), node.processing)


@detail_of.register
def _(node: Chunks) -> str:
    return str(node.what)


@detail_of.register
def _(node: Write) -> str:
    options = ", ".join(f"{k} {_shown(k, v)}" for k, v in node.options.items())
    return f"{node.uri}, {options}" if options else str(node.uri)


def _shown(option: str, value: object) -> str:
    """An option's value, unless it could be secret."""
    return "..." if _SECRET.search(option) else str(value)


_SECRET = re.compile(r"password|secret|token|passphrase|^(options|sasl_|ssl_)")


def keyed_by(node: Stateful) -> str:
    sides = [", ".join(keys) for keys in dict.fromkeys(node.keys)]
    return f"by {' = '.join(sides)}" if any(sides) else "not keyed"


def words(expr: Expr) -> str:
    """An expression for people: SQL, quoted only where it must be."""
    return bare_sql(expr.sql())
