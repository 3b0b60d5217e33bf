"""A function of the user's for every epoch: the same rows under the same number, until it returns.

The function of these tests is idempotent by the epoch, as the guide asks, so the suite sees every
row once; that it may be called twice is a test of its own.
"""

from __future__ import annotations

import json
import pickle
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.writing import ALONE, refusal

import headrace as hr
from headrace.errors import OutputError
from headrace.look.in_process import Driver
from headrace.schema import TIMESTAMP
from headrace.sinks import on_driver, open_sink, reopen_sink
from headrace.sinks.catalog_table import CatalogTable
from headrace.sinks.on_driver import ForEachBatch
from headrace.testing import OutputCase, OutputSuite
from headrace.testing.output_drivers import stage


def store(folder: Path, rows: pa.Table, epoch: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{epoch}.json").write_text(json.dumps(rows.to_pylist()))


def stored(folder: Path) -> list[tuple[Any, ...]]:
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    return sorted(tuple(row.values()) for file in files for row in json.loads(file.read_text()))


class TestForEachBatch(OutputSuite):
    @pytest.fixture
    def make(self) -> Any:
        def case(tmp: Path) -> OutputCase:
            place = tmp / "place"
            output = ForEachBatch("arrow", partial(store, place))
            return OutputCase.of(output, tmp, lambda: stored(place))

        return case

    def test_what_was_staged_is_published_under_its_description(
        self, make: Any, tmp_path: Path
    ) -> None:
        """A function is not at rest: without the program's there is none to call."""
        sink = make(tmp_path).open()
        staged = stage(sink, 0)
        again = reopen_sink(sink.describe(), str(tmp_path / "job"), "o")
        assert refusal(again.publish, 0, staged, ALONE).code == "HR-OUTPUT-080"
        assert stored(tmp_path / "place") == []
        sink.publish(0, staged, ALONE)
        assert len(stored(tmp_path / "place")) == 6

    def test_a_crash_at_any_line_of_the_output_loses_and_doubles_nothing(
        self, make: Any, tmp_path_factory: Any
    ) -> None:
        pytest.skip("it publishes in another process, and the function is the driver's only")


def program(fn: Any, **options: Any) -> hr.Job:
    job = hr.Job("each")
    rows = [{"i": i} for i in range(10)]
    job.read(hr.rows(rows), name="rows").for_each_batch(fn, name="each", **options)
    return job


def test_the_function_is_never_pickled():
    output = ForEachBatch("spark", lambda frame, epoch: None)
    assert pickle.loads(pickle.dumps(output)).fn is None
    assert output.fn is not None


def test_it_is_called_again_after_a_crash_with_the_same_rows(tmp_path):
    calls: list[tuple[int, list[int]]] = []

    def each(rows: pa.Table, epoch: int) -> None:
        calls.append((epoch, rows["i"].to_pylist()))
        if len(calls) == 2:
            raise ValueError("no place")

    job = program(each, engine="arrow")
    driver = Driver(job, tmp_path, max_batch=4)
    with pytest.raises(OutputError, match="epoch 2: ValueError: no place") as caught:
        driver.drain()
    assert caught.value.code == "HR-OUTPUT-081"
    Driver(program(each, engine="arrow"), tmp_path, max_batch=4).drain()

    assert [epoch for epoch, _ in calls] == [1, 2, 2, 3]
    assert calls[1] == calls[2]
    assert [i for _, rows in (calls[0], *calls[2:]) for i in rows] == list(range(10))


def test_rows_for_a_function_that_is_gone_are_not_forgotten(tmp_path):
    def failing(rows: pa.Table, epoch: int) -> None:
        raise ValueError

    with pytest.raises(OutputError):
        Driver(program(failing, engine="arrow"), tmp_path).drain()
    job = hr.Job("each")
    job.read(hr.rows([{"i": i} for i in range(10)]), name="rows").write("collect:", name="other")
    with pytest.raises(OutputError) as caught:
        Driver(job, tmp_path)
    assert caught.value.code == "HR-OUTPUT-080"


@pytest.mark.parametrize("wrong", [5, lambda: None, lambda frame: None])
def test_what_is_no_function_of_rows_and_epoch_is_refused(wrong):
    with pytest.raises(hr.PlanError, match="for_each_batch"):
        program(wrong).check()


def test_an_engine_that_there_is_not_is_refused():
    with pytest.raises(hr.HeadraceError, match="'pandas'"):
        program(lambda frame, epoch: None, engine="pandas").check()


def test_the_kind_is_not_for_classes_of_users():
    from dataclasses import dataclass

    from headrace.sinks import check_output
    from headrace.sinks.own import _KINDS

    @dataclass
    class Mine(hr.Output):
        kind = "for_each_batch"

        def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None: ...

    try:
        assert refusal(check_output, Mine(), {}).code == "HR-OUTPUT-060"
    finally:
        _KINDS["for_each_batch"] = ForEachBatch


@pytest.mark.parametrize("uri", ["table:", "table:a b", "table:a.b.c.d", "table:x;drop"])
def test_what_is_no_name_of_a_table_is_refused(uri):
    schema = pa.schema([("i", pa.int64())])
    assert refusal(open_sink, uri, schema, {}, "", "o").code == "HR-OUTPUT-001"


def test_options_and_columns_that_a_table_cannot_have_are_refused():
    schema = pa.schema([("headrace_epoch", pa.int64())])
    assert refusal(open_sink, "table:t", schema, {}, "", "o").code == "HR-OUTPUT-006"
    schema = pa.schema([("i", pa.int64())])
    assert refusal(open_sink, "table:t", schema, {"format": "csv"}, "", "o").code == "HR-OUTPUT-008"
    assert refusal(open_sink, "table:t", schema, {"colour": 1}, "", "o").code == "HR-OUTPUT-008"


@pytest.mark.parametrize(
    "kind",
    [
        TIMESTAMP,
        pa.list_(TIMESTAMP),
        pa.struct([("t", TIMESTAMP)]),
        pa.map_(pa.string(), TIMESTAMP),
    ],
)
def test_orc_takes_no_times_for_it_would_store_the_clock_on_the_wall(kind):
    schema = pa.schema([("i", pa.int64()), ("at", kind)])
    refused = refusal(open_sink, "table:t", schema, {"format": "orc"}, "", "o")
    assert refused.code == "HR-OUTPUT-006" and "'at'" in refused.message
    open_sink("table:t", schema, {}, "", "o")


@pytest.mark.parametrize(
    ("wrap", "kind"),
    [
        (lambda day: day, pa.date32()),
        (lambda day: [day], pa.list_(pa.date32())),
        (lambda day: {"d": [day]}, pa.struct([("d", pa.list_(pa.date32()))])),
        (lambda day: [("k", day)], pa.map_(pa.string(), pa.date32())),
    ],
)
def test_orc_takes_no_dates_that_it_would_shift(wrap, kind):
    def rows(day: int) -> pa.Table:
        values = [wrap(date(1582, 10, day)), None, wrap(date(2026, 1, 1))]
        return pa.table({"d": pa.array(values, kind)})

    for day in (5, 10, 14):
        assert refusal(CatalogTable("t", "orc").prepare, rows(day)).code == "HR-OUTPUT-070"
        assert CatalogTable("t").prepare(rows(day)) == rows(day)
    for day in (4, 15):
        assert CatalogTable("t", "orc").prepare(rows(day)) == rows(day)


class FakeSession:
    """A catalog with one table of other columns, which cannot be written."""

    def __init__(self) -> None:
        self.catalog = self
        self.schema: list[Any] = []

    def tableExists(self, name: str) -> bool:
        return True

    def listColumns(self, name: str) -> list[Any]:
        return []

    def table(self, name: str) -> FakeSession:
        return self

    _jvm = None

    @property
    def sparkContext(self) -> Any:
        raise ValueError("no permission")


def test_a_table_that_cannot_be_written_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(on_driver, "_sessions", [FakeSession])
    output, schema = CatalogTable("t"), pa.schema([("i", pa.int64())])
    assert refusal(output.check, schema).code == "HR-OUTPUT-083"
    failed = refusal(output.deliver, schema.empty_table(), "p", 3)
    assert failed.code == "HR-OUTPUT-082" and "no permission" in failed.message
