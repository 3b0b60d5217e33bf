"""G: rows whose key was there within the last hour are dropped; one in ten is.

Against Spark's `dropDuplicatesWithinWatermark`. Which of two equal rows stays is not said by
either, so only their keys are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import Shape, dataset
from bench.digest import Digest
from bench.digest import digest as digest_of
from bench.measure import Lab, Sample
from bench.rows import Row, speed

FILES = 2  # per batch
SCHEMA = "sensor string, at timestamp, celsius double"


def rows(lab: Lab) -> list[Row]:
    batch, batches, skip = (50_000, 3, 1) if lab.quick else (1_000_000, 5, 1)
    contest = lab.pairs("G", "g", params(batch, batches), digest, reps=2)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    what = "deduplication within 1 h, 1 M a batch"
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return [Row("G", what, ours, theirs, contest.ratio(rate), target=3.0, equal=True)]


def params(batch: int, batches: int) -> dict[str, Any]:
    made = dataset(Shape("repeats", batches * FILES, batch // FILES, batch * batches))
    return {"folder": made.folder, "batch": batch, "rows": batch}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    return digest_of(place, ["sensor"])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    job = hr.Job("g")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", delay="2s")
    once = readings.deduplicate("sensor", within="1h", name="once")
    once.write(f"files:{place}/out", format="parquet", name="out")
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_spark import drain, session

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(params["folder"])
    )
    once = readings.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["sensor"])
    return drain(once, place, params["rows"])
