"""A job under observation: late rows of every window, and dead letters, are outputs too.

The job's own steps stay as they are; outputs are added, under names that no user can write. What
is wrong with the job's draft is reported first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import PlanError
from headrace.plan.checks import check
from headrace.plan.draft import DEAD, Draft
from headrace.plan.nodes import (
    DEAD_SCHEMA,
    LATE,
    Dead,
    Edge,
    Node,
    Read,
    Stateful,
    Write,
    late_port,
)
from headrace.plan.program import Drafted, draft_of

LETTERS = "dead:letters"


def late_of(step: str, port: str = LATE) -> str:
    """The name of the output that holds the late rows of a step, of one of its inputs."""
    return f"{port}:{step}"


def late_ports(node: Node) -> list[str]:
    """The ports at which the late rows of a step's inputs leave, if it can have any."""
    return [late_port(i) for i in range(len(node.inputs))] if _has_late(node) else []


def is_added(output: str) -> bool:
    """Whether an output is one of ours, not of the job."""
    return ":" in output


class WatchedJob:
    """A job as `build` takes it, with outputs added, and the names a test may use."""

    def __init__(self, job: Drafted) -> None:
        real = draft_of(job)
        if problems := check(real):
            raise PlanError.of(problems)
        self.draft: Draft = _WatchedDraft(
            real.job,
            real.folder,
            real.on_error,
            real.dead_limit,
            real.slots,
            real.guarantee,
            real=real,
        )
        graph = real.graph()
        edges = [n for n in graph if isinstance(n, Read | Write) and not _is_of_a_cycle(n)]
        self.inputs = {n.name: n for n in edges if isinstance(n, Read)}
        self.outputs = [n.name for n in edges if isinstance(n, Write)]
        self.windows = {n.name: late_ports(n) for n in graph if _has_late(n)}
        self.stateful = [n.name for n in graph if n.stateful]


@dataclass
class _WatchedDraft(Draft):
    real: Draft | None = None

    def graph(self) -> tuple[Node, ...]:
        return self._graph

    @cached_property
    def _graph(self) -> tuple[Node, ...]:
        assert self.real is not None
        graph = self.real.graph()
        return (*graph, *_added(graph))


def _added(graph: tuple[Node, ...]) -> Iterator[Node]:
    for node in graph:
        for port in late_ports(node):
            edge, name = Edge(node, port), late_of(node.name, port)
            yield Write(name=name, schema=edge.schema, inputs=(edge,), uri="collect:")
    dead = next((n for n in graph if isinstance(n, Dead)), None)
    if dead is None:
        dead = Dead(name=DEAD, schema=DEAD_SCHEMA)
        yield dead
    yield Write(name=LETTERS, schema=dead.schema, inputs=(Edge(dead),), uri="collect:")


def _is_of_a_cycle(edge: Read | Write) -> bool:
    """Whether the job itself writes and reads what passes here: tuples that go round."""
    return getattr(edge.uri, "loops", False) or str(edge.uri).startswith("loop:")


def _has_late(node: Node) -> bool:
    """Whether rows can come too late for a step."""
    return isinstance(node, Stateful) and node.what.has_late
