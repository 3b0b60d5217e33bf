"""The last epoch of a run in figures, for status lines, pages and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.clock import MAX_TIME
from headrace.epoch.accounting import FATES
from headrace.state.manifest import Manifest
from headrace.state.slots import SlotState


@dataclass(frozen=True, slots=True)
class Progress:
    epoch: int
    clock: int  # when the epoch was planned
    committed: int  # when it was committed
    read: int  # rows of this epoch
    lag: int  # rows that were there but not admitted
    watermark: int | None  # event time that all inputs have reached; None before any
    counts: Mapping[str, Mapping[str, int]]  # since the job's first start, by input
    steps: Mapping[str, Mapping[str, int]]
    outputs: Mapping[str, int]  # rows written since the job's first start, by output
    held: Mapping[str, int]  # about how many rows of state, by operator
    held_bytes: Mapping[str, int]  # about how much room they take on disk
    timing: Mapping[str, float]  # milliseconds by phase of this epoch
    ended: bool
    metrics: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # the user's, by step
    examples: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # a dead letter by step

    @property
    def took(self) -> int:
        """Milliseconds from planning to commit."""
        return self.committed - self.clock

    @property
    def late(self) -> int:
        return sum(step.get("late", 0) for step in self.steps.values())

    @property
    def dead(self) -> int:
        return sum(counts["dead"] for counts in self.counts.values())

    @property
    def all_dead(self) -> tuple[str, ...]:
        """A warning for each input of which every record so far is a dead letter."""
        lost = [n for n, c in self.counts.items() if c["read"] and c["dead"] == c["read"]]
        return tuple(
            f"all {self.counts[name]['read']:,} records of input {name!r} are dead letters"
            + self._reason(name)
            for name in lost
        )

    def _reason(self, input: str) -> str:
        """Why, by a letter of the input itself or else of a step."""
        found = self.examples.get(input) or next(iter(self.examples.values()), None)
        return "" if found is None else f": {quoted(found)}"

    @property
    def total(self) -> Mapping[str, int]:
        """Fates of all records of all inputs since the job's first start."""
        return {f: sum(c.get(f, 0) for c in self.counts.values()) for f in FATES}


def quoted(example: Mapping[str, str]) -> str:
    """A dead letter in a few words: what was wrong, and with which record."""
    error = example["error"].splitlines()[0] if example["error"] else ""
    return error + (f" ({example['place']})" if example["place"] else "")


def progress_of(manifest: Manifest, phases: Mapping[str, float]) -> Progress:
    return Progress(
        epoch=manifest.epoch,
        clock=manifest.clock,
        committed=manifest.wall,
        read=sum(counts.get("read", 0) for counts in manifest.epoch_counts.values()),
        lag=manifest.lag,
        watermark=None if abs(manifest.watermark) == MAX_TIME else manifest.watermark,
        counts=_counts(manifest),
        steps=manifest.steps,
        outputs=manifest.rows,
        held={name: facts.held for name, facts in manifest.ops.items()},
        held_bytes=_bytes(manifest),
        timing={**manifest.timing, **phases},
        ended=manifest.ended,
        metrics=manifest.metrics,
        examples=manifest.examples,
    )


def _bytes(manifest: Manifest) -> dict[str, int]:
    room = dict.fromkeys(manifest.ops, 0)
    for table, state in manifest.state.items():
        step = table.rpartition("/")[0]
        if step in room:
            room[step] += SlotState.from_json(state).bytes()
    return room


def _counts(manifest: Manifest) -> dict[str, Mapping[str, int]]:
    """Fates by input, those of inputs that have given no row yet included."""
    none = {name: dict.fromkeys(FATES, 0) for name in manifest.reads}
    return dict(sorted({**none, **manifest.counts}.items()))
