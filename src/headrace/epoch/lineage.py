"""Which inputs a step depends on: they set its watermark.

A control stream, which reaches every task of a step, does not: rules may be silent for days.
"""

from __future__ import annotations

from headrace.plan.nodes import Node, Read, Stateful
from headrace.plan.program import Program


def upstream(program: Program, name: str) -> frozenset[str]:
    """The names of the inputs from which rows reach step `name`, but for control streams."""
    seen: dict[str, Node] = {}
    pending: list[Node] = [program.nodes[name]]
    while pending:
        node = pending.pop()
        if node.name in seen:
            continue
        seen[node.name] = node
        control = node.broadcast if isinstance(node, Stateful) else ()
        pending.extend(e.node for i, e in enumerate(node.inputs) if i not in control)
    return frozenset(name for name, node in seen.items() if isinstance(node, Read))
