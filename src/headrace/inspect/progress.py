"""The last epoch of a run: in figures, and as the lines that terminals, logs and the demo show.

Everything here is computed from a manifest; `engine/reporter.py` prints it. Over several epochs it
adds up to a rate (`Meter`) and to warnings about state that grows (`StateGrowth`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.clock import MAX_TIME
from headrace.epoch.accounting import FATES, SHED
from headrace.files import size
from headrace.state.manifest import Manifest
from headrace.state.store import SlotState

OFTEN = 100  # one row in so many: if more are late, something is probably wrong
LATE_HINT = (
    "they are in its .late stream. A longer delay= of the input gives rows more time; watched "
    'files that hold the same times, one per device or shard, need splits="file".'
)


@dataclass(frozen=True, slots=True)
class Progress:
    """An epoch in figures."""

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
        return self.committed - self.clock if self.is_batch else 0

    @property
    def is_batch(self) -> bool:
        """Not what Spark begins a new job with, and not going back, which are epochs too."""
        return bool(self.clock and self.timing)

    @property
    def late(self) -> int:
        """Rows that came too late, over all steps."""
        return sum(step.get("late", 0) for step in self.steps.values())

    @property
    def dead(self) -> int:
        """Rows that are dead letters, over all inputs."""
        return sum(counts["dead"] for counts in self.counts.values())

    @property
    def shed(self) -> int | None:
        """Records that were dropped because too many waited; None if no input is asked to."""
        asked = [counts[SHED] for counts in self.counts.values() if SHED in counts]
        return sum(asked) if asked else None

    @property
    def sheds(self) -> tuple[str, ...]:
        """A warning for each input of which records were dropped."""
        return tuple(
            f"{shed:,} of {counts['read']:,} records ({shed / counts['read']:.0%}) of input "
            f"{name!r} were shed, as it is asked to: more waited than it may leave waiting"
            for name, counts in self.counts.items()
            if (shed := counts.get(SHED, 0))
        )

    @property
    def all_dead(self) -> tuple[str, ...]:
        """A warning for each input of which every record so far is a dead letter."""
        lost = [n for n, c in self.counts.items() if c["read"] and c["dead"] == c["read"]]
        return tuple(
            f"all {self.counts[name]['read']:,} records of input {name!r} are dead letters"
            + self._reason(name)
            for name in lost
        )

    @property
    def often_late(self) -> tuple[str, ...]:
        """A warning for each step for which more than one row in a hundred came too late."""
        return tuple(
            f"{late:,} of {counts['in']:,} rows ({late / counts['in']:.0%}) came too late for step "
            f"{name!r}: {LATE_HINT}"
            for name, counts in self.steps.items()
            if (late := counts.get("late", 0)) * OFTEN > counts.get("in", 0) > 0
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is probably wrong with the data, in sentences."""
        return (*self.all_dead, *self.often_late, *self.sheds)

    def _reason(self, input: str) -> str:
        """Why, by a letter of the input itself or else of a step."""
        example = self.examples.get(input) or next(iter(self.examples.values()), None)
        return "" if example is None else f": {quoted(example)}"

    @property
    def total(self) -> Mapping[str, int]:
        """Fates of all records of all inputs since the job's first start; "shed" is among them
        if an input is asked to shed."""
        fates = FATES if self.shed is None else (*FATES, SHED)
        return {f: sum(c.get(f, 0) for c in self.counts.values()) for f in fates}


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
    """Fates by input, those of inputs that have delivered no rows yet included."""
    none = {name: dict.fromkeys(FATES, 0) for name in manifest.reads}
    return dict(sorted({**none, **manifest.counts}.items()))


_WINDOW = 10_000  # ms over which the rate is taken
_FATES = ("used", "filtered", "late", "dead")
_FAR = 60_000_000_000_000  # ms from 1970; beyond it, in the year 3871, a date says nothing more
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"))


class Meter:
    """Rows a second over the last ten seconds: it falls to zero when nothing comes."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()
        self._began: int | None = None

    def add(self, progress: Progress) -> None:
        if self._began is None:
            self._began = progress.clock
        self._seen.append((progress.committed, progress.read))

    def rate(self, now: int) -> float:
        while self._seen and self._seen[0][0] <= now - _WINDOW:
            self._seen.popleft()
        began = now if self._began is None else self._began
        span = min(_WINDOW, now - began)
        return sum(read for _, read in self._seen) * 1_000 / max(span, 1)


def status_line(p: Progress, rate: float, now: int, width: int | None = None) -> str:
    """Rate, lag, watermark and its delay, late, dead, shed, rows of state, batch time by phase.

    With a `width`, what does not fit goes on a further line, never cut in two.
    """
    parts = [
        f"epoch {p.epoch}",
        f"{short(rate)} rows/s",
        f"lag {short(p.lag)}",
        _watermark(p, now),
        f"late {short(p.late)}",
        f"dead {short(p.dead)}",
        *([] if p.shed is None else [f"shed {short(p.shed)}"]),
        f"state {short(sum(p.held.values()))}",
        f"batch {p.took} ms{_phases(p)}",
    ]
    lines = [parts.pop(0)]
    for part in parts:
        if width is not None and len(lines[-1]) + 2 + len(part) > width:
            lines.append(part)
        else:
            lines[-1] += f"  {part}"
    return "\n".join(lines)


def account(p: Progress) -> list[str]:
    """Where every record went: read = used + filtered + late + dead, and + shed of an input that
    is asked to shed; and what was written."""
    lines = []
    for name, counts in p.counts.items():
        own = (*_FATES, SHED) if SHED in counts else _FATES
        fates = " + ".join(f"{fate} {counts[fate]:,}" for fate in own)
        lines.append(f"input  {name}: read {counts['read']:,} = {fates}")
    lines += [f"dead   {step}: {quoted(example)}" for step, example in p.examples.items()]
    lines += [f"output {name}: wrote {rows:,}" for name, rows in p.outputs.items()]
    for step, figures in p.metrics.items():
        figures_text = ", ".join(f"{name} {n:,}" for name, n in figures.items())
        lines.append(f"step   {step}: counted {figures_text}")
    return lines


def short(number: float) -> str:
    """A count or a rate in at most five characters: 0.4, 999, 12.3k, 4.5M; never 0 of what is more."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale * (9.995 if unit == "k" else 0.9995):
            scaled = number / scale
            return f"{scaled:.1f}{unit}" if scaled < 99.95 else f"{scaled:.0f}{unit}"
    if 0 < number < 0.095:
        return f"{number:.2f}" if number >= 0.005 else "<0.01"
    return f"{number:.1f}".removesuffix(".0") if 0 < number < 9.95 else f"{number:.0f}"


def span(ms: int) -> str:
    """A duration at a glance: 4.5s, 12m, 3h, 2d."""
    for length, unit in _UNITS:
        if ms >= 2 * length:
            return f"{ms // length}{unit}"
    return f"{ms / 1_000:.1f}s"


def moment(ms: int) -> str:
    """A point in time, in UTC."""
    if not -_FAR <= ms < _FAR:
        return f"{ms} ms"
    shown = datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{shown}.{ms % 1_000:03}" if ms % 1_000 else shown


def _watermark(p: Progress, now: int) -> str:
    if p.watermark is None:
        return "watermark at the end" if p.ended else "watermark -"
    return f"watermark {moment(p.watermark // 1_000 * 1_000)} (-{span(max(0, now - p.watermark))})"


def _phases(p: Progress) -> str:
    """Milliseconds of all tasks together, in the source and in each level."""
    levels = [n for n in p.timing if n.startswith("level ")]
    each = "/".join(f"{p.timing[n]:.0f}" for n in sorted(levels, key=lambda n: int(n[6:])))
    parts = [f"{n} {ms:.0f}" for n, ms in p.timing.items() if n not in levels]
    parts += [f"levels {each}"] if levels else []
    return f" ({', '.join(parts)})" if parts else ""


FLOOR = 256_000_000  # bytes: below, no warning
_SOON = 7 * 86_400_000  # ms in which the disk would be full


class _Mark(NamedTuple):
    clock: int
    bytes: int


class StateGrowth:
    """Warns when the state of a step has doubled while a run goes on.

    A step whose state has no bound is refused when the program is built, unless the user allows
    it. This is about what was allowed, and becomes larger than expected: the warning comes while
    there is time to do something about it, and seldom enough to be read.
    """

    def __init__(self, free: Callable[[], int]) -> None:
        self._free = free  # bytes that the disk has left
        self._marks: dict[str, _Mark] = {}
        self._warned: dict[str, tuple[int, str]] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """The last warning of each step, unless its state has become small again."""
        return tuple(warning for _, warning in self._warned.values())

    def see(self, progress: Progress) -> list[str]:
        """Take note of an epoch; returns new warnings."""
        new = []
        for step, now in progress.held_bytes.items():
            mark = self._marks.setdefault(step, _Mark(progress.clock, now))
            if now >= max(FLOOR, 2 * mark.bytes):
                warning = self._sentence(step, progress, mark)
                self._marks[step], self._warned[step] = _Mark(progress.clock, now), (now, warning)
                new.append(warning)
            elif step in self._warned and now < self._warned[step][0] // 2:
                del self._warned[step]
                self._marks[step] = _Mark(progress.clock, now)
        return new

    def _sentence(self, step: str, progress: Progress, mark: _Mark) -> str:
        now, rows = progress.held_bytes[step], short(progress.held[step])
        grown, took = now - mark.bytes, max(progress.clock - mark.clock, 1)
        left = int(self._free() / grown * took)
        full = f"; at this pace the disk is full in {span(left)}" if left < _SOON else ""
        return (
            f"the state of {step!r} has grown from {size(mark.bytes)} to {size(now)} "
            f"({rows} rows) within {span(took)}{full}"
        )
