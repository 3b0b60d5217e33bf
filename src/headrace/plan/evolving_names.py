"""Which step, input or output of a program is which of those that a manifest names.

By its name, or by the one it says it had (`was=`). `was=` that has been followed once may
stay in the program: the manifest records it. Two that would be the same one, and a name
before that nobody had, are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.hints import nearest
from headrace.plan.nodes import Node

Known = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Match:
    """The name before of one thing, or why there is none that is sure."""

    before: str | None = None
    because: str = ""
    hint: str = ""

    @property
    def unknown(self) -> bool:
        return bool(self.because)


def matches(nodes: Iterable[Node], known: Known, what: str) -> dict[str, Match]:
    """For each node by its name: which of the known ones it was."""
    nodes = tuple(nodes)
    found = {n.name: _match(n, known, what, nodes) for n in nodes}
    taken: dict[str, str] = {}
    for node in sorted(nodes, key=lambda n: found[n.name].before != n.name):  # its own comes first
        before = found[node.name].before
        if before is None:
            continue
        if before in taken:
            found[node.name] = _twice(node, before, taken[before], what)
        taken.setdefault(before, node.name)
    return found


def _match(node: Node, known: Known, what: str, nodes: Iterable[Node]) -> Match:
    own, was = node.name in known, node.was
    if was is None or was == node.name:
        return Match(node.name if own else None)
    if own and (was not in known or known[node.name].get("was") == was):
        return Match(node.name)  # it has been renamed before
    if was not in known:
        return _nobody(node, known, what)
    if own and not any(n.was == node.name and n is not node for n in nodes):
        because = f"it says was={was!r}, but the job has {node.name!r} as well"
        hint = (
            f"Leave was= out if it is {node.name!r}; if it is {was!r}, give it a name of its own."
        )
        return Match(None, because, hint)
    return Match(was)


def _nobody(node: Node, known: Known, what: str) -> Match:
    there = ", ".join(map(repr, known)) or f"no {what}"
    because = f"it says was={node.was!r}, but the job has {there}"
    near = nearest(str(node.was), known, 1)
    better = f"Correct it (was={near[0]!r}?)" if near else "Correct it"
    return Match(None, because, f"{better}, or leave was= out: the {what} is then new.")


def _twice(node: Node, before: str, other: str, what: str) -> Match:
    because = f"it says was={before!r}, but that is what {other!r} is"
    return Match(None, because, f"Leave was= out of one of them: the {what} is then new.")
