"""Event time computed from the row when it is read: as if the input had it as a column."""

from __future__ import annotations

import datetime as dt
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import HeadraceError
from headrace.testing import Driver, Harness

PARTS = "y int, m int, d int, h int, text string, v bigint"
BY_PARTS = "make_timestamp(y, m, d, h, 0, 0)"
BY_TEXT = "to_timestamp(text, 'dd.MM.yyyy HH')"
UTC = dt.UTC


def row_at(hour: int, v: int = 1) -> dict[str, Any]:
    at = dt.datetime(2024, 2, 28, tzinfo=UTC) + dt.timedelta(hours=hour)
    text = at.strftime("%d.%m.%Y %H")
    return {"y": at.year, "m": at.month, "d": at.day, "h": at.hour, "text": text, "v": v}


def windows(stream: hr.Stream) -> None:
    found = stream.window(hr.tumbling("6h")).agg(n=hr.count(), s=hr.sum("v"))
    found.write("collect:", name="out")
    found.late.select("v").write("collect:", name="late")


@settings(max_examples=30)
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from([BY_PARTS, BY_TEXT, hr.make_timestamp("y", "m", "d", "h", 0, 0),
                     lambda r: hr.make_timestamp(r.y, r.m, r.d, r.h, 0, 0)]),
)  # fmt: skip
def test_it_is_what_a_column_of_that_time_would_be(hours: list[int], batch: int, time: Any) -> None:
    rows = [row_at(h, v) for v, h in enumerate(hours)]
    as_column = [
        r | {"at": dt.datetime(2024, 2, 28, tzinfo=UTC) + dt.timedelta(hours=h)}
        for r, h in zip(rows, hours, strict=True)
    ]
    found = []
    for source, at, schema in ((rows, time, PARTS), (as_column, "at", f"{PARTS}, at timestamp")):
        job = hr.Job("computed")
        windows(job.read(hr.rows(source, schema=schema), time=at, delay="2h", name="rows"))
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(job, Path(folder), max_batch=batch)
            driver.drain()
            found.append([driver.output(n).to_pylist() for n in ("out", "late")])
    assert found[0] == found[1]


def test_rows_whose_time_cannot_be_computed_are_dead_letters() -> None:
    job = hr.Job("computed")
    windows(job.read("log:rows", schema=PARTS, time=BY_PARTS, delay="1h", name="rows"))
    good, bad = row_at(1), row_at(2)
    with Harness(job) as test:
        test.send("rows", [good, bad | {"h": 24}, bad | {"d": 31}, bad | {"y": None}, good])
        test.send("rows", [bad | {"y": 12_000}])
        test.end()
        assert [r["n"] for r in test.output("out")] == [2]
        reasons = {
            r["row"]["offset"] if "row" in r else r["offset"]: r["error"] for r in test.dead()
        }
    assert len(reasons) == 4
    assert "year 2024, 24:0:0.0 is no time" in reasons[1]
    assert reasons[3] == f"the time {BY_PARTS!r} is null"
    assert "year 12000, 2:0:0.0 is no time" in reasons[5]


def test_columns_that_only_the_time_reads_are_read() -> None:
    job = hr.Job("computed")
    rows = job.read(hr.rows([row_at(1), row_at(9)]), time=BY_TEXT, delay="1h")
    counted = rows.window(hr.tumbling("6h")).agg(n=hr.count())
    assert counted.head(9).to_pydict()["n"] == [1, 1]


def test_a_strategy_sees_the_computed_time() -> None:
    job = hr.Job("computed")
    marks = hr.watermarks.punctuated("v = 0")
    windows(job.read("log:rows", schema=PARTS, time=BY_TEXT, watermark=marks, name="rows"))
    with Harness(job) as test:
        test.send("rows", [row_at(1), row_at(30), row_at(2)])
        assert test.output("out") == []
        test.send("rows", [row_at(7, v=0)])
        assert [r["n"] for r in test.output("out")] == [2]


def test_files_of_computed_times_are_read_side_by_side(tmp_path: Path) -> None:
    for device in range(3):
        lines = [f"{h % 24},{28 + h // 24},{device}" for h in range(40)]
        (tmp_path / f"{device}.csv").write_text("\n".join(["hour,day,v", *lines]) + "\n")
    job = hr.Job("computed")
    time = "make_timestamp(2024, 2, day, hour, 0, 0)"
    rows = job.read(f"files:{tmp_path}/*.csv", schema="hour int, day int, v int", time=time,
                    delay="1h", name="rows")  # fmt: skip
    windows(rows)
    driver = Driver(job, tmp_path / "job", max_batch=9)
    driver.drain()
    assert driver.output("late").num_rows == 0
    assert sum(driver.output("out").to_pydict()["n"]) == 120


def test_another_expression_is_another_event_time(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("rows", schema=PARTS)

    def job_by(time: str) -> hr.Job:
        job = hr.Job("computed")
        windows(job.read("log:rows", log=str(tmp_path / "log"), time=time, delay="1h", name="rows"))
        return job

    log.append("rows", [row_at(1), row_at(3)])
    Driver(job_by(BY_TEXT), tmp_path / "job", until="now").drain()
    Driver(job_by(BY_TEXT.replace("  ", " ")), tmp_path / "job", until="now").drain()
    with pytest.raises(HeadraceError) as refused:
        Driver(job_by(BY_PARTS), tmp_path / "job", until="now").drain()
    assert "event time" in str(refused.value)


@pytest.mark.parametrize(
    ("time", "code"),
    [
        ("v + 0.5", "HR-TIME-006"), ("text", "HR-TIME-006"), ("nowhere", "HR-EXPR-001"),
        ("nowhere + 1", "HR-EXPR-001"), ("to_timestamp(text", "HR-EXPR-004"),
        (lambda r: "x" if r.v else "y", "HR-EXPR-005"), (hr.count(), "HR-TIME-011"),
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_where_it_is_written(time: Any, code: str) -> None:
    job = hr.Job("computed")
    job.read(hr.rows([row_at(1)]), time=time, delay="1h").write("collect:")
    with pytest.raises(HeadraceError) as refused:
        job.check()
    assert code in str(refused.value) and "test_computed_time.py" in str(refused.value)


@pytest.mark.spark
def test_on_spark(tmp_path: Path, spark: Any) -> None:
    job = hr.Job("computed")
    rows = job.read(hr.rows([row_at(h) for h in range(24)]), time=BY_TEXT, delay="1h")
    rows.window(hr.tumbling("6h")).agg(n=hr.count()).write("collect:", name="out")
    run = hr.run(job, folder=str(tmp_path), until="end", quiet=True)
    run.wait()
    assert [r["n"] for r in run.output("out").to_pylist()] == [6] * 4
