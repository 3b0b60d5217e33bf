"""A program that has been checked: what the engine runs.

A value: nodes by name, each after those it reads from; who consumes what; how deep each
step runs. It holds no handle on anything outside and travels by cloudpickle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.errors import PlanError, refusal
from headrace.plan.checks import check
from headrace.plan.draft import Draft
from headrace.plan.logical import LogicalStep, logical_steps
from headrace.plan.nodes import OUT, Dead, Edge, Node, Python, PythonChain, Read, Stateful, Write
from headrace.plan.rewrite import rewrite

Port = tuple[str, str]  # name of a node, name of its port
Entry = tuple[str, int]  # name of a node, number of its input


class Drafted(Protocol):
    @property
    def draft(self) -> Draft: ...


@dataclass(frozen=True, eq=False)
class Program:
    name: str
    nodes: Mapping[str, Node]
    consumers: Mapping[Port, tuple[Entry, ...]]
    levels: Levels
    logical: tuple[LogicalStep, ...] = ()  # the program as the user wrote it, for `explain`
    folder: str | None = None
    on_error: str = "dead"
    dead_limit: int | float | None = None
    slots: int | None = None
    guarantee: str | None = None  # what the user asks for, if anything

    def level(self, name: str) -> int:
        """The level of a step; the deepest one for a step that runs at several."""
        return max(self.levels[name])

    @property
    def depth(self) -> int:
        """The number of levels below the source."""
        return max(map(self.level, self.nodes), default=0)

    def sources(self) -> tuple[Read, ...]:
        return tuple(n for n in self.nodes.values() if isinstance(n, Read))

    def outputs(self) -> tuple[Write, ...]:
        return tuple(n for n in self.nodes.values() if isinstance(n, Write))

    def dead(self) -> Dead | None:
        """The dead-letter stream, when the program does something with it."""
        return next((n for n in self.nodes.values() if isinstance(n, Dead)), None)

    def stateful(self) -> tuple[Stateful, ...]:
        return tuple(n for n in self.nodes.values() if isinstance(n, Stateful))

    def stateful_at(self, level: int) -> tuple[Stateful, ...]:
        return tuple(n for n in self.stateful() if self.level(n.name) == level)

    def consumers_of(self, name: str, port: str = OUT) -> tuple[Entry, ...]:
        return self.consumers.get((name, port), ())

    def python(self) -> tuple[Python, ...]:
        """The steps that call a user's function for rows or batches, fused or not."""
        steps: list[Python] = []
        for node in self.nodes.values():
            steps += node.steps if isinstance(node, PythonChain) else ()
            steps += [node] if isinstance(node, Python) else []
        return tuple(steps)


def build(job: Drafted) -> Program:
    """Check, rewrite and level a job's program; raise all its problems at once."""
    draft = draft_of(job)
    if problems := check(draft):
        raise PlanError.of(problems)
    logical = draft.graph()
    graph = rewrite(logical)
    return Program(
        name=draft.job,
        nodes={n.name: n for n in graph},
        consumers=consumers_in(graph),
        levels=levels_of(graph),
        logical=logical_steps(logical),
        folder=draft.folder,
        on_error=draft.on_error,
        dead_limit=draft.dead_limit,
        slots=draft.slots,
        guarantee=draft.guarantee,
    )


def draft_of(job: Drafted) -> Draft:
    """What a job has been given so far; refuses a folder, a stream, a function that makes one."""
    try:
        return job.draft
    except AttributeError:
        shown = repr(job) if isinstance(job, str) else f"a {type(job).__name__}"
        hint = "Pass the hr.Job or hr.Topology itself."
        if isinstance(job, str):
            hint = "Pass the hr.Job or hr.Topology itself, and where it runs as folder= if asked."
        elif callable(job):
            hint = "Call it, if it makes the job."
        raise refusal("HR-PLAN-066", f"{shown} is no job", hint) from None


def consumers_in(graph: Sequence[Node]) -> dict[Port, tuple[Entry, ...]]:
    """Who reads each port, in the order of the program."""
    consumers: dict[Port, list[Entry]] = {}
    for node in graph:
        for index, edge in enumerate(node.inputs):
            consumers.setdefault((edge.node.name, edge.port), []).append((node.name, index))
    return {port: tuple(entries) for port, entries in consumers.items()}


# Levels: how deep in the program each step runs.
#
# Level 0 is the source task. A step with state needs its rows brought together by key,
# so it is one level below the deepest of its inputs; every other step runs in the task that
# made its rows. After a union of streams of different depth that is more than one level.
# Late rows are set aside before they travel: they are where the step's input is.


Levels = Mapping[str, frozenset[int]]


def levels_of(graph: Sequence[Node]) -> Levels:
    """For each step the levels at which it runs; a step with state has exactly one."""
    levels: dict[str, frozenset[int]] = {}
    for node in graph:
        above = frozenset[int]().union(*(_at(e, levels) for e in node.inputs)) or {0}
        levels[node.name] = frozenset({max(above) + 1} if node.stateful else above)
    return levels


def _at(edge: Edge, levels: Levels) -> frozenset[int]:
    """Where the rows of a port come to be."""
    return levels[edge.node.name] if edge.origin is None else _at(edge.origin, levels)
