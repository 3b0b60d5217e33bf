"""What a task reports to the driver about an epoch, and how the reports of all tasks add up.

A report is a JSON note that travels to the sink. It names what the task made durable;
nothing in it counts until the manifest does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.epoch.branched_records import branch_corrections
from headrace.epoch.values import Offset
from headrace.state.manifest import StepFacts

Settled = tuple[str, str, str, int, int]  # input, split, fate, first and last offset
_DEAD = "dead"


@dataclass(slots=True)
class Report:
    epoch: int
    attempt: str
    replay: bool = False
    end: Offset | None = None  # of the epoch, from its first task
    inputs: dict[str, dict[str, int]] = field(default_factory=dict)  # fates by input
    steps: dict[str, dict[str, int]] = field(default_factory=dict)  # rows in, out, late, dead
    splits: dict[str, int] = field(default_factory=dict)  # watermark by split id
    memory: dict[str, Any] = field(default_factory=dict)  # of the watermark, by split id
    staged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # rows staged by output
    state: dict[str, dict[str, Any]] = field(default_factory=dict)  # table update by "op/table"
    ops: dict[str, StepFacts] = field(default_factory=dict)  # next, watermark, held
    dead: list[tuple[str, str, int]] = field(default_factory=list)  # places, from level tasks
    # records that did not count as used, but were
    several: list[Settled] = field(default_factory=list)
    # input, split, fate, offsets: what became of records that take several branches
    branched: list[tuple[str, str, str, str]] = field(default_factory=list)
    examples: dict[str, dict[str, str]] = field(default_factory=dict)  # a dead letter by step
    timing: dict[str, float] = field(default_factory=dict)  # milliseconds by phase
    tasks: int = 0  # of a level
    retries: int = 0  # how often Spark had begun this task before
    work: dict[str, float] = field(default_factory=dict)  # milliseconds by step
    metrics: dict[str, dict[str, int]] = field(default_factory=dict)  # the user's, by step
    # by input: ms from the event time of its rows to the epoch's clock, in buckets
    ages: dict[str, dict[int, int]] = field(default_factory=dict)
    arrived: dict[str, dict[int, int]] = field(default_factory=dict)  # the same, from arrival
    gauges: dict[str, dict[str, float]] = field(default_factory=dict)  # the user's, by step
    histograms: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    # by input that sheds the lowest: priorities of its records, each with how many there were
    priorities: dict[str, list[Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Report:
        end = None if fields["end"] is None else Offset.from_json(fields["end"])
        ops = {name: StepFacts(**facts) for name, facts in fields["ops"].items()}
        found = {name: _buckets(fields[name]) for name in ("ages", "arrived")}
        found["histograms"] = {s: _buckets(h) for s, h in fields["histograms"].items()}
        return Report(**{**fields, "end": end, "ops": ops, **found})


def _buckets(histograms: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """JSON has texts for keys."""
    return {n: {int(b): count for b, count in h.items()} for n, h in histograms.items()}


@dataclass(slots=True)
class Total:
    """The reports of all tasks of an epoch, added up."""

    inputs: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    steps: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    rows: Counter[str] = field(default_factory=Counter)
    staged: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    splits: dict[str, int] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    state: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))
    ops: dict[str, StepFacts] = field(default_factory=dict)
    examples: dict[str, dict[str, str]] = field(default_factory=dict)
    timing: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    tasks: int = 0
    retries: int = 0
    work: Counter[str] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)  # the work of one task, by step
    ages: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    arrived: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    gauges: dict[str, dict[str, float]] = field(default_factory=dict)
    histograms: dict[str, dict[str, Counter[int]]] = field(default_factory=dict)
    settled: list[Settled] = field(default_factory=list)  # see the manifest
    priorities: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))


def add_up(reports: Iterable[Report], settled: Iterable[Settled] = ()) -> Total:
    """The reports of an epoch; `settled` are fates that earlier ones have counted."""
    total = Total()
    dead: set[tuple[str, str, int]] = set()
    several: list[Settled] = []
    branched: list[tuple[str, str, str, str]] = []
    for report in reports:
        for name, counts in report.inputs.items():
            total.inputs[name].update(counts)
        for name, counts in report.steps.items():
            total.steps[name].update(counts)
        for name, refs in report.staged.items():
            total.staged[name].extend(refs)
        total.rows.update(report.rows)
        for split, watermark in report.splits.items():
            total.splits[split] = max(watermark, total.splits.get(split, watermark))
        total.memory.update(report.memory)
        for table, update in report.state.items():
            total.state[table].append(update)
        for name, facts in report.ops.items():
            total.ops[name] = _joined(total.ops.get(name), facts)
        dead.update((i, s, o) for i, s, o in report.dead)
        several += [(i, s, fate, lo, hi) for i, s, fate, lo, hi in report.several]
        branched += report.branched
        total.examples |= report.examples
        for name, priorities in report.priorities.items():
            total.priorities[name] += priorities
        total.timing.update(report.timing)
        total.tasks = max(total.tasks, report.tasks)
        total.retries += report.retries
        total.work.update(report.work)
        for name, ms in report.work.items():
            total.longest[name] = max(ms, total.longest.get(name, 0.0))
        for name, age in report.ages.items():
            total.ages[name].update(age)
        for name, age in report.arrived.items():
            total.arrived[name].update(age)
        for name, counts in report.metrics.items():
            total.metrics[name].update(counts)
        for name, gauges in report.gauges.items():
            largest = total.gauges.setdefault(name, {})
            largest.update({g: max(v, largest.get(g, v)) for g, v in gauges.items()})
        for name, histograms in report.histograms.items():
            for what, numbers in histograms.items():
                total.histograms.setdefault(name, {}).setdefault(what, Counter()).update(numbers)
    earlier = list(settled)
    died = {(name, split, first) for name, split, fate, first, _ in earlier if fate == _DEAD}
    counted = _Fates([*(s for s in earlier if s[2] != _DEAD), *several]) if dead else None
    for name, split, offset in dead - died:  # they failed below the source, where they had counted
        assert counted is not None
        total.inputs[name].update({_DEAD: 1})
        total.inputs[name].subtract({counted.of(name, split, offset): 1})
    for name, counts in branch_corrections(branched, dead):
        total.inputs[name].update(counts)
    fresh = [(name, split, _DEAD, offset, offset) for name, split, offset in sorted(dead - died)]
    total.settled = [*earlier, *several, *fresh]
    return total


class _Fates:
    """What the source counted a record as that went on to an operator."""

    def __init__(self, several: Iterable[Sequence[Any]]) -> None:
        self._runs: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
        for name, split, fate, first, last in several:
            self._runs[name, split].append((first, last, fate))
        for runs in self._runs.values():
            runs.sort()

    def of(self, name: str, split: str, offset: int) -> str:
        """The worst fate that it met on another branch, otherwise used."""
        runs = self._runs.get((name, split), [])
        at = bisect_right(runs, offset, key=lambda run: run[0]) - 1
        return runs[at][2] if at >= 0 and offset <= runs[at][1] else "used"


def _joined(total: StepFacts | None, facts: StepFacts) -> StepFacts:
    if total is None:
        return facts
    return StepFacts(
        watermark=max(total.watermark, facts.watermark),
        next=min(total.next, facts.next),
        wake=min(total.wake, facts.wake),
        held=total.held + facts.held,
        tasks=facts.tasks,
        holds=_least(total.holds, facts.holds),
        oldest=_least(total.oldest, facts.oldest),
    )


def _least(*numbers: int | None) -> int | None:
    return min((n for n in numbers if n is not None), default=None)
