"""Jobs of a server as users have them: on Spark, with its JVM and its workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.restarts import command_of
from headrace.server.lifecycle import State
from tests.server.test_life import driver_of, totals
from tests.server.worlds import World, is_alive, program


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, command_of)
    yield made
    made.end()


@pytest.mark.spark
def test_a_job_on_spark_is_killed_upgraded_and_drained(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADRACE_ZYGOTE", raising=False)  # of this process's own Spark
    path = world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}')
    with world.running() as service:
        service.submit(path, options={"master": "local[1]"})
        world.until(lambda: totals(world) == [("a", 1)])
        world.until_state("shop", State.RUNNING)
        job = world.daemon.parts.desk.record("shop")
        members = world.daemon.parts.processes.members(world.daemon.parts.desk.run_folder(job))
        names = {Path(f"/proc/{pid}/comm").read_text().strip() for pid in members}
        assert "java" in names and len(members) >= 3

        os.kill(driver_of(world, "shop"), signal.SIGKILL)
        world.until(lambda: service.job("shop").job.restarts == 1)
        assert not any(map(is_alive, members))  # before another one begins
        world.send('{"k": "a", "n": 2}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 3)])

        world.write("shop.py", program(before='sums = sums.where("total > 5")'))
        service.upgrade("shop")
        world.until(lambda: service.job("shop").job.version == 2)
        world.send('{"k": "a", "n": 10}')
        world.until(lambda: "upgrade done" in world.kinds("shop"))
        world.until(lambda: service.job("shop").figures["totals"]["read"] == 3)
        world.until(lambda: service.job("shop").figures["memory"]["jvm"])  # its run says so
        service.drain("shop")
        world.until_state("shop", State.ENDED)
        assert totals(world) == [("a", 1), ("a", 3), ("a", 13)]
        run = world.daemon.parts.desk.run_folder(world.daemon.parts.desk.record("shop"))
        assert world.daemon.parts.processes.members(run) == []
