"""What can go wrong around an upgrade: savepoints that cannot be made or are gone, restarts and
deaths while a version is on trial. The job ends in a state that says so, and loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.server.lifecycle import State
from headrace.server.questions import Questions
from tests.server.test_life import refused, totals
from tests.server.test_upgrade import FAILS, MORE, outcomes, running, savepoints
from tests.server.worlds import PATIENCE, World, program, with_policy

# Its start moves the state; its first batch fails.
BAD = program(more=MORE).replace("hr.Job('shop')", 'hr.Job("shop", on_error="fail")') + (
    'rows.map(lambda row: 1 / 0, schema="x bigint").write("files:bad", name="bad")'
)


def folder_of(world: World) -> Path:
    return world.place / ".headrace" / "jobs" / "shop"


def test_what_may_be_dropped_is_dropped_once_however_often_a_version_starts(world: World) -> None:
    """The start has dropped it; the version is on trial until something comes."""
    with world.running() as service:
        running(world)
        world.write("shop.py", program().replace('name="sums"', 'name="other sums"'))
        epoch = world.epoch("shop")
        service.upgrade("shop", drop=["sums"])
        world.until(lambda: world.epoch("shop") > epoch)
        world.until_state("shop", State.RUNNING)
        assert outcomes(world)[2] == "on trial" and "upgrade done" not in world.kinds("shop")
        for starts in (3, 4):
            service.restart("shop")
            world.until(lambda n=starts: world.kinds("shop").count("running") == n)
        world.send('{"k": "a", "n": 10}')
        world.until(lambda: "upgrade done" in world.kinds("shop"))
        world.until(lambda: totals(world) == [("a", 1), ("a", 10)])
        assert service.job("shop").job.version == 2 and "rolled back" not in world.kinds("shop")


def test_a_version_that_cannot_be_taken_back_leaves_a_job_that_says_so(world: World) -> None:
    with world.running() as service:
        running(world)
        world.write("shop.py", BAD)
        epoch = world.epoch("shop")
        service.upgrade("shop")
        world.until(lambda: world.epoch("shop") > epoch)  # it is on trial, and has nothing to read
        world.until_state("shop", State.RUNNING)
        service.delete_savepoint("shop", "upgrade-2")
        world.send('{"k": "a", "n": 10}')
        world.until_state("shop", State.FAILED)
        job = service.job("shop").job
        assert "version 2 has failed before its first batch" in str(job.reason)
        assert "the state cannot be taken back for version 1" in str(job.reason)
        assert "HR-SAVEPOINT-002" in str(job.reason)
        assert job.version == 2 and outcomes(world) == {2: "rolled back", 1: "replaced"}
        world.write("shop.py", program(more=MORE))  # version 3 mends it, with all the state
        service.upgrade("shop")
        world.until(lambda: totals(world) == [("a", 1), ("a", 11)])
        world.until(lambda: "upgrade done" in world.kinds("shop"))


@pytest.mark.parametrize("verb", ["deactivate", "restart", "kill"])
def test_one_that_was_to_stop_meanwhile_says_so_too(
    world: World, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is asked while the way back is looked for does not hide that there is none."""
    asking, asked = threading.Event(), threading.Event()

    def ask(self: Questions, words: Sequence[str], *more: Any) -> str:
        if words[0] == "rewind":
            asking.set()
            assert asked.wait(PATIENCE)
        return real(self, words, *more)

    with world.running() as service:
        running(world)
        world.write("shop.py", BAD)
        epoch = world.epoch("shop")
        service.upgrade("shop")
        world.until(lambda: world.epoch("shop") > epoch)
        world.until_state("shop", State.RUNNING)
        service.delete_savepoint("shop", "upgrade-2")
        real = Questions.ask
        monkeypatch.setattr(Questions, "ask", ask)
        world.send('{"k": "a", "n": 10}')
        assert asking.wait(PATIENCE)
        getattr(service, verb)("shop")
        if verb == "kill":
            refused(lambda: service.remove("shop"), "HR-SERVER-010")
        asked.set()
        world.until(lambda: "rolled back" in world.kinds("shop"))
        world.until(lambda: not world.daemon.parts.supervisor.is_busy("shop"))
        assert world.state("shop") == (State.KILLED if verb == "kill" else State.FAILED)
        assert "cannot be taken back" in str(service.job("shop").job.reason)


def test_without_a_savepoint_the_old_version_stays(world: World) -> None:
    """The folder of savepoints cannot be made: as on a disk that is full."""
    with world.running() as service:
        running(world)
        (folder_of(world) / "savepoints").write_text("")
        world.write("shop.py", program(more=MORE))
        service.upgrade("shop")
        world.until(lambda: "upgrade failed" in world.kinds("shop"))
        world.until_state("shop", State.RUNNING)
        job = service.job("shop").job
        assert job.version == 1 and "for want of a savepoint" in str(job.reason)
        assert outcomes(world) == {2: "refused", 1: "in place"}
        world.send('{"k": "a", "n": 2}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 3)])
        (folder_of(world) / "savepoints").unlink()
        service.upgrade("shop")  # the same program again, as version 3
        world.until(lambda: service.job("shop").job.version == 3)
        world.send('{"k": "a", "n": 4}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 3), ("a", 7)])
        assert savepoints(world) == ["upgrade-3"]


def test_a_drained_job_that_waits_is_started_now_and_still_drains(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_policy(world, pace=100.0)
    with world.running() as service:
        running(world)
        monkeypatch.setenv("PLAYED_FAILURE", "75")
        service.restart("shop")
        world.until_state("shop", State.STARTING)
        service.drain("shop")
        world.until_state("shop", State.WAITING)
        monkeypatch.delenv("PLAYED_FAILURE")
        service.activate("shop")
        world.until_state("shop", State.ENDED)
        assert service.job("shop").job.reason == "it was drained"


def test_a_version_on_trial_may_be_stopped_and_is_taken_back_when_it_fails_later(
    world: World,
) -> None:
    with world.running() as service:
        running(world)
        world.write("shop.py", BAD)
        epoch = world.epoch("shop")
        service.upgrade("shop")
        world.until(lambda: world.epoch("shop") > epoch)
        world.until_state("shop", State.RUNNING)
        service.deactivate("shop")
        world.until_state("shop", State.INACTIVE)
        refused(lambda: service.restart("shop"), "HR-SERVER-002")
        world.send('{"k": "a", "n": 10}')
        service.activate("shop")
        world.until(lambda: "rolled back" in world.kinds("shop"))
        world.until(lambda: totals(world) == [("a", 1), ("a", 11)])
        assert service.job("shop").job.version == 1


def test_an_upgrade_after_one_that_fails_goes_back_to_what_has_run(world: World) -> None:
    """Version 2 is on trial when version 3 comes, which fails at its start: 1 comes back."""
    with world.running() as service:
        running(world)
        world.write("shop.py", program(before='sums = sums.where("total > 0")'))
        service.upgrade("shop")
        world.until(lambda: world.kinds("shop").count("running") == 2)
        world.write("shop.py", program(before=FAILS))
        service.upgrade("shop")
        world.until(lambda: "rolled back" in world.kinds("shop"))
        world.until_state("shop", State.RUNNING)
        assert service.job("shop").job.version in (1, 2)
        world.send('{"k": "a", "n": 10}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 11)])
