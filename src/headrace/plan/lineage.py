"""Where the columns, the event time and the rows of a step come from, as text that stays.

A computed column is followed upstream through expressions to what emitted its columns: an input,
a Python function or a step with state. So the same meaning has the same text wherever in the
program it is written. What is here reads the graph; whether a difference matters is decided
in `origin_changes.py`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from headrace.callables import title
from headrace.expr import Expr, col, over
from headrace.ops.stream.running_aggregates import RunningAggregates
from headrace.ops.watermarks import Bounded
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
)

SAME_ROWS = ("filter", "tap", "sample")  # kinds of steps after which the columns are as before
_LONG = 2_000  # characters of a chain within a union
_chains: WeakKeyDictionary[Node, dict[str, list[Any]]] = WeakKeyDictionary()  # by port


def roots(edge: Edge) -> tuple[str, ...]:
    """The names of the inputs whose rows reach `edge`."""
    return tuple(sorted(n.name for n in _upstream(edge) if isinstance(n, Read | Dead)))


def _upstream(edge: Edge, until: type[Node] | None = None) -> list[Node]:
    """All nodes that `edge` depends on, once each, those before `until` left out."""
    nodes: dict[int, Node] = {}
    waiting = [edge.node]
    while waiting:
        node = waiting.pop()
        if id(node) in nodes:
            continue
        nodes[id(node)] = node
        if until is None or not isinstance(node, until):
            waiting += [above.node for above in reversed(node.inputs)]
    return list(nodes.values())


def origins(edge: Edge, column: str) -> dict[str, list[str]]:
    """For each input: what the column is, in terms of the rows of that input."""
    texts: dict[str, set[str]] = {}
    for base, expr in lifted(edge, col(column)):
        made = base.node.what.makes(column) if isinstance(base.node, Chunks) else ""
        for root in roots(base):
            texts.setdefault(root, set()).add(made or expr.sql())
    return {root: sorted(texts[root]) for root in sorted(texts)}


def lifted(edge: Edge, expr: Expr) -> list[tuple[Edge, Expr]]:
    """`expr` over the rows at `edge`, written over those at each place where they begin."""
    bases: dict[tuple[Edge, str], tuple[Edge, Expr]] = {}
    seen: set[tuple[Edge, str]] = set()
    waiting = [(edge, expr)]
    while waiting:
        place = waiting.pop()
        key = (place[0], place[1].sql())
        above = _above(*place) if key not in seen else []
        if above is None:
            bases[key] = place
        else:
            waiting += above
        seen.add(key)
    return list(bases.values())


def _above(edge: Edge, expr: Expr) -> list[tuple[Edge, Expr]] | None:
    """The same one step further up; None where the rows begin."""
    node = edge.node
    if edge.port != OUT:
        return None if edge.origin is None else [(edge.origin, expr)]
    if isinstance(node, Union):
        return [(above, expr) for above in node.inputs]
    if isinstance(node, Select | SelectChain):
        return [(node.inputs[0], _through(selects(node), expr))]
    return [(node.inputs[0], expr)] if node.inputs and _passes(node, expr) else None


def selects(node: Select | SelectChain) -> tuple[Select, ...]:
    return node.steps if isinstance(node, SelectChain) else (node,)


def _through(steps: Sequence[Select], expr: Expr) -> Expr:
    """`expr` over the rows after `steps`, over those before them."""
    for step in reversed(steps):
        if step.columns is not None:
            expr = over(expr, dict(step.columns))
    return expr


def _passes(node: Node, expr: Expr) -> bool:
    """Whether the columns of `expr` are as they were before the step."""
    if not expr.columns <= set(node.inputs[0].schema.names):
        return False
    if isinstance(node, PythonChain):
        return all(step.kind in SAME_ROWS for step in node.steps)
    if isinstance(node, Python):
        return node.kind in SAME_ROWS
    if isinstance(node, Chunks):
        return node.what.kind in SAME_ROWS or node.what.leaves(expr.columns)
    return isinstance(node, Stateful) and node.what.passes_on(expr.columns)


def times(edge: Edge) -> dict[str, list[str]]:
    """For each input: what the event time of its rows is at `edge`, if they have one."""
    texts: dict[str, set[str]] = {}
    seen: set[Edge] = set()
    waiting = [edge]
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        time = _time(place)
        if time is None:
            waiting += place.node.inputs
        else:
            for root in roots(place):
                texts.setdefault(root, set()).add(time)
    return {root: sorted(texts[root]) for root in sorted(texts)}


def _time(edge: Edge) -> str | None:
    """What a step makes the event time of its rows; None if it leaves it as it is."""
    node = edge.node
    if isinstance(node, Read):
        return None if node.time is None else str(node.time)
    if edge.port != OUT:
        return None
    return node.what.emits_time if isinstance(node, Stateful) else None


def chain(edge: Edge) -> list[Any]:
    """The steps without state by which rows come to `edge`, beginning with what they come from.

    Only what decides which rows come and by which function they were made: columns that are
    computed on the way count where they are used.
    """
    by_port = _chains.setdefault(edge.node, {})
    if edge.port not in by_port:
        by_port[edge.port] = _chain(edge)
    return by_port[edge.port]


def _chain(edge: Edge) -> list[Any]:
    node = edge.node
    if isinstance(node, Read | Dead | Stateful):
        return [node.name if edge.port == OUT else f"{node.name}.{edge.port}"]
    if isinstance(node, Union):
        return [["union", *(_short(chain(above)) for above in node.inputs)]]
    return [*chain(node.inputs[0]), *_words(node)]


def _short(content: list[Any]) -> list[Any]:
    """Unions of unions of the same rows would grow without end: what is long is a digest."""
    text = json.dumps(content)
    return content if len(text) < _LONG else [hashlib.sha256(text.encode()).hexdigest()]


def _words(node: Node) -> list[str]:
    if isinstance(node, Select | SelectChain):
        return list(_conditions(node))
    if isinstance(node, PythonChain):
        return [f"{step.kind} {title(step.function.fn)}" for step in node.steps]
    if isinstance(node, Python):
        return [f"{node.kind} {title(node.function.fn)}"]
    return [f"{node.what.kind} {node.what}{_read(node)}"] if isinstance(node, Chunks) else []


def _read(node: Chunks) -> str:
    """What decides, besides the spec of a step, which rows it emits."""
    column = node.what.reads
    if node.what.chosen_by or column is None:
        return node.what.chosen_by
    texts = {over.sql() for _, over in lifted(node.inputs[0], col(column))} - {col(column).sql()}
    return f" ({' or '.join(sorted(texts))})" if texts else ""


def _conditions(node: Select | SelectChain) -> Iterator[str]:
    steps = selects(node)
    for number, step in enumerate(steps):
        if step.where is not None:
            before = _through(steps[:number], step.where)
            texts = {over.sql() for _, over in lifted(node.inputs[0], before)}
            yield "where " + " or ".join(sorted(texts))


def functions(node: Stateful) -> list[Any]:
    """The user's code that makes the state: the step's own, and the functions before it."""
    return [*node.what.user_code, *(fn for edge in node.inputs for fn in functions_before(edge))]


def functions_before(edge: Edge) -> list[Any]:
    """The user's functions by which rows come to `edge`."""
    nodes = (n for n in reversed(_upstream(edge, until=Stateful)) if not isinstance(n, Stateful))
    return [fn for node in nodes for fn in _functions_of(node)]


def _functions_of(node: Node) -> list[Any]:
    if isinstance(node, PythonChain):
        return [step.function.fn for step in node.steps]
    if isinstance(node, Python):
        return [node.function.fn]
    return list(node.what.functions) if isinstance(node, Chunks) else []


# Running results as versions of something.


def unordered_results(edge: Edge) -> str | None:
    """The running aggregate whose results these rows are, if its rows may be out of order.

    A result has the event time of its row, so the one with the latest time need not be the last.
    """
    node = stateful_before(edge)
    if not isinstance(node, Stateful) or not isinstance(node.what, RunningAggregates):
        return None
    reads = [n for n in _upstream(node.inputs[0], until=Read) if isinstance(n, Read)]
    in_order = all(read.watermark == Bounded(0) for read in reads)
    return node.name if node.timed and not in_order else None


def stateful_before(edge: Edge) -> Node:
    """The step that made these rows, whatever was computed or left out since then."""
    while isinstance(edge.node, Select | Python):
        edge = edge.node.inputs[0]
    return edge.node
