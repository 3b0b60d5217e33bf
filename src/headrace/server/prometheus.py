"""`/metrics`: the figures of every job as Prometheus reads them.

Names are `headrace_job_...`, in seconds, bytes and ratios. What only grows while a job lives is a
counter. Labels are the names that users gave; they are escaped by prometheus-client. A figure that
is not known is left out, not 0. A record that counts as used may still fail, or be filtered, in a
later epoch: how many are used, filtered and late may become fewer, and are gauges.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headrace.errors import storable
from headrace.server.lifecycle import State
from headrace.server.refusals import missing
from headrace.server.values import Figures, JobView

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import generate_latest
    from prometheus_client.metrics_core import Metric
except ImportError as cause:
    raise missing("prometheus_client") from cause

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# name -> type, what it says
FAMILIES: dict[str, tuple[str, str]] = {
    "headrace_job_state": ("gauge", "1 for the state that the job is in, 0 for the others."),
    "headrace_job_version": ("gauge", "The version of its program."),
    "headrace_job_restarts": ("counter", "Restarts by the server since it was activated."),
    "headrace_job_epoch": ("gauge", "The epoch that was committed last."),
    "headrace_job_committed_timestamp_seconds": ("gauge", "When that was."),
    "headrace_job_epoch_seconds": ("gauge", "How long the last epoch took."),
    "headrace_job_phase_seconds": ("gauge", "How long a phase of the last epoch took."),
    "headrace_job_records": ("counter", "Records of all inputs: read, dead and shed."),
    "headrace_job_records_by_fate": ("gauge", "What became of them, as far as it is known."),
    "headrace_job_records_per_second": ("gauge", "Rows in and out, in a second."),
    "headrace_job_lag_rows": ("gauge", "Records that are there and not read."),
    "headrace_job_lag_seconds": ("gauge", "How old the oldest of them is."),
    "headrace_job_watermark_timestamp_seconds": ("gauge", "Event time that all inputs reached."),
    "headrace_job_watermark_delay_seconds": ("gauge", "How far that is behind the clock."),
    "headrace_job_latency_seconds": (
        "summary",
        "From a record's time, or from when it was read, to the commit, lately.",
    ),
    "headrace_job_latencies_seconds": ("histogram", "The same of all records since the job began."),
    "headrace_job_capacity_ratio": ("gauge", "Share of the time at work."),
    "headrace_job_memory_bytes": ("gauge", "Memory of its processes."),
    "headrace_job_gc_seconds": ("counter", "Time of the JVM in garbage collection."),
    "headrace_job_retries": ("counter", "Tasks and outputs that were tried again."),
    "headrace_job_held_back": ("gauge", "1 if inputs are held back, since the job is behind."),
    "headrace_job_warnings": ("gauge", "How many warnings the job gives."),
    "headrace_job_bottleneck": ("gauge", "1 for the step that limits the job."),
    "headrace_job_input_records": ("counter", "Records of an input: read, dead and shed."),
    "headrace_job_input_records_by_fate": ("gauge", "What became of them, as far as it is known."),
    "headrace_job_input_records_per_second": ("gauge", "Records of an input in a second."),
    "headrace_job_input_lag_rows": ("gauge", "Records of an input that are not read."),
    "headrace_job_input_lag_seconds": ("gauge", "How old the oldest of them is."),
    "headrace_job_input_watermark_timestamp_seconds": ("gauge", "Event time that it reached."),
    "headrace_job_input_splits": ("gauge", "Partitions or files of an input."),
    "headrace_job_step_rows": ("counter", "Rows into and out of a step."),
    "headrace_job_step_rows_per_second": ("gauge", "Rows into and out of a step, in a second."),
    "headrace_job_step_late": ("counter", "Rows that came too late for a step."),
    "headrace_job_step_dead": ("counter", "Rows that failed in a step."),
    "headrace_job_step_seconds_per_row": ("gauge", "Time of a step for a row, over all tasks."),
    "headrace_job_step_epoch_seconds": ("gauge", "Time of a step in the last epoch."),
    "headrace_job_step_busy_ratio": ("gauge", "Share of the time a step is at work."),
    "headrace_job_step_state_rows": ("gauge", "Rows of state, at most."),
    "headrace_job_step_state_bytes": ("gauge", "State on disk."),
    "headrace_job_step_watermark_timestamp_seconds": ("gauge", "Event time that it reached."),
    "headrace_job_step_windows_open": ("gauge", "Rows of state of open windows, at most."),
    "headrace_job_output_rows": ("counter", "Rows that were written to an output."),
    "headrace_job_output_rows_per_second": ("gauge", "Rows to an output in a second."),
    "headrace_job_output_publish_seconds": ("gauge", "Time to publish an epoch to an output."),
    "headrace_job_output_busy_ratio": ("gauge", "Share of the time that it is published to."),
    "headrace_job_user_events": ("counter", "A counter of the program's own."),
    "headrace_job_user_value": ("gauge", "A gauge of the program's own."),
    "headrace_job_user_quantiles": ("summary", "Of a histogram of the program's own, lately."),
    "headrace_job_user_distribution": ("histogram", "The same since the job began."),
}
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99"}
_FATES = ("used", "filtered", "late", "dead", "shed")
_GROWING = ("read", "dead", "shed")


def metrics_of(jobs: Sequence[JobView], figures: Mapping[str, Figures]) -> str:
    """All of them as text."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(jobs, figures))
    return generate_latest(registry).decode()


class _Families:
    """Every family with its samples, job by job."""

    def __init__(self, jobs: Sequence[JobView], figures: Mapping[str, Figures]) -> None:
        self._families = {n: Metric(n, about, kind) for n, (kind, about) in FAMILIES.items()}
        for job in jobs:
            self._job(job)
            if (known := figures.get(job.name)) is not None:
                self._figures(job.name, known)

    def describe(self) -> Iterable[Metric]:
        return []

    def collect(self) -> Iterable[Metric]:
        return [family for family in self._families.values() if family.samples]

    def _add(self, metric: str, value: Any, suffix: str = "", /, **labels: str) -> None:
        if isinstance(value, bool):
            value = int(value)
        if not isinstance(value, int | float) or not math.isfinite(value):
            return
        metric = f"headrace_job_{metric}"
        family = self._families[metric]
        if family.type == "counter":
            suffix = "_total"
        family.add_sample(
            metric + suffix, {k: storable(v) for k, v in labels.items()}, float(value)
        )

    def _job(self, job: JobView) -> None:
        for state in State:
            self._add("state", job.state == state, job=job.name, state=str(state))
        self._add("version", job.version, job=job.name)
        self._add("restarts", job.restarts, job=job.name)
        self._add("warnings", len(job.warnings), job=job.name)

    def _figures(self, job: str, f: Figures) -> None:
        self._add("epoch", f.get("epoch"), job=job)
        self._add("committed_timestamp_seconds", _seconds(f.get("committed")), job=job)
        self._add("epoch_seconds", _seconds(f.get("took_ms")), job=job)
        for phase, took in _dict(f.get("phases")).items():
            self._add("phase_seconds", _seconds(took), job=job, phase=phase)
        self._records("records", _dict(f.get("totals")), job=job)
        self._add("records_per_second", f.get("rate_in"), job=job, direction="in")
        self._add("records_per_second", f.get("rate_out"), job=job, direction="out")
        for name in ("lag_rows", "lag_seconds", "retries"):
            self._add(name, f.get(name), job=job)
        self._add("watermark_timestamp_seconds", _seconds(f.get("watermark")), job=job)
        self._add("watermark_delay_seconds", f.get("watermark_delay"), job=job)
        for since, quantiles in _dict(f.get("latency")).items():
            for key, quantile in _QUANTILES.items():
                took = _seconds(_dict(quantiles).get(key))
                self._add("latency_seconds", took, job=job, since=since, quantile=quantile)
        for since, all_of_it in _dict(f.get("latencies")).items():
            self._histogram("latencies_seconds", all_of_it, 0.001, job=job, since=since)
        self._add("capacity_ratio", f.get("capacity"), job=job)
        for process, held in _dict(f.get("memory")).items():
            self._add("memory_bytes", held, job=job, process=process)
        self._add("gc_seconds", _seconds(f.get("gc_ms")), job=job)
        self._add("held_back", _dict(f.get("backpressure")).get("held_back"), job=job)
        if (bottleneck := f.get("bottleneck")) is not None:
            self._add("bottleneck", 1, job=job, step=bottleneck["step"])
        for one in f.get("inputs") or ():
            self._input(job, one)
        for one in f.get("steps") or ():
            self._step(job, one)
        for one in f.get("windows") or ():
            self._add("step_windows_open", one.get("open"), job=job, step=one["step"])
        for one in f.get("outputs") or ():
            to = {"job": job, "output": one["name"]}
            self._add("output_rows", one.get("rows"), **to)
            self._add("output_rows_per_second", one.get("rate"), **to)
            self._add("output_publish_seconds", _seconds(one.get("publish_ms")), **to)
            self._add("output_busy_ratio", one.get("busy"), **to)

    def _input(self, job: str, one: Mapping[str, Any]) -> None:
        name = one["name"]
        self._records("input_records", one, job=job, input=name)
        self._add("input_records_per_second", one.get("rate"), job=job, input=name)
        self._add("input_lag_rows", one.get("lag_rows"), job=job, input=name)
        self._add("input_lag_seconds", one.get("lag_seconds"), job=job, input=name)
        reached = _seconds(one.get("watermark"))
        self._add("input_watermark_timestamp_seconds", reached, job=job, input=name)
        splits = one.get("splits")
        splits = len(splits) if isinstance(splits, list | dict) else splits
        self._add("input_splits", splits, job=job, input=name)

    def _records(self, metric: str, counts: Mapping[str, Any], /, **labels: str) -> None:
        for fate in _GROWING:
            self._add(metric, counts.get(fate), **labels, fate=fate)
        for fate in _FATES:
            self._add(f"{metric}_by_fate", counts.get(fate), **labels, fate=fate)

    def _step(self, job: str, one: Mapping[str, Any]) -> None:
        at = {"job": job, "step": one["name"]}
        for way in ("in", "out"):
            self._add("step_rows", one.get(way), **at, direction=way)
            self._add("step_rows_per_second", one.get(f"rate_{way}"), **at, direction=way)
        self._add("step_late", one.get("late"), **at)
        self._add("step_dead", one.get("dead"), **at)
        per_thousand = one.get("execute_ms")
        if per_thousand is not None:
            self._add("step_seconds_per_row", per_thousand / 1_000_000, **at)
        self._add("step_epoch_seconds", _seconds(one.get("process_ms")), **at)
        self._add("step_busy_ratio", one.get("busy"), **at)
        self._add("step_state_rows", one.get("state_rows"), **at)
        self._add("step_state_bytes", one.get("state_bytes"), **at)
        self._add("step_watermark_timestamp_seconds", _seconds(one.get("watermark")), **at)
        user = _dict(one.get("user"))
        for name, count in _dict(user.get("counters")).items():
            self._add("user_events", count, **at, name=name)
        for name, now in _dict(user.get("gauges")).items():
            self._add("user_value", now, **at, name=name)
        for name, facts in _dict(user.get("histograms")).items():
            self._distribution(at, name, facts)

    def _distribution(self, at: dict[str, str], name: str, facts: Mapping[str, Any]) -> None:
        labels = {**at, "name": name}
        for key, quantile in _QUANTILES.items():
            self._add("user_quantiles", facts.get(key), **labels, quantile=quantile)
        self._add("user_quantiles", facts.get("count"), "_count", **labels)
        self._histogram("user_distribution", facts, 1.0, **labels)

    def _histogram(
        self, metric: str, facts: Mapping[str, Any], unit: float, /, **labels: str
    ) -> None:
        for bound, count in facts["buckets"]:
            self._add(metric, count, "_bucket", **labels, le=_short(bound * unit))
        self._add(metric, facts["count"], "_bucket", **labels, le="+Inf")
        self._add(metric, facts["count"], "_count", **labels)
        if not facts.get("below_zero"):  # else it may become smaller, which no sum may
            self._add(metric, facts["sum"] * unit, "_sum", **labels)


def _seconds(millis: Any) -> float | None:
    return millis / 1_000 if isinstance(millis, int | float) else None


def _dict(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _short(bound: float) -> str:
    """As Prometheus writes numbers, without the noise of a product."""
    return repr(float(f"{bound:.12g}"))
