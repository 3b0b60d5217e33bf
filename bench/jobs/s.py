"""S: sliding windows of 1 h every 1 s, 3,600 of which overlap, against tumbling ones of 1 s.

Both ours, over the same rows: one mean per key and second of event time comes out of either,
so what differs is the overlap alone. Measured is twice: how fast a long stretch is gone
through, and how long a small batch takes while an hour is held. The former has few keys with
many rows a second each, for a mean per second and key is written however it is made, and
should not hide what is measured. Values are checked against DuckDB. And one try of Spark's
sliding windows, for as long as we have patience.

"S fold" is a `reduce` in Python over windows of 1 min every 1 s: folded into every window, or
into panes that are merged (`merge=`), or into a value that slides (`inverse=`), as
reduceByKeyAndWindow does it without and with an inverse function.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from bench.batches import lasted, throughput, with_rows
from bench.data import DISORDER, Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.measure import OURS, THEIRS, Contest, Entry, Failed, Lab, Sample, TooSlow
from bench.rows import AT_MOST, Row, millis, speed

FILES = 4  # per batch
CENTS = "CAST(floor(celsius * 100) AS BIGINT)"
SCHEMA = "sensor string, at timestamp, celsius double"
SLIDING, TUMBLING = 3_600, 1  # seconds
BATCH = 2  # seconds of event time in a small batch
FOLDED = 60  # seconds
FOLDS = ("fn", "merge", "inverse")


def rows(lab: Lab) -> list[Row]:
    return [*_long(lab), _live(lab), *_folds(lab)]


def _long(lab: Lab) -> list[Row]:
    """The first hour is left out: before, windows do not overlap as much as they will."""
    batch, batches, skip = (100_000, 5, 3) if lab.quick else (1_000_000, 8, 4)
    entries = _entries("S", params(batch, batches))
    contest = _contest(lab, entries, reps=3)

    def time(sample: Sample) -> float:
        return 1 / throughput(with_rows(dict(sample.figures)), skip)

    sliding, tumbling = (1 / t for t in (contest.ours(time), contest.theirs(time)))
    what = "time of sliding 1 h / 1 s to tumbling 1 s, both ours"
    overlap = Row(
        "S", what, speed(sliding), speed(tumbling), contest.ratio(time), AT_MOST, 2.0, equal=True
    )
    return [overlap, _spark(lab, entries[0], sliding, limit=30.0 if lab.quick else 60.0)]


def _live(lab: Lab) -> Row:
    keys, count = (100, 10) if lab.quick else (1_000, 40)
    contest = _contest(lab, _entries("S live", live_params(keys, count)), reps=2)

    def time(sample: Sample) -> float:
        return lasted(with_rows(dict(sample.figures)), skip=3)

    what = f"batch of {BATCH} s with an hour of {keys:,} keys held: sliding to tumbling"
    sliding, tumbling = millis(contest.ours(time)), millis(contest.theirs(time))
    return Row("S live", what, sliding, tumbling, contest.ratio(time), AT_MOST, 2.0, equal=True)


def _folds(lab: Lab) -> list[Row]:
    """The first minute is left out, in which windows are not whole yet."""
    batch, batches, skip = (6_000, 10, 3) if lab.quick else (60_000, 10, 3)
    entries = [
        Entry(f"S fold {fold}", OURS, {**fold_params(batch, batches), "fold": fold})
        for fold in FOLDS
    ]
    found = lab.rounds("s", entries, digest, reps=2)
    for ran in found:
        _check(entries, ran)

    def time(sample: Sample) -> float:
        return 1 / throughput(with_rows(dict(sample.figures)), skip)

    made = []
    for place, fold in enumerate(FOLDS[1:], 1):
        contest = Contest([(ran[place], ran[0]) for ran in found])
        speeds = (speed(1 / t) for t in (contest.ours(time), contest.theirs(time)))
        what = f"time of reduce over 1 min / 1 s with {fold}=, to that without, both ours"
        made.append(Row(f"S {fold}", what, *speeds, contest.ratio(time), AT_MOST, 1.0, equal=True))
    return made


def _entries(case: str, params: Mapping[str, Any]) -> list[Entry]:
    sizes = (("sliding", SLIDING), ("tumbling", TUMBLING))
    return [Entry(f"{case} {name}", OURS, {**params, "size": size}) for name, size in sizes]


def _contest(lab: Lab, entries: list[Entry], reps: int) -> Contest:
    """Sliding against tumbling; the values of both are right."""
    found = lab.rounds("s", entries, digest, reps)
    for ran in found:
        _check(entries, ran)
    return Contest([(sliding, tumbling) for sliding, tumbling in found])


def _spark(lab: Lab, entry: Entry, ours: float, limit: float) -> Row:
    """Against Spark's sliding windows, from the start of the process."""
    what = "sliding 1 h / 1 s against Spark's, which has so long"
    total = int(entry.params["total"])
    try:
        sample = lab.one("S spark", "s", THEIRS, entry.params, digest, limit)
    except TooSlow:
        theirs = f"< {speed(total / limit)}, not done in {limit:g} s"
        return Row("S spark", what, speed(ours), theirs, ours * limit / total)
    _check([entry], [sample])
    seconds = float(sample.figures["seconds"])
    return Row("S spark", what, speed(ours), speed(total / seconds), ours * seconds / total)


def _check(entries: list[Entry], ran: list[Sample]) -> None:
    for entry, sample in zip(entries, ran, strict=True):
        wanted = expected(entry.params)
        if sample.digest != wanted:
            raise Failed(f"{entry.case}: the results differ: {sample.digest}, DuckDB {wanted}")


def params(
    batch: int, batches: int, keys: int = 10, hours: float = 2.0, size: int = SLIDING
) -> dict[str, Any]:
    """So many hours of event time, whatever the rows."""
    rate = max(1, int(batch * batches / hours / 3_600))
    made = dataset(Shape("readings", batches * FILES, batch // FILES, keys, rate))
    return {
        "folders": [made.folder], "batch": batch, "rows": batch, "total": made.rows,
        "newest": made.newest, "size": size,
    }  # fmt: skip


def fold_params(batch: int, batches: int, keys: int = 100) -> dict[str, Any]:
    """Three minutes of event time, whatever the rows."""
    return params(batch, batches, keys, hours=180 / 3_600, size=FOLDED)


def live_params(keys: int, count: int, size: int = SLIDING) -> dict[str, Any]:
    """More than an hour, a row per key and second; then `count` small batches."""
    seconds = 4_000
    fill = dataset(Shape("readings", FILES, keys * seconds // FILES, keys, rate=keys))
    first = seconds // BATCH
    more = dataset(Shape("readings", count, keys * BATCH, keys, rate=keys, first=first))
    return {
        "folders": [fill.folder, more.folder], "total": [fill.rows, more.rows],
        "batch": keys * BATCH, "newest": more.newest, "size": size,
    }  # fmt: skip


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """Only windows that the watermark has closed: at the end of input, ours closes the rest."""
    end = "epoch_ms(window_end::TIMESTAMP)"
    value = "cents" if "fold" in params else rounded("celsius")
    where = f"{end} <= {params['newest'] - DISORDER}"
    return digest_of(place, ["sensor", end, value], where=where)


def expected(params: Mapping[str, Any]) -> Digest:
    """The same of what DuckDB finds in the input: every second's window is over the last ones."""
    last = (params["newest"] - DISORDER) // 1_000
    column, value = "celsius", rounded("celsius")
    if "fold" in params:
        column, value = CENTS, "celsius::BIGINT"
    division = "1" if "fold" in params else "nullif(sum(n) OVER w, 0)"
    files = [f"{folder}/*.parquet" for folder in params["folders"]]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        rows, total = connection.execute(
            f"""
            WITH panes AS (
                SELECT sensor, epoch_ms("at"::TIMESTAMP) // 1000 + 1 AS second,
                       sum({column}) AS total, count(*) AS n
                FROM read_parquet($files) GROUP BY ALL
            ), seconds AS (
                SELECT sensor, unnest(range(min(second), least(max(second) + $size, $last + 1)))
                       AS second
                FROM panes GROUP BY sensor
            ), means AS (
                SELECT sensor, second * 1000 AS ended,
                       sum(total) OVER w / {division} AS celsius
                FROM seconds LEFT JOIN panes USING (sensor, second)
                WINDOW w AS (
                    PARTITION BY sensor ORDER BY second
                    RANGE BETWEEN $size - 1 PRECEDING AND CURRENT ROW
                )
            )
            SELECT count(*), coalesce(sum(hash(sensor, ended, {value})::HUGEINT), 0)
            FROM means WHERE celsius IS NOT NULL
            """,
            {"files": files, "size": params["size"], "last": last},
        ).fetchone() or (0, 0)
    return Digest(int(rows), str(total))


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_headrace import Part, drain, figures, grown

    if len(params["folders"]) == 1:
        make = partial(_fold_job, params["fold"]) if "fold" in params else _job
        job = make(params["folders"][0], params["size"], place)
        return drain(job, place, params["batch"], params["cores"])
    batches = [params["total"][0] // 4, params["batch"]]
    parts = [Part(*part) for part in zip(params["folders"], params["total"], batches, strict=True)]
    make = partial(_job, str(place / "in"), params["size"], place)
    return figures(grown(make, place, parts, params["cores"]))


def _job(folder: str, size: int, place: Path) -> Any:
    import headrace as hr

    job = hr.Job("s")
    readings = job.read(f"files:{folder}", schema=SCHEMA, time="at", delay="2s", format="parquet")
    window = hr.sliding(f"{size}s", every="1s")
    means = readings.key_by("sensor").window(window).agg(celsius=hr.mean("celsius"), name="means")
    means.write(f"files:{place}/out", format="parquet", name="out")
    return job


def _fold_job(fold: str, folder: str, size: int, place: Path) -> Any:
    import headrace as hr

    def add(a: Any, b: Any) -> Any:
        return a._replace(cents=a.cents + b.cents)

    def subtract(a: Any, b: Any) -> Any:
        return a._replace(cents=a.cents - b.cents)

    functions = {"merge": add, "inverse": subtract}
    used = {name: fn for name, fn in functions.items() if FOLDS.index(name) <= FOLDS.index(fold)}
    job = hr.Job("s")
    readings = job.read(f"files:{folder}", schema=SCHEMA, time="at", delay="2s", format="parquet")
    cents = readings.select("sensor", cents=CENTS).key_by("sensor")
    sums = cents.window(hr.sliding(f"{size}s", every="1s")).reduce(add, **used, name="sums")
    sums.write(f"files:{place}/out", format="parquet", name="out")
    return job


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from bench.with_spark import drain, session

    spark = session(params["cores"])
    readings = (
        spark.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", FILES)
        .parquet(params["folders"][0])
    )
    means = (
        readings.withWatermark("at", "2 seconds")
        .groupBy("sensor", F.window("at", f"{params['size']} seconds", "1 second"))
        .agg(F.mean("celsius").alias("celsius"))
        .select("sensor", F.col("window.end").alias("window_end"), "celsius")
    )
    return drain(means, place, params["rows"])
