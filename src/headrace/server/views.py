"""A job in a line: its record, what its figures say, and its process."""

from __future__ import annotations

from headrace.inspect.figure_values import Figures
from headrace.server.desk import epoch_of
from headrace.server.records import JobRecord
from headrace.server.values import JobView


def view_of(
    record: JobRecord, figures: Figures | None, pid: int | None, hanging: str | None
) -> JobView:
    f, options = figures, record.options
    latency = None if f is None else f.latency.get("event") or f.latency.get("ingest")
    warnings = () if f is None else tuple(f.warnings)
    return JobView(
        name=record.name, state=record.state, reason=record.reason, version=record.version,
        program=record.program, folder=record.folder, master=options.get("master"),
        parallelism=options.get("parallelism"), pid=pid, since=record.since,
        restarts=record.restarts, epoch=epoch_of(record) if f is None else f.epoch,
        committed=None if f is None else f.committed,
        rate_in=None if f is None else f.rate_in,
        lag_rows=None if f is None else f.lag_rows,
        lag_seconds=None if f is None else f.lag_seconds,
        watermark=None if f is None else f.watermark,
        watermark_delay=None if f is None else f.watermark_delay,
        latency_p95=None if latency is None else latency["p95"],
        late=None if f is None else f.totals.get("late", 0),
        dead=None if f is None else f.totals.get("dead", 0),
        capacity=None if f is None else f.capacity,
        warnings=(*([hanging] if hanging else []), *warnings),
    )  # fmt: skip
