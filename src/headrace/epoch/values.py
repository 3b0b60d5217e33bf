"""An epoch as its tasks see it: values that the driver decides once and sends along.

An offset is what Spark records of an epoch, as JSON.
Everything here is decided on the driver and travels in flight; a replayed epoch gets the
same values, so it sees the same clock, the same watermarks and the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Operator
from headrace.plan.nodes import Node, Read, Stateful
from headrace.plan.program import Program
from headrace.sources.contract import Range
from headrace.state.manifest import IDLE, LIVE, Split


@dataclass(frozen=True, slots=True)
class InputLooks:
    """What the planner has seen of the inputs, besides what it plans: nothing depends on it."""

    lags: Mapping[str, int] = field(default_factory=dict)  # rows not admitted, by input
    waits: Mapping[str, int] = field(default_factory=dict)  # since when the oldest was there
    # by input: ms from when its rows were first seen to the epoch's clock, in buckets
    ages: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        ages = {n: {str(b): count for b, count in age.items()} for n, age in self.ages.items()}
        return {"lags": dict(self.lags), "waits": dict(self.waits), "ages": ages}

    @staticmethod
    def from_json(looks: Mapping[str, Any] | None) -> InputLooks:
        if looks is None:
            return InputLooks()
        ages = {n: {int(b): count for b, count in age.items()} for n, age in looks["ages"].items()}
        return InputLooks(looks["lags"], looks["waits"], ages)


@dataclass(frozen=True, slots=True)
class Offset:
    """The end of an epoch: its number, its clock, and how far each split is read by then."""

    epoch: int = 0
    clock: int = 0
    splits: tuple[Split, ...] = ()
    lag: int | None = None  # rows that were there but not admitted; None where a run starts
    resent: int | None = None  # the request whose dead letters this epoch sends again
    looks: InputLooks = field(default_factory=InputLooks)

    def to_json(self) -> dict[str, Any]:
        lag = {} if self.lag is None else {"lag": self.lag}
        splits = [split.to_json() for split in self.splits]
        resent = {} if self.resent is None else {"resent": self.resent}
        looks = {} if self.looks == InputLooks() else {"looks": self.looks.to_json()}
        about = {"epoch": self.epoch, "clock": self.clock, **lag, **resent, **looks}
        return {**about, "splits": splits}

    @staticmethod
    def from_json(offset: Mapping[str, Any]) -> Offset:
        splits = tuple(Split(**split) for split in offset["splits"])
        lag, resent = offset.get("lag"), offset.get("resent")
        looks = InputLooks.from_json(offset.get("looks"))
        return Offset(offset["epoch"], offset["clock"], splits, lag, resent, looks)


@dataclass(frozen=True, slots=True)
class Epoch:
    """What every task of an epoch must know."""

    number: int
    attempt: str
    clock: int
    folder: str
    slots: int
    tasks: int
    before: Mapping[str, int]  # watermark of each operator at the end of the epoch before
    splits: tuple[Split, ...]
    lag: int = 0  # rows that were there but not admitted
    resent: int | None = None  # as in its offset
    over: Mapping[str, int] = field(default_factory=dict)  # see `StepFacts`, of those that have it
    looks: InputLooks = field(default_factory=InputLooks)  # as in its offset; level tasks have none

    def operator(self, node: Stateful) -> Operator:
        """A fresh operator of a step, for one task."""
        return node.operator(self.over.get(node.name, MIN_TIME))

    @property
    def end(self) -> Offset:
        return Offset(self.number, self.clock, self.splits, self.lag, self.resent, self.looks)

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "looks"}

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Epoch:
        splits = tuple(Split(**s) for s in fields["splits"])
        return Epoch(**{**fields, "splits": splits})


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a split that one task reads."""

    split: int
    range: Range
    shed: bool = False  # its records are only counted


@dataclass(frozen=True, slots=True)
class SourceTask:
    """What one source task does; the first also describes the epoch to every level task."""

    index: int
    epoch: Epoch
    pieces: tuple[Piece, ...] = ()
    state: Mapping[str, Any] | None = None  # of all operators, from the manifest before
    replay: bool = False  # the epoch is committed already: nothing is to be done
    extra: Mapping[str, Any] = field(default_factory=dict)


def upstream(program: Program, name: str) -> frozenset[str]:
    """The names of the inputs that set the watermark of step `name`: those whose rows reach it.

    A control stream, which reaches every task of a step, does not: rules may be silent for days.
    """
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


def watermark_of(inputs: Iterable[str], splits: Iterable[Split], clock: int) -> int:
    """The event time that these inputs have all reached.

    The minimum over live splits. When all are idle it moves on with the clock from where
    the furthest split was, so windows close; when all have ended it is the end of time.
    """
    names = set(inputs)
    considered = [s for s in splits if s.input in names]
    live = [s.watermark for s in considered if s.state == LIVE]
    if live:
        return min(live)
    idle = [s for s in considered if s.state == IDLE]
    if idle:
        moved = [s.watermark + clock - s.seen for s in idle if s.watermark > MIN_TIME]
        return max(moved, default=MIN_TIME)
    return MAX_TIME if considered else MIN_TIME


def hold_of(program: Program, name: str) -> int:
    """How many ms the watermark of step `name` stays behind that of its inputs.

    Steps before it may emit rows that are older than their own watermark. The longest way counts.
    """
    holds: dict[str, int] = {}

    def behind(node: Node) -> int:
        if node.name not in holds:
            holds[node.name] = 0
            control = node.broadcast if isinstance(node, Stateful) else ()
            above = [e.node for i, e in enumerate(node.inputs) if i not in control]
            holds[node.name] = max((behind(n) + _holds(n) for n in above), default=0)
        return holds[node.name]

    return behind(program.nodes[name])


def _holds(node: Node) -> int:
    return node.what.holds if isinstance(node, Stateful) else 0


def held_back(program: Program, name: str, reached: int, holds: Mapping[str, int]) -> int:
    """How far step `name` may go while rows wait in steps before it, by `holds`: their times.

    What is emitted for them has their event times, and must not be late. At the end of the input
    nothing waits.
    """
    if not holds or reached >= MAX_TIME:
        return reached
    above = _steps_above(program, name)
    own = hold_of(program, name)
    bounds = [
        max(MIN_TIME, time - (own - hold_of(program, step)))
        for step, time in holds.items()
        if step in above
    ]
    return min([reached, *bounds])


def _steps_above(program: Program, name: str) -> set[str]:
    seen: set[str] = set()
    pending = [e.node for e in program.nodes[name].inputs]
    while pending:
        node = pending.pop()
        if node.name not in seen:
            seen.add(node.name)
            pending.extend(e.node for e in node.inputs)
    return seen


def reached_by(
    clocked: bool, inputs: Iterable[str], splits: Iterable[Split], clock: int, hold: int = 0
) -> int:
    """How far an operator is: at the clock if it goes by that, else the watermark."""
    watermark = watermark_of(inputs, splits, clock)
    if clocked and watermark < MAX_TIME:
        return clock
    return watermark - hold if MIN_TIME < watermark < MAX_TIME else watermark
