"""The part of a program that the rows of one stream need, as a program of its own.

It has the steps before that stream, under their names, and one output, which stores rows in the
job's folder ("collect:"). Outputs of the program itself are not in it. Dead letters come from
every step, so they need the whole program: its outputs are then stored in the folder as well.
Of a table, the output holds its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    table_key: tuple[str, ...] = ()  # of a table, whose changes are the output

    @property
    def reads(self) -> tuple[Read, ...]:
        return tuple(n for n in self.draft.graph() if isinstance(n, Read))

    def reading(self, reads: Sequence[Read]) -> Part:
        """The same part with other nodes for its inputs, by name."""
        new = {read.name: read for read in reads}
        nodes = [new.get(n.name, n) for n in self.draft.graph()]
        return replace(self, draft=self.draft.only(linked(nodes)))


def part_for(
    draft: Draft,
    edge: Edge,
    site: Site | None,
    changes: Callable[[Draft, Edge], Edge] | None = None,
    table_key: tuple[str, ...] = (),
) -> Part:
    """The part of a program that computes the rows behind `edge`.

    For the table of that key, whose versions these rows are, `changes` adds the step that makes
    its changes of them.
    """
    draft.look_at(edge)
    graph = draft.whole()
    last = next(n for n in graph if n.name == draft.node_behind(edge).name)
    needed = _before([last])
    if any(isinstance(n, Dead) for n in graph if n.name in needed):
        needed |= _before([n for n in graph if is_end(n)])
    nodes = linked([_collected(n) for n in graph if n.name in needed])
    part = draft.only(nodes)
    after = next(n for n in nodes if n.name == last.name)
    end = Edge(after, edge.port)
    if changes is not None:
        end = changes(part, end)
    write = Write(
        name="",
        schema=end.schema,
        inputs=(end,),
        timed=end.node.timed,
        site=site,
        uri=COLLECT,
    )
    return Part(part, part.add(write, chosen=None, kind="look").name, table_key)


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
