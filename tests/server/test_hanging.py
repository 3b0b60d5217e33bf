"""A job that hangs is noticed by what it leaves in its folder, and one that has nothing to do is
not; and what the server then does, with a real process that stands still."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from headrace.clock import SystemClock
from headrace.engine.processes import process_start
from headrace.inspect import stall
from headrace.inspect.live import Live, write_live
from headrace.server.hanging import HangingJobs
from headrace.server.lifecycle import State
from headrace.server.records import JobRecord
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from tests.server.test_life import driver_of
from tests.server.worlds import World, program, with_policy


def record(folder: Path, state: State = State.RUNNING, run: int = 1) -> JobRecord:
    return JobRecord(name="a", program="", folder=str(folder), since=0, state=state, run=run)


def test_a_job_hangs_when_rows_wait_and_nothing_comes(tmp_path: Path) -> None:
    jobs, job = HangingJobs(after=1_000, starting=5_000), record(tmp_path)
    waiting = Manifest(epoch=3, lag=1_500)
    assert jobs.see(job, waiting, 0) is None
    assert jobs.see(job, waiting, 999) is None and jobs.text("a") is None
    news = jobs.see(job, waiting, 1_000)
    assert news == "no new batch for 1.0s, and 1,500 rows wait" == jobs.text("a")
    assert jobs.see(job, waiting, 3_000) is None  # it is said once, but shown as it is
    assert jobs.text("a") == "no new batch for 3.0s, and 1,500 rows wait"
    assert jobs.since("a", 3_000) == 3_000
    assert jobs.see(job, Manifest(epoch=4, lag=9), 3_100) == "goes on"
    assert jobs.text("a") is None and jobs.since("a", 3_100) == 0


def test_a_job_that_has_nothing_to_do_does_not_hang(tmp_path: Path) -> None:
    jobs, job = HangingJobs(after=1_000, starting=5_000), record(tmp_path)
    for now in range(0, 100_000, 500):
        assert jobs.see(job, Manifest(epoch=3), now) is None
    assert jobs.see(record(tmp_path), None, 200_000) is None  # nothing has ever come


def test_what_the_run_says_of_itself_counts(tmp_path: Path) -> None:
    jobs, job = HangingJobs(after=1_000, starting=5_000), record(tmp_path)
    assert jobs.see(job, Manifest(epoch=3), 0) is None
    stall.note(tmp_path, "stalled: 0 tasks done", 5)
    assert "stalled: 0 tasks done" in str(jobs.see(job, Manifest(epoch=3), 100))
    stall.note(tmp_path, None, 0)
    assert jobs.see(job, Manifest(epoch=3), 200) == "goes on"


def test_a_process_that_says_nothing_any_more_hangs_though_no_rows_wait(tmp_path: Path) -> None:
    jobs, job = HangingJobs(after=1_000, starting=5_000, silent=2_000), record(tmp_path)
    still = Manifest(epoch=3)
    for now in range(0, 10_000, 500):  # it has nothing to do, and says so
        assert jobs.see(job, still, now, word=now + 7_777_777) is None
    assert jobs.see(job, still, 11_000, word=7_787_277) is None
    assert jobs.see(job, still, 11_500, word=7_787_277) == "its process has said nothing for 2.0s"
    assert jobs.since("a", 11_500) == 2_000  # not the hours in which it had nothing to do
    assert jobs.see(job, still, 12_000, word=5) == "goes on"  # its clock was set back
    for now in range(12_000, 20_000, 500):  # of an older version: it has never said anything
        assert jobs.see(record(tmp_path, run=2), still, now) in (None, "goes on")


def test_a_job_that_is_reported_hangs_since_then_and_not_since_its_last_batch(
    tmp_path: Path,
) -> None:
    jobs, job = HangingJobs(after=1_000, starting=5_000), record(tmp_path)
    for now in (0, 100_000):
        assert jobs.see(job, Manifest(epoch=3), now) is None
    stall.note(tmp_path, "stalled: 0 tasks done", 5)
    assert jobs.see(job, Manifest(epoch=3), 100_100) is not None
    assert jobs.since("a", 100_600) == 500
    jobs.see(job, Manifest(epoch=3), 101_000)
    assert jobs.since("a", 101_100) == 1_000


def test_a_start_may_take_its_time_but_not_for_ever(tmp_path: Path) -> None:
    jobs, job = HangingJobs(after=1_000, starting=5_000), record(tmp_path, State.STARTING)
    assert jobs.see(job, Manifest(epoch=3, lag=9), 0) is None
    assert jobs.see(job, Manifest(epoch=3, lag=9), 4_999) is None
    assert jobs.see(job, Manifest(epoch=3, lag=9), 5_000) == "has been starting for 5.0s"
    assert jobs.see(record(tmp_path, State.STARTING, run=2), None, 6_000) == "goes on"


def test_a_job_that_stands_still_is_noticed_and_started_again(world: World) -> None:
    with_policy(world, stall_after=300, restart_hanging=1_500)
    world.write("shop.py", program())
    # More rows than a batch takes, so that the manifest says that some wait.
    world.send(*(json.dumps({"k": "a", "n": 1}) for _ in range(20_000)))
    with world.running() as service:
        service.submit(str(world.programs / "shop.py"))
        world.until(lambda: (f := service.job("shop").figures) and f["lag_rows"] > 0)
        os.kill(driver_of(world, "shop"), signal.SIGSTOP)
        for child in forks_of(world):
            os.kill(child, signal.SIGSTOP)
        world.until(lambda: "stalled" in world.kinds("shop"))
        world.until(lambda: "restarting" in world.kinds("shop"))
        texts = [e.text for e in service.events("shop") if e.kind == "restarting"]
        assert texts[0].startswith("it was killed because it hung: no new batch for")
        world.until(lambda: world.kinds("shop").count("running") == 2)
        service.kill("shop")


def test_a_process_that_is_frozen_with_nothing_to_do_is_noticed(world: World) -> None:
    """And a job counts as running once its own process says so, whoever holds its folder."""
    with_policy(world, silent=1_500, restart_hanging=2_000)
    world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}')
    with world.running() as service:
        service.submit(str(world.programs / "shop.py"))
        world.until(lambda: world.epoch("shop") == 1)
        world.until_state("shop", State.RUNNING)
        for pid in (driver_of(world, "shop"), *forks_of(world)):
            os.kill(pid, signal.SIGSTOP)
        world.until(lambda: "restarting" in world.kinds("shop"))
        texts = [e.text for e in service.events("shop") if e.kind == "restarting"]
        assert "it hung: its process has said nothing for" in texts[0]
        world.until(lambda: world.kinds("shop").count("running") == 2)
        service.kill("shop")


def test_a_folder_that_another_driver_holds_does_not_make_a_job_run(world: World) -> None:
    world.send('{"k": "a", "n": 1}')
    folder = str(world.place / ".headrace" / "jobs" / "shop")
    log = EpochLog(folder)
    log.open("shop", 2)
    log.take_fence()
    now = SystemClock().now()
    write_live(folder, Live(now, os.getpid(), process_start(os.getpid())))
    with world.running() as service:
        service.submit(world.write("shop.py", program()))
        world.until_state("shop", State.FAILED)
        assert "running" not in world.kinds("shop")
        assert "another" in str(service.job("shop").job.reason)
    log.release()


def forks_of(world: World) -> list[int]:
    """The process that drives the job in place of the command (`forking.py`)."""
    folder = world.place / ".headrace" / "jobs" / "shop" / "fence"
    newest = max(folder.iterdir(), key=lambda path: int(path.stem))
    return [int(json.loads(newest.read_text().split("\n", 1)[1])["pid"])]
