"""P: a Python function per row, against Spark's Arrow-optimised Python UDF.

Both call the same function once per row. Spark's gets the columns it needs and gives one
column; ours, being a `map`, also carries the other columns through Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.functions import Scored, score
from bench.measure import Lab, Sample
from bench.rows import Row, speed

FILES = 4  # per batch
SCHEMA = "sensor string, at timestamp, celsius double"


def rows(lab: Lab) -> list[Row]:
    batch, batches, skip = (100_000, 4, 2) if lab.quick else (1_000_000, 6, 2)
    contest = lab.pairs("P", "p", params(batch, batches), digest, reps=3)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    what = f"a Python function per row, {batch / 1e6:g} M a batch"
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return [Row("P", what, ours, theirs, contest.ratio(rate), target=1.5, equal=True)]


def params(batch: int, batches: int) -> dict[str, Any]:
    made = dataset(Shape("readings", batches * FILES, batch // FILES))
    return {"folder": made.folder, "batch": batch, "rows": batch}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    return digest_of(place, ["sensor", rounded("score")])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    def scored(row: Any) -> Scored:
        return Scored(row.sensor, score(row.sensor, row.celsius))

    job = hr.Job("p")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA)
    result = readings.map(scored, schema="sensor string, score double")
    result.write(f"files:{place}/out", format="parquet", name="scores")
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
    scored = F.udf(score, "double", useArrow=True)
    result = readings.select("sensor", scored("sensor", "celsius").alias("score"))
    return drain(result, place, params["rows"])
