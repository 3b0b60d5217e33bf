"""`show` and `head`: rows of any stream, now, without a trace."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.sources.contract import Range, Source
from headrace.testing import drive

SCHEMA = "k string, at timestamp, v bigint"


def rows(count: int) -> Any:
    return hr.rows([row(i, i) for i in range(count)], schema=SCHEMA)


def row(second: int, number: int) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
    return {"k": "ab"[number % 2], "at": at, "v": number}


def values(table: pa.Table, column: str = "v") -> list[Any]:
    return table.column(column).to_pylist()


def sums(job: hr.Job, source: Any) -> hr.Stream:
    read = job.read(source, time="at", in_order=True, name="feed")
    return read.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count(), v=hr.sum("v"))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_head_returns_the_first_rows_and_says_where_they_were_computed(capsys):
    stream = hr.Job("look").read(rows(9)).where("v > 1")
    assert values(stream.head(3)) == [2, 3, 4]
    assert capsys.readouterr().err == (
        "the first 3 rows, computed in process from 9 rows of input\n"
    )
    assert values(stream.head(quiet=True)) == [2, 3, 4, 5, 6, 7, 8]
    assert capsys.readouterr().err == ""


def test_show_prints_a_table_with_types(capsys):
    hr.Job("look").read(rows(3)).with_columns(half="v / 2", text="if(v = 1, 'x\ny', null)").show(2)
    assert capsys.readouterr().out == (
        "k       at                         v    half  text\n"
        "string  timestamp             bigint  double  string\n"
        "------  --------------------  ------  ------  ------\n"
        "a       2026-01-01 00:00:00Z       0       0  null\n"
        "b       2026-01-01 00:00:01Z       1     0.5  x\\ny\n"
        "\n"
        "the first 2 rows, computed in process from 2 rows of input; the rest was not read\n"
    )


def test_when_all_input_is_read_windows_are_closed(capsys):
    found = (
        sums(hr.Job("look"), rows(25))
        .head()
        .sort_by([("window_start", "ascending"), ("k", "ascending")])
    )
    assert values(found, "n") == [5, 5, 5, 5, 3, 2]
    assert capsys.readouterr().err == "6 rows, computed in process from 25 rows of input\n"


def test_when_there_are_enough_rows_open_windows_are_not_shown(capsys):
    found = sums(hr.Job("look"), rows(30_000)).head(2)
    assert values(found, "n") == [5, 5]
    assert capsys.readouterr().err == (
        "the first 2 rows, computed in process from 20,000 rows of input; "
        "the rest was not read, and windows still open are not shown\n"
    )


def test_a_row_that_would_not_be_late_in_a_run_is_not_late_in_a_look(capsys):
    late = [row(s, 0) for s in [*range(100), 1, 2]]  # all in the first batch
    found = sums(hr.Job("look"), hr.rows(late, schema=SCHEMA)).head(5)
    assert sorted(values(found, "n")) == [10, 10, 10, 10, 12]
    assert "too late" not in capsys.readouterr().err


def test_no_more_is_read_than_is_needed():
    called = []

    def row(i: int) -> dict[str, int]:
        called.append(i)
        return {"i": i}

    endless = hr.Job("look").read(hr.generate(5, row, schema="i bigint"))
    assert values(endless.head(7), "i") == list(range(7))
    assert len(called) == 7


def test_a_generator_without_an_end_is_not_waited_for(capsys):
    stream = hr.Job("look").read(hr.generate(0.001, lambda i: {"i": i}, schema="i bigint"))
    assert stream.where("i < 0").head().num_rows == 0
    assert "'generate' has no end: only its first 10,000 rows were read" in capsys.readouterr().err


def test_a_topic_is_read_up_to_now_and_is_not_changed(tmp_path):
    log = hr.EmbeddedLog()
    log.create("feed", schema="v bigint")
    log.append("feed", pa.table({"v": [1, 2, 3]}))
    before = picture(tmp_path)
    assert sorted(values(hr.Job("look").read("log:feed").head())) == [1, 2, 3]
    assert picture(tmp_path) == before


def picture(folder: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder, with its size and the time it was written."""
    return {
        str(p.relative_to(folder)): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in folder.rglob("*")
        if p.is_file()
    }


def test_neither_the_folder_nor_the_outputs_of_the_job_are_touched(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.json").write_text("".join(f'{{"v": {i}}}\n' for i in range(5)))
    job = hr.Job("look", folder=str(tmp_path / "job"))
    stream = job.read("files:in", schema="v bigint", format="json")
    stream.write("files:out", format="json")
    stream.write("console:")
    drive(job, tmp_path / "job", until="now")
    before = picture(tmp_path)
    assert values(stream.head()) == [0, 1, 2, 3, 4]
    assert picture(tmp_path) == before
    assert drive(job, tmp_path / "job", until="now").manifest.epoch == 1  # there is nothing new


def test_its_own_folder_is_gone_afterwards(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    hr.Job("look").read(rows(3)).head()
    with pytest.raises(hr.StepError):
        hr.Job("look", on_error="fail").read(rows(3)).map(_failing, schema="v bigint").head()
    assert os.listdir(tmp_path / "temp") == []


def _failing(row: Any) -> Any:
    raise ValueError("never")


def test_what_a_function_raises_is_raised_as_in_a_run():
    stream = hr.Job("look", on_error="fail").read(rows(3)).map(_failing, schema="v bigint")
    with pytest.raises(hr.StepError, match="HR-STEP-") as caught:
        stream.show()
    assert "ValueError: never" in str(caught.value)


def test_dead_letters_and_late_rows_are_mentioned(capsys):
    stream = hr.Job("look").read(rows(3)).map(_failing, schema="v bigint")
    assert stream.head().num_rows == 0
    assert "3 rows are dead letters, such as: ValueError: never" in capsys.readouterr().err
    many = [row(s, 0) for s in [*range(20_000), 1, 2]]  # the last two are in the second batch
    late = sums(hr.Job("look"), hr.rows(many, schema=SCHEMA))
    assert late.head(2_001).num_rows == 2_000
    assert "; 2 rows came too late" in capsys.readouterr().err


def test_dead_letters_can_be_looked_at():
    job = hr.Job("look")
    job.read(rows(4)).map(_failing, schema="v bigint", name="broken").write("files:never")
    found = job.dead.head()
    assert values(found, "step") == ["broken"] * 4
    assert not Path("never").exists()


class Ticks(Source):
    """An input of the user's own, which has no end and forgets what is safe."""

    schema = pa.schema([("v", pa.int64())])
    bounded, raw = False, False

    def __init__(self) -> None:
        self.forgotten: list[Any] = []

    def splits(self) -> list[str]:
        return ["0"]

    def latest(self, split: str) -> int:
        return 3

    def read(self, range: Range) -> Iterator[Any]:
        offsets = np.arange(range.start, range.end, dtype=np.int64)
        yield pa.table({"v": offsets}), offsets

    def commit(self, offsets: Mapping[str, Any]) -> None:
        self.forgotten.append(offsets)


def test_an_input_of_the_users_own_forgets_nothing_and_is_not_waited_for(capsys):
    ticks = Ticks()
    stream = hr.Job("look").read(ticks, schema="v bigint", time=hr.ingestion())
    assert values(stream.head()) == [0, 1, 2]
    assert capsys.readouterr().err == (
        "the first 3 rows, computed in process from 3 rows of input; more may come\n"
    )
    assert stream.window(hr.tumbling("1h")).agg(n=hr.count()).head().num_rows == 0
    assert "more may come, and windows still open are not shown" in capsys.readouterr().err
    assert ticks.forgotten == []


def test_a_socket_is_refused():
    stream = hr.Job("look").read("socket:localhost:1", schema="v bigint")
    with pytest.raises(hr.InputError, match=r"HR-INPUT-018.*is a socket") as caught:
        stream.head()
    assert "test_look.py" in str(caught.value)


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "all"])
def test_a_number_of_rows_is_needed(n):
    with pytest.raises(hr.PlanError, match="HR-STREAM-013 show takes") as caught:
        hr.Job("look").read(rows(1)).show(n)
    assert "test_look.py" in str(caught.value)


def test_mistakes_are_raised_with_their_line():
    with pytest.raises(hr.PlanError, match=r"(?s)vv.*test_look\.py"):
        hr.Job("look").read(rows(1)).where("vv > 1").show()


def test_keyed_streams_side_outputs_and_late_rows_can_be_looked_at():
    read = hr.Job("look").read(rows(5), time="at", in_order=True)
    assert values(read.key_by("k").head(2)) == [0, 1]
    parts = read.split(odd="v % 2 = 1")
    assert values(parts.odd.head()) == [1, 3]
    assert values(parts.other.head()) == [0, 2, 4]
    window = read.window(hr.tumbling("10s")).agg(n=hr.count())
    assert window.late.head().num_rows == 0


# What was only looked at is not part of the program.


def test_a_step_that_was_only_looked_at_is_not_run(tmp_path):
    job = hr.Job("look")
    read = job.read(rows(4))
    read.where("v > 1").map(_failing, schema="v bigint").head()
    read.write("collect:", name="out")
    assert set(job.program().nodes) == {"memory", "out"}
    assert values(drive(job, tmp_path / "job").output("out")) == [0, 1, 2, 3]


def test_a_step_that_is_looked_at_and_used_is_run(tmp_path):
    job = hr.Job("look")
    some = job.read(rows(4)).where("v > 1")
    some.head()
    some.write("collect:", name="out")
    some.select("v").head()
    assert values(drive(job, tmp_path / "job").output("out")) == [2, 3]


def test_a_step_that_leads_nowhere_is_still_refused():
    job = hr.Job("look")
    read = job.read(rows(4))
    read.where("v > 1").head()
    read.where("v > 2")
    read.write("collect:")
    with pytest.raises(hr.PlanError, match=r"HR-PLAN-004 .*where-2") as caught:
        job.check()
    assert len(caught.value.problems) == 1


def test_a_mistake_in_what_was_only_looked_at_stops_nothing_else():
    job = hr.Job("look")
    read = job.read(rows(4))
    with pytest.raises(hr.PlanError):
        read.where("vv > 1").head()
    assert read.where("v > 1").head().num_rows == 2
    read.where("v > 2").write("collect:")
    job.check()


def test_the_program_of_a_look_is_the_same_after_a_step_was_renamed():
    read = hr.Job("look").read(rows(4))
    some = read.where("v > 1")
    after = some.select("v")
    some.named("large")
    assert values(after.head()) == [2, 3]


@pytest.mark.spark
def test_what_only_spark_can_do_is_done_on_spark(spark, capsys):
    table = hr.spark_table(
        lambda s: s.createDataFrame([("a", 7)], "k string, w int"), schema="k string, w int"
    )
    joined = hr.Job("look").read(rows(4)).lookup(table, on="k")
    found = joined.head()
    assert dict(zip(values(found), values(found, "w"), strict=True)) == {
        0: 7,
        1: None,
        2: 7,
        3: None,
    }
    assert ", computed on Spark from 4 rows of input" in capsys.readouterr().err


def test_what_is_computed_of_aggregates_is_shown_as_written():
    read = hr.Job("look").read(rows(12), time="at", in_order=True)
    windows = read.window(hr.tumbling("10s")).agg("sum(v) / count(*) as mean", n=hr.count())
    assert windows.head(5, quiet=True).column_names == [
        "window_start", "window_end", "mean", "n",
    ]  # fmt: skip
    assert values(windows.head(5, quiet=True), "mean") == [4.5, 10.5]
    running = read.key_by("k").agg("v - min(v) as above", unbounded=True)
    assert sorted(values(running.head(12, quiet=True), "above")) == [
        n for n in range(0, 12, 2) for _ in "ab"
    ]


def test_it_stops_nothing_else_on_the_same_line():
    job = hr.Job("look")
    read = job.read(rows(4))

    def where(condition, *, look=True):  # one line for all, as in a prompt or a helper function
        found = read.where(condition)
        return found.head().num_rows if look else found.write("collect:")

    with pytest.raises(hr.PlanError, match="vv"):
        where("vv > 1")
    assert where("v > 1") == 2
    where("v > 2", look=False)
    job.check()
    where("vvv > 2", look=False)
    with pytest.raises(hr.PlanError, match="vvv"):
        job.check()


def test_a_name_that_cannot_be_is_a_mistake_of_the_step_that_was_to_have_it():
    job = hr.Job("look")
    with pytest.raises(hr.PlanError):
        (read := job.read(rows(4)).where("v > 1").named("/no")).map(lambda r: r).head()
    read.write("collect:")
    with pytest.raises(hr.PlanError, match="/no"):
        job.check()
