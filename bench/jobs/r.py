"""R: a running reduce per key with a Python function, one row out for each row in.

Against `applyInPandasWithState`, which is called once per key and batch. Every sensor's rows
of a batch lie in one file and in order, so both see them in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.batches import throughput, with_rows
from bench.data import Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.functions import add
from bench.measure import Lab, Sample
from bench.rows import Row, speed

FILES = 2  # per batch
SCHEMA = "sensor string, at timestamp, celsius double"


def rows(lab: Lab) -> list[Row]:
    batch, batches, skip = (50_000, 3, 1) if lab.quick else (1_000_000, 4, 1)
    contest = lab.pairs("R", "r", params(batch, batches), digest, reps=2)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    what = f"running reduce in Python, {batch / 1e6:g} M a batch"
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return [Row("R", what, ours, theirs, contest.ratio(rate), target=6.0, equal=True)]


def params(batch: int, batches: int, keys: int = 10_000) -> dict[str, Any]:
    made = dataset(Shape("by-key", batches * FILES, batch // FILES, keys))
    return {"folder": made.folder, "batch": batch, "rows": batch}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    return digest_of(place, ["sensor", 'epoch_ms("at"::TIMESTAMP)', rounded("celsius")])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    def running(before: Any, row: Any) -> Any:
        return row._replace(celsius=add(before.celsius, row.celsius))

    job = hr.Job("r")
    readings = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", in_order=True)
    totals = readings.key_by("sensor").reduce(running, unbounded=True)
    totals.write(f"files:{place}/out", format="parquet", name="totals")
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import pandas as pd
    from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

    from bench.with_spark import drain, session

    def running(
        key: tuple[str], tables: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        total = state.get[0] if state.exists else None
        for table in tables:
            totals = []
            for celsius in table["celsius"].tolist():
                total = celsius if total is None else add(total, celsius)
                totals.append(total)
            yield pd.DataFrame({"sensor": key[0], "at": table["at"], "celsius": totals})
        state.update((total,))

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(params["folder"])
    )
    totals = readings.groupBy("sensor").applyInPandasWithState(
        running, SCHEMA, "total double", "append", GroupStateTimeout.NoTimeout
    )
    return drain(totals, place, params["rows"])
