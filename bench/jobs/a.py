"""A: the mean over sliding windows, 60 s every 5 s, of 10,000 sensors; and its memory.

The same stream at every size: 12,500 events per second of event time, up to 2 s out of
order, watermark 2 s. Parquet files in, windows to Parquet files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import DISORDER, Dataset, Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.measure import Contest, Lab, Sample
from bench.rows import AT_MOST, Row, megabytes, speed

FILES = 4  # per batch
SCHEMA = "sensor string, at timestamp, celsius double"


def rows(lab: Lab) -> list[Row]:
    if lab.quick:
        return _size(lab, "A", 200_000, batches=4, skip=2, reps=1, target=3.0)
    return [
        *_size(lab, "A", 1_000_000, batches=8, skip=2, reps=3, target=3.0),
        *_size(lab, "A", 10_000_000, batches=3, skip=1, reps=2, target=12.0),
    ]


def _size(
    lab: Lab, job: str, batch: int, *, batches: int, skip: int, reps: int, target: float
) -> list[Row]:
    case = f"{job} {batch // 1_000:,} k"
    contest = lab.pairs(case, "a", params(batch, batches), digest, reps)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    what = f"sliding mean, 60 s / 5 s, {batch / 1e6:g} M a batch"
    row = Row(
        case, what, speed(contest.ours(rate)), speed(contest.theirs(rate)), contest.ratio(rate),
        target=target, equal=True,
    )  # fmt: skip
    return [row, memory(case, contest)]


def memory(case: str, contest: Contest) -> Row:
    """The peak of the process tree; for every job that measures it."""

    def peak(sample: Sample) -> float:
        return float(sample.pss)

    return Row(
        f"M {case}", "peak memory of all processes, shared pages counted once",
        megabytes(contest.ours(peak)),
        megabytes(contest.theirs(peak)), contest.ratio(peak), AT_MOST, 1.0,
    )  # fmt: skip


def params(batch: int, batches: int, keys: int = 10_000, rate: int = 12_500) -> dict[str, Any]:
    shape = Shape("readings", batches * FILES, batch // FILES, keys, rate)
    made: Dataset = dataset(shape)
    return {"folder": made.folder, "batch": batch, "rows": batch, "newest": made.newest}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """Only windows that the watermark has closed: at the end of input, ours closes the rest."""
    end = "epoch_ms(window_end::TIMESTAMP)"
    columns = ["sensor", "epoch_ms(window_start::TIMESTAMP)", end, rounded("celsius")]
    return digest_of(place, columns, where=f"{end} <= {params['newest'] - DISORDER}")


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    job = hr.Job("a")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", delay="2s")
    means = (
        readings.key_by("sensor")
        .window(hr.sliding("60s", every="5s"))
        .agg(celsius=hr.mean("celsius"))
    )
    means.write(f"files:{place}/out", format="parquet", name="means")
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from bench.with_spark import drain, session

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(params["folder"])
    )
    means = (
        readings.withWatermark("at", "2 seconds")
        .groupBy("sensor", F.window("at", "60 seconds", "5 seconds"))
        .agg(F.mean("celsius").alias("celsius"))
        .select(
            "sensor",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            "celsius",
        )
    )
    return drain(means, place, params["rows"])
