"""What can be wrong with a process function as a step: one small function for each.

As in `checks.py`, but a check sees one step, and what it yields gets the step's place. What a
method does with its context is read from its code where it can be; the rest is refused when it
runs.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError
from headrace.ops.keys import key_names
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.operator import ProcessSpec
from headrace.plan.draft import unknown_columns
from headrace.plan.nodes import Edge, Node, Stateful
from headrace.schema import ddl_type

Problems = Iterator[PlanError]
Process = type[KeyedProcess]


def process_checks(graph: Sequence[Node]) -> Problems:
    """Every check of every process function; one that is none has been reported already."""
    stateful = [n for n in graph if isinstance(n, Stateful)]
    steps = [(n, n.what) for n in stateful if isinstance(n.what, ProcessSpec)]
    for node, what in steps:
        yield from _at(node, _connected_keys(node, what))
    for check in _CHECKS:
        for node, what in steps:
            if isinstance(what.function, KeyedProcess):
                yield from _at(node, check(node, what, type(what.function)))


def _at(node: Node, problems: Problems) -> Problems:
    for problem in problems:
        problem.site = node.site
        yield problem


def _connected_keys(node: Stateful, what: ProcessSpec) -> Problems:
    keyed = [i for i in range(len(node.inputs)) if i not in node.broadcast]
    if not keyed or not all(_has_keys(node.inputs[i], node.keys[i]) for i in keyed):
        return
    kinds = {
        what.names[i]: tuple(node.inputs[i].schema.field(k).type for k in node.keys[i])
        for i in keyed
    }
    first = kinds[what.names[0]]
    for name, kind in kinds.items():
        if kind != first:
            yield PlanError(
                "HR-PLAN-007",
                f"{node.name!r} connects {what.names[0]!r} by {_types(first)} with "
                f"{name!r} by {_types(kind)}",
                "Keys meet only when their types are equal: cast one of them before.",
            )


def _methods(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    handlers = kind.handlers()
    if kind.chunked() and not handlers:
        return
    control = [what.names[i] for i in node.broadcast]
    missing = [
        n for n in what.names if n not in handlers and ("row" not in handlers or n in control)
    ]
    unknown = [n for n in handlers if n not in what.names and n != "row"]
    if missing or unknown:
        fact = f"no on_{missing[0]}" if missing else f"on_{unknown[0]}"
        yield PlanError(
            "HR-PLAN-016",
            f"{kind.__name__} has {fact}, but the inputs of {node.name!r} are "
            f"{', '.join(what.names)}",
            "Write on_<input>(self, row, ctx) for each input, or on_row for all; "
            "name the inputs with hr.connect(by=..., name=stream) or names=.",
        )


def _arguments(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    """Every method takes what it is called with."""
    called = {f"on_{name}": "row, ctx" for name in kind.handlers()}
    called |= {"on_timer": "time, ctx"} if kind.timed() else {}
    called |= {"on_chunk": "rows, ctx"} if kind.chunked() else {}
    for method, arguments in called.items():
        try:
            inspect.signature(getattr(what.function, method)).bind(None, None)
        except ValueError:  # a builtin that has no signature
            continue
        except TypeError:
            yield PlanError(
                "HR-PLAN-028",
                f"{kind.__name__}.{method} is called with ({arguments}), and does not take that",
                f"Write {method}(self, {arguments}).",
            )


def _timers_without_handler(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    timer = min(_context_attributes(kind) & {"timer", "clock_timer"}, default=None)
    if timer is not None and not kind.timed():
        yield PlanError(
            "HR-PROCESS-003",
            f"{kind.__name__} sets a timer with ctx.{timer}, but has no on_timer",
            "Write on_timer(self, time, ctx): it is called when the timer is due.",
        )


def _event_time(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    if node.timed or any(len(e.schema) == 0 for e in node.inputs):
        return
    inputs = [e.node.name for i, e in enumerate(node.inputs) if i not in node.broadcast]
    bare = [e.node.name for e in node.inputs if e.node.name in inputs and not e.node.timed]
    if "timer" in _context_attributes(kind):
        yield PlanError(
            "HR-PROCESS-004",
            f"{kind.__name__} sets timers by event time, but {bare[0]!r} has none",
            'Name the time column where it is read: job.read(..., time="at", '
            'delay="2s"); or set timers by the clock: ctx.clock_timer.',
        )
    expiring = [n for n, v in kind.values.items() if v.ttl is not None and not v.by_clock]
    if expiring:
        yield PlanError(
            "HR-PROCESS-005",
            f"{kind.__name__}.{expiring[0]} is forgotten by event time, but {bare[0]!r} has none",
            "Pass ttl=..., by_clock=True; or name the time column where it is read.",
        )


def _chunks(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    if not kind.chunked():
        return
    columns = ("value", "list", "map")
    others = [v.word for v in kind.values.values() if v.word not in columns]
    wrong = (
        f"on_{kind.handlers()[0]} as well"
        if kind.handlers()
        else f"a {others[0]}, but only values, lists and maps can be columns"
        if others
        else "shared state, which is for rows only"
        if kind.shared
        else "operator state, which is for rows only"
        if kind.by_task
        else f"{len(node.inputs)} inputs, and takes one"
        if len(node.inputs) > 1
        else ""
    )
    if wrong:
        yield PlanError(
            "HR-PROCESS-006",
            f"{kind.__name__} has on_chunk and {wrong}",
            "Write on_row instead of on_chunk, or leave the other out.",
        )


def _order(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    """What would depend on batches in spite of it is not for a function in order."""
    if not what.order:
        return
    keyed = bool(node.keys[0])
    control = [repr(what.names[i]) for i in node.broadcast]
    wrong = (
        f"the control stream {control[0]}, whose rows count from the batch in which they come"
        if control
        else f"{kind.__name__}.{next(iter(kind.by_task))} by task, which sees a batch key by key"
        if keyed and kind.by_task
        else ""
    )
    if wrong:
        hint = (
            "Give the stream a key and connect it as the others; or leave order= out."
            if control
            else "Store it by key; or leave out key_by: a task then sees its rows in order."
        )
        fact = f"{node.name!r} runs in the order of event time, but has {wrong}"
        yield PlanError("HR-PROCESS-026", fact, hint)


def _shared_state(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    if kind.shared and not node.broadcast:
        name = next(iter(kind.shared))
        yield PlanError(
            "HR-PROCESS-007",
            f"nothing can change {kind.__name__}.{name}: {node.name!r} has no broadcast input",
            'Connect a control stream: hr.connect(by="key", rows=rows, rules=rules.broadcast()).',
        )


def _value_names(node: Stateful, what: ProcessSpec, kind: Process) -> Problems:
    claimed = dict[str, str]()
    columns = set(key_names(len(node.keys[0])))
    for name, declared in kind._kept.items():
        was = declared.was
        wrong = (
            f"{name!r} is how the state calls a column of the key"
            if name in columns
            else f"{name!r} says it was {was!r}, which is still there"
            if was in kind._kept
            else f"{claimed[was]!r} and {name!r} both say they were {was!r}"
            if was in claimed
            else ""
        )
        if was is not None:
            claimed.setdefault(was, name)
        if wrong:
            yield PlanError(
                "HR-PROCESS-008",
                f"{kind.__name__}: {wrong}",
                "Give the value another name, or leave was= out.",
            )


_CHECKS: tuple[Callable[[Stateful, ProcessSpec, Process], Problems], ...] = (
    _methods, _arguments, _timers_without_handler, _event_time, _chunks, _order, _shared_state,
    _value_names,
)  # fmt: skip


def _has_keys(edge: Edge, keys: Sequence[str]) -> bool:
    schema = edge.schema
    unsure = len(schema) == 0 or bool(unknown_columns(schema))
    return not unsure and all(k in schema.names for k in keys)


def _types(kinds: Sequence[pa.DataType]) -> str:
    return ", ".join(map(ddl_type, kinds)) or "nothing"


# What the methods of a process function use of their context, read from their code.
#
# Only what a method uses of its own context argument is seen, not what it passes the context on
# to: what is seen is used, what is not seen may be used, and is then refused when it runs.
# Nothing is called.


def _context_attributes(kind: type) -> set[str]:
    """The attributes that the methods of a class use of their context."""
    names: set[str] = set()
    for name in dir(kind):
        if name.startswith("on_"):
            code = getattr(getattr(kind, name), "__code__", None)
            if code is not None and code.co_argcount >= 3:
                names.update(_attributes_of(code, code.co_varnames[2]))
    return names


def _attributes_of(code: Any, context: str) -> Iterator[str]:
    before = None
    for step in dis.get_instructions(code):
        loads = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
        if loads and before is not None and before.argval == context:
            yield str(step.argval)
        before = step if step.opname.startswith(("LOAD_FAST", "LOAD_DEREF")) else None
    for inner in code.co_consts:
        if hasattr(inner, "co_code") and context in inner.co_freevars:
            yield from _attributes_of(inner, context)
