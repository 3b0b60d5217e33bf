"""From the program as written to the program as run: small pure rewrites, in one order.

A rewrite takes a graph (steps, each after those it reads from) and returns another that
means the same. Names stay: a fused step is found by name inside its chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.expr import Expr, all_columns
from headrace.kernel import infer
from headrace.ops.shedding import priority_columns
from headrace.ops.watermarks import columns_watched
from headrace.plan.columns import arguments, columns_read, projected
from headrace.plan.nodes import (
    LATE,
    Edge,
    Node,
    Python,
    PythonChain,
    Read,
    Select,
    SelectChain,
    Stateful,
)

Graph = tuple[Node, ...]
Rewrite = Callable[[Graph], Graph]


def rewrite(graph: Graph) -> Graph:
    for step in REWRITES:
        graph = step(graph)
    return graph


def project_arguments(graph: Graph) -> Graph:
    """Make a column of each aggregate argument that is an expression: `ops` sees columns."""
    late = _with_late(graph)

    def replaced(node: Node) -> tuple[Node, ...]:
        computed = _computed_columns(node)
        if not computed:
            return (node,)
        assert isinstance(node, Stateful)
        (edge,) = node.inputs
        passed = _passed_columns(node, edge.schema, whole=node.what.sees_rows or node.name in late)
        columns = {**passed, **computed}
        before = Select(
            name=f"{node.name}:arguments",
            schema=infer(columns, edge.schema),
            inputs=(edge,),
            timed=edge.node.timed,
            site=node.site,
            columns=tuple(columns.items()),
        )
        aggs = tuple((n, projected(n, a)) for n, a in node.what.aggregates)
        after = replace(node, inputs=(Edge(before),), what=node.what.with_aggregates(aggs))
        return (before, after) if node.name not in late else (before, after, _late(after, edge))

    return _map(graph, replaced)


def prune_inputs(graph: Graph) -> Graph:
    """Read only the columns that some step needs; a Python function may look at any."""
    late = _with_late(graph)
    needed: dict[str, set[str]] = {n.name: set() for n in graph}
    for node in reversed(graph):
        for edge in node.inputs:
            whole = node.name in late
            needed[edge.node.name] |= _needs(node, edge, needed[node.name], whole=whole)

    def replaced(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Read):
            return (_pruned(node, needed[node.name]),)
        if isinstance(node, Select) and node.columns is None:
            return (replace(node, schema=node.inputs[0].schema),)
        return (node,)

    return _map(graph, replaced)


def fuse_selects(graph: Graph) -> Graph:
    """One compiled pass for expressions that follow each other."""
    return _fuse(graph, SelectChain, lambda node: isinstance(node, Select))


def fuse_python(graph: Graph) -> Graph:
    """One pass over the rows for Python functions that follow each other."""
    return _fuse(
        graph, PythonChain, lambda node: isinstance(node, Python) and node.kind != "batches"
    )


REWRITES: tuple[Rewrite, ...] = (project_arguments, prune_inputs, fuse_selects, fuse_python)


def _fuse(graph: Graph, chain: type[Any], fits: Callable[[Node], bool]) -> Graph:
    """Make chains of the nodes that fit; one joins the chain before it that only it reads."""
    readers = Counter(e.node.name for n in graph for e in n.inputs)

    def replaced(node: Node) -> tuple[Node, ...]:
        if not fits(node):
            return (node,)
        (edge,) = node.inputs
        before: Any = edge.node
        fused = isinstance(before, chain) and readers[before.name] == 1
        return (
            chain(
                name=node.name,
                schema=node.schema,
                inputs=before.inputs if fused else (edge,),
                timed=node.timed,
                site=node.site,
                was=node.was,
                steps=(*(before.steps if fused else ()), replace(node, inputs=())),
            ),
        )

    return _map(graph, replaced)


def _map(graph: Graph, replaced: Callable[[Node], Sequence[Node]]) -> Graph:
    """Replace each node by others, of which the one of its name takes its place.

    A node named "<step>:late" takes the place of the step's late port (no user can write
    that name). What nobody reads any longer, being fused into its reader, is left out.
    """
    now: dict[str, Node] = {}
    ends = {n.name for n in graph} - {e.node.name for n in graph for e in n.inputs}
    for node in graph:
        inputs = tuple(_moved(e, now) for e in node.inputs)
        for new in replaced(replace(node, inputs=inputs)):
            now[new.name] = new
    return _reachable(tuple(now.values()), ends)


def _moved(edge: Edge, now: dict[str, Node]) -> Edge:
    late_rows = now.get(f"{edge.node.name}:{LATE}") if edge.port == LATE else None
    return Edge(now[edge.node.name], edge.port) if late_rows is None else Edge(late_rows)


def _reachable(graph: Graph, ends: set[str]) -> Graph:
    used = set(ends)
    for node in reversed(graph):
        used |= {e.node.name for e in node.inputs} if node.name in used else set()
    return tuple(n for n in graph if n.name in used)


def _computed_columns(node: Node) -> dict[str, Expr]:
    """Columns that a step needs and that are not there yet."""
    if not isinstance(node, Stateful):
        return {}
    return {**dict(node.what.extra_columns), **arguments(node.what.aggregates)}


def _deciding(node: Stateful) -> set[str]:
    """The column of the input that says where a window ends, if there is one."""
    column = node.what.ends_by
    return set() if column is None or column in dict(node.what.extra_columns) else {column}


def _passed_columns(node: Stateful, schema: pa.Schema, *, whole: bool) -> dict[str, Expr]:
    """The columns that are passed on with the new ones."""
    plain = {a for _, agg in node.what.aggregates for a in agg.arguments if isinstance(a, str)}
    used = {*node.keys[0], *plain, *_deciding(node)}
    return {n: e for n, e in all_columns(schema).items() if whole or n in used}


def _late(node: Node, before: Edge) -> Select:
    """Late rows as the user knows them: without the columns made for the aggregates."""
    return Select(
        name=f"{node.name}:{LATE}",
        schema=before.schema,
        inputs=(Edge(node, LATE),),
        timed=before.node.timed,
        site=node.site,
        columns=tuple(all_columns(before.schema).items()),
    )


def _needs(node: Node, edge: Edge, needed: set[str], *, whole: bool) -> set[str]:
    """The columns of `edge` that `node` cannot do without, when `needed` of its own are."""
    if isinstance(node, Select):
        where = node.where.columns if node.where is not None else frozenset[str]()
        read = [e.columns for _, e in node.columns or ()]
        return {*where, *(needed if node.columns is None else frozenset[str]().union(*read))}
    if isinstance(node, Stateful) and not (whole or node.what.sees_rows):
        extra = frozenset[str]().union(*(e.columns for e in _computed_columns(node).values()))
        return {*node.keys[0], *columns_read(node.what.aggregates), *extra, *_deciding(node)}
    return set(edge.schema.names)


def _pruned(node: Read, needed: set[str]) -> Read:
    watched = columns_watched(node.time, node.watermark, tuple(node.schema.names))
    watched |= priority_columns(node.shed)
    needed_fields = [f for f in node.schema if f.name in needed or f.name in watched]
    if len(needed_fields) == len(node.schema):
        return node
    if not node.without_weight(pa.schema(needed_fields)).names:
        needed_fields.insert(0, node.schema.field(0))  # a chunk needs a column to have rows
    return replace(node, schema=pa.schema(needed_fields), declared=node.schema)


def _with_late(graph: Graph) -> set[str]:
    """The steps whose late rows are used."""
    return {e.node.name for n in graph for e in n.inputs if e.port == LATE}
