"""A step whose inputs were at their end has closed what was open: it cannot read on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import StateError
from headrace.testing import Driver

COLUMNS = "id bigint, at bigint"
ROWS = [{"id": n, "at": 1_000 * n} for n in range(12)]
Step = Callable[[hr.Stream, hr.Stream], hr.Stream]  # of what ends, and of what does not


def given(job: hr.Job, count: int) -> hr.Stream:
    return job.read(hr.rows(ROWS[:count], COLUMNS), time="at", delay="1s", name="in")


def made(job: hr.Job, count: int) -> hr.Stream:
    source = hr.generate(None, lambda i: ROWS[i], total=count, schema=COLUMNS)
    return job.read(source, time="at", delay="1s", name="in")


def go(root: Path, read: Callable[[hr.Job, int], hr.Stream], count: int, step: Step) -> Any:
    """Beside the input that ends there is one that does not: the job goes on."""
    log = hr.EmbeddedLog(str(root / "log"))
    log.create("living", schema=COLUMNS, exist_ok=True)
    job = hr.Job("shop")
    living = job.read("log:living", log=str(root / "log"), time="at", delay="1s")
    living.write("collect:", name="o")
    step(read(job, count), living).write("collect:", name="out")
    driver = Driver(job, root / "job", until=None)
    driver.drain()
    driver.close()
    return driver.output("out").to_pylist()


def windows(stream: hr.Stream, living: hr.Stream) -> hr.Stream:
    return stream.window(hr.tumbling("5s")).agg(n=hr.count(), name="step")


def lists(stream: hr.Stream, living: hr.Stream) -> hr.Stream:
    return stream.batch(5, name="step").select(n="size(rows)")


def joined(stream: hr.Stream, living: hr.Stream) -> hr.Stream:
    return stream.join(stream.where("id > 3"), on="id", within="3s", how="left", name="step")


@pytest.mark.parametrize("step", [windows, lists, joined])
@pytest.mark.parametrize("read", [given, made])
def test_rows_for_a_step_that_has_closed_its_windows_are_refused(
    tmp_path: Path, read: Callable[[hr.Job, int], hr.Stream], step: Step
) -> None:
    before = go(tmp_path, read, 7, step)
    assert go(tmp_path, read, 7, step) == before
    with pytest.raises(StateError, match="the step 'step' has read its input to the end") as told:
        go(tmp_path, read, 12, step)
    assert told.value.code == "HR-STATE-020"


def test_a_step_that_goes_on_from_its_end_with_another_input_is_refused(tmp_path: Path) -> None:
    go(tmp_path, given, 7, windows)

    def both(stream: hr.Stream, living: hr.Stream) -> hr.Stream:
        return windows(stream.union(living), living)

    with pytest.raises(StateError, match="there is more in input 'living'"):
        go(tmp_path, given, 7, both)


@pytest.mark.parametrize("read", [given, made])
def test_a_step_that_time_does_not_close_reads_on(
    tmp_path: Path, read: Callable[[hr.Job, int], hr.Stream]
) -> None:
    def total(stream: hr.Stream, living: hr.Stream) -> hr.Stream:
        return stream.key_by("id").agg(n=hr.count(), unbounded=True, name="step")

    go(tmp_path, read, 7, total)
    assert len(go(tmp_path, read, 12, total)) == 12
