"""What each step of a chain has seen, start by start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evolution.kinds import ANY_LENGTH, NARROWER, SHORTER
from evolution.model import DELAY, END, NOW, Segment
from evolution.places import BOUNDED, PARTITIONS, partition_of
from evolution.spec import Input, Step, Version

Read = Mapping[tuple[str, int, int], Sequence[Any]]  # by place, life and start


@dataclass(frozen=True, slots=True)
class Begun:
    """A start that went on to run."""

    number: int
    version: Version
    crashed: bool


@dataclass(frozen=True, slots=True)
class Life:
    segments: list[Segment]
    cuts: list[int]  # where it may have begun anew


def life_of(label: str, begun: Sequence[Begun], read: Read, grown: set[str]) -> Life | None:
    """None where the guide does not say what the step has seen, or in which order."""
    segments, cuts = list[Segment](), list[int]()
    for n, b in enumerate(begun):
        for branch in (x for x in b.version.branches if x.label == label):
            s, inputs = branch.step, [b.version.input(i) for i in branch.step.inputs]
            if segments and s.name is None and b.version.drop is True:
                cuts.append(len(segments))
            segments.append(
                Segment(
                    b.number, s, f"{branch.output.kind}:{branch.output.place}",
                    tuple(tuple(read.get((i.place, i.life, b.number), ())) for i in inputs),
                    tuple(i.time for i in inputs),
                    tuple(_mark(i, begun[: n + 1], read) for i in inputs),
                    tuple((i.place, i.life) for i in inputs),
                    all(i.kind in BOUNDED for i in inputs) and not b.crashed, b.crashed,
                )
            )  # fmt: skip
    while len(segments) > 1 and not any(segments[0].sides):
        segments, cuts = segments[1:], [c - 1 for c in cuts if c > 1]
    return None if _unclear(segments, grown) else Life(_since(segments), cuts)


def _since(segments: Sequence[Segment]) -> list[Segment]:
    """The same; each aggregate counts from the start on with which it came."""
    begins, found = dict[str, int](), list[Segment]()
    for n, s in enumerate(segments):
        was, new = dict(s.step.was_names), 0 if s.step.since == "beginning" else n
        begins = {
            name: begins.get(name, begins.get(was.get(name, ""), new)) for name in s.step.aggregates
        }
        found.append(replace(s, step=replace(s.step, begins=tuple(begins.values()))))
    return found


def _unclear(segments: Sequence[Segment], grown: set[str]) -> bool:
    step, with_rows = segments[0].step, [s for s in segments if any(s.sides)]
    if _other_past(segments):
        return True
    places = {place for s in segments for place, _ in s.inputs}
    if step.of.order and any(PARTITIONS.get(p, 1) > 1 and "k" not in s.step.keys
                             for s in segments for p, _ in s.inputs):  # fmt: skip
        return True
    if not step.timed:
        return False
    if len(step.inputs) > 1 and places & grown:
        return True  # a side that was at its end has more: late or not, as batches go
    return len({(s.inputs, _settings(s.step)) for s in with_rows}) > 1 and _in_time(step)


def _other_past(segments: Sequence[Segment]) -> bool:
    """Whether rows were read again by a condition, or from inputs, that others were read by."""
    last = max((n for n, s in enumerate(segments) if s.step.since == "beginning"), default=0)
    return len({(s.step.where, s.inputs) for s in segments[: last + 1]}) > 1


def _settings(step: Step) -> tuple[object, ...]:
    """What may change, and whose results then depend on when something was over."""
    length = 0 if step.of.length in (SHORTER, NARROWER, ANY_LENGTH) else step.length
    return length, step.column if step.kind == "reduced" else ""


def _in_time(step: Step) -> bool:
    """Whether another input, or length, changes what is late and what is over."""
    return step.timed and step.kind not in ("top", "components", "degrees")


def _mark(i: Input, begun: Sequence[Begun], read: Read) -> float:
    """Where the watermark of an input stands; it begins anew with another column of time."""
    if i.kind in BOUNDED:
        return END
    reached = [NOW] * PARTITIONS.get(i.place, 1)
    time = i.time
    for b in begun:
        for one in (x for x in b.version.inputs if (x.place, x.life) == (i.place, i.life)):
            if one.time != time:
                time, reached = one.time, [NOW] * len(reached)
            for row in read.get((i.place, i.life, b.number), ()):
                n = partition_of(i.place, row)
                reached[n] = max(reached[n], row[time] - DELAY)
    return min(reached)
