"""Streams that meet by key: the inputs of a process function, each under a name.

The names are what the function's methods are called by: input `smoke` goes to `on_smoke`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from headrace.api.handles import AnyBroadcast, AnyStream, StepBuilder, other_job
from headrace.callables import title
from headrace.errors import PlanError, call_site
from headrace.hints import named_arguments
from headrace.ops.process.function import KeyedProcess
from headrace.ops.process.held_rows import EVENT_TIME
from headrace.ops.process.operator import ProcessSpec
from headrace.plan.columns import unknown
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import Edge, Python
from headrace.plan.signature import output_schema
from headrace.schema import SchemaLike

Input = AnyStream | AnyBroadcast
ResultT = TypeVar("ResultT", bound=AnyStream)
By = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None


@named_arguments
class ConnectedStreams(Generic[ResultT]):
    """Named inputs that share a key, waiting for the function that sees them."""

    def __init__(
        self,
        draft: Draft,
        edges: tuple[Edge, ...],
        keys: tuple[tuple[str, ...], ...],
        names: tuple[str, ...],
        result: type[ResultT],
        broadcast: tuple[int, ...] = (),
    ) -> None:
        self._draft, self._edges, self._keys, self._names = draft, edges, keys, names
        self._kind, self._broadcast = result, broadcast

    def process(
        self,
        fn: KeyedProcess,
        *,
        output: SchemaLike | None = None,
        order: str | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> ResultT:
        """Hand the rows of each key to a `hr.KeyedProcess`: those of a batch in the order of event
        time; with `order="event_time"` all of them, held until the watermark has passed them."""
        step = StepBuilder(self._draft, self._edges[0], name, was)
        self._check(step, fn)
        if order not in (None, EVENT_TIME):
            step.report(_bad_order(order))
            order = None
        declared = output if output is not None else getattr(fn, "output", None)
        schema = step.attempt(lambda: _output(fn, declared))
        state = type(fn).state() if isinstance(fn, KeyedProcess) else UNKNOWN
        sides = type(fn).sides() if isinstance(fn, KeyedProcess) else {}
        timed = (e.node.timed for i, e in enumerate(self._edges) if i not in self._broadcast)
        edge = step.stateful(
            ProcessSpec(
                self._names,
                fn,
                state,
                together=_in_new_batches(self._edges[0]),
                order=order or "",
            ),
            self._keys,
            schema,
            inputs=self._edges,
            timed=all(timed),
            broadcast=self._broadcast,
            unbounded=unbounded,
            sides=sides,
        )
        return self._kind(self._draft, edge)

    def _check(self, step: StepBuilder, fn: object) -> None:
        if isinstance(fn, KeyedProcess):
            return
        is_subclass = isinstance(fn, type) and issubclass(fn, KeyedProcess)
        step.report(
            PlanError(
                "HR-PLAN-017",
                f"process needs an instance of a hr.KeyedProcess, not {title(fn)}",
                f"Write {title(fn)}()." if is_subclass else "Subclass hr.KeyedProcess.",
            )
        )


def connect_streams(
    streams: Sequence[Input], by: By, names: Sequence[str] | None, result: type[ResultT]
) -> ConnectedStreams[ResultT]:
    """Streams, the key of each and the name of each, as the inputs of a process function."""
    wrong = [one for one in streams if not hasattr(one, "_draft")]
    if wrong or not streams:
        raise PlanError(
            "HR-PLAN-018",
            f"connect needs streams{f', not {wrong[0]!r}' if wrong else ''}",
            'Name them: hr.connect(by="area", average=a, smoke=b).',
            site=call_site(),
        )
    draft, site = streams[0]._draft, call_site()
    labels = tuple(names) if names is not None else tuple(map(input_name, streams))
    if not _valid_names(labels, len(streams)):
        draft.report(_bad_names(labels, len(streams)), site)
        labels = tuple(f"input{i}" for i in range(len(streams)))
    if any(s._draft is not draft for s in streams):
        draft.report(other_job(), site)
    inputs = [(s, n) for s, n in zip(streams, labels, strict=True) if s._draft is draft]
    inputs.sort(key=lambda i: isinstance(i[0], AnyBroadcast))  # control streams come last
    control = tuple(i for i, (s, _) in enumerate(inputs) if isinstance(s, AnyBroadcast))
    keyed = [(s, n) for s, n in inputs if not isinstance(s, AnyBroadcast)]
    keys = tuple(_keys(s, n, by) for s, n in keyed)
    if not keys and control:
        draft.report(_only_control(), site)
    elif not keys or not all(keys) or len(set(map(len, keys))) > 1:
        draft.report(_bad_key(), site)
        keys = tuple(() for _ in keyed)
    for (stream, _), columns in zip(keyed, keys, strict=True):
        for problem in unknown(columns, stream.schema, site) if by is not None else ():
            draft.report(problem)
    edges = tuple(s._edge for s, _ in inputs)
    keys = (*keys, *(() for _ in control))
    return ConnectedStreams(draft, edges, keys, tuple(n for _, n in inputs), result, control)


def input_name(stream: Input) -> str:
    """What a stream is called as an input: the name the user gave it, or its source's."""
    draft, edge = stream._draft, stream._edge
    name = draft.name_of(edge) if draft.is_named(edge) else draft.scope(edge).split(".")[0]
    return re.sub(r"\W", "_", name)


def _keys(stream: AnyStream, label: str, by: By) -> tuple[str, ...]:
    if by is None:
        return stream._keys if isinstance(stream, AnyStream) else ()
    columns = by.get(label, ()) if isinstance(by, Mapping) else by
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _valid_names(labels: Sequence[str], count: int) -> bool:
    valid = all(isinstance(n, str) and n.isidentifier() for n in labels)
    return valid and len(set(labels)) == len(labels) == count


def _output(fn: object, declared: SchemaLike | None) -> pa.Schema:
    if declared is None:
        raise PlanError(
            "HR-PLAN-017",
            f"process does not know what rows {title(fn)} returns",
            "Declare output = SomeDataclass in the class, or pass output=.",
        )
    return output_schema(declared)


def _bad_names(labels: Sequence[str], count: int) -> PlanError:
    return PlanError(
        "HR-PLAN-018",
        f"{count} inputs need {count} different names that can be part of a method's name, "
        f"not {', '.join(map(repr, labels))}",
        'Name them: a.connect(b, by="area", names=("average", "smoke")), or '
        'hr.connect(by="area", average=a, smoke=b).',
    )


def _bad_order(order: object) -> PlanError:
    return PlanError(
        "HR-PROCESS-025",
        f"order of process is {order!r}",
        f'Say order="{EVENT_TIME}", or leave it out: rows then run in the batch they come in.',
    )


def _only_control() -> PlanError:
    return PlanError(
        "HR-PLAN-018",
        "connect has broadcast streams alone, and no stream whose rows they are for",
        'Add the stream with the keys: hr.connect(by="area", smoke=s, rules=r.broadcast()).',
    )


def _bad_key() -> PlanError:
    return PlanError(
        "HR-PLAN-018",
        "connect needs the same number of key columns for every input",
        'Pass by="area" when all inputs have that column, by={"a": "area", "b": "zone"} '
        "when they differ, or key_by each stream first.",
    )


def _in_new_batches(edge: Edge) -> bool:
    """Whether a function over batches may have made the rows, so that no record identifies them."""
    node = edge.node
    while not node.timed and node.inputs and not node.stateful:
        if isinstance(node, Python) and node.kind == "batches":
            return True
        if len(node.inputs) > 1:
            return any(map(_in_new_batches, node.inputs))
        node = node.inputs[0].node
    return False
