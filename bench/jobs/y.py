"""Y: distinct users and the median latency per page and minute, approximate and exact.

Ours approximate against ours exact, and against Spark's `approx_count_distinct` and
`approx_percentile`, with the same error: 2 % of the count for 95 of 100 windows (Spark names the
standard deviation, 1 %), and 1 % of the rank. Every user is there about once, so that exact
counts hold nearly every row. What each finds is compared with what DuckDB finds in the input.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from bench.batches import throughput, with_rows
from bench.data import DISORDER, Shape, dataset
from bench.digest import Digest
from bench.measure import OURS, THEIRS, Contest, Entry, Failed, Lab, Sample
from bench.rows import AT_MOST, Row, megabytes, speed

FILES = 4  # per batch
SCHEMA = "page string, at timestamp, user bigint, ms double"
ERROR, RANKS = 0.02, 0.01
WITHIN = "within the error"


def rows(lab: Lab) -> list[Row]:
    batch, batches, skip = (200_000, 8, 2) if lab.quick else (1_000_000, 8, 2)
    given = params(batch, batches)
    entries = [
        Entry("Y", OURS, {**given, "exact": False}),
        Entry("Y exact", OURS, {**given, "exact": True}),
        Entry("Y spark", THEIRS, given),
    ]
    found = lab.rounds("y", entries, digest, reps=3)
    for ran in found:
        _check(ran)

    def rate(sample: Sample) -> float:
        return throughput(with_rows(dict(sample.figures)), skip)

    def pss(sample: Sample) -> float:
        return float(sample.pss)

    made = []
    for place, (name, whose) in enumerate((("Y", "exactly, ours"), ("Y spark", "by Spark")), 1):
        contest = Contest([(ran[0], ran[place]) for ran in found])
        figures = speed(contest.ours(rate)), speed(contest.theirs(rate))
        what = f"distinct users and median per minute, approximate, against the same {whose}"
        made.append(Row(name, what, *figures, contest.ratio(rate), target=3.0, equal=True))
        used = megabytes(contest.ours(pss)), megabytes(contest.theirs(pss))
        what = f"peak memory of {name}"
        made.append(Row(f"M {name}", what, *used, contest.ratio(pss), AT_MOST, 1.0))
    return made


def params(batch: int, batches: int, keys: int = 100) -> dict[str, Any]:
    """A batch is 20 s of event time, whatever the rows: a window is held for three and more."""
    made = dataset(Shape("calls", batches * FILES, batch // FILES, keys, rate=batch // 20))
    return {"folder": made.folder, "batch": batch, "rows": batch, "newest": made.newest}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """How many windows the watermark has closed, and whether 95 of 100 are within the error."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(
            'CREATE VIEW calls AS SELECT *, epoch_ms("at"::TIMESTAMP) // 60000 AS minute '
            f"FROM read_parquet('{params['folder']}/*.parquet')"
        )
        count, near, middle = connection.execute(
            f"""
            WITH found AS (
                SELECT page, epoch_ms(window_end::TIMESTAMP) // 60000 - 1 AS minute, users, median
                FROM read_parquet('{place}/out/*.parquet')
                WHERE epoch_ms(window_end::TIMESTAMP) <= {params["newest"] - DISORDER}
            ), exact AS (
                SELECT page, minute, count(DISTINCT user) AS n FROM calls GROUP BY ALL
            ), ranks AS (
                SELECT page, minute, avg((ms <= median)::INT) AS rank
                FROM found JOIN calls USING (page, minute) GROUP BY ALL
            )
            SELECT count(*), avg((abs(users - n) <= {ERROR} * n)::INT),
                   avg((abs(rank - 0.5) <= {RANKS} + 0.001)::INT)
            FROM found JOIN exact USING (page, minute) JOIN ranks USING (page, minute)
            """
        ).fetchone() or (0, 0, 0)
    return Digest(
        int(count), WITHIN if min(near or 0, middle or 0) >= 0.95 else f"{near}, {middle}"
    )


def _check(ran: list[Sample]) -> None:
    digests = [sample.digest for sample in ran]
    if len({*digests}) > 1 or digests[0] is None or digests[0].checksum != WITHIN:
        raise Failed(f"Y: the results differ: {digests}")


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    job = hr.Job("y")
    calls = job.read(f"files:{params['folder']}", schema=SCHEMA, time="at", delay="2s")
    if params["exact"]:
        aggs = {"users": hr.count_distinct("user"), "median": hr.median("ms")}
    else:
        users = hr.approx_count_distinct("user", error=ERROR)
        aggs = {"users": users, "median": hr.approx_quantile("ms", 0.5, error=RANKS)}
    found = calls.key_by("page").window(hr.tumbling("1m")).agg(**aggs)
    found.write(f"files:{place}/out", format="parquet", name="found")
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from bench.with_spark import drain, session

    spark = session(params["cores"])
    calls = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(params["folder"])
    )
    found = (
        calls.withWatermark("at", "2 seconds")
        .groupBy("page", F.window("at", "1 minute"))
        .agg(
            F.approx_count_distinct("user", rsd=ERROR / 2).alias("users"),
            F.percentile_approx("ms", 0.5, accuracy=round(1 / RANKS)).alias("median"),
        )
        .select("page", F.col("window.end").alias("window_end"), "users", "median")
    )
    return drain(found, place, params["rows"])
