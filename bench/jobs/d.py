"""D: a process function in Python that sees a row at a time and keeps two values per key.

Against `transformWithStateInPandas`, which is called once per key and batch, and Bytewax in
two processes. Every sensor's rows of a batch lie in one file and in order, so all see them
in the same order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.data import Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.functions import moved
from bench.jobs.b import BYTEWAX, extent, rate
from bench.measure import THEIRS, Lab
from bench.rows import Row, speed

FILES = 2  # per batch
SCHEMA = "sensor string, at timestamp, celsius double"
RESULT = "sensor string, n bigint, change double"


def rows(lab: Lab) -> list[Row]:
    from bench.with_bytewax import missing

    found = [_row(lab, "D", "process function in Python", THEIRS, target=6.0)]
    job, what, why = "D bytewax", "the same against Bytewax", missing()
    if why:
        lab.say(f"  D: Bytewax is not available: {why}")
        return [*found, Row(job, what, found[0].ours, "not available", None)]
    return [*found, _row(lab, job, what, BYTEWAX, target=2.0)]


def _row(lab: Lab, job: str, what: str, other: str, target: float) -> Row:
    batch, batches, pairs = extent(lab, other)
    (contest,) = lab.contests(job, "d", params(batch, batches), digest, pairs, (other,))
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return Row(job, what, ours, theirs, contest.ratio(rate), target=target, equal=True)


def params(batch: int, batches: int, keys: int = 10_000) -> dict[str, Any]:
    made = dataset(Shape("by-key", batches * FILES, batch // FILES, keys))
    return {"folder": made.folder, "batch": batch, "rows": batch}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    return digest_of(place, ["sensor", "n", rounded("change")])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_headrace import drain

    return drain(job(params, place), place, params["batch"], params["cores"])


def job(params: Mapping[str, Any], place: Path) -> Any:
    """The process function with a value for each sensor."""
    import headrace as hr

    class Changes(hr.KeyedProcess):
        n = hr.value(int, default=0)
        last = hr.value(float)
        output = RESULT

        def on_row(self, row: Any, ctx: Any) -> tuple[str, int, float]:
            self.n, change = moved(self.n, self.last, row.celsius)
            self.last = row.celsius
            return row.sensor, self.n, change

    job = hr.Job("d")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", in_order=True)
    changes = readings.key_by("sensor").process(Changes(), unbounded=True, name="changes")
    changes.write(f"files:{place}/out", format="parquet", name="out")
    return job


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.processors import Changes
    from bench.with_spark import drain, session

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(params["folder"])
    )
    changes = (
        readings.select("sensor", "celsius")
        .groupBy("sensor")
        .transformWithStateInPandas(Changes(), RESULT, "Append", "None")
    )
    return drain(changes, place, params["rows"])


def bytewax(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_bytewax import drain

    return drain("bench.flows.changes", params["folder"], place, parts=FILES)
