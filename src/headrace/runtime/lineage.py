"""Which inputs a step depends on: they set its watermark."""

from __future__ import annotations

from headrace.plan.nodes import Node, Read
from headrace.plan.program import Program


def upstream(program: Program, name: str) -> frozenset[str]:
    """The names of the inputs from which rows can reach step `name`."""
    found: set[str] = set()
    pending: list[Node] = [program.nodes[name]]
    while pending:
        node = pending.pop()
        if isinstance(node, Read):
            found.add(node.name)
        pending.extend(edge.node for edge in node.inputs)
    return frozenset(found)
