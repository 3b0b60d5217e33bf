"""Levels: how deep in the program each step runs.

Level 0 is the source task. A step that keeps state needs its rows brought together by key,
so it is one level below the deepest of its inputs; every other step runs in the task that
made its rows. After a union of streams of different depth that is more than one level.
Late rows are set aside before they travel: they are where the step's input is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.plan.nodes import Edge, Node

Levels = Mapping[str, frozenset[int]]


def levels_of(graph: Sequence[Node]) -> Levels:
    """For each step the levels at which it runs; a step that keeps state has exactly one."""
    levels: dict[str, frozenset[int]] = {}
    for node in graph:
        above = frozenset[int]().union(*(_at(e, levels) for e in node.inputs)) or {0}
        levels[node.name] = frozenset({max(above) + 1} if node.stateful else above)
    return levels


def _at(edge: Edge, levels: Levels) -> frozenset[int]:
    """Where the rows of a port come to be."""
    return levels[edge.node.name] if edge.origin is None else _at(edge.origin, levels)
