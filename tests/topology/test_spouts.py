"""Spouts in Python: what they emit is read once, whatever stops in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

import headrace as hr
from headrace.look.in_process import Driver
from headrace.sources import spouts
from headrace.sources.spouts import MOST_AT_ONCE
from headrace.testing import drive
from tests.topology.bolts import Seen
from tests.topology.dying import dies

OPENED: list[tuple[int, Any]] = []


class Numbers(hr.Spout):
    """Task t of n emits t, t + n, ... up to an end."""

    output = "v bigint"
    replays = bounded = True

    def __init__(self, end: int) -> None:
        self.end = end

    def open(self, context: Any) -> None:
        OPENED.append((context.task, context.last))
        self.step = context.tasks
        self.at = context.task if context.last is None else context.last + self.step

    def next_tuple(self, collector: Any) -> None:
        if self.at >= self.end:
            collector.end()
            return
        collector.emit([self.at], id=self.at)
        self.at += self.step


class Endless(Numbers):
    """Has emitted all there is for now."""

    bounded = False

    def next_tuple(self, collector: Any) -> None:
        if self.at < self.end:
            super().next_tuple(collector)


class Forgetful(hr.Spout):
    output = "v bigint"
    bounded = True

    def next_tuple(self, collector: Any) -> None:
        collector.emit((1,))
        collector.end()


def topology(spout: Any, tasks: int = 2) -> hr.Topology:
    made = hr.Topology("spouts")
    made.spout("numbers", spout, tasks=tasks)
    made.bolt("seen", Seen()).global_("numbers")
    made.bolt("out", "collect:").shuffle("seen")
    return made


def found(driver: Driver) -> list[int]:
    return sorted(driver.output("out").column("v").to_pylist())


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_all_tasks_are_read_to_their_end(batch: int, tmp_path: Path) -> None:
    driver = drive(topology(Numbers(11), tasks=3), tmp_path, max_batch=batch)
    assert found(driver) == list(range(11))


def test_a_restart_goes_on_after_the_last_tuple_that_was_stored(tmp_path: Path) -> None:
    OPENED.clear()
    assert found(drive(topology(Endless(5)), tmp_path, until=None)) == list(range(5))
    assert found(drive(topology(Endless(12)), tmp_path, until=None)) == list(range(12))
    assert OPENED == [(0, None), (1, None), (0, 4), (1, 3)]


@pytest.mark.parametrize("at", range(1, 6))
def test_a_driver_that_dies_anywhere_loses_and_doubles_nothing(at: int, tmp_path: Path) -> None:
    assert dies(topology(Numbers(9)), tmp_path, 3 * at)
    assert found(drive(topology(Numbers(9)), tmp_path, max_batch=4)) == list(range(9))


@pytest.mark.parametrize("until", ["end", "now"])
def test_an_end_is_for_good(until: str, tmp_path: Path) -> None:
    for spout, expected in ((Forgetful(), [1]), (Numbers(4), [0, 1, 2, 3])):
        folder = tmp_path / type(spout).__name__
        assert found(drive(topology(spout, 1), folder, until=until)) == expected
        OPENED.clear()
        again = Numbers(9) if isinstance(spout, Numbers) else spout
        assert found(drive(topology(again, 1), folder, until=until)) == expected
        assert OPENED == []


heard: list[int] = []


class Wants(Endless):
    def ack(self, id: Any) -> None:
        heard.append(id)


def test_a_spout_hears_what_is_committed(tmp_path: Path) -> None:
    heard.clear()
    driver = Driver(topology(Wants(7), 1), tmp_path, until=None, max_batch=2)
    assert driver.epoch() is not None
    assert heard == [0, 1]
    driver.drain()
    driver.close()
    assert heard == list(range(7))
    drive(topology(Wants(9), 1), tmp_path, until=None)
    assert heard == list(range(9))


class Pauses(Numbers):
    """Has nothing at every second call."""

    def open(self, context: Any) -> None:
        super().open(context)
        self.calls = 0

    def next_tuple(self, collector: Any) -> None:
        self.calls += 1
        if self.calls % 2 == 0:
            super().next_tuple(collector)


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_run_to_the_end_waits_for_a_spout_that_has_nothing_now(
    tasks: int, tmp_path: Path
) -> None:
    assert found(drive(topology(Pauses(7), tasks), tmp_path)) == list(range(7))


def test_a_run_to_the_end_gives_up_where_nothing_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(Numbers):
        def next_tuple(self, collector: Any) -> None:
            pass

    monkeypatch.setitem(drive.__globals__, "PATIENCE", 0)
    with pytest.raises(AssertionError, match="the inputs have not ended"):
        drive(topology(Silent(7)), tmp_path)


def test_a_spout_without_an_end_is_called_again(tmp_path: Path) -> None:
    spout = Endless(4)
    driver = Driver(topology(spout, 1), tmp_path, until=None)
    driver.drain()
    assert found(driver) == list(range(4))
    (source,) = driver.start.bundle.sources.values()
    source._running[0].spout.end = 7  # type: ignore[attr-defined]
    driver.drain()
    driver.close()
    assert found(driver) == list(range(7))


def test_more_tuples_than_are_stored_at_once(tmp_path: Path) -> None:
    driver = drive(topology(Numbers(2 * MOST_AT_ONCE + 1), 1), tmp_path)
    assert found(driver) == list(range(2 * MOST_AT_ONCE + 1))


def test_a_spout_waits_until_what_it_emitted_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spouts, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(spouts, "MOST_AHEAD", 5)
    for end in (20, 31):  # also after a start, where much is stored already
        driver = Driver(topology(Endless(end), 1), tmp_path, until=None, max_batch=1)
        (source,) = driver.start.bundle.sources.values()
        before = source.latest("0")
        for _ in range(9):
            source.discover()
        assert source.latest("0") == before + 6
        driver.drain()
        driver.close()
        assert found(driver) == list(range(end))


def test_what_a_crash_means_is_said(tmp_path: Path) -> None:
    driver = drive(topology(Forgetful(), 1), tmp_path)
    (source,) = driver.start.bundle.sources.values()
    assert "does not say that it replays" in source.loses
    (source,) = drive(topology(Numbers(1)), tmp_path / "other").start.bundle.sources.values()
    assert source.loses == ""


class Failing(Numbers):
    def next_tuple(self, collector: Any) -> None:
        if self.at == 4:
            raise OSError("no connection")
        super().next_tuple(collector)


class NoId(Numbers):
    def next_tuple(self, collector: Any) -> None:
        collector.emit((1,))


class Unfit(Numbers):
    def next_tuple(self, collector: Any) -> None:
        collector.emit(("x",), id=1)


class Ends(Numbers):
    bounded = False


@pytest.mark.parametrize(
    ("spout", "words"),
    [
        (Failing(9), "no connection"), (NoId(9), "with an id"), (Unfit(9), "column 'v'"),
        (Ends(0), "does not say bounded"),
    ],
)  # fmt: skip
def test_a_spout_that_fails_stops_the_job(spout: Any, words: str, tmp_path: Path) -> None:
    driver = Driver(topology(spout, 1), tmp_path, until=None)
    with pytest.raises(hr.StepError, match=rf"HR-TOPOLOGY-027.*{words}"):
        driver.drain()
    driver.close()


def test_a_spout_that_failed_goes_on_where_what_is_stored_ends(tmp_path: Path) -> None:
    with pytest.raises(hr.StepError):
        drive(topology(Failing(9), 1), tmp_path)
    assert found(drive(topology(Numbers(9), 1), tmp_path)) == list(range(9))


def test_another_number_of_tasks_is_refused(tmp_path: Path) -> None:
    drive(topology(Numbers(3), 2), tmp_path)
    with pytest.raises(hr.StateError, match="2 tasks, v bigint"):
        drive(topology(Numbers(3), 3), tmp_path)


def test_stored_tuples_of_an_input_that_is_gone_are_not_lost(tmp_path: Path) -> None:
    driver = Driver(topology(Forgetful(), 1), tmp_path)
    for source in driver.start.bundle.sources.values():
        source.discover()  # stored, and then the driver dies
    driver.close()
    renamed = hr.Topology("spouts")
    renamed.spout("others", Forgetful(), tasks=1)
    renamed.bolt("out", "collect:").shuffle("others")
    with pytest.raises(hr.StateError, match=r"HR-STATE-026.*tuples"):
        drive(renamed, tmp_path)


class Nothing(hr.Spout):
    output = "v bigint"


class NoOutput(Forgetful):
    output = None


class Streams(Forgetful):
    outputs: ClassVar[Any] = {"odd": "v bigint"}


@pytest.mark.parametrize(
    ("spout", "tasks", "words"),
    [
        (Nothing(), 1, "has no next_tuple"),
        (NoOutput(), 1, "declares no output"),
        (Streams(), 1, "declares outputs, and a spout has one stream"),
        (Numbers(1), 0, "0 tasks"),
    ],
)
def test_refused_when_built(spout: Any, tasks: int, words: str) -> None:
    made = topology(spout, tasks)
    with pytest.raises(hr.PlanError, match=words):
        made.check()


@pytest.mark.spark
def test_a_spout_on_spark(tmp_path: Path) -> None:
    for end in (5, 9):
        hr.run(topology(Endless(end)), folder=str(tmp_path), until="now", quiet=True).wait()
    assert sorted(hr.collected(str(tmp_path), "out").column("v").to_pylist()) == list(range(9))


def test_one_that_takes_its_time_does_not_hold_up_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storm's examples sleep in each call: their tuples would come after 10,000 of them."""

    class Slow(Numbers):
        def next_tuple(self, collector: Any) -> None:
            now[0] += 0.5
            super().next_tuple(collector)

    now = [0.0]
    monkeypatch.setattr(spouts, "monotonic", lambda: now[0])
    driver = Driver(topology(Slow(9), 1), tmp_path)
    try:
        driver.epoch()
        assert found(driver) == [0, 1]
        driver.drain()
        assert found(driver) == list(range(9))
    finally:
        driver.close()
