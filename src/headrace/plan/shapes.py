"""What identifies the state of a step, as plain JSON for the manifest.

Two parts. What is in the shape itself must be equal, or the state means something else: kind,
key, window, aggregates, columns that are stored. What is under "from" says where columns and
rows come from, by input; `origin_changes.py` knows which difference there matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from headrace.at_rest import described, fingerprint_of
from headrace.callables import digest
from headrace.expr import col
from headrace.hashing import hash_family
from headrace.ops.agg.named import Aggs
from headrace.ops.process.held_rows import HELD_ROWS
from headrace.plan.lineage import (
    chain,
    functions,
    functions_before,
    lifted,
    origins,
    roots,
    times,
)
from headrace.plan.nodes import Chunks, Edge, Stateful

FROM, STATELESS = "from", "stateless"
Shape = dict[str, Any]


def fingerprint(node: Stateful) -> str:
    """A stable hash of the shape of a step."""
    return fingerprint_of(shape(node))


def shape(node: Stateful) -> Shape:
    """What identifies the state of a step, as plain JSON."""
    what = node.what
    if what.stateless:
        return {"kind": what.kind, "key": [], "what": what.shape(), STATELESS: True}
    by = {"by": "processing"} if node.processing else {}
    state = {"key": _key(node), **by, **what.state_shape(node.place)}
    return {**state, FROM: _from(node) | _filled(node, state)}


def _key(node: Stateful) -> list[Any]:
    """Names and types; of several inputs, each of which has its own names, the types."""
    pairs = described(pa.schema([node.place.input.field(n) for n in node.keys[0]]))
    return pairs if node.what.keys_by_name else [kind for _, kind in pairs]


def _from(node: Stateful) -> Shape:
    """Where the rows and columns that the state is built from come from."""
    origin: Shape = {"inputs": [list(roots(edge)) for edge in node.inputs]}
    origin["columns"] = dict(_columns_used(node))
    hashed = {name: agg.hashed(node.place.input) for name, agg in node.what.aggregates}
    if any(hashed.values()):
        origin["hashed"] = {name: family for name, family in hashed.items() if family}
    if remembered := node.what.remembered(node.place):
        origin["remembered"] = remembered
    if not node.what.keys_by_name:
        origin["keys"] = {
            label: list(key) for label, key in zip(labels(node), node.keys, strict=True)
        }
    if node.what.by_event_time and not node.processing:
        origin["times"] = [times(edge) for edge in node.inputs]
    if node.what.lengths:
        origin["lengths"] = node.what.lengths
    if len(node.inputs) > 1:
        origin["sides"] = [
            [
                label,
                [chain(edge), _derived_columns(edge)],
                [digest(fn) for fn in functions_before(edge)],
            ]
            for label, edge in zip(labels(node), node.inputs, strict=True)
        ]
    if node.derived is not None:
        origin["unnamed"] = node.derived
        origin["chains"] = [chain(edge) for edge in node.inputs]
        origin["functions"] = [digest(fn) for fn in functions(node)]
    return origin


def _filled(node: Stateful, state: Shape) -> Shape:
    """Of a step that stores rows: the columns that are never null."""
    what = state.get("what", {})
    if "columns" in what:
        stored = [{name for name, _ in what["columns"]}]
    elif HELD_ROWS in state or "rows" in state or "rows" in what or state.get("folds") == "reduce":
        stored = [set(edge.schema.names) for edge in node.inputs]
    else:
        return {}
    sides = zip(node.inputs, stored, strict=False)
    return {
        "filled": [
            [f.name for f in e.schema if f.name in names and not f.nullable] for e, names in sides
        ]
    }


def _derived_columns(edge: Edge) -> Shape:
    """What each column of the rows is computed from, unless it is passed on as it is."""
    columns = {name: origins(edge, name) for name in edge.schema.names}
    return {
        n: texts for n, texts in columns.items() if any(s != [col(n).sql()] for s in texts.values())
    }


def labels(node: Stateful) -> tuple[str, ...]:
    """What the inputs of a step are called."""
    named, count = node.what.input_names, len(node.inputs)
    if len(named) == count:
        return named
    return ("left", "right") if count == 2 else tuple(f"input {i + 1}" for i in range(count))


def _columns_used(node: Stateful) -> Iterator[tuple[str, Shape]]:
    """For each column that is a key, an order or an aggregate of the state: what it comes from."""
    several = len(node.inputs) > 1
    for label, edge, key in zip(labels(node), node.inputs, node.keys, strict=True):
        suffix = f" of {label}" if several else ""
        yield from ((f"the key {n!r}{suffix}", origins(edge, n)) for n in key)
        yield from (one for n in key for one in _dealt_by(edge, n).items())
    for port, (label, edge) in enumerate(zip(labels(node), node.inputs, strict=True)):
        dealt = node.what.dealt_by(port)
        yield from ((f"the field {n!r} of {label}", origins(edge, n)) for n in dealt)
    edge = node.inputs[0]
    yield from _arguments(node.what.aggregates, edge)
    for number, (name, _) in enumerate(node.what.extra_columns):
        what = _EXTRA.get(name, f"what its trigger watches ({number + 1})")
        yield what, origins(edge, name)
    if column := node.what.ends_by:
        yield "the end of its windows", origins(edge, column)
    for name in node.what.compares:
        yield f"the column {name!r}", origins(edge, name)


_EXTRA = {
    "$gap": "the gap of its windows",
    "$cut": "the end of its windows",
    "$near": "its evictor",
}


def _dealt_by(edge: Edge, key: str) -> dict[str, dict[str, list[str]]]:
    """Of a key that is the number of a task: the fields that decide on it, and their types."""
    found: dict[str, dict[str, list[str]]] = {}
    for base, _ in lifted(edge, col(key)):
        for field in base.node.what.dealt_by if isinstance(base.node, Chunks) else ():
            (above,) = base.node.inputs
            family = hash_family(above.schema.field(field).type)
            types = {root: [family] for root in roots(above)}
            for what, of in (
                (f"the field {field!r} of its tasks", origins(above, field)),
                (f"the type of the field {field!r} of its tasks", types),
            ):
                for root, texts in of.items():
                    known = found.setdefault(what, {}).get(root, [])
                    found[what][root] = sorted({*known, *texts})
    return found


ORDER_OF = "the order of "  # or the weight


def _arguments(aggs: Aggs, edge: Edge) -> Iterator[tuple[str, Shape]]:
    for name, agg in aggs:
        if agg.column is None and agg.kind == "count":
            yield f"the aggregate {name!r}", {root: ["every row"] for root in roots(edge)}
        if agg.column is not None:
            yield f"the aggregate {name!r}", origins(edge, str(agg.column))
        if agg.by is not None:
            yield f"{ORDER_OF}the aggregate {name!r}", origins(edge, str(agg.by))


def goes_by_event_time(node: Stateful) -> bool:
    """Whether it has state in which event times have a part."""
    return not node.what.stateless and node.what.by_event_time and not node.processing
