"""Spouts in other languages: every number comes once, whatever the process does."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.look.in_process import Driver
from headrace.testing import drive
from tests.topology.bolts import Seen
from tests.topology.dying import dies
from tests.topology.shells import PROGRAMS


def spout(end: int, code: str = "", last: str = "ends", **options: Any) -> hr.ShellSpout:
    command = [sys.executable, str(PROGRAMS / "count.py"), str(end), last, code]
    return hr.ShellSpout(command, **{"output": "v bigint", "replays": True, "bounded": True,
                                     "timeout": "20s", **options})  # fmt: skip


def topology(made: Any, tasks: int = 2) -> hr.Topology:
    built = hr.Topology("spouts")
    built.spout("numbers", made, tasks=tasks)
    built.bolt("seen", Seen()).global_("numbers")
    built.bolt("out", "collect:").shuffle("seen")
    return built


def found(driver: Driver) -> list[int]:
    return sorted(driver.output("out").column("v").to_pylist())


@pytest.mark.parametrize("batch", [1, 4, 100])
def test_all_tasks_are_read_to_their_end(batch: int, tmp_path: Path) -> None:
    assert found(drive(topology(spout(11), 3), tmp_path, max_batch=batch)) == list(range(11))


def test_a_restart_goes_on_after_the_last_tuple_that_was_stored(tmp_path: Path) -> None:
    for end in (5, 12):
        made = spout(end, last="waits", bounded=False)
        assert found(drive(topology(made), tmp_path, until=None)) == list(range(end))


@pytest.mark.parametrize("at", range(1, 4))
def test_a_driver_that_dies_loses_and_doubles_nothing(at: int, tmp_path: Path) -> None:
    assert dies(topology(spout(9)), tmp_path, 4 * at)
    assert found(drive(topology(spout(9)), tmp_path, max_batch=4)) == list(range(9))


FAILURES = {
    "dies": "sys.exit(3)",
    "ends after a tuple": "send(command='emit', id=at, tuple=[at]); sys.exit(0)",
    "dies in a message": "sys.stdout.write('{'); sys.stdout.flush(); os._exit(0)",
    "not JSON": "raw('{x')",
    "wrong type": "send(command='emit', id=at, tuple=['5'])",
    "no tuple": "send(command='emit', id=at)",
    "another stream": "send(command='emit', id=at, stream='b', tuple=[at])",
    "unknown command": "send(command='ack', id=1)",
    "hangs": "time.sleep(100)",
}


@pytest.mark.parametrize("what", list(FAILURES))
def test_a_process_that_fails_is_restarted_where_it_was(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = f"if at == 4 and once({str(tmp_path / 'once')!r}): {FAILURES[what]}"
    made = spout(9, code, timeout="1s" if what == "hangs" else "20s")
    with caplog.at_level(logging.WARNING):
        assert found(drive(topology(made), tmp_path / "job")) == list(range(9))
    assert any("spout numbers[0]" in m and "restart 1 of 3" in m for m in caplog.messages)


def test_tuples_are_acked_once_they_are_committed(tmp_path: Path) -> None:
    made = spout(7, last="waits", bounded=False, env={"ACKS": str(tmp_path / "acks")})
    driver = drive(topology(made, 1), tmp_path / "job", max_batch=2, until=None)
    assert found(driver) == list(range(7))
    acked = [int(line) for line in (tmp_path / "acks").read_text().split()]
    assert acked == list(range(len(acked)))
    assert len(acked) >= 4  # not those of the last epochs, where the run ends


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_what_is_emitted_besides_is_stored_with_the_next_tuples(batch: int, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "early.py"), "3"]
    made = hr.ShellSpout(command, "v bigint", bounded=True)
    values = found(drive(topology(made, 1), tmp_path, max_batch=batch))
    assert values[:4] == [-1, 0, 1, 2]
    assert values[4:] == [100, 101, 102][: len(values) - 4]  # those that were acked before the end


def test_one_that_always_fails_stops_the_job(tmp_path: Path) -> None:
    made = spout(9, "if at == 4: sys.exit('no more')", max_restarts=1)
    with pytest.raises(hr.StepError, match=r"(?s)HR-TOPOLOGY-041 spout numbers\[0\].*no more"):
        drive(topology(made, 1), tmp_path)
    assert found(drive(topology(spout(9), 1), tmp_path)) == list(range(9))


def test_one_that_does_not_replay_is_not_restarted(tmp_path: Path) -> None:
    made = spout(9, "if at == 4: sys.exit(3)", replays=False)
    with pytest.raises(hr.StepError, match=r"HR-TOPOLOGY-046.*exit code 3.*replays"):
        drive(topology(made, 1), tmp_path)


def test_one_that_has_no_end_must_not_end(tmp_path: Path) -> None:
    with pytest.raises(hr.StepError, match=r"HR-TOPOLOGY-041.*exit code 0"):
        drive(topology(spout(3, bounded=False), 1), tmp_path, until=None)


def test_a_program_that_ends_before_the_handshake_is_no_empty_input(tmp_path: Path) -> None:
    made = hr.ShellSpout(["true"], "v bigint", replays=True, bounded=True)
    with pytest.raises(hr.StepError, match=r"HR-TOPOLOGY-041.*exit code 0"):
        drive(topology(made, 1), tmp_path)


def test_refused_when_built() -> None:
    with pytest.raises(hr.PlanError, match=r"(?s)HR-TOPOLOGY-040.*\['node', 'a.js'\]"):
        hr.ShellSpout("node a.js", "v bigint")  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_spout_on_spark(tmp_path: Path) -> None:
    for end in (5, 9):
        made = topology(spout(end, last="waits", bounded=False))
        hr.run(made, folder=str(tmp_path), until="now", quiet=True).wait()
    assert sorted(hr.collected(str(tmp_path), "out").column("v").to_pylist()) == list(range(9))


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_what_comes_with_a_sync_is_part_of_the_next_answer(batch: int, tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "ahead.py")]
    spout = hr.ShellSpout(command, "n bigint", replays=True, bounded=True)
    topology = hr.Topology("ahead")
    topology.spout("numbers", spout)
    topology.bolt("out", "collect:").shuffle("numbers")
    found = drive(topology, str(tmp_path / "job"), max_batch=batch).output("out")
    assert found.column("n").to_pylist() == [*range(6)]
