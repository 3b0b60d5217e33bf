"""All figures of a job, from its newest manifest, a sample of earlier and the note of its run.

What manifests count only grows, so a rate is the difference of two of them by the time between:
manifests of the epochs in between may be gone. Which sample of earlier to take is the business of
a `Sampler`. No clock and no thread here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headrace.buckets import Histogram, added, below, percentiles, since, sum_of
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.epoch.accounting import SHED
from headrace.epoch.bundle import DEAD
from headrace.epoch.values import watermark_of
from headrace.inspect.bottleneck import AtWork, bottleneck_of
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
from headrace.inspect.samples import MINUTE, Sample, knew, precedes, sample_of, samples_before
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest

_RATE = 10_000  # ms over which rates are taken, or three epochs if those take longer
_EPOCH = 1_000  # ms between two samples: where there were several epochs, none took longer
_LONGEST = 3_600_000  # ms over which rates are taken at most
_POWERS_OF_MS = range(23)  # bounds from a millisecond to an hour
_POWERS = range(-20, 41, 2)  # of numbers of any kind: from a millionth to a million millions
_MEMORY = ("driver", "jvm", "jvm_heap", "workers")
_UNKNOWN = {"p50": None, "p95": None, "p99": None}


class Sampler:
    """The figures of one job that is looked at again and again, as every second."""

    def __init__(self, *earlier: Sample) -> None:
        self._samples = deque(earlier)

    def see(self, now: int, manifest: Manifest, live: Live | None = None) -> Figures:
        sample, samples = sample_of(now, manifest), self._samples
        while samples and not precedes(samples[-1], sample):
            samples.pop()  # the folder was replaced, or went back
        span = min(_LONGEST, max(_RATE, 3 * (manifest.wall - manifest.clock)))
        at_rest = replace(sample, time=manifest.wall)
        if manifest.wall <= now - span and (not samples or _follows(at_rest, samples[-1])):
            samples.append(at_rest)  # nothing has changed since
        before, minute = self._at(now - span, sample), self._at(now - MINUTE, sample)
        if len(samples) > 1 and samples[-2].epoch == samples[-1].epoch == sample.epoch:
            samples.pop()  # of an epoch the first sample and the last say all
        samples.append(sample)
        began = next(s.time for s in samples if s.epoch == sample.epoch)
        while len(samples) > 1 and samples[1].time <= began - max(MINUTE, span):
            samples.popleft()
        return figures(now, manifest, before, live, minute)

    def _at(self, time: int, newest: Sample) -> Sample | None:
        """What had been counted at `time`, or when the epoch was planned that was under way then:
        all that was done in it is of the time since. Else the first sample."""
        older = sum(sample.time <= time for sample in self._samples)
        if not self._samples:
            return None
        found = self._samples[max(0, older - 1)]
        following = next((s for s in self._all(newest) if s.epoch > found.epoch), newest)
        if following.epoch > found.epoch + 1:
            return replace(found, time=found.wall) if found.time - found.wall < _EPOCH else found
        known = time if older else found.time
        is_next = following.epoch > found.epoch and following.clock > 0
        return replace(found, time=min(known, following.clock) if is_next else known)

    def _all(self, newest: Sample) -> Iterator[Sample]:
        yield from self._samples
        yield newest


def figures(
    now: int,
    manifest: Manifest,
    before: Sample | None = None,
    live: Live | None = None,
    minute: Sample | None = None,
) -> Figures:
    """Rates are since `before`; percentiles since `minute`, or else since `before`, or else of the
    first epoch. Without a sample before there are no rates."""
    sample = sample_of(now, manifest)
    earlier = before if before is not None and precedes(before, sample) else None
    minute = minute if minute is not None and precedes(minute, sample) else earlier
    return _Figuring(now, manifest, earlier, live, minute).all()


def figures_of(log: EpochLog, now: int) -> Figures | None:
    """Those of the job in a folder, by the manifests that are there: for who looks once."""
    manifest = log.latest()
    if manifest is None:
        return None
    live, sampler = read_live(log.folder, now), Sampler(*samples_before(log, manifest))
    return sampler.see(now if log.is_held() else manifest.wall, manifest, live)


def _follows(sample: Sample, before: Sample) -> bool:
    return before.epoch < sample.epoch and before.time <= sample.time


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
        self._passed = _passed(now, manifest, before) if before is not None else 0  # ms

    def all(self) -> Figures:
        m, p, live = self._manifest, self._progress, self._live
        inputs, steps = tuple(map(self._input, p.counts)), tuple(map(self._step, self._steps()))
        outputs = tuple(map(self._output, self._outputs()))
        capacity, lags = self._capacity(), [i.lag_seconds for i in inputs]
        memory = live.memory if live is not None else {}
        return Figures(
            time=self._now,
            epoch=m.epoch,
            committed=m.wall,
            took_ms=p.took if p.is_batch else None,
            phases={**m.timing, **(live.phases if live is not None else {})},
            rate_in=_sum(i.rate for i in inputs),
            rate_out=_sum(o.rate for o in outputs if o.name != DEAD),
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
            bottleneck=bottleneck_of(m.lag, capacity, inputs, self._at_work(steps), outputs),
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
            lag_seconds=0.0 if lag == 0 else None if waits is None else _delay(self._now, waits),
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
        work, is_counted = self._work(name), self._is_counted(name)
        rows = _grown(counts, was, "in") or _grown(counts, was, "out")  # an input has only these
        return StepFigures(
            name=name,
            kind=kind,
            level=level,
            rows_in=counts.get("in", 0) if is_counted else None,
            rows_out=counts.get("out", 0) if is_counted else None,
            rate_in=self._rate(counts, was, "in") if is_counted else None,
            rate_out=self._rate(counts, was, "out") if is_counted else None,
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

    def _is_counted(self, name: str) -> bool:
        """Not a step that runs fused with others, of which only dead letters have its name."""
        counts = self._manifest.steps.get(name, {})
        known = not self._measures.plan or name in self._measures.plan
        return known or bool(counts.get("in") or counts.get("out"))

    def _user(self, step: str) -> dict[str, dict[str, Any]]:
        histograms = {
            name: {
                **_distribution(h, _POWERS),
                **(self._percentiles("histograms", [(step, name)]) or _UNKNOWN),
            }
            for name, h in self._measures.histograms.get(step, {}).items()
        }
        return {
            "counters": dict(self._manifest.metrics.get(step, {})),
            "gauges": dict(self._measures.gauges.get(step, {})),
            "histograms": histograms,
        }

    def _outputs(self) -> list[str]:
        return sorted({*self._manifest.writes, *self._manifest.rows})

    def _output(self, name: str) -> OutputFigures:
        rows, published = self._manifest.rows, self._grown("published", name)
        times = self._grown("publishes", name)
        return OutputFigures(
            name=name,
            rows=rows.get(name, 0),
            rate=self._rate(rows, self._was("rows", name), name),
            publish_ms=published / times if published is not None and times else None,
            busy=self._share(published),
        )

    def _windows(self) -> list[str]:
        plan, ops = self._measures.plan, self._manifest.ops
        return [n for n in ops if n in self._manifest.windows or plan.get(n, ("",))[0] == "window"]

    def _window(self, name: str) -> WindowFigures:
        facts = self._manifest.ops[name]
        return WindowFigures(name, facts.held, _time(facts.next))

    # differences

    def _was(self, part: str, name: str) -> Mapping[str, int] | None:
        """What it had counted; None if that is not known."""
        if self._before is None or not knew(self._before, name):
            return None
        before = getattr(self._before, part)
        found: Mapping[str, int] = before if part == "rows" else before.get(name, {})
        return found

    def _rate(
        self, now: Mapping[str, int], was: Mapping[str, int] | None, name: str
    ) -> float | None:
        known = was is not None and self._passed > 0
        return _grown(now, was, name) * 1_000 / self._passed if known else None

    def _grown(self, part: str, name: str | None = None) -> float | None:
        """By how much a measure has grown; None if it is not measured."""
        if self._before is None or not self._measures.plan or not self._before.measures.plan:
            return None
        now, was = getattr(self._measures, part), getattr(self._before.measures, part)
        if name is None:
            return float(max(0, now - was))
        return float(max(0, now.get(name, 0) - was.get(name, 0))) if self._knew(name) else None

    def _knew(self, name: str) -> bool:
        return self._before is not None and knew(self._before, name)

    def _work(self, step: str) -> float | None:
        return self._grown("work", step) if self._is_counted(step) else None

    def _capacity(self) -> float | None:
        """From planning to the commit, and publishing after it."""
        took = self._grown("took")
        published = (self._grown("published", name) or 0 for name in self._outputs())
        return self._share(None if took is None else took + sum(published))

    def _at_work(self, steps: Sequence[StepFigures]) -> AtWork:
        """What the last epoch and those since the sample before say of who is at work."""
        shares = {s.name: s.busy for s in steps if s.busy is not None}
        letters = self._share(self._grown("work", DEAD), self._measures.tasks)
        if letters:
            shares[DEAD] = letters
        took = self._progress.took
        longest = {n: min(1.0, ms / took) for n, ms in self._measures.longest.items() if took}
        return AtWork(shares, longest, self._measures.tasks)

    def _share(self, ms: float | None, tasks: int = 1) -> float | None:
        whole = self._passed * tasks
        return None if ms is None or whole <= 0 else min(1.0, ms / whole)

    def _latency(self, what: str, inputs: Iterable[str]) -> Latency:
        return self._percentiles(what, [(name,) for name in inputs])

    def _percentiles(self, part: str, paths: Iterable[tuple[str, ...]]) -> Latency:
        """Of what came since the sample of a minute ago; of names that it does not know, and
        without one after the first epoch, nothing is known."""
        found = []
        for path in paths:
            if self._minute is None and self._manifest.epoch <= 1:
                found.append(_inner(getattr(self._measures, part), path))
            elif self._minute is not None and knew(self._minute, path[0]):
                was = _inner(getattr(self._minute.measures, part), path)
                found.append(since(_inner(getattr(self._measures, part), path), was))
        return percentiles(added(*found))

    def _latencies(self, what: str) -> Distribution:
        histograms: Mapping[str, Histogram] = getattr(self._measures, what)
        return _distribution(added(*histograms.values()), _POWERS_OF_MS)


def _passed(now: int, manifest: Manifest, before: Sample) -> int:
    """Ms in which what has been counted since was done: to the last commit if that was just now,
    for of the epoch under way nothing is counted yet."""
    epochs, since = manifest.epoch - before.epoch, manifest.wall - before.time
    if epochs and 0 <= now - manifest.wall <= since / epochs:
        return since
    return now - before.time


def _distribution(counts: Histogram, powers: Iterable[int]) -> Distribution:
    return {
        "count": sum(counts.values()), "sum": sum_of(counts), "buckets": below(counts, powers),
        "below_zero": sum(count for bucket, count in counts.items() if bucket < 0),
    }  # fmt: skip


def _inner(histograms: Mapping[str, Any], path: tuple[str, ...]) -> Histogram:
    found: Mapping[Any, Any] = histograms
    for name in path:
        found = found.get(name, {})
    return found


def _grown(now: Mapping[str, int], was: Mapping[str, int] | None, name: str) -> int:
    return 0 if was is None else max(0, now.get(name, 0) - was.get(name, 0))


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _time(time: int) -> int | None:
    return time if MIN_TIME < time < MAX_TIME else None


def _delay(now: int, watermark: int | None) -> float | None:
    return None if watermark is None else max(0, now - watermark) / 1_000
