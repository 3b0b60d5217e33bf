"""K: Kafka: JSON records to windows and back to Kafka; and reading alone.

Against Spark's own connector on the same broker, which runs within the job; the windows also
against Bytewax in two processes, with its Kafka connector. Ours writes an epoch in one transaction;
Spark and Bytewax write at least once. Reading alone decodes all columns of every record, and
writes one row in a thousand.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import kafka
from bench.batches import throughput, with_rows
from bench.data import DISORDER, Shape, dataset
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.measure import Contest, Lab, Sample
from bench.rows import Row, speed

FILES = 2  # of a batch, in the folder that a topic is filled from
READINGS = "id bigint, area string, sensor string, celsius double, smoke boolean, at bigint"
EVENTS = "id bigint, area string, sensor string, celsius double, at timestamp"
WINDOWS = "sensor VARCHAR, start BIGINT, n BIGINT, total DOUBLE"
SPAN = 10_000  # ms: of a window
BYTEWAX = "bytewax"
WINDOW, READ = "window", "read"


def rows(lab: Lab) -> list[Row]:
    with kafka.broker() as address:
        return [*_windows(lab, address), *_bytewax(lab, address), *_reading(lab, address)]


def _windows(lab: Lab, address: str) -> list[Row]:
    batch, batches = (50_000, 4) if lab.quick else (400_000, 4)
    given = filled(params(batch, batches), address)
    contest = lab.pairs("K", "k", given, digest, reps=2)
    what = f"Kafka JSON, windows of 10 s, Kafka, {batch / 1e6:g} M a batch"
    return [_row("K", what, contest, target=2.0)]


def _bytewax(lab: Lab, address: str) -> list[Row]:
    from bench.with_bytewax import missing

    what, why = "the same against Bytewax, two processes", missing(kafka=True)
    if why:
        lab.say(f"  K: Bytewax with its Kafka connector is not available: {why}")
        return [Row("K bytewax", what, "", "not available", None)]
    batch, batches = (20_000, 3) if lab.quick else (50_000, 3)
    given = filled(params(batch, batches), address)
    contest = lab.contests("K bytewax", "k", given, digest, 1, (BYTEWAX,))[0]
    return [_row("K bytewax", what, contest, target=2.0)]


def _reading(lab: Lab, address: str) -> list[Row]:
    batch, batches = (100_000, 4) if lab.quick else (1_000_000, 4)
    given = filled(params(batch, batches, kind=READ), address)
    contest = lab.pairs("K read", "k", given, digest, reps=2)
    what = "records of 100 bytes read, JSON to columns"
    ratio = _row("K read", what, contest, target=2.0)
    rate_ = contest.ours(rate)
    return [ratio, Row("K records", f"the same, {lab.cores} cores", speed(rate_), "none",
                       rate_ / 1e3, target=800.0, unit="k/s")]  # fmt: skip


def _row(job: str, what: str, contest: Contest, target: float) -> Row:
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    return Row(job, what, ours, theirs, contest.ratio(rate), target=target, equal=True)


def rate(sample: Sample) -> float:
    if sample.who == BYTEWAX:
        return float(sample.figures["rate"])
    batches = with_rows(dict(sample.figures))
    return throughput(batches, skip=max(1, len(batches) // 3))


def params(
    batch: int, batches: int, keys: int = 10_000, rate: int = 12_500, kind: str = WINDOW
) -> dict[str, Any]:
    lines = "json" if kind == READ else "events"
    made = dataset(Shape(lines, batches * FILES, batch // FILES, keys, rate))
    return {
        "kind": kind, "folder": made.folder, "batch": batch, "rows": batch,
        "total": made.rows, "newest": made.newest,
    }  # fmt: skip


def filled(params: Mapping[str, Any], address: str) -> dict[str, Any]:
    """The same with a topic that holds the files."""
    topic = Path(params["folder"]).parent.name
    kafka.fill(address, topic, params["folder"])
    return {**params, "brokers": address, "topic": topic}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    """Only windows that the watermark has closed: at the end of input, ours closes the rest."""
    if params["kind"] == READ:
        return digest_of(place, ["id", "area", "sensor", rounded("celsius"), "smoke", '"at"'])
    kafka.read_to_files(params["brokers"], out_topic(place), WINDOWS, place / "out")
    closed = f"start + {SPAN} <= {params['newest'] - DISORDER}"
    return digest_of(place, ["sensor", "start", "n", rounded("total")], where=closed)


def out_topic(place: Path) -> str:
    """A run's own."""
    return f"windows-{place.parent.name}-{place.name}"


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import headrace as hr
    from bench.with_headrace import drain

    job = hr.Job("k")
    topic = f"kafka://{params['brokers']}/{params['topic']}"
    if params["kind"] == READ:
        some = job.read(topic, schema=READINGS).where("id % 1000 = 0")
        some.write(f"files:{place}/out", format="parquet", name="some")
    else:
        events = job.read(topic, schema=EVENTS, time="at", delay="2s")
        windows = (
            events.key_by("sensor")
            .window(hr.tumbling("10s"))
            .agg(n=hr.count(), total=hr.sum("celsius"))
            .select("sensor", start="unix_millis(window_start)", n="n", total="total")
        )
        windows.write(
            f"kafka://{params['brokers']}/{out_topic(place)}",
            key="sensor", partitions=kafka.PARTITIONS, name="windows",
        )  # fmt: skip
    return drain(job, place, params["batch"], params["cores"])


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from pyspark.sql import functions as F

    from bench.with_spark import drain, drain_to_kafka, session

    spark = session(params["cores"], {"spark.jars": kafka.connector()})
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", params["brokers"])
        .option("subscribe", params["topic"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", params["batch"])
        .load()
    )
    schema = READINGS if params["kind"] == READ else EVENTS
    rows = records.select(F.from_json(F.col("value").cast("string"), schema).alias("v"))
    if params["kind"] == READ:
        return drain(rows.select("v.*").where("id % 1000 = 0"), place, params["rows"])
    windows = (
        rows.select("v.*")
        .withWatermark("at", "2 seconds")
        .groupBy("sensor", F.window("at", "10 seconds"))
        .agg(F.count("*").alias("n"), F.sum("celsius").alias("total"))
        .select(
            F.col("sensor").alias("key"),
            F.to_json(
                F.struct("sensor", F.unix_millis("window.start").alias("start"), "n", "total")
            ).alias("value"),
        )
    )
    kafka.create(params["brokers"], out_topic(place))
    return drain_to_kafka(windows, params["brokers"], out_topic(place), place, params["rows"])


def bytewax(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from bench.with_bytewax import run

    kafka.create(params["brokers"], out_topic(place))
    about = {
        "brokers": params["brokers"], "topic": params["topic"], "out": out_topic(place),
        "rows": params["total"],
    }  # fmt: skip
    return run("bench.flows.kafka_windows", place, params["total"], about)
