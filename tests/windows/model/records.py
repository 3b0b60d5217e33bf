"""What the model is told and what it remembers: a row, a program, a window, a moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

NEVER, ALWAYS = -(2**62), 2**62  # a watermark before all times, and one after
Spec = tuple[Any, ...]
Shown = dict[str, Any]


class Row(NamedTuple):
    key: Any
    value: int | None
    time: int
    split: int
    offset: int
    gap: int | None = None

    @property
    def place(self) -> tuple[int, int, int]:
        return (self.time, self.split, self.offset)

    @property
    def number(self) -> int:
        return 2 * self.offset + self.split


class Came(NamedTuple):
    """When a row came: in which epoch, and by the clock."""

    epoch: int
    clock: int


Epoch = tuple[list[Shown], list[Row]]  # what is shown, and the rows that came too late


@dataclass
class Program:
    assigner: Spec
    trigger: Spec = ("at_watermark", None, None)
    lateness: int = 0
    mode: str = "replace"
    evict: Spec | None = None
    after: bool = False  # evict after the function
    function: str = "agg"
    may_lose: bool = False
    per_row: bool = False  # the trigger is asked for each row


@dataclass(eq=False)
class Window:
    key: Any
    start: int
    end: int  # not included
    rows: dict[Row, Came] = field(default_factory=dict)
    shown: set[Row] = field(default_factory=set)
    panes: int = 0
    fired: int = NEVER  # the clock of the last firing
    was: Shown | None = None  # what it last showed
    times: Counter[Spec] = field(default_factory=Counter)  # how often each limited trigger fired

    def ordered(self) -> list[Row]:
        return sorted(self.rows, key=lambda r: r.place)

    def new(self) -> list[Row]:
        return [row for row in self.ordered() if row not in self.shown]


@dataclass
class Now:
    """The end of an epoch, as a window sees it; for a trigger, from its place in the whole."""

    window: Window
    before: int  # the watermark, before the epoch
    after: int
    clock: int
    touched: bool  # the epoch brought a row
    lateness: int
    place: Spec = ()
    limited: list[Spec] = field(default_factory=list)  # places of limited triggers that fire

    @property
    def closes(self) -> bool:
        return self.before < self.window.end <= self.after

    @property
    def late(self) -> bool:
        return self.window.end <= self.before

    @property
    def expires(self) -> bool:
        return self.window.end + self.lateness <= self.after

    @property
    def timing(self) -> str:
        return "late" if self.late else "on time" if self.window.end <= self.after else "early"

    def within(self, part: int | str) -> Now:
        return replace(self, place=(*self.place, part))
