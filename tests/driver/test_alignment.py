"""Alignment: a split waits for the slowest, nobody waits for the silent, nobody for ever."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import MIN_TIME, ManualClock
from headrace.driver.split_state import too_far_ahead
from headrace.state.manifest import Split
from headrace.testing import Driver

a_split = st.tuples(st.sampled_from("abc"), st.just(MIN_TIME) | st.integers(0, 100), st.booleans())
bounds = st.fixed_dictionaries({"a": st.integers(1, 40), "b": st.integers(1, 40)})


@given(st.lists(a_split, max_size=6), bounds)
def test_exactly_those_too_far_ahead_are_held_and_never_the_slowest(
    made: list[tuple[str, int, bool]], bounds: dict[str, int]
) -> None:
    splits = [Split(i, name, "0", 0, watermark) for i, (name, watermark, _) in enumerate(made)]
    live = {i for i, (_, _, alive) in enumerate(made) if alive}
    held = too_far_ahead(splits, live, bounds)
    slow = min((s.watermark for s in splits if s.id in live and s.input in bounds), default=None)
    for split in splits:
        free = slow is None or split.input not in bounds
        far = not free and slow is not None and split.watermark > slow + bounds[split.input]
        assert (split.id in held) == far
        assert split.id not in held or split.watermark > (slow or MIN_TIME)


def _log(root: Path, *topics: str, partitions: int = 2) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(root / "log"))
    for topic in topics:
        log.create(topic, partitions=partitions, schema="at bigint")
    return log


def _send(log: hr.EmbeddedLog, topic: str, partition: int, *times: int) -> None:
    log.append(topic, [{"at": t} for t in times], partition=partition)


def _driver(root: Path, clock: ManualClock, *topics: str, **options: Any) -> Driver:
    job = hr.Job("aligned")
    reading = {"time": "at", "delay": "1ms", "idle": "10s", "align": "30s"}
    for topic in topics:
        rows = job.read(f"log:{topic}", log=str(root / "log"), name=topic, **reading)
        counts = rows.window(hr.tumbling("10s")).agg(n=hr.count(), name=f"{topic}-counts")
        counts.write("collect:", name=f"{topic}-out")
    return Driver(job, root / "job", clock=clock, **{"until": None, **options})


def _at(driver: Driver) -> dict[str, int]:
    """How many rows of each split have been read."""
    if driver.manifest is None:
        return {}
    return {f"{s.input}/{s.name}": s.at for s in driver.manifest.splits}


def test_a_split_far_ahead_is_not_read_until_the_other_has_caught_up(tmp_path: Path) -> None:
    log, clock = _log(tmp_path, "t"), ManualClock(10**9)
    driver = _driver(tmp_path, clock, "t")
    _send(log, "t", 0, 100_000)
    _send(log, "t", 1, 1_000)
    driver.drain()
    _send(log, "t", 0, 101_000)
    _send(log, "t", 1, 60_000)
    driver.epoch()
    assert _at(driver) == {"t/0": 1, "t/1": 2}  # 99 s ahead: held
    driver.epoch()
    assert _at(driver) == {"t/0": 1, "t/1": 2}  # still 40 s ahead
    _send(log, "t", 1, 75_000)
    driver.drain()
    assert _at(driver) == {"t/0": 2, "t/1": 3}  # 25 s are within bounds


def test_splits_of_different_inputs_wait_for_each_other(tmp_path: Path) -> None:
    log, clock = _log(tmp_path, "fast", "slow", partitions=1), ManualClock(10**9)
    driver = _driver(tmp_path, clock, "fast", "slow")
    _send(log, "fast", 0, 100_000)
    _send(log, "slow", 0, 1_000)
    driver.drain()
    _send(log, "fast", 0, 100_500)
    assert driver.drain() is None
    assert _at(driver)["fast/0"] == 1
    _send(log, "slow", 0, 90_000)
    driver.drain()
    assert _at(driver) == {"fast/0": 2, "slow/0": 2}


def test_a_silent_split_holds_the_others_only_until_it_is_idle(tmp_path: Path) -> None:
    log, clock = _log(tmp_path, "t"), ManualClock(10**9)
    driver = _driver(tmp_path, clock, "t")
    _send(log, "t", 0, 100_000)
    driver.drain()
    _send(log, "t", 0, 101_000)
    assert driver.drain() is None  # split 1 may have rows of any time
    clock.advance(10_000)
    driver.drain()
    assert _at(driver) == {"t/0": 2, "t/1": 0}


def test_a_held_split_is_not_taken_for_silent(tmp_path: Path) -> None:
    log, clock = _log(tmp_path, "t"), ManualClock(10**9)
    driver = _driver(tmp_path, clock, "t")
    _send(log, "t", 0, 100_000)
    _send(log, "t", 1, 1_000)
    driver.drain()
    _send(log, "t", 0, 101_000)
    for second in range(1, 30):  # longer than idle, while the slow one speaks
        clock.advance(1_000)
        _send(log, "t", 1, 1_000 + second)
        driver.drain()
    assert driver.manifest is not None
    assert {s.state for s in driver.manifest.splits} == {"live"}
    assert _at(driver)["t/0"] == 1
    assert driver.manifest.lag == 1  # it waits, and is told


def test_a_split_that_wakes_is_read_first(tmp_path: Path) -> None:
    log, clock = _log(tmp_path, "t"), ManualClock(10**9)
    driver = _driver(tmp_path, clock, "t")
    _send(log, "t", 0, 1_000)
    _send(log, "t", 1, 1_000)
    driver.drain()
    clock.advance(10_000)
    _send(log, "t", 0, 100_000)
    driver.drain()
    assert _at(driver) == {"t/0": 2, "t/1": 1}  # split 1 was idle
    _send(log, "t", 0, 100_001)
    _send(log, "t", 1, 2_000)
    driver.epoch()
    assert _at(driver) == {"t/0": 2, "t/1": 2}
    _send(log, "t", 1, 99_000)
    driver.drain()
    assert _at(driver) == {"t/0": 3, "t/1": 3}


def test_inputs_that_do_not_say_it_are_read_as_they_come(tmp_path: Path) -> None:
    log, clock = _log(tmp_path, "a", "b", partitions=1), ManualClock(10**9)
    job = hr.Job("half")
    for topic, said in (("a", {"align": "30s"}), ("b", {})):
        rows = job.read(
            f"log:{topic}", log=str(tmp_path / "log"), time="at", delay="1s", name=topic, **said
        )
        rows.write(f"collect:{topic}")
    driver = Driver(job, tmp_path / "job", until=None, clock=clock)
    _send(log, "a", 0, 1_000)
    _send(log, "b", 0, 100_000)
    driver.drain()
    _send(log, "b", 0, 200_000)
    _send(log, "a", 0, 90_000)
    driver.drain()
    assert _at(driver) == {"a/0": 2, "b/0": 2}


streams = st.lists(
    st.lists(st.integers(0, 200_000), max_size=12), min_size=3, max_size=3
)  # of one topic's partitions


@given(streams, st.integers(1, 6))
@settings(max_examples=20)
def test_everything_is_read_to_the_end_whatever_is_held_on_the_way(
    times: list[list[int]], max_batch: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, clock = Path(folder), ManualClock(10**9)
        log = _log(root, "t", partitions=3)
        for partition, mine in enumerate(times):
            if mine:
                _send(log, "t", partition, *mine)
        driver = _driver(root, clock, "t", until="end", max_batch=max_batch)
        for _ in range(200):
            if driver.epoch() is None:
                break
        assert driver.manifest is not None and driver.manifest.ended
        assert list(_at(driver).values()) == [len(mine) for mine in times]


@given(streams)
@settings(max_examples=15)
def test_rows_are_never_read_of_a_split_that_is_too_far_ahead(times: list[list[int]]) -> None:
    """The model: before each epoch, by the watermarks then, who may be read."""
    with tempfile.TemporaryDirectory() as folder:
        root, clock = Path(folder), ManualClock(10**9)
        log = _log(root, "t", partitions=3)
        for partition, mine in enumerate(times):
            if mine:
                _send(log, "t", partition, *sorted(mine))
        driver = _driver(root, clock, "t", max_batch=3)
        before: dict[str, dict[str, Any]] = {}
        while driver.epoch() is not None:
            assert driver.manifest is not None
            after = {s.name: s for s in driver.manifest.splits}
            for name, split in after.items():
                if before and split.at > before[name].at:
                    ahead = split_ahead(before, name)
                    assert ahead <= 30_000
            before = after


def split_ahead(splits: dict[str, dict[str, Any]], name: str) -> int:
    slowest = min(s.watermark for s in splits.values())  # no time passes: none is idle
    return int(splits[name].watermark - slowest)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ({"align": "0s", "time": "at", "delay": "1s"}, "HR-TIME-005"),
        ({"align": "soon", "time": "at", "delay": "1s"}, "HR-TIME-001"),
        ({"align": "30s"}, "HR-TIME-004"),
    ],
)
def test_a_wrong_bound_is_refused(said: dict[str, Any], code: str) -> None:
    job = hr.Job("wrong")
    job.read("log:t", schema="at bigint", **said).write("log:out")
    with pytest.raises(hr.PlanError) as caught:
        job.check()
    assert caught.value.code == code
