"""Another version of a program: put in place, refused by its plan, rolled back when it fails."""

from __future__ import annotations

import pytest

from headrace.server.lifecycle import State
from headrace.state.savepoints import SavepointFolder
from tests.server.test_life import refused, totals
from tests.server.worlds import World, program

FAILS = 'import os\nif "HEADRACE_RUN_FOLDER" in os.environ: raise ValueError("at the till")'
MORE = ', most=hr.max("n"), since="restart"'


def running(world: World, text: str = "") -> str:
    path = world.write("shop.py", text or program())
    world.send('{"k": "a", "n": 1}')
    world.service.submit(path)
    world.until(lambda: world.epoch("shop") >= 1)
    return path


def outcomes(world: World) -> dict[int, str]:
    return {v.version: v.outcome for v in world.service.job("shop").versions}


def savepoints(world: World) -> list[str]:
    return SavepointFolder(world.place / ".headrace" / "jobs" / "shop").names()


def test_a_version_takes_the_place_of_another(world: World) -> None:
    with world.running() as service:
        path = running(world)
        refused(lambda: service.upgrade("shop"), "HR-SERVER-009")
        world.write("shop.py", program(before='sums = sums.where("total > 5")'))
        plan = service.plan_upgrade("shop")
        assert not plan.refused and plan.version == 2 and "sums" in plan.text
        assert service.job("shop").job.version == 1
        service.upgrade("shop", note="large ones only", by="anna")
        world.until(lambda: service.job("shop").job.version == 2)  # what came before is the old's
        world.send('{"k": "a", "n": 10}')
        world.until(lambda: "upgrade done" in world.kinds("shop"))
        world.until(lambda: totals(world) == [("a", 1), ("a", 11)])
        job = service.job("shop")
        assert job.job.version == 2 and job.job.state == State.RUNNING
        assert job.versions[0].note == "large ones only" and job.versions[0].by == "anna"
        assert [v.current for v in job.versions] == [True, False]
        assert outcomes(world) == {2: "in place", 1: "replaced"}
        assert savepoints(world) == ["upgrade-2"]
        world.write("shop.py", program(before='sums = sums.where("total > 6")'))
        service.upgrade("shop", program=path)
        world.until(lambda: service.job("shop").job.version == 3)
        world.send('{"k": "b", "n": 10}')
        world.until(lambda: world.kinds("shop").count("upgrade done") == 2)
        assert savepoints(world) == ["upgrade-3"]  # that before it is not needed any more
        world.until(lambda: totals(world) == [("a", 1), ("a", 11), ("b", 10)])


def test_what_the_plan_refuses_changes_nothing(world: World) -> None:
    with world.running() as service:
        running(world)
        pid = service.job("shop").job.pid
        renamed = program().replace('name="sums"', 'name="other sums"')
        world.write("shop.py", renamed)
        plan = service.plan_upgrade("shop")
        assert plan.refused and plan.code == "HR-EVOLVE-002", plan
        refused(lambda: service.upgrade("shop"), "HR-EVOLVE-002")
        world.write("shop.py", program(name="another"))
        refused(lambda: service.upgrade("shop"), "HR-SERVER-021")
        world.write("shop.py", "import nothing_like_it\n")
        error = refused(lambda: service.upgrade("shop"), "HR-CLI-004")
        assert "shop.py:1" in error.message
        job = service.job("shop").job
        assert (job.version, job.state, job.pid) == (1, State.RUNNING, pid)
        assert len(service.job("shop").versions) == 1
        world.write("shop.py", renamed)
        service.upgrade("shop", drop=["sums"])  # as it was asked for
        world.until(lambda: service.job("shop").job.version == 2)
        world.send('{"k": "a", "n": 10}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 10)])  # a new step counts anew


def test_a_version_that_does_not_start_is_rolled_back(world: World) -> None:
    with world.running() as service:
        running(world)
        world.write("shop.py", program(before=FAILS))
        service.upgrade("shop")
        world.until(lambda: "rolled back" in world.kinds("shop"))
        world.until_state("shop", State.RUNNING)
        job = service.job("shop").job
        assert job.version == 1 and outcomes(world) == {2: "rolled back", 1: "in place"}
        assert "version 2 has failed before its first batch" in str(job.reason)
        assert "shop.py raised ValueError: at the till" in str(job.reason)
        assert "version 1 runs again" in str(job.reason)
        world.send('{"k": "a", "n": 2}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 3)])


def test_a_version_that_moves_the_state_and_fails_is_taken_back(world: World) -> None:
    """Its start commits the change of the program; then its first batch fails."""
    with world.running() as service:
        running(world)
        epoch = world.epoch("shop")
        failing = program(more=MORE).replace("hr.Job('shop')", 'hr.Job("shop", on_error="fail")')
        assert "on_error" in failing
        bad = 'rows.map(lambda row: 1 / 0, schema="x bigint").write("files:bad", name="bad")'
        world.write("shop.py", failing + bad)
        service.upgrade("shop")
        world.until(lambda: service.job("shop").job.version == 2)
        world.send('{"k": "a", "n": 10}')
        world.until(lambda: "rolled back" in world.kinds("shop"))
        assert world.epoch("shop") > epoch  # what the new version had begun, and the way back
        world.until_state("shop", State.RUNNING)
        assert "from the savepoint 'upgrade-2'" in str(service.job("shop").job.reason)
        world.until(lambda: totals(world) == [("a", 1), ("a", 11)])  # read again, once
        world.send('{"k": "a", "n": 5}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 11), ("a", 16)])


def test_a_version_that_is_killed_is_tried_three_times(world: World) -> None:
    with world.running() as service:
        running(world)
        dies = "import os, signal\nif 'HEADRACE_RUN_FOLDER' in os.environ: "
        world.write("shop.py", program(before=dies + "os.kill(os.getpid(), signal.SIGKILL)"))
        before = world.kinds("shop").count("started")
        service.upgrade("shop")
        world.until(lambda: "rolled back" in world.kinds("shop"))
        world.until_state("shop", State.RUNNING)
        assert world.kinds("shop").count("started") == before + 3 + 1


def test_a_job_that_does_not_run_is_upgraded_too(world: World) -> None:
    with world.running() as service:
        running(world)
        service.deactivate("shop")
        world.until_state("shop", State.INACTIVE)
        world.write("shop.py", program(before=FAILS))
        assert service.upgrade("shop").version == 2
        assert service.job("shop").job.state == State.INACTIVE
        service.activate("shop")
        world.until(lambda: "rolled back" in world.kinds("shop"))
        world.until_state("shop", State.RUNNING)
        assert service.job("shop").job.version == 1


def test_a_failed_job_is_mended_by_a_new_version(world: World) -> None:
    with world.running() as service:
        world.write("shop.py", program(before=FAILS))
        world.send('{"k": "a", "n": 1}')
        service.submit(str(world.programs / "shop.py"))
        world.until_state("shop", State.FAILED)
        world.write("shop.py", program())
        service.upgrade("shop")
        world.until(lambda: world.epoch("shop") >= 1)
        world.until(lambda: "upgrade done" in world.kinds("shop"))
        world.until(lambda: totals(world) == [("a", 1)])


@pytest.mark.parametrize("phase", ["stopping", "back"])
def test_a_server_that_ends_during_an_upgrade_is_followed_by_one_that_goes_on(
    world: World, phase: str
) -> None:
    world.open()
    running(world)
    world.write("shop.py", program(before=FAILS))
    supervisor = world.daemon.parts.supervisor
    if phase == "stopping":
        supervisor.close()
        world.service.upgrade("shop")
    else:
        world.service.upgrade("shop")
        world.until(lambda: "rolling back" in world.kinds("shop"))
    world.close()
    with world.running() as service:
        world.until(lambda: "rolled back" in world.kinds("shop"))
        world.until_state("shop", State.RUNNING)
        assert service.job("shop").job.version == 1
        world.send('{"k": "a", "n": 2}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 3)])


def test_two_upgrades_at_once(world: World) -> None:
    with world.running() as service:
        running(world)
        world.write("shop.py", program(more=MORE))
        with world.daemon.parts.submissions._alone("shop"):
            refused(lambda: service.upgrade("shop"), "HR-SERVER-010")
        service.upgrade("shop")
        refused(lambda: service.upgrade("shop"), "HR-SERVER-002")  # it is stopping
        world.until(lambda: service.job("shop").job.version == 2)
