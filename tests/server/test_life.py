"""The life of a job on a server, with real processes: all but Spark is as users have it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.server.lifecycle import State
from tests.server.worlds import World, is_alive, program


def refused(call, code: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


def totals(world: World, name: str = "shop") -> list[tuple[str, int]]:
    try:
        rows = hr.read_output(world.place / f"out-{name}").to_pylist()
    except hr.OutputError as error:
        assert error.code == "HR-OUTPUT-009"  # it is not there yet
        return []
    return sorted((row["k"], row["total"]) for row in rows)


def test_a_job_from_submission_to_its_removal(world: World) -> None:
    path = world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}', '{"k": "b", "n": 2}')
    with world.running() as service:
        job = service.submit(path, by="anna")
        assert (job.name, job.program, job.version) == ("shop", path, 1)
        assert job.folder == str(world.place / ".headrace" / "jobs" / "shop")
        world.until_state("shop", State.RUNNING)
        world.until(lambda: world.epoch("shop") >= 1)
        seen = world.until(lambda: service.job("shop").figures)
        assert seen["epoch"] >= 1 and seen["totals"]["read"] == 2
        pid = service.job("shop").job.pid
        assert pid is not None and is_alive(pid)

        refused(lambda: service.submit(path), "HR-SERVER-003")
        refused(lambda: service.activate("shop"), "HR-SERVER-002")
        refused(lambda: service.remove("shop"), "HR-SERVER-002")
        service.deactivate("shop")
        world.until_state("shop", State.INACTIVE)
        assert not is_alive(pid)
        epoch = world.epoch("shop")

        world.send('{"k": "a", "n": 10}')
        service.activate("shop")
        world.until(lambda: world.epoch("shop") > epoch)
        service.rebalance("shop", 1)
        world.until(lambda: world.kinds("shop").count("running") == 3)
        assert service.job("shop").job.parallelism == 1
        service.restart("shop")
        world.until(lambda: world.kinds("shop").count("running") == 4)

        service.drain("shop")
        world.until_state("shop", State.ENDED)
        assert service.job("shop").job.reason == "it was drained"
        service.remove("shop")
        refused(lambda: service.job("shop"), "HR-SERVER-001")
        assert not (world.place / "home" / "jobs" / "shop").exists()
        assert service.jobs() == []
    assert totals(world) == [("a", 1), ("a", 11), ("b", 2)]
    assert (world.place / ".headrace" / "jobs" / "shop" / "job.json").exists()


def test_what_can_be_asked_of_a_job(world: World) -> None:
    path = world.write(
        "shop.py", program(before='sums = sums.select("k", "10 / (total - 3) as x", "total")')
    )
    world.send('{"k": "a", "n": 1}', '{"k": "b", "n": 2}', '{"k": "c", "n": "no"}')
    with world.running() as service:
        service.submit(path)
        world.until(lambda: world.epoch("shop") >= 1)
        plan = service.plan("shop")
        assert plan["job"] == "shop" and "<svg" in service.plan_svg("shop")
        state = service.state("shop")
        assert [(s["name"], s["rows"], s["key"]) for s in state["steps"]] == [("sums", 2, ["k"])]
        answer = service.query_state("shop", "sums", "SELECT k, total FROM sums ORDER BY k")
        assert answer["columns"] == ["k", "total"] and answer["epoch"] >= 1
        assert answer["rows"] == [["a", 1], ["b", 2]]
        assert len(service.query_state("shop", "sums", None)["rows"]) == 2
        error = refused(lambda: service.query_state("shop", "sums", "DROP x"), "HR-STATE-034")
        assert "sums" in str(error.hint)
        for query in ("SELECT * FROM read_csv('/etc/passwd')", "COPY sums TO 'stolen.csv'"):
            refused(lambda query=query: service.query_state("shop", "sums", query), "HR-STATE-034")
        dead = service.dead("shop")
        assert dead["total"] == 1 and len(dead["groups"]) == len(dead["letters"]) == 1
        group, letter = dead["groups"][0], dead["letters"][0]
        assert group["count"] == 1 and group["first"] == group["last"] == letter["time"]
        assert service.dead("shop", reason="nothing like it")["letters"] == []
        assert service.dead_letter("shop", letter["number"])["record"]
        assert "reasons" in service.why("shop")
        made = service.create_savepoint("shop", "now")
        assert [s["name"] for s in service.savepoints("shop")] == ["now"] == [made["name"]]
        service.delete_savepoint("shop", "now")
        assert service.savepoints("shop") == []
        world.until(lambda: service.series("shop", names=["totals.read"]).times)
        series = service.series("shop", names=["totals.read", "no.such"])
        assert series.series["totals.read"][-1] == 3 and series.series["no.such"][-1] is None
        assert service.info().jobs == {"running": 1}


def test_a_job_that_is_killed_is_started_again(world: World) -> None:
    path = world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}')
    with world.running() as service:
        service.submit(path)
        world.until(lambda: world.epoch("shop") >= 1)
        first = service.job("shop").job.pid
        os.kill(first, signal.SIGKILL)  # the process that watches it
        world.until(lambda: world.kinds("shop").count("running") == 2)
        job = service.job("shop").job
        assert job.restarts == 1 and job.pid != first
        world.until(lambda: service.job("shop").job.pid)
        driver = driver_of(world, "shop")
        os.kill(driver, signal.SIGKILL)
        world.until(lambda: world.kinds("shop").count("running") == 3)
        assert "killed by SIGKILL" in " ".join(e.text for e in service.events("shop"))
        world.send('{"k": "a", "n": 2}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 3)])


def driver_of(world: World, name: str) -> int:
    """The process that drives a job: the one that the launcher has started."""
    pid = world.service.job(name).job.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


def test_jobs_outlive_the_server_and_the_next_one_finds_them(world: World) -> None:
    path = world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}')
    with world.running() as service:
        service.submit(path)
        world.until_state("shop", State.RUNNING)
        pid = service.job("shop").job.pid
    assert is_alive(pid)
    world.until(lambda: totals(world) == [("a", 1)])
    world.send('{"k": "a", "n": 2}')
    world.until(lambda: len(totals(world)) == 2)
    with world.running() as service:
        assert service.job("shop").job.pid == pid
        world.until(lambda: "found" in world.kinds("shop"))
        service.deactivate("shop")
        world.until_state("shop", State.INACTIVE)
        assert not is_alive(pid)
    assert totals(world) == [("a", 1), ("a", 3)]


def test_what_a_server_was_about_to_do_the_next_one_does(world: World) -> None:
    path = world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}')
    world.open()
    world.service.submit(path)
    world.until_state("shop", State.RUNNING)
    world.daemon.parts.supervisor.close()  # so that it does nothing of what follows
    world.service.restart("shop")
    pid = world.service.job("shop").job.pid
    world.close()
    assert is_alive(pid)
    with world.running() as service:
        world.until(lambda: service.job("shop").job.pid not in (None, pid))
        world.until_state("shop", State.RUNNING)


def test_a_job_that_ended_while_no_server_ran(world: World) -> None:
    """It was stopped by nobody that the server knows: by the shutdown of the machine, perhaps."""
    path = world.write("shop.py", program())
    with world.running() as service:
        service.submit(path)
        world.until_state("shop", State.RUNNING)
        pid = service.job("shop").job.pid
    os.kill(pid, signal.SIGTERM)
    world.until(lambda: not is_alive(pid))
    with world.running() as service:
        world.until(lambda: world.kinds("shop").count("running") == 2)
        os.kill(service.job("shop").job.pid, signal.SIGTERM)
        world.until_state("shop", State.INACTIVE)
        assert service.job("shop").job.reason == "it was stopped, but not by the server"


def test_a_crash_loop_comes_to_an_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.write("shop.py", program())
    monkeypatch.setenv("PLAYED_FAILURE", "75")
    with world.running() as service:
        service.submit(path)
        world.until_state("shop", State.FAILED)
        reason = service.job("shop").job.reason
        assert reason.startswith("gave up after 10 failures in a row without a new batch")
        assert world.kinds("shop").count("started") == 10
        monkeypatch.delenv("PLAYED_FAILURE")
        service.activate("shop")
        world.until_state("shop", State.RUNNING)
        assert service.job("shop").job.reason is None


def test_a_program_that_fails_is_not_started_again(world: World) -> None:
    path = world.write("shop.py", program(before='raise ValueError("at the till")'))
    error = None
    with world.running() as service:
        error = refused(lambda: service.submit(path), "HR-CLI-004")
        assert "ValueError: at the till" in error.message
        assert service.jobs() == [] and not list((world.place / "home" / "incoming").iterdir())
        late = 'import os\nif "headrace-run" in os.environ: raise ValueError("at the till")'
        path = world.write(
            "shop.py", program(before=late.replace("headrace-run", "HEADRACE_RUN_FOLDER"))
        )
        service.submit(path)
        world.until_state("shop", State.FAILED)
        assert "shop.py raised ValueError: at the till" in service.job("shop").job.reason
        assert str(world.place / "home") not in service.job("shop").job.reason
        assert world.kinds("shop").count("started") == 1


def test_kill_is_at_once_and_leaves_nothing(world: World) -> None:
    path = world.write("shop.py", program())
    with world.running() as service:
        service.submit(path)
        world.until_state("shop", State.RUNNING)
        pid, driver = service.job("shop").job.pid, driver_of(world, "shop")
        assert service.kill("shop").state == State.KILLED
        assert not is_alive(pid) and not is_alive(driver)
        service.activate("shop")
        world.until_state("shop", State.RUNNING)


def test_logs_are_in_the_users_words(world: World) -> None:
    path = world.write("shop.py", program(before='print("from", __file__)'))
    with world.running() as service:
        service.submit(path)
        world.until_state("shop", State.RUNNING)
        part = world.until(lambda: (p := service.logs("shop")).lines and p)
        assert f"from {path}" in part.lines
        assert part.run == 1 and part.runs == (1,)
        assert service.logs("shop", after=part.next).lines == ()
        refused(lambda: service.logs("shop", run=7), "HR-SERVER-025")
    order = world.place / "home" / "jobs" / "shop" / "runs" / "1" / "order.json"
    assert not order.exists()
    note = json.loads(order.with_name("process.json").read_text())
    assert set(note) == {"pid", "start"}
