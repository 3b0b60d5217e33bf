"""Whole batches that Spark transforms: a task asks, and the driver answers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import headrace as hr
from headrace.engine.driver_worker import DriverThread, clean_folder
from headrace.testing import Harness

SCHEMA = "k string, v bigint, at bigint"
Made = Callable[..., Harness]


def job(fn: Any, on_error: str = "dead", **options: Any) -> hr.Job:
    job = hr.Job("batches", on_error=on_error)
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="5ms", name="x")
    rows.transform(fn, engine="spark", name="by_spark", **options).write("collect:", name="out")
    return job


def found(harness: Harness) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in harness.output())


# without Spark


def test_without_spark_it_says_what_it_needs() -> None:
    with Harness(job(lambda frame: frame)) as harness:
        with pytest.raises(hr.StepError, match="no Spark session") as caught:
            harness.send("x", [("a", 1, 1)])
        assert caught.value.code == "HR-STREAM-010" and 'on="spark"' in str(caught.value)


def test_explain_says_who_calls_the_function() -> None:
    told = str(job(sorted).explain())
    assert "all rows of a batch at once, by Spark" in told
    assert "sorted: a function of Spark's DataFrames, called by the driver" in told


@pytest.mark.parametrize(
    "step",
    [
        lambda s: s.transform(lambda t: t, engine="pandas"),
        lambda s: s.key_by("k").transform(lambda t: t, engine="spark"),
    ],
)
def test_other_engines_and_keys_are_refused(step: Any) -> None:
    wrong = hr.Job("wrong")
    step(wrong.read("log:x", schema=SCHEMA)).write("console:")
    with pytest.raises(hr.PlanError) as caught:
        wrong.check()
    assert [p.code for p in caught.value.problems] == ["HR-STREAM-008"]
    assert all(p.hint and p.site for p in caught.value.problems)


UNHELD = {
    pa.uint8(): "uint8", pa.uint64(): "uint64", pa.float16(): "halffloat",
    pa.date64(): "date64[ms]", pa.time32("ms"): "time32[ms]",
    pa.month_day_nano_interval(): "month_day_nano_interval", pa.string_view(): "string_view",
    pa.decimal256(50, 2): "decimal256(50, 2)", pa.decimal128(10, -2): "decimal128(10, -2)",
    pa.list_(pa.struct([("a", pa.uint16())])): "uint16",
    pa.map_(pa.string(), pa.uint32()): "uint32", pa.dictionary(pa.int32(), pa.uint8()): "uint8",
    pa.list_view(pa.int32()): "list_view<item: int32>",
}  # fmt: skip
HELD = (
    pa.int8(), pa.float32(), pa.decimal256(38, 2), pa.large_string(), pa.binary(3), pa.date32(),
    pa.time64("us"), pa.timestamp("ns"), pa.duration("ns"), pa.list_(pa.int32(), 2), pa.null(),
    pa.dictionary(pa.int32(), pa.string()), pa.map_(pa.string(), pa.list_(pa.int16())),
)  # fmt: skip


def _of_type(kind: pa.DataType) -> hr.Job:
    typed = hr.Job("typed")
    rows = typed.read("log:x", schema=pa.schema([("k", pa.string()), ("c", kind)]), name="x")
    rows.transform(lambda f: f, engine="spark", output="k string").write("collect:", name="out")
    return typed


@pytest.mark.parametrize("kind", UNHELD, ids=str)
def test_types_that_spark_does_not_have_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(hr.PlanError) as caught:
        _of_type(kind).check()
    (problem,) = caught.value.problems
    assert problem.code == "HR-STREAM-011" and problem.site and problem.hint
    assert problem.message == f"Spark has no type for column 'c', which is {UNHELD[kind]}"


@pytest.mark.parametrize("kind", HELD, ids=str)
def test_types_that_spark_has_are_not_refused(kind: pa.DataType) -> None:
    _of_type(kind).check()


@pytest.mark.spark
def test_those_are_the_types_that_spark_takes(spark: Any) -> None:
    """Spark itself is asked."""
    for kind in (*UNHELD, *HELD):
        try:
            spark.createDataFrame(pa.table({"c": pa.nulls(1, kind)})).collect()
            taken = True
        except Exception:
            taken = False
        assert taken == (kind in HELD), kind


def test_what_earlier_starts_left_is_swept(tmp_path: Path) -> None:
    for name in ("1-a.asked", "1-b.given", ".new-x", "2-c.asked", "3-d.asked", "mine"):
        (tmp_path / name).touch()
    clean_folder(tmp_path, 2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2-c.asked", "3-d.asked", "mine"]


# on Spark


@pytest.mark.spark
def test_each_batch_goes_through_the_function_once(spark: Any, spark_harness: Made) -> None:
    rates = spark.createDataFrame([("a", 10), ("b", 100)], "k string, rate bigint")

    def worth(frame: Any) -> Any:  # closes over what cannot leave the driver
        return (
            frame.join(rates, "k").selectExpr("k", "v * rate as v").groupBy("k").sum("v")
        ).withColumnRenamed("sum(v)", "worth")

    batches = [
        [("a", 1, 1), ("b", 2, 2), ("a", 3, 3), ("c", 9, 9)],
        [("b", 5, 10), ("b", 6, 11)],
        [("c", 1, 12)],  # gives nothing
    ]
    harness = spark_harness(job(worth, output="k string, worth bigint"), tasks=2)
    for rows in batches:
        harness.send("x", rows)
        wanted = duckdb.sql(
            "select k, sum(v * rate)::bigint from (values "
            + ", ".join(f"('{k}', {v})" for k, v, _ in rows)
            + ") t(k, v) join (values ('a', 10), ('b', 100)) r(k, rate) using (k) group by k"
        ).fetchall()
        assert found(harness) == sorted(wanted)
    assert harness.dead() == []


@pytest.mark.spark
def test_a_batch_that_is_done_again_is_told_once(spark: Any, spark_harness: Made) -> None:
    calls = []

    def twice(frame: Any) -> Any:
        calls.append(frame.count())
        return frame.union(frame)

    harness = spark_harness(job(twice))
    harness.crash()
    harness.send("x", [("a", 1, 1), ("b", 2, 2)])
    harness.restart()
    harness.send("x", [("c", 3, 3)])
    assert found(harness) == [(k, v, v) for k, v in (("a", 1), ("b", 2), ("c", 3)) for _ in "12"]
    assert calls == [2, 2, 1]


@pytest.mark.spark
def test_values_come_back_as_they_were(spark: Any, tmp_path: Path) -> None:
    schema = (
        "s string, n int, x double, d decimal(10,2), b binary, day date, t timestamp, "
        "l array<bigint>, r struct<a: int, b: string>, m map<string, int>, y boolean"
    )
    rows = [
        {
            "s": "é", "n": 1, "x": 0.5, "d": Decimal("1.25"), "b": b"\0\xff",
            "day": date(2024, 1, 2), "t": datetime(2024, 2, 29, 12, 0, 0, 123_000, UTC),
            "l": [1, None], "r": {"a": 1, "b": None}, "m": [("k", 1)], "y": True,
        },
        dict.fromkeys(("s", "n", "x", "d", "b", "day", "t", "l", "r", "m", "y")),
    ]  # fmt: skip
    same = hr.Job("same")
    read = same.read(hr.rows(rows, schema), name="x")
    read.transform(lambda frame: frame, engine="spark").write("collect:", name="out")
    run = hr.run(same, until="end", folder=str(tmp_path), quiet=True)
    run.wait()
    assert run.output("out").select(list(rows[0])).to_pylist() == rows
    assert list((tmp_path / "batches").iterdir()) == []


@pytest.mark.spark
def test_results_have_the_time_of_a_column(spark: Any, spark_harness: Made) -> None:
    timed = hr.Job("timed")
    rows = timed.read("log:x", schema=SCHEMA, time="at", delay="10s", name="x")
    made = rows.transform(lambda f: f.filter("v > 1"), engine="spark", time="at")
    counted = made.window(hr.tumbling("1s")).agg(n=hr.count())
    counted.write("collect:", name="out")
    harness = spark_harness(timed)
    harness.send("x", [("a", 1, 100), ("b", 2, 200), ("c", 3, 1_500), ("d", 4, 1_600)])
    harness.end()
    assert [row["n"] for row in harness.output()] == [1, 2]


def _raises(frame: Any) -> Any:
    raise LookupError("nothing to see")


def _no_such_column(frame: Any) -> Any:
    return frame.select("nowhere")


def _fails_in_spark(frame: Any) -> Any:
    return frame.selectExpr("k", "cast(k as bigint) as v", "at")


def _exits(frame: Any) -> Any:
    sys.exit("bye")


WRONG = {
    "SparkFailure: SystemExit: bye": _exits,
    "SparkFailure: LookupError: nothing to see": _raises,
    "SparkFailure: AnalysisException: [UNRESOLVED_COLUMN": _no_such_column,
    "SparkFailure: NumberFormatException: [CAST_INVALID_INPUT]": _fails_in_spark,
    "SparkFailure: TypeError: the function returned 5, not a DataFrame": lambda frame: 5,
    "ValueError: the table has no column 'v'": lambda frame: frame.drop("v"),
}


@pytest.mark.spark
@pytest.mark.parametrize("reason", WRONG)
def test_rows_of_a_batch_that_fails_are_dead_letters(
    spark: Any, spark_harness: Made, reason: str
) -> None:
    def sometimes(frame: Any) -> Any:
        return WRONG[reason](frame) if frame.count() > 1 else frame

    harness = spark_harness(job(sometimes))
    harness.send("x", [("a", 1, 1), ("b", 2, 2)])
    harness.send("x", [("c", 3, 3)])
    assert found(harness) == [("c", 3, 3)]
    letters = harness.dead()
    assert [letter["offset"] for letter in letters] == [0, 1]
    for letter in letters:
        assert letter["error"].startswith(reason), letter["error"]
        assert "JVM" not in letter["error"] and "\n" not in letter["error"]
    if "LookupError" in reason:
        assert "in _raises" in letters[0]["traceback"]


@pytest.mark.spark
def test_on_error_fail_stops_the_job(spark: Any, spark_harness: Made) -> None:
    harness = spark_harness(job(_raises, on_error="fail"))
    with pytest.raises(hr.StepError, match="'by_spark' failed on a record: SparkFailure: Lookup"):
        harness.send("x", [("a", 1, 1)])


def _endless(tmp_path: Path, begun: threading.Event) -> hr.Run:
    def endless(frame: Any) -> Any:
        begun.set()
        many = frame.sparkSession.range(0, 10**15, 1, 1).selectExpr("sum(hash(id)) as v")
        return many.selectExpr("'x' as k", "v")

    slow = hr.Job("slow")
    rows = slow.read(hr.rows([{"k": "a", "v": 1}], "k string, v bigint"), name="x")
    rows.transform(endless, engine="spark", name="by_spark").write("collect:", name="out")
    return hr.run(slow, folder=str(tmp_path / "slow"), quiet=True)


@pytest.mark.spark
def test_a_run_that_is_cancelled_gives_up_its_batch(spark: Any, tmp_path: Path) -> None:
    begun = threading.Event()
    run = _endless(tmp_path, begun)
    assert begun.wait(60)
    assert run.cancel().state == "stopped"
    run._watcher.join()
    assert not run._work.batches._worker.alive
    assert run.output("out").num_rows == 0


@pytest.mark.spark
def test_tasks_cannot_hold_all_cores(spark: Any, tmp_path: Path) -> None:
    begun = threading.Event()
    run = _endless(tmp_path, begun)  # of two cores, one may be held by its task
    try:
        with pytest.raises(hr.RunError) as caught:
            hr.run(_small("second"), folder=str(tmp_path / "second"), quiet=True)
        assert caught.value.code == "HR-RUN-011" and caught.value.site is not None
        assert "there are 2, and 1 of them" in str(caught.value)
    finally:
        run.cancel()
    again = hr.run(_small("third"), until="end", folder=str(tmp_path / "third"), quiet=True)
    assert again.wait().state == "ended" and again.output("out").to_pylist() == [{"v": 1}]


def _small(name: str) -> hr.Job:
    small = hr.Job(name)
    rows = small.read(hr.rows([{"v": 1}], "v bigint"), name="x")
    rows.transform(lambda frame: frame, engine="spark").write("collect:", name="out")
    return small


@pytest.mark.spark
def test_a_worker_outlives_a_turn_that_fails(spark: Any) -> None:
    told, turns = [], []

    def turn() -> None:
        turns.append(len(turns))
        raise OSError("no such disk") if len(turns) % 2 else SystemExit

    worker = DriverThread(spark, "test", told.append)
    worker.begin(turn, 0.001)
    while len(turns) < 4:
        time.sleep(0.01)
    assert worker.alive
    worker.close()
    assert not worker.alive
    assert told[:2] == [
        "what the driver does for its tasks failed: OSError: no such disk",
        "what the driver does for its tasks failed: SystemExit",
    ]


@pytest.mark.spark
def test_a_question_that_nobody_answers_fails_the_task(tmp_path: Path) -> None:
    from headrace.engine.spark_batches import DriverCall

    def lose() -> None:  # as a driver of a later start does
        while not (asked := list(tmp_path.glob("*.asked"))):
            time.sleep(0.01)
        asked[0].unlink()

    other = threading.Thread(target=lose)
    other.start()
    with pytest.raises(hr.RunError, match="HR-RUN-012"):
        DriverCall(str(tmp_path), 1, "by_spark")(pa.table({"v": [1]}))
    other.join()
    assert list(tmp_path.iterdir()) == []
