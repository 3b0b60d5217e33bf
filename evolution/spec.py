"""A program as plain values: what is drawn, built, and judged by the model.

A branch is one input (or two), a condition, one step and one output. Its `label` stands for one
life of the step's state: it is written into every row, so that a row tells whose it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from evolution.kinds import BY_ORDER, KINDS, Kind

KEYS = (("k",), ("p",), ("k", "p"), ("p", "k"))
WHERES = ("true", "x > 3", "x <= 3", "y > 2")


@dataclass(frozen=True, slots=True)
class Input:
    name: str
    kind: str  # log, files, rows, generate, socket
    place: str
    time: str = "at"
    was: str | None = None
    life: int = 1  # of its offsets: one more when it is read again from its beginning


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    name: str | None
    inputs: tuple[str, ...]
    keys: tuple[str, ...] = ("k",)
    column: str = "x"
    length: int = 5  # seconds
    where: str = "true"
    was: str | None = None
    aggs: tuple[str, ...] = ("sum",)
    how: str = "inner"
    more: bool = False  # a process function with one more value
    names: tuple[str, ...] = ("m1", "m2")  # of its aggregates
    was_names: tuple[tuple[str, str], ...] = ()  # a name now, and the one before
    since: str = ""  # from when new aggregates count: "restart" or "beginning"
    late: int = 1  # seconds for which windows wait; none: they fire once
    begins: tuple[int, ...] = ()  # for the model: from which start on each aggregate counts

    @property
    def of(self) -> Kind:
        return KINDS[self.kind]

    @property
    def timed(self) -> bool:
        """Whether event times are part of its state."""
        return self.of.timed or (self.kind == "agg" and bool({*self.aggs} & {*BY_ORDER}))

    @property
    def by_column(self) -> bool:
        return self.of.column or (self.of.aggs and self.aggs != ("count",))

    @property
    def aggregates(self) -> dict[str, str]:
        """The kind of each aggregate, by its name."""
        return dict(zip(self.names, self.aggs, strict=False)) if self.of.aggs else {}

    def settled(self) -> Step:
        return replace(self, was=None, was_names=(), since="")

    def identity(self) -> tuple[object, ...]:
        """What no step with state can change."""
        return (
            self.kind, self.keys, self.column if self.of.column else "",
            self.length if self.of.length == "refused" else 0,
            self.how if self.of.how == "refused" else "",
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    name: str
    kind: str  # log, files, collect, console
    place: str
    format: str = "parquet"
    merge: bool = True
    was: str | None = None


@dataclass(frozen=True, slots=True)
class Branch:
    label: str
    step: Step
    output: Output


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a program, and what its start may drop."""

    inputs: tuple[Input, ...]
    branches: tuple[Branch, ...]
    drop: tuple[str, ...] | bool = ()
    changes: tuple[str, ...] = field(default=())
    narrow: bool = False  # the column `p` is an int, where no topic has it as a bigint

    @property
    def numbers(self) -> str:
        """The type of `p`, part of many keys: all inputs have the same, so that joins can be."""
        topics = any(i.kind == "log" for i in self.inputs)
        return "int" if self.narrow and not topics else "bigint"

    def input(self, name: str) -> Input:
        return next(i for i in self.inputs if i.name == name)

    def settled(self) -> Version:
        """The same, once it has started: nothing is to be followed or dropped any more."""
        return replace(
            self,
            drop=(),
            changes=(),
            inputs=tuple(replace(i, was=None) for i in self.inputs),
            branches=tuple(
                replace(b, step=b.step.settled(), output=replace(b.output, was=None))
                for b in self.branches
            ),
        )
