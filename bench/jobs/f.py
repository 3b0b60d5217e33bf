"""F: two streams joined by key, rows of the second up to 10 s after those of the first.

Against Spark's inner join of two streams with watermarks and a condition on time.
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

FILES = 2  # per batch, of each stream
SCHEMA = "sensor string, at timestamp, celsius double"


def rows(lab: Lab) -> list[Row]:
    batch, batches, skip = (50_000, 3, 1) if lab.quick else (200_000, 5, 1)
    contest = lab.pairs("F", "f", params(batch, batches), digest, reps=2)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    what = "join of two streams within 10 s"
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return [Row("F", what, ours, theirs, contest.ratio(rate), target=3.0, equal=True)]


def params(batch: int, batches: int, keys: int = 200_000, rate: int = 12_500) -> dict[str, Any]:
    """`batch` rows a batch, half of them of either stream."""
    shape = (batches * FILES, batch // FILES // 2, keys, rate)
    first, second = dataset(Shape("readings", *shape)), dataset(Shape("others", *shape))
    return {"folders": [first.folder, second.folder], "batch": batch, "rows": batch}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    times = [f"epoch_ms({column}::TIMESTAMP)" for column in ("first_at", "second_at")]
    return digest_of(place, ["sensor", *times, "first_celsius", "second_celsius"])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    job = hr.Job("f")
    first, second = (
        job.read(f"files:{folder}", schema=SCHEMA, time="at", delay="2s", name=name).select(
            "sensor", **{f"{name}_at": "at", f"{name}_celsius": "celsius"}
        )
        for name, folder in zip(("first", "second"), params["folders"], strict=True)
    )
    both = first.join(second, on="sensor", within=("0s", "10s"), name="both")
    both.write(f"files:{place}/out", format="parquet", name="out")
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from bench.with_spark import drain, session

    spark = session(params["cores"])
    first, second = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(folder)
        .select(
            F.col("sensor").alias(f"{name}_sensor"),
            F.col("at").alias(f"{name}_at"),
            F.col("celsius").alias(f"{name}_celsius"),
        )
        .withWatermark(f"{name}_at", "2 seconds")
        for name, folder in zip(("first", "second"), params["folders"], strict=True)
    )
    close = F.expr(
        "first_sensor = second_sensor AND second_at >= first_at "
        "AND second_at <= first_at + INTERVAL 10 SECONDS"
    )
    both = first.join(second, close).select(
        F.col("first_sensor").alias("sensor"),
        "first_at", "first_celsius", "second_at", "second_celsius",
    )  # fmt: skip
    return drain(both, place, params["rows"])
