"""The manifest: what is true of a job after an epoch, as values.

`to_json` is the content of the manifest's file and `from_json` reads it, also one that an older
version has written: keys that it did not have get a default, unknown keys are ignored, and if a key
is missing that every version has written, a KeyError is raised. The number of the format is in the
file's header (`sealed.py`). How manifests are written, fenced and removed is in `epochs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headrace.clock import MAX_TIME, MIN_TIME

LIVE, IDLE, ENDED = "live", "idle", "ended"
FIRST = "1"  # the timeline of a job that has never gone back

Counts = Mapping[str, Mapping[str, int]]  # by input or step, and by what is counted
_ID, _TIME, _LAST = "id", "time", "last"


@dataclass(frozen=True, slots=True)
class Split:
    """How far one split of one input has been read."""

    id: int  # of this split alone for the life of the job: part of the order of rows
    input: str
    name: str
    at: Any  # the offset to read from next
    watermark: int = MIN_TIME
    seen: int = 0  # the clock when it last had rows (or was first seen)
    state: str = LIVE
    memory: Any = None  # what a custom watermark remembers: plain JSON
    shed: Mapping[str, Any] | None = None  # of this epoch: see `driver/shedding.py`

    def to_json(self) -> dict[str, Any]:
        split = {name: getattr(self, name) for name in _SPLIT}
        return split if self.shed is not None else {n: v for n, v in split.items() if n != "shed"}

    @staticmethod
    def from_json(split: Mapping[str, Any]) -> Split:
        stored = {name: split[name] for name in _SPLIT if name in split}
        required = {name: split[name] for name in ("id", "input", "name", "at")}
        return Split(**stored | required)


_SPLIT = tuple(f.name for f in fields(Split))


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What is known of a step with state: when it is due, and what its state looks like."""

    watermark: int = MIN_TIME
    next: int = MAX_TIME  # the event time at which it has something to do
    wake: int = MAX_TIME  # the same by the clock
    held: int = 0  # about how many rows of state
    kind: str = ""
    fingerprint: str = ""
    shape: Mapping[str, Any] | None = None
    version: int | None = None  # of the format of its state
    tasks: int | None = None  # how many tasks its operator state is that of, if it has any
    holds: int | None = None  # the oldest event time of rows that wait in it to be emitted
    oldest: int | None = None  # the first offset, of any split, of records that wait in it
    over: int | None = None  # windows that end before this were over by a shorter lateness

    def to_json(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in _STEP}
        return {name: value for name, value in facts.items() if value is not None}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> StepFacts:
        required = {"kind": facts["kind"], "fingerprint": facts["fingerprint"]}
        return StepFacts(**{name: facts[name] for name in _STEP if name in facts} | required)


_STEP = tuple(f.name for f in fields(StepFacts))


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What identifies an input: a source's own description, an id and the event time."""

    id: str
    about: Mapping[str, Any]
    time: str | None = ""  # the column of event time; None if it has none, "" if not recorded

    def to_json(self) -> dict[str, Any]:
        time = {} if self.time == "" else {_TIME: self.time}
        return {_ID: self.id, **self.about, **time}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> InputFacts:
        about = {name: value for name, value in facts.items() if name not in (_ID, _TIME)}
        return InputFacts(facts[_ID], about, facts.get(_TIME, ""))


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """What an output is: a sink's own description, an id and the last epoch with rows."""

    id: str
    about: Mapping[str, Any]
    last: int = 0

    @property
    def place(self) -> str:
        return str(self.about.get("place"))

    def to_json(self) -> dict[str, Any]:
        return {_ID: self.id, **self.about, _LAST: self.last}

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> OutputFacts:
        about = {name: value for name, value in facts.items() if name not in (_ID, _LAST)}
        return OutputFacts(facts[_ID], about, facts[_LAST])


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is true after an epoch, and which attempt of which driver made it so.

    Without arguments: what is true of a job that has no manifest yet.
    """

    epoch: int = 0
    token: int = 0  # of the fence that its driver held
    attempt: str = ""
    job: str = ""
    clock: int = 0  # when the epoch was planned
    wall: int = 0  # when it was committed
    lag: int = 0  # rows that were there but not admitted
    splits: tuple[Split, ...] = ()
    next_split: int = 0  # no split id below is free; see `free_split_id`
    watermark: int = MIN_TIME  # what all inputs with event time have reached
    ended: bool = False
    ops: Mapping[str, StepFacts] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)  # by "step/table": a SlotState's JSON
    outputs: Mapping[str, list[Any]] = field(default_factory=dict)  # staged files, to publish
    reads: Mapping[str, InputFacts] = field(default_factory=dict)
    writes: Mapping[str, OutputFacts] = field(default_factory=dict)
    last_dead: int = 0  # the last epoch with dead letters in the job's own output
    retired: tuple[str, ...] = ()  # ids of inputs that were dropped
    timeline: str = FIRST
    forks: tuple[tuple[str, int], ...] = ()  # earlier timelines, and the last epoch of each
    acknowledged: Counts = field(default_factory=dict)  # by place and timeline: see `stays`
    endless: bool = False  # it has run without an end
    epoch_counts: Counts = field(default_factory=dict)  # of this epoch alone, by input
    counts: Counts = field(default_factory=dict)  # since the first start, as all that follow
    steps: Counts = field(default_factory=dict)  # rows in, out, late and dead by step
    examples: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # dead letters
    windows: Counts = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)  # written by output
    metrics: Counts = field(default_factory=dict)  # the user's, by step
    timing: Mapping[str, float] = field(default_factory=dict)  # ms by phase, of this epoch
    # Fates of records that may yet meet another, because something of them waits:
    # input, split, fate, first and last offset
    settled: tuple[tuple[str, str, str, int, int], ...] | None = None
    # Requests to send dead letters again that are done, each with the epoch that did it
    resent: tuple[tuple[int, int], ...] | None = None
    # By input that sheds the lowest: priorities of its records, each with how many there were
    priorities: Mapping[str, list[Any]] | None = None
    # Only where a changed program, or going back, has been recorded:
    dropped: tuple[str, ...] | None = None
    rewound: Counts | None = None  # by place and timeline: what is given up and stays there

    def to_json(self) -> dict[str, Any]:
        body = {name: getattr(self, name) for name in _BODY}
        body |= {name: {n: f.to_json() for n, f in body[name].items()} for name in _FACTS}
        body["splits"] = [split.to_json() for split in self.splits]
        body["forks"] = [list(fork) for fork in self.forks]
        for name in _NAMES:
            body[name] = None if body[name] is None else list(body[name])
        body = {name: value for name, value in body.items() if value is not None}
        return {"epoch": self.epoch, "token": self.token, "attempt": self.attempt, "body": body}

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> Manifest:
        body: dict[str, Any] = content["body"]
        if missing := [name for name in _REQUIRED if name not in body]:
            raise KeyError(missing[0])
        values = {name: body[name] for name in _BODY if name in body}
        for name, kind in _FACTS.items():
            values[name] = {n: kind.from_json(f) for n, f in body[name].items()}
        values |= {name: tuple(body[name]) for name in _NAMES if name in body}
        values["splits"] = tuple(map(Split.from_json, body["splits"]))
        if "settled" in body:
            values["settled"] = tuple((i, s, f, lo, hi) for i, s, f, lo, hi in body["settled"])
        if "resent" in body:
            values["resent"] = tuple((number, epoch) for number, epoch in body["resent"])
        values["forks"] = tuple((timeline, last) for timeline, last in body.get("forks", ()))
        return Manifest(content["epoch"], content["token"], content["attempt"], **values)

    def free_split_id(self) -> int:
        """The first id that no split has had, nor one of a dropped input: state holds those."""
        return max([self.next_split, *(1 + split.id for split in self.splits)])

    def stays(self) -> dict[str, dict[str, int]]:
        """By place and timeline: what was given up and stays there, as the user knows."""
        stays = {place: dict(reached) for place, reached in self.acknowledged.items()}
        for place, reached in (self.rewound or {}).items():
            stays[place] = {**stays.get(place, {}), **reached}
        return stays


def table_key(step: str, table: str) -> str:
    """The key of a step's table in `Manifest.state`."""
    return f"{step}/{table}"


_BODY = tuple(f.name for f in fields(Manifest) if f.name not in ("epoch", "token", "attempt"))
_FACTS: dict[str, Any] = {"ops": StepFacts, "reads": InputFacts, "writes": OutputFacts}
_NAMES = ("retired", "dropped")
_REQUIRED = ("clock", "splits", "outputs", *_FACTS)  # every version has written these
