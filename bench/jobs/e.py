"""E: session windows with a gap of 10 s, of 10,000 sensors; against Spark's `session_window`.

12,500 events per second of event time, up to 2 s out of order, watermark 2 s; sessions of 20 s
and more, with some 40 events each. To both, a row that comes just 10 s after the last one is
still of its session.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import DISORDER, Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.measure import Lab, Sample
from bench.rows import Row, speed

FILES = 4  # per batch
SCHEMA = "sensor string, at timestamp, celsius double"


def rows(lab: Lab) -> list[Row]:
    batch, batches, skip = (200_000, 4, 2) if lab.quick else (1_000_000, 6, 2)
    contest = lab.pairs("E", "e", params(batch, batches), digest, reps=3)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    what = f"sessions, gap 10 s, count and mean, {batch / 1e6:g} M a batch"
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return [Row("E", what, ours, theirs, contest.ratio(rate), target=3.0, equal=True)]


def params(batch: int, batches: int, keys: int = 10_000, rate: int = 12_500) -> dict[str, Any]:
    made = dataset(Shape("visits", batches * FILES, batch // FILES, keys, rate))
    return {"folder": made.folder, "batch": batch, "rows": batch, "newest": made.newest}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """Only sessions that the watermark has closed: at the end of input, ours closes the rest."""
    end = "epoch_ms(window_end::TIMESTAMP)"
    columns = ["sensor", "epoch_ms(window_start::TIMESTAMP)", end, "n", rounded("celsius")]
    return digest_of(place, columns, where=f"{end} < {params['newest'] - DISORDER}")


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    job = hr.Job("e")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", delay="2s")
    sessions = (
        readings.key_by("sensor")
        .window(hr.session("10s"))
        .agg(n=hr.count(), celsius=hr.mean("celsius"))
    )
    sessions.write(f"files:{place}/out", format="parquet", name="sessions")
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
    sessions = (
        readings.withWatermark("at", "2 seconds")
        .groupBy("sensor", F.session_window("at", "10 seconds").alias("session"))
        .agg(F.count("*").alias("n"), F.mean("celsius").alias("celsius"))
        .select(
            "sensor",
            F.col("session.start").alias("window_start"),
            F.col("session.end").alias("window_end"),
            "n",
            "celsius",
        )
    )
    return drain(sessions, place, params["rows"])
