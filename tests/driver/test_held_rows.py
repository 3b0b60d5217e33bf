"""Inputs that store rows in the job's folder and forget them: not those that a savepoint needs."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.driver.rewind import plan_rewind
from headrace.driver.savepoints import create_savepoint, delete_savepoint, restore_savepoint
from headrace.errors import HeadraceError
from headrace.sources.contract import Source
from headrace.sources.received import Received
from headrace.sources.stored_bounds import check_stored
from headrace.state.epochs import EpochLog
from headrace.testing import Driver
from tests.topology import test_cycles

ROWS = 12


@pytest.fixture
def server() -> Iterator[int]:
    """Sends the numbers once, to whoever comes first."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                for i in range(ROWS):
                    connection.sendall(b'{"v": %d}\n' % i)
                connection.recv(1)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]


def _held(source: Source) -> list[int]:
    """What is forgotten for offsets that are safe, under what is held."""
    found = []
    for held in (None, {}, {"s": 3}, {"s": 30}, {"t": 3}):
        source.hold(held)
        found.append(source.forgettable("s", 12))
    return found


def test_what_is_held_is_not_forgettable() -> None:
    class One(Source):
        pass

    assert _held(One()) == [12, 0, 3, 12, 0]  # type: ignore[abstract]


def test_rows_that_a_savepoint_needs_are_read_again(
    tmp_path: Path, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten, forget = list[int](), Received.forget

    def noted(received: Received, before: int) -> None:
        forgotten.append(before)
        forget(received, before)

    monkeypatch.setattr(Received, "forget", noted)

    def job(name: str = "held") -> hr.Job:
        made = hr.Job(name)
        uri = f"socket:127.0.0.1:{server}"
        made.read(uri, schema="v bigint", format="json", name="in").write("collect:", name="out")
        return made

    folder = tmp_path / "job"
    driver = Driver(job(), folder, until=None, max_batch=3)
    _until(driver, lambda: _read(folder) >= 3)
    create_savepoint(folder, "early")
    at = EpochLog(folder).latest().splits[0].at  # type: ignore[union-attr]
    _until(driver, lambda: _read(folder) == ROWS)
    driver.epoch()
    driver.close()
    assert forgotten and max(forgotten) <= at
    plan = plan_rewind(job(), to_savepoint="early", folder=str(folder))
    assert not plan.refused and plan.inputs[0].rows == ROWS - at
    other = restore_savepoint(folder, "early", job="other", to=tmp_path / "other")
    check_stored(other, "in", "in", {"lines": at})
    second = Driver(job("other"), other, until=None, max_batch=3)
    _until(second, lambda: _read(Path(other)) == ROWS)
    second.close()
    assert Counter(second.output("out")["v"].to_pylist()) == Counter(range(at, ROWS))
    plan.apply()
    again = Driver(job(), folder, until=None, max_batch=3)
    _until(again, lambda: _read(folder) == ROWS)
    again.close()
    assert Counter(again.output("out")["v"].to_pylist()) == Counter(range(ROWS))
    delete_savepoint(folder, "early")
    last = Driver(job(), folder, until=None, max_batch=3)
    last.epoch()
    last.close()
    assert max(forgotten) > at


def test_an_epoch_whose_rows_are_forgotten_is_refused(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "inputs" / "in"))
    log.create("rows", schema="v string", segment_bytes=1 << 16)
    for i in range(6):
        log.append("rows", [{"v": f"{i}-{n}-{hash((i, n))}"} for n in range(3_000)])
    check_stored(tmp_path, "in", "in", {"rows": 0})
    log.forget("rows", {0: 15_000})
    first = log.earliest("rows")[0]
    assert first > 0
    check_stored(tmp_path, "in", "in", {"rows": first})
    check_stored(tmp_path, "other", "in", {"rows": 0})
    with pytest.raises(HeadraceError, match="HR-INPUT-011"):
        check_stored(tmp_path, "in", "in", {"rows": first - 1})


def _read(folder: Path) -> int:
    manifest = EpochLog(folder).latest()
    return manifest.counts["in"]["read"] if manifest is not None else 0


def _until(driver: Driver, reached: Callable[[], bool]) -> None:
    for _ in range(100_000):
        if reached():
            return
        driver.epoch()
    raise AssertionError("it never came")


def test_tuples_that_go_round_go_round_again(tmp_path: Path) -> None:
    """A job with a circle goes back to its midst, another begins there: each tuple ends once."""
    numbers = range(1, 9)
    expected = [(n, test_cycles.steps_of(n)) for n in numbers]
    folder = tmp_path / "job"
    driver = Driver(test_cycles.around(numbers), folder, max_batch=5, tasks=2)
    while len(ended := test_cycles.found(driver)) < 4:
        driver.epoch()
    create_savepoint(folder, "midst")
    driver.drain()
    assert test_cycles.found(driver) == expected and len(ended) < len(expected)
    driver.close()

    other = restore_savepoint(folder, "midst", to=tmp_path / "other")
    second = Driver(test_cycles.around(numbers), other, max_batch=3, tasks=3)
    second.drain()
    second.close()
    assert sorted(ended + test_cycles.found(second)) == expected

    plan = plan_rewind(test_cycles.around(numbers), to_savepoint="midst", folder=str(folder))
    assert not plan.refused, plan
    plan.apply()
    again = Driver(test_cycles.around(numbers), folder, max_batch=3, tasks=2)
    assert test_cycles.found(again) == ended
    again.drain()
    again.close()
    assert test_cycles.found(again) == expected


def test_acks_of_a_spout_do_not_wait_for_a_savepoint(tmp_path: Path) -> None:
    """What is safe is told as before: only what is stored stays."""
    acked = list[int]()

    class Numbers(hr.Spout):
        output = "v bigint"

        def open(self, context):  # type: ignore[no-untyped-def]
            self.next = 0

        def next_tuple(self, collector):  # type: ignore[no-untyped-def]
            if self.next < ROWS:
                collector.emit((self.next,), id=self.next)
                self.next += 1

        def ack(self, id):  # type: ignore[no-untyped-def]
            acked.append(id)

    def topology() -> hr.Topology:
        made = hr.Topology("acks")
        made.spout("numbers", Numbers())
        made.bolt("out", "collect:").shuffle("numbers")
        return made

    driver = Driver(topology(), tmp_path, until=None, max_batch=3)
    _until(driver, lambda: bool(EpochLog(tmp_path).epochs()))
    create_savepoint(tmp_path, "early")
    _until(driver, lambda: len(acked) == ROWS)
    driver.close()
    early = EpochLog(tmp_path).read(1).splits[0].at
    assert not plan_rewind(topology(), to_savepoint="early", folder=str(tmp_path)).refused
    check_stored(tmp_path, "numbers", "numbers", {"0": early})
