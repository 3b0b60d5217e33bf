"""Which step, input or output of a program is which of those that a manifest names.

By its name, or by the one it says it had (`was=`), which may stay in the program once it has
been followed. A name before that nobody had is refused; that two say they were the same one,
or one that is still there, is refused where the program is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from headrace.hints import nearest
from headrace.plan.nodes import Node

Known = Collection[str]


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
    return {n.name: _match(n, known, what) for n in nodes}


def _match(node: Node, known: Known, what: str) -> Match:
    own, was = node.name in known, node.was
    if was is None or was == node.name:
        return Match(node.name if own else None)
    if own and was in known:
        because = f"it says was={was!r}, but the job has {node.name!r} as well"
        hint = (
            f"Leave was= out if it is {node.name!r}; if it is {was!r}, give it a name of its own."
        )
        return Match(None, because, hint)
    if own:
        return Match(node.name)  # it has been renamed before
    return Match(was) if was in known else _nobody(node, known, what)


def _nobody(node: Node, known: Known, what: str) -> Match:
    there = ", ".join(map(repr, known)) or f"no {what}"
    because = f"it says was={node.was!r}, but the job has {there}"
    near = nearest(str(node.was), known, 1)
    better = f"Correct it (was={near[0]!r}?)" if near else "Correct it"
    return Match(None, because, f"{better}, or leave was= out: the {what} is then new.")
