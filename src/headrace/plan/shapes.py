"""What identifies the state of a step, as plain JSON for the manifest.

Two parts. What is in the shape itself must be equal, or the state means something else: kind,
key, window, aggregates, columns that are stored. What is under "from" says where columns and
rows come from, by input; `evolving_origins.py` knows which difference there matters.
"""

from __future__ import annotations

import functools
import hashlib
import json
import types
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from headrace.expr import col
from headrace.ops.agg.own import OwnAggregate
from headrace.ops.window.by_rows import column_of
from headrace.ops.window.own import Own, WindowAssigner
from headrace.ops.window.process import WindowProcess
from headrace.plan.aggs import partial_schema
from headrace.plan.evolving_values import life_of, values_shape
from headrace.plan.lineage import chain, functions, functions_before, origins, roots, times
from headrace.plan.nodes import (
    AnyWindow,
    Apply,
    Edge,
    Fold,
    Process,
    Rolling,
    RowWindow,
    Stateful,
    WindowAgg,
    Windowed,
    WindowFold,
)
from headrace.schema import ddl_type

FROM, STATELESS = "from", "stateless"
Shape = dict[str, Any]
Aggregating = WindowAgg | Rolling | AnyWindow | RowWindow


def fingerprint(node: Stateful) -> str:
    """A stable hash of the shape of a step."""
    canonical = json.dumps(shape(node), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def shape(node: Stateful) -> Shape:
    """What identifies the state of a step, as plain JSON."""
    if isinstance(node, Apply) and stateless(node):
        return {"kind": node.what.kind, "key": [], "what": node.what.shape(), STATELESS: True}
    found = {"kind": type(node).__name__, "key": _key(node)}
    for part in (_window, _aggregates, _folds, _own):
        found |= part(node)
    return {**found, FROM: _from(node) | _filled(node, found)}


def _key(node: Stateful) -> list[Any]:
    """Names and types; of several inputs, each of which has its own names, the types."""
    schema = node.inputs[0].schema
    pairs = [[n, ddl_type(schema.field(n).type)] for n in node.keys[0]]
    return [kind for _, kind in pairs] if isinstance(node, Process | Apply) else pairs


def _window(node: Stateful) -> Shape:
    found: Shape = {}
    if isinstance(node, Windowed | Apply) and node.clocked:
        found["by"] = "processing"
    if isinstance(node, WindowAgg | WindowFold):
        window = node.window
        found["window"] = {"size": window.size, "slide": window.slide, "offset": window.offset}
    if isinstance(node, AnyWindow):
        found |= _any_window(node)
    if isinstance(node, RowWindow):
        found["window"] = str(node.window)
    if isinstance(node, AnyWindow | RowWindow) and node.function is not None:
        found["rows"] = columns(node.inputs[0].schema)
        fn = node.function.fn
        kept: Mapping[str, Any] = fn.values if isinstance(fn, WindowProcess) else {}
        found["kept"] = [[n, ddl_type(v.type), type(v).__name__] for n, v in kept.items()]
    return found


def _any_window(node: AnyWindow) -> Shape:
    windowing = node.windowing
    window: Shape = {"assigner": str(windowing.assigner), "mode": windowing.mode}
    if isinstance(windowing.assigner, Own):
        merges = {"merge()": "there"} if windowing.assigner.merges else {}
        window["settings"] = settings(windowing.assigner.user, WindowAssigner) | merges
    found: Shape = {
        "window": window,
        "watched": sorted(w.name + w.agg for w in windowing.trigger.watches()),
        "clocked": windowing.trigger.clocked,
    }
    if node.evictor is not None:  # it needs the rows themselves
        found["rows"] = columns(node.inputs[0].schema)
    return found


def _aggregates(node: Stateful) -> Shape:
    if not isinstance(node, Aggregating):
        return {}
    schema = node.inputs[0].schema
    found = []
    for name, agg in node.aggs:
        said = [name, agg.kind, columns(partial_schema(((name, agg),), schema))]
        own = settings(agg.own, OwnAggregate) if agg.own is not None else {}
        own.pop("column", None)
        found.append([*said, own] if own else said)
    return {"aggregates": found}


def _folds(node: Stateful) -> Shape:
    if not isinstance(node, Fold | WindowFold):
        return {}
    return {"folds": "reduce" if node.zero is None else "fold", "values": columns(node.value)}


def _own(node: Stateful) -> Shape:
    if isinstance(node, Process):
        return values_shape(node)
    if not isinstance(node, Apply):
        return {}
    found: Shape = {"kind": node.what.kind, "what": node.what.shape()}
    if getattr(node.what, "stores_input", False):
        found["what"] |= {"rows": columns(node.inputs[0].schema)}
    return found


def _from(node: Stateful) -> Shape:
    """Where what the state is made of comes from."""
    found: Shape = {"inputs": [list(roots(edge)) for edge in node.inputs]}
    found["columns"] = dict(_columns_used(node))
    if isinstance(node, Process | Apply):
        found["keys"] = {
            label: list(key) for label, key in zip(labels(node), node.keys, strict=True)
        }
    if _by_event_time(node):
        found["times"] = [times(edge) for edge in node.inputs]
    if lengths := _lengths(node):
        found["lengths"] = lengths
    if len(node.inputs) > 1:
        found["sides"] = [
            [label, [chain(edge), _made(edge)], [digest(fn) for fn in functions_before(edge)]]
            for label, edge in zip(labels(node), node.inputs, strict=True)
        ]
    if node.derived is not None:
        found["unnamed"] = node.derived
        found["chains"] = [chain(edge) for edge in node.inputs]
        found["functions"] = [digest(fn) for fn in functions(node)]
    return found


def _filled(node: Stateful, found: Shape) -> Shape:
    """Of a step that stores rows: the columns that are never null."""
    what = found.get("what", {})
    if "columns" in what:
        stored = [{name for name, _ in what["columns"]}]
    elif "rows" in found or "rows" in what or found.get("folds") == "reduce":
        stored = [set(edge.schema.names) for edge in node.inputs]
    else:
        return {}
    sides = zip(node.inputs, stored, strict=False)
    return {
        "filled": [
            [f.name for f in e.schema if f.name in names and not f.nullable] for e, names in sides
        ]
    }


def _made(edge: Edge) -> Shape:
    """What each column of the rows is made of, where it is not simply there."""
    found = {name: origins(edge, name) for name in edge.schema.names}
    return {n: said for n, said in found.items() if any(s != [col(n).sql()] for s in said.values())}


def labels(node: Stateful) -> tuple[str, ...]:
    """What the inputs of a step are called."""
    named = node.names if isinstance(node, Process) else getattr(_spec(node), "names", ())
    count = len(node.inputs)
    if len(named) == count:
        return tuple(named)
    return ("left", "right") if count == 2 else tuple(f"input {i + 1}" for i in range(count))


def _spec(node: Stateful) -> Any:
    return node.what if isinstance(node, Apply) else None


def _columns_used(node: Stateful) -> Iterator[tuple[str, Shape]]:
    """What each column is made of by which the state is keyed, ordered or aggregated."""
    several = len(node.inputs) > 1
    for label, edge, key in zip(labels(node), node.inputs, node.keys, strict=True):
        of = f" of {label}" if several else ""
        yield from ((f"the key {n!r}{of}", origins(edge, n)) for n in key)
    edge = node.inputs[0]
    if isinstance(node, Aggregating):
        yield from _arguments(node, edge)
    if isinstance(node, AnyWindow | RowWindow):
        for number, (name, _) in enumerate(node.extras):
            what = _EXTRA.get(name, f"what its trigger watches ({number + 1})")
            yield what, origins(edge, name)
    if isinstance(node, RowWindow) and (column := column_of(node.window)):
        yield "the end of its windows", origins(edge, column)
    for name in getattr(_spec(node), "compares", ()):
        yield f"the column {name!r}", origins(edge, name)


_EXTRA = {
    "$gap": "the gap of its windows",
    "$cut": "the end of its windows",
    "$near": "its evictor",
}


def _arguments(node: Aggregating, edge: Edge) -> Iterator[tuple[str, Shape]]:
    for name, agg in node.aggs:
        if agg.column is None and agg.kind == "count":
            yield f"the aggregate {name!r}", {root: ["every row"] for root in roots(edge)}
        if agg.column is not None:
            yield f"the aggregate {name!r}", origins(edge, str(agg.column))
        if agg.by is not None:
            yield f"the order of the aggregate {name!r}", origins(edge, str(agg.by))


def goes_by_event_time(node: Stateful) -> bool:
    """Whether it has state in which event times have a part."""
    return not stateless(node) and _by_event_time(node)


def stateless(node: Stateful) -> bool:
    """Whether it needs its key, but stores nothing."""
    return bool(getattr(_spec(node), "stateless", False))


def _by_event_time(node: Stateful) -> bool:
    """Whether event times are part of the state."""
    if isinstance(node, Windowed | Apply):
        return not node.clocked
    if isinstance(node, Rolling):
        return any(agg.ordered for _, agg in node.aggs)
    if isinstance(node, Process):
        kind = type(node.function)
        return kind.timed() or any(life_of(kept) == "event" for kept in kind._kept.values())
    return False


def _lengths(node: Stateful) -> dict[str, int]:
    """For how long what is over stays: a longer time would ask for what is gone."""
    if isinstance(node, AnyWindow):
        return {"lateness": node.windowing.lateness}
    spec = _spec(node)
    own: dict[str, int] | None = getattr(spec, "lengths", None)
    return own or ({"lateness": spec.lateness} if hasattr(spec, "lateness") else {})


def columns(schema: pa.Schema) -> list[list[str]]:
    return [[f.name, ddl_type(f.type)] for f in schema]


# A digest of a user's function, to tell two of them apart; never to tell what one does.
#
# It goes over code, constants, defaults and what the function closes over, as far as these are
# plain values. Another version of Python compiles the same text to other code, so digests are
# compared only where nothing else tells two steps apart.


_ABOUT = ("__module__", "__doc__", "__firstlineno__")  # where a class is, not what it does
_LONG = 1_000  # longer lists are told apart by their length only
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis))


def digest(fn: object) -> str:
    """Sixteen hexadecimal digits; equal for the same text with the same plain values."""
    return hashlib.sha256("\n".join(_parts(fn, 0)).encode()).hexdigest()[:16]


def settings(thing: object, base: type) -> dict[str, str]:
    """The attributes of an object and of its classes below `base`, as text."""
    kinds = [k for k in type(thing).__mro__ if k not in base.__mro__]
    found: dict[str, Any] = {}
    for kind in reversed(kinds):
        found |= {n: v for n, v in vars(kind).items() if _is_setting(n, v)}
    found |= {n: v for n, v in getattr(thing, "__dict__", {}).items()}
    return {name: "\n".join(_parts(found[name], 0)) for name in sorted(found)}


def _is_setting(name: str, value: object) -> bool:
    hidden = name.startswith("__") or callable(value)
    return not hidden and not isinstance(value, staticmethod | classmethod | property)


def _parts(thing: object, depth: int) -> Iterator[str]:
    if isinstance(thing, _PLAIN):
        yield repr(thing)
    elif depth > 8:
        yield type(thing).__qualname__
    elif isinstance(thing, functools.partial):
        yield "partial"
        yield from _each((thing.func, thing.args, thing.keywords), depth)
    elif isinstance(thing, types.MethodType):
        yield from _each((thing.__func__, thing.__self__), depth)
    elif isinstance(thing, types.FunctionType):
        yield thing.__qualname__
        closed = [_cell(cell) for cell in thing.__closure__ or ()]
        yield from _each((thing.__code__, thing.__defaults__, thing.__kwdefaults__, closed), depth)
    elif isinstance(thing, types.CodeType):
        yield thing.co_code.hex()
        yield from _each((thing.co_names, thing.co_consts), depth)
    else:
        yield from _compound(thing, depth)


def _compound(thing: object, depth: int) -> Iterator[str]:
    if isinstance(thing, list | tuple):
        yield f"{type(thing).__name__} of {len(thing)}"
        yield from _each(thing[:_LONG], depth)
    elif isinstance(thing, dict):
        yield f"dict of {len(thing)}"
        yield from _each(list(thing.items())[:_LONG], depth)
    elif isinstance(thing, set | frozenset):
        yield from sorted("\n".join(_parts(one, depth + 1)) for one in thing)
    elif isinstance(thing, type):
        yield f"class {thing.__qualname__}"
        yield from _each(_members(thing), depth)
    elif callable(thing):
        yield f"object of {type(thing).__qualname__}"
        yield from _each((_members(type(thing)), getattr(thing, "__dict__", {})), depth)
    else:
        yield type(thing).__qualname__  # nothing that is sure to be the same in another process


def _members(kind: type) -> list[tuple[str, Any]]:
    """The functions and plain values of the user's class; those of ours are not his."""
    if kind.__module__ == "builtins" or kind.__module__.startswith("headrace."):
        return []
    wanted = (*_PLAIN, types.FunctionType)
    found = {n: v for n, v in vars(kind).items() if isinstance(v, wanted) and n not in _ABOUT}
    return sorted(found.items())


def _each(things: Any, depth: int) -> Iterator[str]:
    for thing in things:
        yield from _parts(thing, depth + 1)


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None
