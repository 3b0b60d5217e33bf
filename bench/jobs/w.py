"""W: tumbling windows of 1 min that show an early result every second, against final ones only.

Both ours, over the same rows. A batch holds a second of event time, so the early results do
come every second, and every window of it is shown with every batch: 10,000 more rows for
200,000 read. What is final must be the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.measure import OURS, Contest, Entry, Lab, Sample, check_equal
from bench.rows import AT_MOST, Row, speed

FILES = 2  # per batch
SKIP = 5
SCHEMA = "sensor string, at timestamp, celsius double"


def rows(lab: Lab) -> list[Row]:
    """The first minute of windows ends 40 s after the first row: both end within the run."""
    batch, batches = (20_000, 45) if lab.quick else (200_000, 50)
    given = params(batch, batches)
    entries = [
        Entry(f"W {name}", OURS, {**given, "early": early})
        for name, early in (("early", True), ("final", False))
    ]
    found = lab.rounds("w", entries, digest, reps=2)
    for ran in found:
        check_equal("W", ran)
    contest = Contest([(early, final) for early, final in found])

    def time(sample: Sample) -> float:
        return 1 / throughput(with_rows(dict(sample.figures)), SKIP)

    what = "time with early results every second to final ones only, both ours"
    early, final = (speed(1 / t) for t in (contest.ours(time), contest.theirs(time)))
    return [Row("W", what, early, final, contest.ratio(time), AT_MOST, 1.5, equal=True)]


def params(batch: int, batches: int, keys: int = 10_000, early: bool = True) -> dict[str, Any]:
    made = dataset(Shape("readings", batches * FILES, batch // FILES, keys, rate=batch))
    return {"folder": made.folder, "batch": batch, "rows": batch, "early": early}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """Only final results, of which there is one per window."""
    bounds = [f"epoch_ms({name}::TIMESTAMP)" for name in ("window_start", "window_end")]
    where = "final" if params["early"] else "true"
    return digest_of(place, ["sensor", *bounds, "n", rounded("celsius")], where=where)


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain
    from headrace import triggers as t

    job = hr.Job("w")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", delay="2s")
    early = t.at_watermark(early=t.every("1s", time="event")) if params["early"] else None
    means = (
        readings.key_by("sensor")
        .window(hr.tumbling("1m"), trigger=early)
        .agg(n=hr.count(), celsius=hr.mean("celsius"))
    )
    means.write(f"files:{place}/out", format="parquet", name="means")
    return drain(job, place, params["batch"], params["cores"])
