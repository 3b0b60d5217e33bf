"""Lookups in tables that Spark makes: refreshed while a run goes on, by the clock of the run."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import headrace as hr
from headrace.engine.lookup_tables import replace_table
from headrace.ops.join.lookup_tables import SparkTableFile
from headrace.sources.table_file import TableFile
from headrace.testing import Harness

NAMES = "k bigint, name string"
Make = Callable[[Any], Any]


def write(folder: Path, *names: str) -> None:
    """The source that Spark reads, in two files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    made = pa.table({"name": list(names), "k": pa.array(range(len(names)), pa.int32())})
    pa.parquet.write_table(made.slice(0, 1), folder / "0.parquet")
    pa.parquet.write_table(made.slice(1), folder / "1.parquet")


def from_parquet(folder: Path) -> Make:
    return lambda spark: spark.read.parquet(str(folder))


def job(make: Make, refresh: str | None = "10s", **options: Any) -> hr.Job:
    job = hr.Job("made")
    rows = job.read("log:a", schema="k bigint", name="a")
    table = hr.spark_table(make, schema=NAMES)
    rows.lookup(table, on="k", refresh=refresh, name="found", **options).write("console:")
    return job


def found(harness: Harness, *keys: int) -> list[str | None]:
    harness.send("a", [(k,) for k in keys])
    return [row["name"] for row in sorted(harness.output(), key=lambda r: r["k"])]


def warnings(harness: Harness) -> tuple[str, ...]:
    stage: Any = harness._stage
    told: tuple[str, ...] = stage._run.status.warnings
    return told


# without Spark


def test_without_spark_the_lookup_says_what_it_needs() -> None:
    with Harness(job(lambda spark: None)) as harness:
        with pytest.raises(hr.StepError, match="no Spark session") as caught:
            found(harness, 1)
        assert caught.value.code == "HR-JOIN-024" and 'on="spark"' in str(caught.value)


def test_explain_says_who_makes_the_table() -> None:
    assert "made by Spark every 10s; what is missing: null" in str(job(id).explain())
    assert "made by Spark once" in str(job(id, refresh=None).explain())


@pytest.mark.parametrize("wrong", [5, lambda: None, lambda spark, more: None])
def test_what_is_no_function_of_a_session_is_refused(wrong: Any) -> None:
    with pytest.raises(hr.PlanError, match="HR-PLAN-028 spark_table"):
        hr.spark_table(wrong, schema=NAMES)


def test_columns_must_be_said_and_right() -> None:
    with pytest.raises(TypeError, match="schema"):
        hr.spark_table(id)  # type: ignore[call-arg]
    with pytest.raises(hr.PlanError):
        hr.spark_table(id, schema="k numbre")
    wrong = hr.Job("wrong")
    rows = wrong.read("log:a", schema="k string", name="a")
    rows.lookup(hr.spark_table(id, schema=NAMES), on="k", refresh="0s").write("console:")
    with pytest.raises(hr.PlanError) as caught:
        wrong.check()
    assert {p.code for p in caught.value.problems} == {"HR-JOIN-003", "HR-JOIN-023"}


@pytest.mark.parametrize("kind", [SparkTableFile, TableFile])
def test_who_reads_while_a_table_is_replaced_sees_one_of_the_two(
    kind: type[SparkTableFile] | type[TableFile], tmp_path: Path
) -> None:
    path, over = tmp_path / "1-0.parquet", threading.Event()
    replace_table(path, pa.table({"n": pa.repeat(0, 5)}))

    def replace_often() -> None:
        for n in range(1, 200):  # of different lengths, so that no two files look alike
            replace_table(path, pa.table({"n": pa.repeat(n, 5 + 997 * (n % 7))}))
        over.set()

    writer = threading.Thread(target=replace_often)
    writer.start()
    last, versions = 0, set()
    while not over.is_set():
        (n,) = {*(table := kind(str(path)).load()).column("n").to_pylist()}
        assert table.num_rows == 5 + 997 * (n % 7) and n >= last
        last = n
        versions.add(SparkTableFile(str(path)).version())
    writer.join()
    assert len(versions) > 3 and [p.name for p in tmp_path.iterdir()] == ["1-0.parquet"]


# on Spark


@pytest.mark.spark
def test_the_table_is_made_anew_when_the_clock_says_so(
    spark: Any, spark_harness: Callable[..., Harness], tmp_path: Path
) -> None:
    write(tmp_path / "names", "zero", "one")
    harness = spark_harness(job(from_parquet(tmp_path / "names")))
    assert found(harness, 0, 1, 2) == ["zero", "one", None]
    write(tmp_path / "names", "nought", "one", "two")
    harness.advance("9s")
    assert found(harness, 0, 2) == ["zero", None]
    harness.advance("1s")
    assert found(harness, 0, 1, 2) == ["nought", "one", "two"]
    assert warnings(harness) == ()


@pytest.mark.spark
def test_each_start_makes_its_own_table_and_clears_away_the_last(
    spark: Any, spark_harness: Callable[..., Harness], tmp_path: Path
) -> None:
    write(tmp_path / "names", "zero", "one")
    made = job(lambda _: spark.read.parquet(str(tmp_path / "names")), refresh=None)
    harness = spark_harness(made, folder=tmp_path / "test")
    assert found(harness, 0) == ["zero"]
    write(tmp_path / "names", "nought", "one")
    harness.advance("1d")
    assert found(harness, 0) == ["zero"]  # made once
    left = tmp_path / "test" / "job" / "tables"
    (left / ".new-1").write_bytes(b"half of a table, by a driver that was killed")
    harness.restart()
    assert found(harness, 0) == ["nought"]
    write(tmp_path / "names", "null", "one")
    harness.crash()
    assert found(harness, 0) == ["null"]  # the batch is done again by another start
    (only,) = left.iterdir()
    assert only.name.startswith("3-")


@pytest.mark.spark
def test_a_row_may_wait_for_a_table_that_has_it(
    spark: Any, spark_harness: Callable[..., Harness], tmp_path: Path
) -> None:
    write(tmp_path / "names", "zero", "one")
    make = from_parquet(tmp_path / "names")
    harness = spark_harness(job(make, on_missing="wait", patience="1m"))
    assert found(harness, 0, 2) == ["zero"]
    write(tmp_path / "names", "zero", "one", "two")
    harness.advance("10s")  # the table is made; the row may have looked before it was
    harness.advance("10s")
    assert [row["name"] for row in harness.output()] == ["two"]
    assert harness.dead() == []


@pytest.mark.spark
def test_a_refresh_that_fails_leaves_the_table_and_is_told(
    spark: Any, spark_harness: Callable[..., Harness], tmp_path: Path
) -> None:
    write(tmp_path / "names", "zero", "one")
    harness = spark_harness(job(from_parquet(tmp_path / "names")))
    assert found(harness, 0) == ["zero"]
    shutil.rmtree(tmp_path / "names")
    harness.advance("10s")
    assert found(harness, 0, 1) == ["zero", "one"]
    (told,) = warnings(harness)
    assert "'found' could not be refreshed: AnalysisException: " in told and "names" in told
    assert told.endswith("rows still find the one of 1970-01-01 00:00:00")
    pa.parquet.write_table(pa.table({"k": [0]}), tmp_path / "names")  # no column name
    harness.advance("10s")
    assert found(harness, 0) == ["zero"]
    (told,) = warnings(harness)
    assert "there is not one column 'name', the columns are: k" in told
    (tmp_path / "names").unlink()
    write(tmp_path / "names", "nought", "one")
    harness.advance("10s")
    assert found(harness, 0) == ["nought"] and warnings(harness) == ()


@pytest.mark.spark
def test_a_run_keeps_its_tables_up_by_itself_and_says_what_fails(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "names", "zero", "one")
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("a", schema=pa.schema([("k", pa.int64())]))
    live = hr.Job("live")
    rows = live.read("log:a", log=str(tmp_path / "log"), name="a")
    table = hr.spark_table(from_parquet(tmp_path / "names"), schema=NAMES)
    rows.lookup(table, on="k", refresh="100ms", name="found").write("collect:", name="out")
    run = hr.run(live, folder=str(tmp_path / "job"))

    def see(name: str) -> bool:
        log.append("a", [{"k": 0}])
        run.wait(timeout=0.1)
        return name in run.output("out").column("name").to_pylist()

    _until(run, lambda: see("zero"))
    write(tmp_path / "names", "nought", "one")
    _until(run, lambda: see("nought"))
    shutil.rmtree(tmp_path / "names")
    _until(run, lambda: bool(run.status.warnings))
    before = run.output("out").num_rows
    _until(run, lambda: see("zero") and run.output("out").num_rows > before)
    assert "calling" not in run.status.warnings[0]  # of Spark's text what tells something
    write(tmp_path / "names", "null", "one")
    _until(run, lambda: see("null"))
    assert run.stop().state == "stopped" and run.status.warnings == ()
    told = [line for line in capsys.readouterr().err.splitlines() if "refreshed" in line]
    failed, mended = told[::2], told[1::2]  # more than once if it is met half written
    assert all(line.startswith("live: the table of 'found' could not") for line in failed)
    assert mended == ["live: the table of 'found' is refreshed again"] * len(failed) and failed


def _until(run: hr.Run, condition: Callable[[], bool], timeout: float = 60) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert run.status.state == "running", run.status
        assert time.monotonic() < deadline, "it never came"
        run.wait(timeout=0.05)


def _one_column_less(spark: Any) -> Any:
    return spark.range(3).selectExpr("id as k")


def _of_another_type(spark: Any) -> Any:
    return spark.range(3).selectExpr("concat('x', id) as k", "'n' as name")


def _nothing(spark: Any) -> Any:
    return None


WRONG = {
    "there is not one column 'name', the columns are: k": _one_column_less,
    "column 'k' is string, declared as bigint": _of_another_type,
    "TypeError: the function returned None, not a DataFrame": _nothing,
    "AnalysisException": from_parquet(Path("nowhere/at/all")),
}


@pytest.mark.spark
@pytest.mark.parametrize("reason", WRONG)
def test_a_run_does_not_begin_without_its_tables(spark: Any, tmp_path: Path, reason: str) -> None:
    wrong = hr.Job("wrong")
    rows = wrong.read(hr.rows([{"k": 1}], "k bigint"), name="a")
    rows.lookup(hr.spark_table(WRONG[reason], schema=NAMES), on="k").write("collect:")
    with pytest.raises(hr.StepError) as caught:
        hr.run(wrong, folder=str(tmp_path), quiet=True)
    error = caught.value
    assert (error.code, reason in error.message) == ("HR-JOIN-025", True), error
    assert error.site is not None and error.site.file == __file__
    assert error.hint and "JVM" not in str(error)


@pytest.mark.spark
def test_a_run_that_stops_gives_up_a_long_batch(spark: Any) -> None:
    first, begun = threading.Event(), threading.Event()

    def make(session: Any) -> Any:
        if not first.is_set():  # at the start, which waits for it
            first.set()
            return session.createDataFrame([(0, "zero")], NAMES)
        begun.set()
        endless = session.range(0, 10**15, 1, 1).selectExpr("sum(hash(id)) as k")
        return endless.selectExpr("k", "'never' as name")

    harness = Harness(job(make), on="spark")
    stage: Any = harness._stage
    page = harness._script.turn()
    harness._script.put(replace(page, clock=page.clock + 10_000))  # we do not wait for it
    assert begun.wait(30)
    harness.close()
    assert not stage._run._work.tables._worker.alive


@pytest.mark.spark
def test_a_data_frame_is_a_snapshot_and_says_so(spark: Any) -> None:
    frame = spark.createDataFrame([(0, "zero")], NAMES)
    with pytest.raises(hr.PlanError, match="HR-JOIN-022 spark_table needs a function"):
        hr.spark_table(frame, schema=NAMES)
    with Harness(_with(frame)) as harness:
        assert found(harness, 0, 1) == ["zero", None]
    with pytest.raises(hr.PlanError, match="HR-JOIN-026 a DataFrame is collected once"):
        _with(frame, refresh="10s").check()


def _with(table: Any, **options: Any) -> hr.Job:
    job = hr.Job("snapshot")
    rows = job.read("log:a", schema="k bigint", name="a")
    rows.lookup(table, on="k", **options).write("console:")
    return job
