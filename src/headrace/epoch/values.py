"""An epoch as its tasks see it: values that the driver decides once and sends along.

Everything here is decided on the driver and travels in flight; a replayed epoch gets the
same values, so it sees the same clock, the same watermarks and the same state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.sources.contract import Range

LIVE, IDLE, ENDED = "live", "idle", "ended"


@dataclass(frozen=True, slots=True)
class Split:
    """Where one split of one input stands."""

    id: int  # of this split alone for the life of the job: part of the order of rows
    input: str
    name: str
    at: Any  # the offset to read from next
    watermark: int = MIN_TIME
    seen: int = 0  # the clock when it last had rows (or was first seen)
    state: str = LIVE
    memory: Any = None  # what a custom watermark remembers: plain JSON

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Epoch:
        splits = tuple(Split(**s) for s in fields["splits"])
        return Epoch(**{**fields, "splits": splits})


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a split that one task reads."""

    split: int
    range: Range


@dataclass(frozen=True, slots=True)
class SourceTask:
    """What one source task does; the first also tells every level task about the epoch."""

    index: int
    epoch: Epoch
    pieces: tuple[Piece, ...] = ()
    state: Mapping[str, Any] | None = None  # of all operators, from the manifest before
    replay: bool = False  # the epoch is committed already: nothing is to be done
    extra: Mapping[str, Any] = field(default_factory=dict)


def next_split(body: Mapping[str, Any]) -> int:
    """The first id that no split has had, those of dropped inputs included: state holds them."""
    first: int = max([body.get("next_split", 0), *(1 + s["id"] for s in body.get("splits", ()))])
    return first


def watermark_of(inputs: Iterable[str], splits: Iterable[Split], clock: int) -> int:
    """The event time that the given inputs have all reached.

    The minimum over live splits. When all are idle it moves on with the clock from where
    the furthest split stood, so windows close; when all have ended it is the end of time.
    """
    wanted = set(inputs)
    mine = [s for s in splits if s.input in wanted]
    live = [s.watermark for s in mine if s.state == LIVE]
    if live:
        return min(live)
    idle = [s for s in mine if s.state == IDLE]
    if idle:
        spoke = [s.watermark + clock - s.seen for s in idle if s.watermark > MIN_TIME]
        return max(spoke, default=MIN_TIME)
    return MAX_TIME if mine else MIN_TIME


def reached_by(clocked: bool, inputs: Iterable[str], splits: Iterable[Split], clock: int) -> int:
    """Where an operator stands: the clock if it goes by that, else the watermark."""
    watermark = watermark_of(inputs, splits, clock)
    return clock if clocked and watermark < MAX_TIME else watermark
