"""C: no state: JSON lines of about 100 bytes, decoded, filtered, projected; and its memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.jobs.a import memory
from bench.measure import Lab, Sample
from bench.rows import Row, speed

FILES = 4  # per batch
SCHEMA = "id bigint, area string, sensor string, celsius double, smoke boolean, at bigint"


def rows(lab: Lab) -> list[Row]:
    batch, batches, skip = (200_000, 4, 2) if lab.quick else (1_000_000, 8, 2)
    contest = lab.pairs("C", "c", params(batch, batches), digest, reps=3)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    what = f"JSON decode, filter, project, {batch / 1e6:g} M a batch"
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    row = Row("C", what, ours, theirs, contest.ratio(rate), target=2.0, equal=True)
    return [row, memory("C", contest)]


def params(batch: int, batches: int) -> dict[str, Any]:
    """Ours cuts batches of lines by bytes: a little more, so that there are no more of them."""
    made = dataset(Shape("json", batches * FILES, batch // FILES))
    return {"folder": made.folder, "batch": int(batch * 1.02), "rows": batch}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    return digest_of(place, ["id", "sensor", rounded("fahrenheit"), '"at"'])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    job = hr.Job("c")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, format="json")
    hot = readings.where("celsius > 60 and smoke").select(
        "id", "sensor", fahrenheit="celsius * 1.8 + 32", at="at"
    )
    hot.write(f"files:{place}/out", format="parquet", name="hot")
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_spark import drain, session

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", FILES).json(params["folder"])
    )
    hot = readings.where("celsius > 60 and smoke").selectExpr(
        "id", "sensor", "celsius * 1.8D + 32 as fahrenheit", "at"
    )
    return drain(hot, place, params["rows"])
