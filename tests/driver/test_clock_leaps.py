"""A machine's clock that is set ahead, or has slept: no split was silent meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.testing import Driver

HOUR = 3_600_000


class SetClock(ManualClock):
    """A clock that somebody sets: what has passed is another matter."""

    leapt = 0

    def leap(self, ms: int) -> None:
        self.leapt += ms
        self.advance(ms)

    def steady(self) -> int:
        return self.now() - self.leapt


def _driver(root: Path, clock: SetClock) -> Driver:
    job = hr.Job("leaps")
    rows = job.read("log:rows", log=str(root / "log"), time="at", delay="1s", name="rows")
    counts = rows.window(hr.tumbling("10s")).agg(n=hr.count(), name="counts")
    counts.write("collect:", name="out")
    counts.late.write("collect:", name="late")
    return Driver(job, root / "job", clock=clock, until=None)


def _log(root: Path) -> hr.EmbeddedLog:
    log = hr.EmbeddedLog(str(root / "log"))
    log.create("rows", partitions=2, schema="at bigint")
    return log


def _send(log: hr.EmbeddedLog, partition: int, *times: int) -> None:
    log.append("rows", [{"at": t} for t in times], partition=partition)


@pytest.mark.parametrize("leap", [20_000, HOUR, 24 * HOUR, -HOUR])
def test_a_leap_of_the_clock_makes_no_row_late(tmp_path: Path, leap: int) -> None:
    log, clock = _log(tmp_path), SetClock(1_000 * HOUR)
    driver = _driver(tmp_path, clock)
    _send(log, 0, 8_000, 21_000)
    _send(log, 1, 9_000)
    driver.drain()
    clock.leap(leap)
    driver.drain()
    _send(log, 0, 22_000)  # the other split is not idle: it has had no time to be silent
    driver.drain()
    _send(log, 1, 9_500, 23_000)
    driver.drain()

    assert driver.output("late").num_rows == 0
    assert driver.output("out")["n"].to_pylist() == [3]


def test_what_passes_after_a_leap_is_silence_as_ever(tmp_path: Path) -> None:
    log, clock = _log(tmp_path), SetClock(1_000 * HOUR)
    driver = _driver(tmp_path, clock)
    _send(log, 0, 8_000, 21_000)
    _send(log, 1, 9_000)
    driver.drain()
    clock.leap(HOUR)
    driver.drain()
    clock.advance(9_999)
    _send(log, 0, 22_000)
    driver.drain()
    assert driver.output("out").num_rows == 0

    clock.advance(1)
    _send(log, 0, 23_000)
    driver.drain()

    assert driver.output("out")["n"].to_pylist() == [2]
