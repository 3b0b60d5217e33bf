"""`until="now"`: what is there is processed, windows stay open, the next run goes on."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver.planner import request_drain, stop_requested
from headrace.testing import Driver

FEED = "k string, at timestamp, v bigint"


def _job(folder: Path) -> hr.Job:
    job = hr.Job("now")
    rows = job.read(f"files:{folder}/in", schema=FEED, time="at", delay="1ms", format="json")
    sums = rows.key_by("k").window(hr.tumbling("10s")).agg(n=hr.count(), v=hr.sum("v"))
    sums.write("collect:", name="sums")
    return job


def _feed(folder: Path, name: str, *rows: tuple[str, int, int]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    lines = [f'{{"k": "{k}", "at": "2026-01-01T00:00:{s:02}Z", "v": {v}}}\n' for k, s, v in rows]
    (folder / "in" / name).write_text("".join(lines))


def _run(folder: Path, until: str | None = "now", **options: Any) -> Driver:
    driver = Driver(_job(folder), folder / "job", until=until, **options)
    driver.drain()
    driver.close()
    return driver


def _sums(driver: Driver) -> list[tuple[str, int, int]]:
    return sorted((r["k"], r["n"], r["v"]) for r in driver.output("sums").to_pylist())


def test_windows_stay_open_and_the_next_run_goes_on(tmp_path):
    _feed(tmp_path, "1", ("a", 1, 1), ("b", 2, 5), ("a", 12, 2))
    first = _run(tmp_path)
    assert _sums(first) == [("a", 1, 1), ("b", 1, 5)]  # the watermark is at 12 s
    assert first.manifest is not None and not first.manifest.ended

    _feed(tmp_path, "2", ("a", 13, 4), ("b", 25, 7))
    assert _sums(_run(tmp_path)) == [("a", 1, 1), ("a", 2, 6), ("b", 1, 5)]
    assert _sums(_run(tmp_path, "end")) == [("a", 1, 1), ("a", 2, 6), ("b", 1, 5), ("b", 1, 7)]


@pytest.mark.parametrize("max_batch", [1, 2, 3, None])
def test_what_comes_while_it_runs_is_left_to_the_next_run(tmp_path, max_batch):
    _feed(tmp_path, "1", ("a", 1, 1), ("a", 2, 1), ("a", 3, 1))
    driver = Driver(_job(tmp_path), tmp_path / "job", until="now", max_batch=max_batch)
    driver.epoch()
    _feed(tmp_path, "2", ("a", 4, 1), ("a", 25, 1))
    driver.drain()
    assert driver.manifest is not None
    assert driver.manifest.counts["in"]["read"] == 3
    assert stop_requested(tmp_path / "job")
    driver.close()

    assert _sums(_run(tmp_path)) == [("a", 4, 4)]


def test_a_run_with_nothing_to_read_stops_at_once(tmp_path):
    (tmp_path / "in").mkdir()
    assert _run(tmp_path).manifest is None

    _feed(tmp_path, "1", ("a", 1, 1))
    _run(tmp_path)
    again = _run(tmp_path)
    assert again.manifest is not None
    assert again.manifest.counts["in"]["read"] == 1


def test_it_counts_as_a_run_without_an_end(tmp_path):
    """Its windows are closed for good only by consent, as those of a job that ran for ever."""
    _feed(tmp_path, "1", ("a", 1, 1))
    _run(tmp_path)

    with pytest.raises(hr.StateError, match="HR-STATE-024"):
        _run(tmp_path, "end", for_good=False)


# A topic with two partitions: what waits for what.


def _topic(folder: Path, *partitions: list[int]) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(folder / "log"))
    log.create("t", partitions=len(partitions), schema="at bigint")
    for number, times in enumerate(partitions):
        _send(log, number, *times)
    return log


def _send(log: hr.EmbeddedLog, partition: int, *times: int) -> None:
    log.append("t", [{"at": t} for t in times], partition=partition)


def _reader(
    folder: Path, clock: ManualClock, align: str | None = None, until: str | None = "now"
) -> Driver:
    job = hr.Job("reader")
    rows = job.read(
        "log:t", log=str(folder / "log"), name="t", time="at", delay="1ms", idle="10s", align=align
    )
    counts = rows.window(hr.tumbling("1s")).agg(n=hr.count(), name="counts")
    counts.write("collect:", name="out")
    return Driver(job, folder / "job", until=until, max_batch=2, clock=clock)


def _read(driver: Driver) -> list[int]:
    assert driver.manifest is not None
    return [s.at for s in driver.manifest.splits]


def test_a_split_with_rows_that_are_left_to_the_next_run_is_not_idle(tmp_path):
    log = _topic(tmp_path, [500], [600, 20_000, 40_000])
    clock = ManualClock(10**9)
    driver = _reader(tmp_path, clock)
    driver.epoch()
    _send(log, 0, 700)
    clock.advance(60_000)
    driver.drain()
    assert _read(driver) == [1, 3]
    assert driver.output("out").num_rows == 0  # it holds the watermark back
    driver.close()

    again = _reader(tmp_path, clock)
    again.drain()
    assert _read(again) == [2, 3]
    assert again.manifest is not None
    assert again.manifest.counts["t"]["late"] == 0


def test_rows_held_back_by_alignment_are_read_when_the_slowest_split_is_idle(tmp_path):
    _topic(tmp_path, [500], [600, 90_000, 91_000, 92_000])
    clock = ManualClock(10**9)
    driver = _reader(tmp_path, clock, align="30s")
    driver.drain()
    assert _read(driver) == [1, 3]
    assert not stop_requested(tmp_path / "job")  # it waits

    clock.advance(11_000)
    driver.drain()
    assert _read(driver) == [1, 4]
    assert stop_requested(tmp_path / "job")
    driver.close()


def test_it_stops_where_alignment_waits_for_rows_that_came_later(tmp_path):
    log = _topic(tmp_path, [500], [600, 90_000, 91_000, 92_000])
    clock = ManualClock(10**9)
    driver = _reader(tmp_path, clock, align="30s")
    driver.epoch()
    _send(log, 0, 80_000)
    driver.drain()
    assert _read(driver) == [1, 3]
    assert stop_requested(tmp_path / "job")
    driver.close()

    again = _reader(tmp_path, clock, align="30s")
    again.drain()
    assert _read(again) == [2, 4]


@pytest.mark.parametrize("until", ["now", None])
def test_the_time_between_two_runs_makes_no_split_idle(tmp_path, until):
    log = _topic(tmp_path, [500], [600])
    clock = ManualClock(10**9)
    for times in ([], [1_500], [2_500]):  # only one of the two has news
        clock.advance(3_600_000)
        _send(log, 1, *times)
        driver = _reader(tmp_path, clock, until=until)
        driver.drain()
        driver.close()
    assert driver.output("out").num_rows == 0  # the first split holds the watermark back
    _send(log, 0, 700, 3_000)
    again = _reader(tmp_path, clock, until=until)
    again.drain()
    assert again.manifest is not None
    assert again.manifest.counts["t"]["late"] == 0


def test_a_damaged_file_is_an_error_and_not_left_to_the_next_run_for_ever(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "in" / f"{name}.parquet")
    os.truncate(tmp_path / "in" / "b.parquet", 60)
    job = hr.Job("cut")
    rows = job.read(f"files:{tmp_path}/in", schema="n bigint", format="parquet")
    rows.write("collect:", name="out")
    clock = ManualClock(10**9)
    driver = Driver(job, tmp_path / "job", until="now", clock=clock)
    driver.drain()
    assert not stop_requested(tmp_path / "job")  # it may be being written

    clock.advance(11_000)
    with pytest.raises(hr.InputError, match="HR-INPUT-008"):
        driver.drain()


def test_an_input_with_a_total_is_read_as_far_as_it_is_and_ends_when_it_is_at_its_end(tmp_path):
    job = hr.Job("ticks")
    ticks = job.read(hr.generate(10, lambda i: {"i": i}, total=30), name="ticks")
    ticks.write("collect:", name="out")
    clock = ManualClock(10**9)
    read = []
    for _ in range(6):
        driver = Driver(job, tmp_path / "job", until="now", clock=clock)
        driver.drain()
        driver.close()
        manifest = driver.manifest
        read.append(manifest.counts["ticks"]["read"] if manifest else 0)
        if manifest and manifest.ended:
            break
        clock.advance(1_000)
    assert read == [0, 10, 20, 30]


def test_a_run_that_was_overtaken_stops_no_other(tmp_path):
    log = _topic(tmp_path, [500], [600])
    clock = ManualClock(10**9)
    overtaken = _reader(tmp_path, clock)
    overtaken.epoch()
    owner = _reader(tmp_path, clock)
    _send(log, 0, 700)
    owner.epoch()
    with suppress(hr.HeadraceError):
        overtaken.epoch()

    assert not stop_requested(tmp_path / "job")


def test_a_drain_reads_what_is_there_when_it_is_requested(tmp_path):
    log = _topic(tmp_path, [500], [600])
    clock = ManualClock(10**9)
    driver = _reader(tmp_path, clock)
    driver.epoch()
    _send(log, 0, 700)
    request_drain(tmp_path / "job")
    driver.drain()
    assert driver.manifest is not None and driver.manifest.ended
    assert _read(driver) == [2, 1]
