"""All figures of a job at one time, as values and as plain JSON: see `docs/guide/metrics.md`.

Times are epoch milliseconds, durations milliseconds unless a name says seconds, rates are rows a
second. None is what is not known, never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

Latency = Mapping[str, float] | None  # p50, p95 and p99, or of nothing
# count, sum, below_zero, and buckets: pairs of a bound and what is below it
Distribution = Mapping[str, Any]
_AS = {"rows_in": "in", "rows_out": "out"}  # what Python does not allow as a name
_TEXTS = ("name", "kind", "step", "why")
_SIMPLE = (int, str, bool, type(None))
_NAMED = ("inputs", "steps", "outputs")  # each a list of parts that have names


@dataclass(frozen=True, slots=True)
class InputFigures:
    """An input: where its records went, its rate, lag and latency."""

    name: str
    read: int
    used: int
    filtered: int
    late: int
    dead: int
    shed: int | None  # None if it is not asked to
    rate: float | None
    lag_rows: int | None
    lag_seconds: float | None
    watermark: int | None
    splits: int
    latency: Mapping[str, Latency]  # "event" and "ingest"


@dataclass(frozen=True, slots=True)
class StepFigures:
    """A step: rows in and out, its share of the time, its state, figures of the user's own."""

    name: str
    kind: str
    level: int | None
    rows_in: int | None  # None of one that runs fused: the last one's are those of the whole
    rows_out: int | None
    rate_in: float | None
    rate_out: float | None
    late: int
    dead: int
    execute_ms: float | None  # at work, for 1,000 rows
    process_ms: float | None  # at work in the last epoch, in the task that took longest
    busy: float | None  # the share of its tasks' time
    state_rows: int | None
    state_bytes: int | None
    watermark: int | None
    user: Mapping[str, Mapping[str, Any]]  # "counters", "gauges", "histograms"


@dataclass(frozen=True, slots=True)
class OutputFigures:
    """An output: rows, their rate, the time to publish them."""

    name: str
    rows: int
    rate: float | None
    publish_ms: float | None  # for an epoch that has rows for it
    busy: float | None  # the share of time in which it is published


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """A step with windows: how many are open, and when the next closes."""

    step: str
    open: int  # rows of its state
    next: int | None  # the event time at which the next one is due


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The step that limits the job, and why."""

    step: str
    why: str


@dataclass(frozen=True, slots=True)
class Backpressure:
    """Whether rows wait that were not admitted, and how many."""

    held_back: bool
    rows: int


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a job at one time; a figure that is not known is None, never 0."""

    time: int
    epoch: int
    committed: int
    took_ms: int | None  # None if the last epoch is no batch
    phases: Mapping[str, float]
    rate_in: float | None
    rate_out: float | None
    lag_rows: int
    lag_seconds: float | None
    watermark: int | None
    watermark_delay: float | None
    capacity: float | None
    latency: Mapping[str, Latency]
    latencies: Mapping[str, Distribution]  # "event" and "ingest", of all records since the start
    memory: Mapping[str, int | None]
    gc_ms: int | None
    retries: int  # tasks of Spark that were begun again
    totals: Mapping[str, int]
    inputs: tuple[InputFigures, ...] = ()
    steps: tuple[StepFigures, ...] = ()
    outputs: tuple[OutputFigures, ...] = ()
    windows: tuple[WindowFigures, ...] = ()
    bottleneck: Bottleneck | None = None
    backpressure: Backpressure | None = None
    warnings: tuple[str, ...] = field(default=())

    def at_rest(self) -> Figures:
        """Those of a job that does not run: what it counted stays, how fast it was is over."""
        none: dict[str, Latency] = dict.fromkeys(self.latency)
        return replace(
            self, rate_in=None, rate_out=None, watermark_delay=None, capacity=None, latency=none,
            memory=dict.fromkeys(self.memory), gc_ms=None, bottleneck=None, backpressure=None,
            inputs=tuple(replace(i, rate=None, latency=none) for i in self.inputs),
            steps=tuple(replace(s, rate_in=None, rate_out=None, busy=None) for s in self.steps),
            outputs=tuple(replace(o, rate=None, busy=None) for o in self.outputs),
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready to dump."""
        json: dict[str, Any] = _plain(self)
        return json

    def series(self) -> dict[str, float | None]:
        """Every number by its path: "rate_in", "latency.event.p95", "steps.NAME.busy"."""
        return dict(_paths("", self.to_json()))


def _plain(value: Any) -> Any:
    """Values, and parts that have names, as JSON has them: often, so it looks at types alone."""
    kind = type(value)
    if kind is float:
        return float(f"{value:.12g}")  # without the noise of sums; tiny ones stay what they are
    if kind in _SIMPLE:
        return value
    if kind is list or kind is tuple:
        return [_plain(part) for part in value]
    if is_dataclass(kind):
        return {_AS.get(n, n): _plain(getattr(value, n)) for n in kind.__dataclass_fields__}
    return {_AS.get(name, name): _plain(part) for name, part in value.items()}


def _paths(path: str, json: Mapping[str, Any]) -> Iterator[tuple[str, float | None]]:
    for name, value in json.items():
        at = f"{path}.{name}" if path else name
        kind = type(value)
        if kind is dict:
            yield from _paths(at, value)
        elif kind is list:
            for part in value if name in _NAMED else ():
                yield from _paths(f"{at}.{part['name']}", part)
        elif name not in _TEXTS and kind is not str and kind is not bool:
            yield at, value
