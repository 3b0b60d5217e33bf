"""What a task tells the driver about an epoch, and how the reports of all tasks add up.

A report is a JSON note that travels to the sink. It names what the task made durable;
nothing in it counts until the manifest does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Report:
    epoch: int
    attempt: str
    replay: bool = False
    end: dict[str, Any] | None = None  # clock and splits after the epoch, from its first task
    inputs: dict[str, dict[str, int]] = field(default_factory=dict)  # fates by input
    steps: dict[str, dict[str, int]] = field(default_factory=dict)  # rows in, out, late, dead
    splits: dict[str, int] = field(default_factory=dict)  # watermark by split id
    memory: dict[str, Any] = field(default_factory=dict)  # of the watermark, by split id
    staged: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)  # rows staged by output
    state: dict[str, dict[str, Any]] = field(default_factory=dict)  # table update by "op/table"
    ops: dict[str, dict[str, Any]] = field(default_factory=dict)  # next, watermark, held
    dead: list[tuple[str, str, int]] = field(default_factory=list)  # places, from level tasks
    examples: dict[str, dict[str, str]] = field(default_factory=dict)  # a dead letter by step
    timing: dict[str, float] = field(default_factory=dict)  # milliseconds by phase
    metrics: dict[str, dict[str, int]] = field(default_factory=dict)  # the user's, by step

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Report:
        return Report(**fields)


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
    ops: dict[str, dict[str, Any]] = field(default_factory=dict)
    examples: dict[str, dict[str, str]] = field(default_factory=dict)
    timing: Counter[str] = field(default_factory=Counter)
    metrics: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))


def add_up(reports: Iterable[Report]) -> Total:
    total = Total()
    fallen: set[tuple[str, str, int]] = set()
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
        fallen.update((i, s, o) for i, s, o in report.dead)
        total.examples |= report.examples
        total.timing.update(report.timing)
        for name, counts in report.metrics.items():
            total.metrics[name].update(counts)
    for name, _, _ in fallen:  # records that died below the source were counted as used
        total.inputs[name].update({"used": -1, "dead": 1})
    return total


def _joined(known: dict[str, Any] | None, facts: dict[str, Any]) -> dict[str, Any]:
    if known is None:
        return dict(facts)
    return {
        "watermark": max(known["watermark"], facts["watermark"]),
        "next": min(known["next"], facts["next"]),
        "wake": min(known["wake"], facts["wake"]),
        "held": known["held"] + facts["held"],
    }
