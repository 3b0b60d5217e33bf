"""Circles of components: which tuples go back, and how they are read again.

An epoch must come to its end, so a circle is cut: what goes from a component to one declared before
it, or to itself, is an output of the job in its folder, and an input of the batches after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.api.handles import StepBuilder
from headrace.api.stream import Stream
from headrace.api.topology_components import Component, Subscription, no_such_stream
from headrace.api.topology_parts import read_stream
from headrace.errors import PlanError, building_at
from headrace.ops.topology.bolt import DEFAULT, Bolt
from headrace.ops.topology.groupings import DIRECT
from headrace.ops.topology.operator import sent_schema
from headrace.plan.nodes import Write
from headrace.plan.signature import output_schema
from headrace.sources.loop import LoopSource


def goes_back(part: Component, read: Subscription, known: Mapping[str, Component]) -> bool:
    """Whether a component reads what it leads to, from one that was declared after it."""
    order = list(known)
    if read.component not in known or order.index(part.id) > order.index(read.component):
        return False
    return part.id in _upstream(read.component, known)


def _upstream(id: str, known: Mapping[str, Component]) -> set[str]:
    """A component, and all whose tuples lead to it."""
    found, left = {id}, [id]
    while left:
        reads = {s.component for s in known[left.pop()].inputs if s.component in known}
        left += reads - found
        found |= reads
    return found


def read_again(job: Any, part: Component, read: Subscription, emitter: Component) -> Stream | None:
    """What comes back, as a stream; None if that cannot be, which has been reported."""
    draft = job.plain
    with draft.attempt(read.site):
        if not isinstance(emitter.what, Bolt):
            raise _not_declared(part, read)
        name = _name(part, read)
        source = LoopSource(name, _declared(emitter, read.stream))
        with building_at(read.site):
            again: Stream = job.read(source, name=name)
            return again
    return None


def send_back(job: Any, part: Component, read: Subscription, emitter: Component) -> None:
    """What goes back, as an output."""
    draft = job.plain
    if emitter.built is None:
        return  # its own mistake has been reported
    with draft.attempt(read.site):
        direct = read.grouping.kind == DIRECT
        sent = read_stream(
            emitter.built, emitter.what, emitter.id, read.stream, None, direct=direct
        )
        with building_at(read.site):
            step = StepBuilder(draft, sent._edge, f"{read.label} back to {part.id}")
            uri = f"loop:{_name(part, read)}"
            step.add(Write(schema=sent.schema, uri=uri, options={}, **step.common()), "write")


def _name(part: Component, read: Subscription) -> str:
    """At rest."""
    return f"{read.label} to {part.id}"


def _declared(emitter: Component, stream: str) -> pa.Schema:
    """The fields that a bolt declares for a stream, as they travel."""
    kind = type(emitter.what)
    declared = kind.output if stream == DEFAULT else kind.outputs.get(stream)
    if declared is None:
        known = [*([DEFAULT] if kind.output is not None else []), *kind.outputs]
        raise no_such_stream(emitter.id, stream, known, None)
    return sent_schema(emitter.what, stream, output_schema(declared))


def _not_declared(part: Component, read: Subscription) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-011",
        f"{read.component!r} sends tuples back to {part.id!r}, and its fields are not declared",
        "What goes back must be emitted by a hr.Bolt, whose class says its fields.",
    )
