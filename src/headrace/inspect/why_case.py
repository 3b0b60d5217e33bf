"""A job at a moment, as `why` looks at it: a program, a manifest and a clock.

Everything is worked out from these three; without the program, what it alone knows is
unknown: which inputs a step depends on (then: all), and what a condition says.

A `Reason` never shows a number that means "never": such a time has a name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.driver.split_state import by_clock, liveness
from headrace.epoch.values import held_back, reached_by, upstream
from headrace.inspect.progress import moment, quoted
from headrace.ops.watermarks import Bounded
from headrace.ops.window.assigners import FOREVER
from headrace.plan.logical import python_of, words
from headrace.plan.nodes import (
    Dead,
    Node,
    Python,
    PythonChain,
    Read,
    Select,
    SelectChain,
    Stateful,
    Write,
)
from headrace.plan.program import Program
from headrace.state.manifest import LIVE, Manifest, Split


@dataclass(frozen=True, slots=True)
class StepCounts:
    """What has come to a step since the job's first start, and what became of it."""

    name: str
    received: int
    emitted: int
    late: int
    dead: int
    stateless: bool  # neither input, output nor operator: what it does not emit is filtered
    failing: str = ""  # the step inside a fused one on which most rows failed
    filtered_before: int = 0  # rows filtered on the way to it, in a step made by rewriting

    @property
    def filtered(self) -> int:
        """One row may become many, so this is not what was received less what was emitted."""
        missing = self.received - self.emitted - self.dead
        return self.filtered_before + (max(0, missing) if self.stateless else 0)

    @property
    def failed(self) -> str:
        return _label(self.failing)

    @property
    def label(self) -> str:
        """The name that the user knows: steps added by rewriting have a suffix."""
        return _label(self.name)


class WhyCase:
    def __init__(self, program: Program | None, manifest: Manifest, clock: int) -> None:
        self.program, self.manifest, self.clock = program, manifest, clock
        sources = program.sources() if program else ()
        self.reads: dict[str, Read] = {r.name: r for r in sources}
        self.inputs = list(self.reads) if program else list(manifest.reads)
        self.splits = [self._now(s) for s in manifest.splits if s.input in self.inputs]

    def _now(self, split: Split) -> Split:
        """The split by the clock of now: it may have become idle since the manifest."""
        if split.state != LIVE:
            return split
        read = self.reads.get(split.input)
        if by_clock(read):
            return replace(split, watermark=max(split.watermark, self.clock))
        return replace(split, state=liveness(read, split, self.clock, more=False, ended=False))

    def splits_of(self, inputs: Collection[str]) -> list[Split]:
        return [s for s in self.splits if s.input in inputs]

    # rows

    def fates(self, name: str) -> Mapping[str, int]:
        """What became of the rows of an input."""
        none = dict.fromkeys(("read", "used", "filtered", "late", "dead"), 0)
        return {**none, **self.manifest.counts.get(name, {})}

    def example(self, step: str) -> str:
        """One of the dead letters of a step, as the end of a sentence; nothing if none is known."""
        letter = self.manifest.examples.get(step)
        return f": {quoted(letter)}" if letter else ""

    def steps(self) -> Iterator[StepCounts]:
        """Every step to which rows have come."""
        for name in self.manifest.steps:
            if not self.program or name in self.program.nodes:
                yield self.counts(name)

    def user_steps(self) -> dict[str, StepCounts]:
        """Every step by the name that the user knows: what rewriting added is part of another."""
        steps: dict[str, StepCounts] = {}
        for step in self.steps():
            edge = step.name in self.inputs or step.name in self.manifest.writes
            if step.name == step.label and not edge:
                steps[step.name] = step
        for step in self.steps():
            if step.name.endswith(":arguments"):  # side branches, as ":late", count twice
                name = self._ends_with(step) or step.label
                steps[name] = _before(step, steps.get(name) or self.counts(name))
        return dict(sorted(steps.items()))

    def _ends_with(self, step: StepCounts) -> str | None:
        """The last step in a fused one that the user wrote."""
        node = self.node(step.name)
        names = [s.name for s in node.steps] if isinstance(node, SelectChain) else []
        return next((n for n in reversed(names) if n == _label(n)), None)

    def firings(self, name: str, what: str) -> int:
        """How many windows of a step have "fired", were "mute" then, or were "lost"."""
        return int(self.manifest.windows.get(name, {}).get(what, 0))

    def counts(self, name: str) -> StepCounts:
        counts = self.manifest.steps.get(name, {})
        inner = self._inner(name)  # rows die under the name of the step that failed
        died = {n: self.manifest.steps.get(n, {}).get("dead", 0) for n in inner}
        failing = max(died, key=lambda n: died[n], default="")
        rows = counts.get("in", 0), counts.get("out", 0), counts.get("late", 0)
        return StepCounts(name, *rows, sum(died.values()), self._stateless(name), failing)

    def _inner(self, name: str) -> list[str]:
        node = self.node(name)
        fused = node.steps if isinstance(node, PythonChain) else ()
        return list(dict.fromkeys([*(s.name for s in fused), name]))

    def _stateless(self, name: str) -> bool:
        others = (*self.manifest.ops, *self.manifest.writes, *self.inputs)
        return name not in others and name in self.manifest.steps

    # steps

    def node(self, name: str) -> Node | None:
        return self.program.nodes.get(name) if self.program else None

    def nodes(self) -> Iterable[Node]:
        return self.program.nodes.values() if self.program else ()

    def filters(self, name: str) -> list[tuple[str, str]]:
        """The steps in a fused one that can leave rows out, each with its condition."""
        node = self.node(name)
        fused = node.steps if isinstance(node, SelectChain | PythonChain) else (node,)
        conditions = [(s.name, _condition(s)) for s in fused if s is not None]
        return [(n, c) for n, c in conditions if c] or [(self.counts(name).label, "")]

    def waiting(self) -> list[str]:
        """The operators that hold something which time will release."""
        return [name for name, due in self._due() if due < FOREVER]

    def endless(self) -> list[str]:
        """The operators that hold nothing but windows without an end."""
        return [name for name, due in self._due() if FOREVER <= due < MAX_TIME]

    def _due(self) -> Iterator[tuple[str, int]]:
        """The operators, and the event time at which each has something to do."""
        for name, facts in self.manifest.ops.items():
            if not self.program or name in self.program.nodes:
                yield name, facts.next

    def unmarked(self, name: str) -> bool:
        """Whether an input whose rows carry the watermark has delivered rows, but no watermark."""
        read, fates = self.reads.get(name), self.fates(name)
        if read is None or by_clock(read) or isinstance(read.watermark, Bounded):
            return False
        begun = any(s.watermark > MIN_TIME for s in self.splits_of([name]))
        return fates["read"] > fates["dead"] and not begun

    def inputs_of(self, name: str) -> Collection[str]:
        return upstream(self.program, name) if self.program else self.inputs

    def clocked(self, name: str) -> bool:
        """Whether the step goes by the clock, or its rows do."""
        node = self.node(name)
        reads = [self.reads.get(i) for i in self.inputs_of(name)]
        return (isinstance(node, Stateful) and node.processing) or all(map(by_clock, reads))

    def reached(self, name: str) -> int:
        """The watermark of an operator by now."""
        now = self._inputs_reached(name)
        if self.program and not self.clocked(name):
            holds = {n: f.holds for n, f in self.manifest.ops.items() if f.holds is not None}
            now = held_back(self.program, name, now, holds)
        return max(now, int(self.manifest.ops[name].watermark))

    def _inputs_reached(self, name: str) -> int:
        node = self.node(name)
        clocked = isinstance(node, Stateful) and node.processing
        return reached_by(clocked, self.inputs_of(name), self.splits, self.clock)

    def holding(self, name: str) -> Split | None:
        """The split whose watermark a waiting operator has to wait for."""
        live = [s for s in self.splits_of(self.inputs_of(name)) if s.state == LIVE]
        if max(self.reached(name), self._inputs_reached(name)) >= self.manifest.ops[name].next:
            return None  # it is due, or held back by tuples that wait
        return min(live, key=lambda s: (s.watermark, s.id), default=None)

    # who got nothing

    def starved(self) -> dict[tuple[str, ...], list[str]]:
        """Operators and outputs to which no row has come, by the steps where all rows stop."""
        starved: dict[tuple[str, ...], list[str]] = {}
        if not self.program:
            names = [n for n in (*self.manifest.ops, *self.manifest.writes) if self._unfed(n)]
            return {(): names} if names else {}
        side_steps = _side_steps(self.program)
        for node in self.program.nodes.values():
            ends = isinstance(node, Stateful | Write) and node.name not in side_steps
            if ends and self._unfed(node.name):
                starved.setdefault(tuple(dict.fromkeys(self._stops(node))), []).append(node.name)
        return starved

    def _unfed(self, name: str) -> bool:
        return not self.manifest.steps.get(name, {}).get("in", 0)

    def _stops(self, node: Node) -> Iterator[str]:
        for edge in node.inputs:
            before = edge.node
            if isinstance(before, Read) or not self._unfed(before.name):
                filters = before.name in self.manifest.steps and self._stateless(before.name)
                yield self.filters(before.name)[-1][0] if filters else before.name
            else:
                yield from self._stops(before)


def _label(name: str) -> str:
    return name.partition(":")[0]


def _before(rewritten: StepCounts, step: StepCounts) -> StepCounts:
    """A step and what rewriting put before it, as one."""
    if not step.received and not step.emitted and step.name != rewritten.label:
        return replace(rewritten, name=step.name)
    return replace(
        step,
        received=rewritten.received,
        filtered_before=rewritten.filtered,
        dead=step.dead + rewritten.dead,
        stateless=False,
    )


def _condition(step: Node) -> str:
    if isinstance(step, Select):
        return words(step.where) if step.where is not None else ""
    leaves_out = isinstance(step, Python) and step.kind in ("filter", "flat_map", "batches")
    return (python_of(step) or "") if leaves_out else ""


def _side_steps(program: Program) -> set[str]:
    """Steps that get nothing but dead letters or late rows: to have none is no trouble."""
    names: set[str] = set()
    for node in program.nodes.values():
        spared = [e.origin is not None or e.node.name in names for e in node.inputs]
        if isinstance(node, Dead) or (spared and all(spared)):
            names.add(node.name)
    return names


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that holds rows back from the outputs: what it is, and what can be done."""

    kind: str
    where: str  # the name of the input, step or output
    text: str
    hint: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text}\n  {self.hint}"


Reasons = Iterator[Reason]


def watermark_position(watermark: int) -> str:
    """Where a watermark is, as the end of a sentence."""
    if abs(watermark) == MAX_TIME:
        return "has not begun" if watermark < 0 else "is at the end of time"
    return f"is at {moment(watermark)}"
