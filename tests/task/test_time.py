"""Watermarks: per split, idleness, the clock, skew, lateness; never back, restarts included."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import MAX_TIME, MIN_TIME, ManualClock
from headrace.epoch.values import watermark_of
from headrace.state.manifest import ENDED, IDLE, LIVE, Split
from headrace.testing import Driver

splits = st.lists(
    st.builds(
        Split,
        id=st.integers(0, 9), input=st.sampled_from(["a", "b"]), name=st.just("0"), at=st.just(0),
        watermark=st.just(MIN_TIME) | st.integers(-1_000, 1_000),
        seen=st.integers(0, 100), state=st.sampled_from([LIVE, IDLE, ENDED]),
    ),
    max_size=5,
)  # fmt: skip


@given(splits, st.integers(100, 10_000))
def test_the_watermark_is_the_minimum_over_live_splits(found: list[Split], clock: int) -> None:
    live = [s.watermark for s in found if s.state == LIVE]
    if live:
        assert watermark_of(["a", "b"], found, clock) == min(live)


@given(splits, st.integers(100, 10_000), st.integers(0, 500))
def test_it_never_falls_as_the_clock_goes_on(found: list[Split], clock: int, by: int) -> None:
    assert watermark_of(["a"], found, clock + by) >= watermark_of(["a"], found, clock)


@given(splits, st.integers(100, 10_000))
def test_it_is_the_end_of_time_only_when_every_split_has_ended(
    found: list[Split], clock: int
) -> None:
    ended = bool(found) and all(s.state == ENDED for s in found)
    assert (watermark_of(["a", "b"], found, clock) == MAX_TIME) == ended


def _log(tmp_path: Path) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("rows", partitions=2, schema=pa.schema([("k", pa.string()), ("at", pa.int64())]))
    return log


def _send(log: hr.EmbeddedLog, partition: int, *times: int) -> None:
    log.append("rows", [{"k": "a", "at": t} for t in times], partition=partition)


def _driver(tmp_path: Path, clock: ManualClock, until: str | None = None, **reading: Any) -> Driver:
    job = hr.Job("time")
    options = {"time": "at", "delay": "1s", "idle": "10s", **reading}
    rows = job.read("log:rows", log=str(tmp_path / "log"), name="rows", **options)
    counts = rows.key_by("k").window(hr.tumbling("5s")).agg(n=hr.count())
    counts.write("collect:", name="counts")
    counts.late.write("collect:", name="late")
    return Driver(job, tmp_path / "job", until=until, clock=clock)


def _counts(driver: Driver) -> list[tuple[int, int]]:
    rows = driver.output("counts").to_pylist()
    return sorted((int(r["window_start"].timestamp() * 1_000), r["n"]) for r in rows)


def test_a_silent_split_holds_the_others_back_until_it_is_idle(tmp_path: Path) -> None:
    log, clock = _log(tmp_path), ManualClock(100_000)
    driver = _driver(tmp_path, clock)
    _send(log, 0, 1_000, 12_000)
    driver.drain()
    assert _counts(driver) == []  # split 1 may still have rows from before 5 s
    clock.advance(10_000)
    _send(log, 0, 13_000)
    driver.drain()
    assert _counts(driver) == [(0, 1)]  # split 1 is idle: split 0 alone decides


def test_when_all_splits_are_silent_windows_close_with_the_clock(tmp_path: Path) -> None:
    log, clock = _log(tmp_path), ManualClock(100_000)
    driver = _driver(tmp_path, clock)
    _send(log, 0, 1_000)
    _send(log, 1, 2_000)
    driver.drain()
    clock.advance(2_000)
    assert driver.epoch() is None  # nothing due: no batch is run for nothing
    clock.advance(8_000)
    driver.drain()
    assert _counts(driver) == [(0, 2)]
    assert driver.epoch() is None


def test_rows_later_than_the_watermark_are_counted_and_are_a_stream(tmp_path: Path) -> None:
    log, clock = _log(tmp_path), ManualClock(100_000)
    driver = _driver(tmp_path, clock)
    _send(log, 0, 20_000)
    _send(log, 1, 20_000)
    driver.drain()
    _send(log, 0, 3_000, 21_000)
    driver.drain()
    assert [r["at"] for r in driver.output("late").to_pylist()] == [3_000]
    assert driver.manifest is not None
    assert driver.manifest.counts["rows"]["late"] == 1


def test_a_row_from_the_future_is_dead_and_does_not_move_the_watermark(tmp_path: Path) -> None:
    log, clock = _log(tmp_path), ManualClock(100_000)
    driver = _driver(tmp_path, clock, max_skew="1m")
    _send(log, 0, 99_000, 10**9)
    _send(log, 1, 99_500)
    progress = driver.drain()
    assert progress is not None and progress.watermark == 98_000
    letters = hr.read_output(f"{driver.start.log.folder}/dead").to_pylist()
    assert [(r["input"], r["split"], r["offset"]) for r in letters] == [("rows", "0", 1)]
    assert "max_skew" in letters[0]["error"]


def test_the_watermark_never_goes_back_over_a_restart(tmp_path: Path) -> None:
    log, clock = _log(tmp_path), ManualClock(100_000)
    driver = _driver(tmp_path, clock)
    _send(log, 0, 50_000)
    _send(log, 1, 50_000)
    first = driver.drain()
    driver = _driver(tmp_path, clock)
    _send(log, 0, 1_000)
    second = driver.drain()
    assert first is not None and second is not None
    assert first.watermark == second.watermark == 49_000
    assert driver.output("late").num_rows == 1


def test_a_split_that_wakes_is_judged_by_the_watermark_as_everybody_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    log, clock = _log(tmp_path), ManualClock(100_000)
    driver = _driver(tmp_path, clock)
    _send(log, 0, 1_000)
    _send(log, 1, 2_000)
    driver.drain()
    clock.advance(10_000)
    _send(log, 0, 24_000)  # split 1 is idle: the watermark goes on without it, to 23 s
    driver.drain()
    assert _counts(driver) == [(0, 2)]
    _send(log, 1, 3_000, 12_000, 21_000, 26_000)
    progress = driver.drain()
    assert [r["at"] for r in driver.output("late").to_pylist()] == [3_000, 12_000]
    assert progress is not None and progress.watermark == 23_000  # it does not go back for it
    driver = _driver(tmp_path, clock, until="end")
    driver.drain()
    assert _counts(driver) == [(0, 2), (20_000, 2), (25_000, 1)]


moves = st.tuples(st.integers(0, 1), st.integers(0, 40_000), st.integers(0, 12_000))


@given(st.lists(moves, max_size=10))
@settings(max_examples=25)
def test_every_row_is_in_a_window_or_late_whoever_sleeps_and_wakes(
    sent: list[tuple[int, int, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, clock = Path(folder), ManualClock(100_000)
        log = _log(root)
        driver = _driver(root, clock)
        for partition, time, pause in sent:
            _send(log, partition, time)
            driver.drain()
            clock.advance(pause)
            driver.drain()
        driver = _driver(root, clock, until="end")
        driver.drain()
        late = driver.output("late").num_rows
        assert sum(n for _, n in _counts(driver)) + late == len(sent)
