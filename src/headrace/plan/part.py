"""The part of a program that the rows of one stream need, as a program of its own.

It has the steps before that stream, under their names, and one output, which stores rows in the
job's folder ("collect:"). Outputs of the program itself are not in it. Dead letters come from
every step, so they need the whole program: its outputs are then stored in the folder as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace.errors import Site
from headrace.plan.draft import Draft
from headrace.plan.nodes import Dead, Edge, Node, Read, Write, is_end, linked

COLLECT = "collect:"


@dataclass(frozen=True)
class Part:
    """A part of a program, and the name of its one output."""

    draft: Draft
    output: str

    @property
    def reads(self) -> tuple[Read, ...]:
        return tuple(n for n in self.draft.graph() if isinstance(n, Read))

    def reading(self, reads: Sequence[Read]) -> Part:
        """The same part with other nodes for its inputs, by name."""
        new = {read.name: read for read in reads}
        nodes = [new.get(n.name, n) for n in self.draft.graph()]
        return replace(self, draft=self.draft.only(linked(nodes)))


def part_for(draft: Draft, edge: Edge, site: Site | None) -> Part:
    """The part of a program that computes the rows behind `edge`."""
    draft.look_at(edge)
    graph = draft.whole()
    last = next(n for n in graph if n.name == draft.node_behind(edge).name)
    needed = _before([last])
    if any(isinstance(n, Dead) for n in graph if n.name in needed):
        needed |= _before([n for n in graph if is_end(n)])
    nodes = linked([_collected(n) for n in graph if n.name in needed])
    part = draft.only(nodes)
    after = next(n for n in nodes if n.name == last.name)
    write = Write(
        name="",
        schema=Edge(after, edge.port).schema,
        inputs=(Edge(after, edge.port),),
        timed=after.timed,
        site=site,
        uri=COLLECT,
    )
    return Part(part, part.add(write, chosen=None, kind="look").name)


def _before(nodes: Sequence[Node]) -> set[str]:
    """The names of these nodes, and of all that their rows come from."""
    names, rest = set[str](), list(nodes)
    while rest:
        node = rest.pop()
        if node.name not in names:
            names.add(node.name)
            rest += [edge.node for edge in node.inputs]
    return names


def _collected(node: Node) -> Node:
    return replace(node, uri=COLLECT, options={}) if isinstance(node, Write) else node
