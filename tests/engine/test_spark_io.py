"""DataFrames in and out, on a real Spark: each row once, whatever is repeated."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine import spark_inputs
from headrace.sinks import catalog_table
from headrace.sinks.catalog_table import CatalogTable
from headrace.sources.spark_rows import SparkRows
from headrace.testing import OutputCase, OutputSuite

pytestmark = pytest.mark.spark
SECONDS = 60.0
EVERY_ERA = [
    date(1, 1, 3),
    date(1582, 10, 4),
    date(1582, 10, 15),
    date(1900, 2, 28),
    date(9999, 12, 31),
]


@pytest.fixture
def place(spark, tmp_path) -> Iterator[Path]:
    yield tmp_path
    for query in spark.streams.active:
        query.stop()


def wait_for(run: Any, output: str, rows: int) -> None:
    pause = threading.Event()
    for _ in range(int(SECONDS / 0.05)):
        if run.output(output).num_rows >= rows:
            return
        if run.status.state != "running":
            run.wait()
        pause.wait(0.05)
    raise AssertionError(run.output(output).num_rows)


def reading(frame: Any, where: str = "true") -> hr.Job:
    job = hr.Job("reading")
    job.read(hr.from_spark(frame), name="numbers").where(where).write("collect:", name="out")
    return job


def run(job: hr.Job, place: Path, **more: Any) -> Any:
    return hr.run(job, folder=str(place / "job"), quiet=True, **more)


def test_the_rows_of_a_dataframe_are_those_that_were_stored(spark, place):
    frame = spark.range(0, 1000, 1, 3).selectExpr("id", "rand() r", "timestamp_seconds(id) at")
    running = run(reading(frame, "id % 2 = 0"), place, until="end", max_batch=300)
    running.wait()

    found = running.output("out")
    store = SparkRows(place / "job" / "inputs" / "numbers")
    stored = pa.concat_tables([t for t, _ in store.read(store.files(0, 1000), 0, 1000)])
    assert found["id"].to_pylist() == list(range(0, 1000, 2))
    assert found["r"].to_pylist() == stored["r"].to_pylist()[::2]  # never computed again
    assert found["at"][1].as_py().timestamp() == 2


def test_a_dataframe_without_rows_is_at_its_end(spark, place):
    running = run(reading(spark.range(0)), place, until="end")
    assert running.wait().state == "ended" and running.output("out").num_rows == 0


def test_an_output_without_rows_is_a_dataframe_without_rows(spark, place):
    running = run(reading(spark.range(3), "id > 5"), place, until="end")
    running.wait()
    assert running.to_spark("out").collect() == []


def test_columns_are_found_whatever_their_names_mean_to_spark(spark, place):
    names = ["a.b", "sp ace", "`tick`", "Upper", "é", "c0"]
    frame = spark.range(2).selectExpr("id", *("id" for _ in names[1:])).toDF(*names)
    running = run(reading(frame), place, until="end")
    running.wait()
    assert running.output("out").to_pylist() == [dict.fromkeys(names, i) for i in range(2)]
    assert running.to_spark("out").columns == names


def test_rows_that_another_process_stores_are_waited_for_and_then_refused(
    spark, place, monkeypatch
):
    monkeypatch.setattr(spark_inputs, "_PATIENCE", 0.0)
    other = SparkRows(place / "job" / "inputs" / "numbers")
    other.begin()
    assert other.lock()
    with pytest.raises(hr.InputError) as caught:
        run(reading(spark.range(3)), place)
    other.unlock()
    assert caught.value.code == "HR-SPARK-006"
    assert run(reading(spark.range(3)), place, until="end").wait().state == "ended"


def test_a_look_at_a_dataframe_is_computed_on_spark(spark):
    job = hr.Job("looked")
    shown = job.read(hr.from_spark(spark.range(10)), name="n").where("id > 3").head(3)
    assert shown["id"].to_pylist() == [4, 5, 6]


def stream_of(spark: Any, place: Path) -> Any:
    (place / "in").mkdir(exist_ok=True)
    return spark.readStream.schema("id bigint").json(str(place / "in"))


def put(place: Path, *ids: int) -> None:
    text = "".join(f'{{"id": {i}}}\n' for i in ids)
    (place / "in" / f"{ids[0]}.json").write_text(text)


def test_a_streaming_dataframe_is_read_on_after_a_restart(spark, place):
    frame = stream_of(spark, place)
    put(place, 1, 2)
    first = run(reading(frame), place)
    wait_for(first, "out", 2)
    put(place, 3)
    wait_for(first, "out", 3)
    first.stop()
    put(place, 4, 5)
    second = run(reading(frame), place)
    wait_for(second, "out", 5)
    second.stop()

    assert sorted(second.output("out")["id"].to_pylist()) == [1, 2, 3, 4, 5]


def test_a_batch_that_was_stored_and_not_committed_by_spark_is_not_doubled(spark, place):
    frame = stream_of(spark, place)
    put(place, 1, 2)
    run(reading(frame), place, until="now").wait()
    put(place, 3)
    run(reading(frame), place, until="now").wait()
    commits = SparkRows(place / "job" / "inputs" / "numbers").checkpoint / "commits"
    for name in ("1", ".1.crc"):  # as a crash between the two leaves it
        (commits / name).unlink(missing_ok=True)
    put(place, 4)
    last = run(reading(frame), place, until="now")
    last.wait()

    assert sorted(last.output("out")["id"].to_pylist()) == [1, 2, 3, 4]


def test_until_the_end_a_stream_is_what_is_there_now(spark, place):
    frame = stream_of(spark, place)
    put(place, 1, 2)
    ended = run(reading(frame), place, until="end")
    assert ended.wait().state == "ended" and ended.output("out").num_rows == 2


def test_what_fails_in_spark_is_an_error_of_the_job_by_name(spark, place):
    from pyspark.sql import functions as F

    def fail(value):
        raise ValueError("no such number")

    failing = F.udf(fail, "bigint", useArrow=False)

    put_first = stream_of(spark, place)
    put(place, 1)
    for frame, folder in ((spark.range(3), "a"), (put_first, "b")):
        wrong = frame.select(failing("id").alias("id"))
        with pytest.raises(hr.InputError, match="ValueError: no such number") as caught:
            run(reading(wrong), place / folder).wait(SECONDS)
        assert caught.value.code == "HR-SPARK-003" and "'numbers'" in caught.value.message


def test_a_query_that_somebody_stops_stops_the_job(spark, place):
    running = run(reading(stream_of(spark, place)), place)
    (query,) = [q for q in spark.streams.active if q.name.startswith("headrace_input")]
    query.stop()
    with pytest.raises(hr.InputError, match="was stopped") as caught:
        running.wait(SECONDS)
    assert caught.value.code == "HR-SPARK-003"


# outputs


def counting(fn: Any, name: str = "each", engine: str = "spark") -> hr.Job:
    job = hr.Job("counting")
    made = hr.generate(None, lambda i: {"i": i}, total=1000, schema="i bigint")
    job.read(made, name="made").for_each_batch(fn, name=name, engine=engine)
    return job


def test_a_function_gets_each_epoch_as_a_dataframe(spark, place):
    calls = []

    def each(frame: Any, epoch: int) -> None:
        assert spark is not None  # what it holds need not be picklable
        calls.append((epoch, sorted(r.i for r in frame.collect())))

    running = run(counting(each), place, until="end", max_batch=400)
    running.wait()

    assert running.guarantees["each"] == "at least once"
    assert [e for e, _ in calls] == sorted({e for e, _ in calls})
    assert [i for _, rows in calls for i in rows] == list(range(1000))
    calls.clear()
    run(counting(each), place, until="end").wait()
    assert not calls  # an epoch that was published is not published again by a start


def test_a_function_that_fails_is_called_again_with_the_same_rows(spark, place):
    calls: dict[int, list[list[int]]] = {}

    def each(frame: Any, epoch: int) -> None:
        calls.setdefault(epoch, []).append(sorted(r.i for r in frame.collect()))
        if epoch == 2 and len(calls[2]) == 1:
            raise ValueError("no place")

    with pytest.raises(hr.OutputError, match=r"'each'.*epoch 2: ValueError: no place") as caught:
        run(counting(each), place, until="end", max_batch=400).wait()
    assert caught.value.code == "HR-OUTPUT-081" and "Nothing is lost" in caught.value.hint
    run(counting(each), place, until="end", max_batch=400).wait()

    assert calls[2][0] == calls[2][1]
    assert [i for epoch in sorted(calls) for i in calls[epoch][-1]] == list(range(1000))


def table_job(place: Path, total: int, uri: str) -> hr.Job:
    log = hr.EmbeddedLog(place / "log")
    log.create("t", schema=pa.schema([("i", pa.int64())]), exist_ok=True)
    at = sum(log.latest("t").values())
    if total > at:
        log.append("t", pa.table({"i": range(at, total)}))
    job = hr.Job("table")
    job.read("log:t", log=str(place / "log"), name="t").write(uri, name="out")
    return job


@pytest.fixture
def table(spark) -> Iterator[str]:
    name = "headrace_results"
    spark.sql(f"drop table if exists {name}")
    yield name
    spark.sql(f"drop table if exists {name}")


def test_a_catalog_table_holds_every_epoch_once(spark, place, table):
    uri = f"table:{table}"
    first = run(table_job(place, 900, uri), place, until="now", max_batch=400)
    first.wait()
    assert first.guarantees["out"] == "exactly once"
    (place / "job" / "published").unlink(missing_ok=True)  # as a crash before it leaves it
    second = run(table_job(place, 1500, uri), place, until="now", max_batch=400)
    second.wait()

    found = sorted(r.i for r in spark.table(table).select("i").collect())
    assert found == list(range(1500))
    epochs = {r.headrace_epoch for r in spark.table(table).collect()}
    assert len(epochs) >= 4


def test_an_epoch_that_is_delivered_again_replaces_its_partition_only(spark, table):
    output, schema = CatalogTable(table), pa.schema([("i", pa.int64()), ("t", pa.string())])
    output.check(schema)
    output.open(schema)
    parts = [pa.table({"i": [n], "t": ["it's"]}, schema) for n in range(3)]
    producer = "a" * 32 + "/o'ut\\"
    for epoch, rows in enumerate(parts):
        output.deliver(rows, producer, epoch)
    output.deliver(parts[1], producer, 1)

    assert sorted(r.i for r in spark.table(table).collect()) == [0, 1, 2]
    assert output.delivered() == {producer: 2}
    output.check(schema)


@pytest.mark.parametrize("format", ["parquet", "orc"])
def test_dates_of_a_table_are_read_as_they_were(spark, table, format):
    days = [*EVERY_ERA, *([] if format == "orc" else [date(1582, 10, 5), date(1582, 10, 14)])]
    rows = pa.table({"d": pa.array(days, pa.date32())})
    output = CatalogTable(table, format)
    output.open(rows.schema)
    output.deliver(output.prepare(rows), "p", 1)
    assert sorted(r.d for r in spark.table(table).collect()) == sorted(days)


def test_a_driver_that_is_stopped_while_it_writes_doubles_nothing(spark, table, monkeypatch):
    schema = pa.schema([("i", pa.int64())])
    output, rows = CatalogTable(table), pa.table({"i": [1, 2]}, schema)
    output.open(schema)

    def let_go(name: str) -> None:
        """Another driver delivers the same epoch, while this one is stopped."""
        if name == "sink.table.staged":
            monkeypatch.setattr(catalog_table, "point", lambda name: None)
            output.deliver(rows, "p", 5)

    monkeypatch.setattr(catalog_table, "point", let_go)
    output.deliver(rows, "p", 5)
    assert sorted(r.i for r in spark.table(table).collect()) == [1, 2]


def test_a_table_of_others_or_that_was_dropped_is_refused(spark, place, table):
    uri = f"table:{table}"
    run(table_job(place, 10, uri), place, until="now").wait()
    with pytest.raises(hr.OutputError) as caught:
        run(table_job(place, 10, uri), place / "other", until="now")
    assert caught.value.code == "HR-OUTPUT-004"
    spark.sql(f"drop table {table}")
    with pytest.raises(hr.StateError) as lost:
        run(table_job(place, 20, uri), place, until="now")
    assert lost.value.code == "HR-STATE-023"
    spark.range(5).write.saveAsTable(table)
    with pytest.raises(hr.OutputError) as other:
        run(table_job(place, 10, uri), place / "third", until="now")
    assert other.value.code == "HR-OUTPUT-083"


def test_an_output_is_a_dataframe_of_its_committed_epochs(spark, place):
    first = run(table_job(place, 900, "collect:"), place, until="now", max_batch=400)
    first.wait()
    frame = first.to_spark("out")
    assert sorted(r.i for r in frame.collect()) == list(range(900))
    assert [f.name for f in frame.schema] == ["i"]
    with pytest.raises(hr.OutputError) as caught:
        first.to_spark("dad")
    assert caught.value.code == "HR-SPARK-008"
    with pytest.raises(hr.OutputError):
        hr.to_spark(place / "nothing")


def test_an_output_is_a_streaming_dataframe_of_each_epoch_once(spark, place):
    job = f"files:{place}/out"
    options = {"format": "parquet", "merge": False}

    def written(total: int) -> Any:
        table_job(place, total, "collect:")  # rows of the topic
        program = hr.Job("files")
        read = program.read("log:t", log=str(place / "log"), name="t")
        read.write(job, name="out", **options)
        running = run(program, place, until="now", max_batch=100)
        running.wait()
        return running

    written(900)
    frame = hr.to_spark(place / "out", streaming=True)
    found: list[int] = []

    def copied() -> None:
        writer = frame.writeStream.foreachBatch(
            lambda rows, _: found.extend(r.i for r in rows.collect())
        )
        writer = writer.option("checkpointLocation", str(place / "copy"))
        writer.trigger(availableNow=True).start().awaitTermination()

    copied()
    assert sorted(found) == list(range(900))
    written(2_500)
    copied()
    assert sorted(found) == list(range(2_500))


def test_an_output_that_is_merged_cannot_be_followed(spark, place):
    table_job(place, 900, "collect:")
    program = hr.Job("files")
    read = program.read("log:t", log=str(place / "log"), name="t")
    read.write(f"files:{place}/out", name="out", format="parquet")
    run(program, place, until="now", max_batch=20).wait()
    assert hr.to_spark(place / "out").count() == 900
    frame = hr.to_spark(place / "out", streaming=True)
    with pytest.raises(Exception, match="merged"):
        writer = frame.writeStream.format("noop").option("checkpointLocation", str(place / "copy"))
        writer.trigger(availableNow=True).start().awaitTermination()


class TestCatalogTable(OutputSuite):
    passings, rounds, stops, crashes_inside = 1, 1, 2, 2  # each is a job of Spark

    @pytest.fixture
    def make(self, spark) -> Iterator[Any]:
        names: list[str] = []

        def case(tmp: Path) -> OutputCase:
            name = f"headrace_{uuid.uuid4().hex}"
            names.append(name)

            def rows() -> list[Any]:
                if not spark.catalog.tableExists(name):
                    return []
                found = spark.table(name).select("epoch", "n", "text").collect()
                return sorted(tuple(r) for r in found)

            return OutputCase.of(f"table:{name}", tmp, rows)

        yield case
        for name in names:
            spark.sql(f"drop table if exists {name}")
