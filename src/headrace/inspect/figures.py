"""All figures of a job, from its newest manifest, a sample of earlier and the note of its run.

What manifests count only grows, so a rate is the difference of two of them by the time between:
manifests of the epochs in between may be gone. Which sample of earlier to take is the business of
a `Sampler`. No clock and no thread here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.buckets import Histogram, added, below, percentiles, since, sum_of
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.epoch.accounting import SHED
from headrace.epoch.values import watermark_of
from headrace.errors import FencedError
from headrace.inspect.bottleneck import bottleneck_of
from headrace.inspect.figure_values import (
    Backpressure,
    Distribution,
    Figures,
    InputFigures,
    Latency,
    OutputFigures,
    StepFigures,
    WindowFigures,
)
from headrace.inspect.live import Live, read_live
from headrace.inspect.progress import Progress, progress_of
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Counts, Manifest
from headrace.state.measures import Measures

_RATE = 10_000  # ms over which rates are taken, or three epochs if those take longer
_MINUTE = 60_000  # ms over which percentiles are taken
_POWERS_OF_MS = range(23)  # bounds from a millisecond to an hour
_POWERS = range(-20, 41, 2)  # of numbers of any kind: from a millionth to a million millions
_MEMORY = ("driver", "jvm", "jvm_heap", "workers")
_NONE: Latency = None


@dataclass(frozen=True, slots=True)
class Sample:
    """What a job had counted at `time`."""

    time: int
    job: tuple[str, str]  # and its timeline: another begins anew
    epoch: int
    counts: Counts
    steps: Counts
    rows: Mapping[str, int]
    measures: Measures


def sample_of(time: int, manifest: Manifest) -> Sample:
    """`time` is now, or when the manifest was committed."""
    m = manifest
    return Sample(time, (m.job, m.timeline), m.epoch, m.counts, m.steps, m.rows, m.measures)


class Sampler:
    """The figures of one job that is looked at again and again, as every second."""

    def __init__(self, *earlier: Sample) -> None:
        self._samples = deque(earlier)

    def see(self, now: int, manifest: Manifest, live: Live | None = None) -> Figures:
        sample = sample_of(now, manifest)
        while self._samples and not _precedes(self._samples[-1], sample):
            self._samples.pop()  # the folder was replaced, or went back
        minute = self._from(now - _MINUTE)
        span = min(_MINUTE, max(_RATE, 3 * (manifest.wall - manifest.clock)))
        before = self._from(now - span)
        self._samples.append(sample)
        while len(self._samples) > 1 and self._samples[1].time <= now - _MINUTE:
            self._samples.popleft()
        return figures(now, manifest, before, live, minute)

    def _from(self, time: int) -> Sample | None:
        """The last sample that is not after `time`, else the first."""
        older = [sample for sample in self._samples if sample.time <= time]
        return older[-1] if older else self._samples[0] if self._samples else None


def figures(
    now: int,
    manifest: Manifest,
    before: Sample | None = None,
    live: Live | None = None,
    minute: Sample | None = None,
) -> Figures:
    """Rates are since `before`; percentiles since `minute`, or else since `before`, or else of all
    time. Without a sample before there are no rates."""
    sample = sample_of(now, manifest)
    earlier = before if before is not None and _precedes(before, sample) else None
    minute = minute if minute is not None and _precedes(minute, sample) else earlier
    return _Figuring(now, manifest, earlier, live, minute).all()


def figures_of(log: EpochLog, now: int) -> Figures | None:
    """Those of the job in a folder, by the manifests that are there: for who looks once."""
    manifest = log.latest()
    if manifest is None:
        return None
    before = next(iter(samples_before(log, manifest)), None)
    live = read_live(log.folder, now)
    return figures(now if log.is_held() else manifest.wall, manifest, before, live)


def samples_before(log: EpochLog, newest: Manifest) -> list[Sample]:
    """What was counted in the minute before a manifest, as far as earlier ones are there."""
    found: list[Sample] = []
    for epoch in reversed(log.epochs()):
        if epoch < newest.epoch:
            try:
                manifest = log.read(epoch)
            except FencedError:
                break  # a driver that runs has cleared it away
            if manifest.timeline != newest.timeline or manifest.wall < newest.wall - _MINUTE:
                break
            found.append(sample_of(manifest.wall, manifest))
    return found[::-1]


def _precedes(before: Sample, now: Sample) -> bool:
    return before.job == now.job and before.epoch <= now.epoch and before.time <= now.time


class _Figuring:
    def __init__(
        self,
        now: int,
        manifest: Manifest,
        before: Sample | None,
        live: Live | None,
        minute: Sample | None,
    ) -> None:
        self._now, self._manifest, self._live = now, manifest, live
        self._before, self._minute = before, minute
        self._measures, self._progress = manifest.measures, progress_of(manifest, {})
        self._passed = now - before.time if before is not None else 0  # ms

    def all(self) -> Figures:
        m, p, live = self._manifest, self._progress, self._live
        inputs, steps = tuple(map(self._input, p.counts)), tuple(map(self._step, self._steps()))
        outputs = tuple(map(self._output, self._outputs()))
        capacity, lags = self._share(self._grown("took")), [i.lag_seconds for i in inputs]
        memory = live.memory if live is not None else {}
        return Figures(
            time=self._now,
            epoch=m.epoch,
            committed=m.wall,
            took_ms=p.took if p.is_batch else None,
            phases={**m.timing, **(live.phases if live is not None else {})},
            rate_in=_sum(i.rate for i in inputs),
            rate_out=_sum(o.rate for o in outputs),
            lag_rows=m.lag,
            lag_seconds=max((lag for lag in lags if lag is not None), default=None),
            watermark=p.watermark,
            watermark_delay=_delay(self._now, p.watermark),
            capacity=capacity,
            latency={what: self._latency(what, p.counts) for what in ("event", "ingest")},
            latencies={what: self._latencies(what) for what in ("event", "ingest")},
            memory={kind: memory.get(kind) for kind in _MEMORY},
            gc_ms=live.gc_ms if live is not None else None,
            retries=self._measures.retries,
            totals=p.total,
            inputs=inputs,
            steps=steps,
            outputs=outputs,
            windows=tuple(map(self._window, self._windows())),
            bottleneck=bottleneck_of(m.lag, capacity, inputs, steps, outputs, self._measures.tasks),
            backpressure=Backpressure(m.lag > 0, m.lag),
            warnings=self._warnings(p),
        )

    def _warnings(self, p: Progress) -> tuple[str, ...]:
        """Those of the run have those of its batches, as of a moment ago: not the same ones twice,
        with other counts."""
        if self._live is None:
            return p.warnings
        stalled = (self._live.stalled,) if self._live.stalled else ()
        return tuple(dict.fromkeys((*stalled, *self._live.warnings)))

    # parts

    def _input(self, name: str) -> InputFigures:
        counts, lag = self._progress.counts[name], self._lag(name)
        splits = [s for s in self._manifest.splits if s.input == name]
        reached = watermark_of([name], splits, self._manifest.clock)
        waits = self._measures.waits.get(name)
        return InputFigures(
            name=name,
            read=counts["read"],
            used=counts["used"],
            filtered=counts["filtered"],
            late=counts["late"],
            dead=counts["dead"],
            shed=counts.get(SHED),
            rate=self._rate(counts, self._was("counts", name), "read"),
            lag_rows=lag,
            lag_seconds=0.0 if lag == 0 else None if waits is None else (self._now - waits) / 1_000,
            watermark=_time(reached),
            splits=len(splits),
            latency={what: self._latency(what, [name]) for what in ("event", "ingest")},
        )

    def _lag(self, name: str) -> int | None:
        if len(self._progress.counts) == 1 or not self._manifest.lag:
            return self._manifest.lag
        return self._measures.lags.get(name) if self._measures.lags else None

    def _steps(self) -> list[str]:
        known = [*self._measures.plan, *sorted({*self._manifest.steps, *self._manifest.ops})]
        return list(dict.fromkeys(known))

    def _step(self, name: str) -> StepFigures:
        counts, was = self._manifest.steps.get(name, {}), self._was("steps", name)
        facts = self._manifest.ops.get(name)
        kind, level = self._measures.plan.get(name, ("" if facts is None else facts.kind, None))
        work = self._grown("work", name)
        rows = _grown(counts, was, "in") or _grown(counts, was, "out")  # an input has only these
        return StepFigures(
            name=name,
            kind=kind,
            level=level,
            rows_in=counts.get("in", 0),
            rows_out=counts.get("out", 0),
            rate_in=self._rate(counts, was, "in"),
            rate_out=self._rate(counts, was, "out"),
            late=counts.get("late", 0),
            dead=counts.get("dead", 0),
            execute_ms=None if work is None or not rows else work * 1_000 / rows,
            process_ms=self._measures.longest.get(name),
            busy=self._share(work, self._measures.tasks),
            state_rows=None if facts is None else facts.held,
            state_bytes=self._progress.held_bytes.get(name),
            watermark=None if facts is None else _time(facts.watermark),
            user=self._user(name),
        )

    def _user(self, step: str) -> dict[str, dict[str, object]]:
        was = self._minute.measures.histograms.get(step, {}) if self._minute is not None else {}
        histograms = {
            name: {**_distribution(h, _POWERS), **(percentiles(since(h, was.get(name, {}))) or {})}
            for name, h in self._measures.histograms.get(step, {}).items()
        }
        return {
            "counters": dict(self._manifest.metrics.get(step, {})),
            "gauges": dict(self._measures.gauges.get(step, {})),
            "histograms": {
                n: {"p50": None, "p95": None, "p99": None} | h for n, h in histograms.items()
            },
        }

    def _outputs(self) -> list[str]:
        return sorted({*self._manifest.writes, *self._manifest.rows})

    def _output(self, name: str) -> OutputFigures:
        rows, published = self._manifest.rows, self._grown("published", name)
        epochs = self._manifest.epoch - self._before.epoch if self._before is not None else 0
        was = self._before.rows if self._before is not None else {}
        return OutputFigures(
            name=name,
            rows=rows.get(name, 0),
            rate=self._rate(rows, was, name),
            publish_ms=published / epochs if published is not None and epochs else None,
            busy=self._share(published),
        )

    def _windows(self) -> list[str]:
        plan, ops = self._measures.plan, self._manifest.ops
        return [n for n in ops if n in self._manifest.windows or plan.get(n, ("",))[0] == "window"]

    def _window(self, name: str) -> WindowFigures:
        facts = self._manifest.ops[name]
        return WindowFigures(name, facts.held, _time(facts.next))

    # differences

    def _was(self, part: str, name: str) -> Mapping[str, int]:
        before: Counts = getattr(self._before, part) if self._before is not None else {}
        return before.get(name, {})

    def _rate(self, now: Mapping[str, int], was: Mapping[str, int], name: str) -> float | None:
        return _grown(now, was, name) * 1_000 / self._passed if self._passed > 0 else None

    def _grown(self, part: str, name: str | None = None) -> float | None:
        """By how much a measure has grown; None if it is not measured."""
        if self._before is None or not self._measures.plan:
            return None
        now, was = getattr(self._measures, part), getattr(self._before.measures, part)
        grown = now - was if name is None else now.get(name, 0) - was.get(name, 0)
        return float(max(0, grown))

    def _share(self, ms: float | None, tasks: int = 1) -> float | None:
        whole = self._passed * tasks
        return None if ms is None or whole <= 0 else min(1.0, ms / whole)

    def _latency(self, what: str, inputs: Iterable[str]) -> Latency:
        now: Mapping[str, Histogram] = getattr(self._measures, what)
        was = getattr(self._minute.measures, what) if self._minute is not None else {}
        return percentiles(added(*(since(now.get(n, {}), was.get(n, {})) for n in inputs)))

    def _latencies(self, what: str) -> Distribution:
        histograms: Mapping[str, Histogram] = getattr(self._measures, what)
        return _distribution(added(*histograms.values()), _POWERS_OF_MS)


def _distribution(counts: Histogram, powers: Iterable[int]) -> Distribution:
    return {
        "count": sum(counts.values()), "sum": sum_of(counts), "buckets": below(counts, powers)
    }  # fmt: skip


def _grown(now: Mapping[str, int], was: Mapping[str, int], name: str) -> int:
    return max(0, now.get(name, 0) - was.get(name, 0))


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _time(time: int) -> int | None:
    return time if MIN_TIME < time < MAX_TIME else None


def _delay(now: int, watermark: int | None) -> float | None:
    return None if watermark is None else max(0, now - watermark) / 1_000
