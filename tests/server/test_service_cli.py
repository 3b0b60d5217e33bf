"""The commands about jobs: against a server, and against jobs of this machine without one."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import headrace as hr
from headrace.cli.app import app
from headrace.clock import SystemClock
from headrace.driver.planner import drain_requested
from headrace.inspect.live import Live, write_live
from headrace.server import client as client_module
from headrace.server.daemon import Daemon
from headrace.server.home import Home
from headrace.server.http import serve
from headrace.server.lifecycle import State
from headrace.state import sealed
from headrace.state.epochs import EpochLog
from headrace.testing import Driver
from tests.server.memory_service import STARTED
from tests.server.rest_client import TOKENS
from tests.server.worlds import World, is_alive, program

Call = Callable[..., Result]
JOBS = Path(".headrace") / "jobs"


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.chdir(tmp_path)
    for name in ("HEADRACE_SERVER_URL", "HEADRACE_SERVER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(client_module, "_LOOK_EVERY", 0.01)
    return lambda *words, **more: CliRunner().invoke(app, list(words), **more)


@pytest.fixture
def ask(call: Call, rest, monkeypatch: pytest.MonkeyPatch) -> Call:
    """A command to the server of jobs in memory, which is named by the environment."""
    monkeypatch.setenv("HEADRACE_SERVER_URL", rest.url)
    monkeypatch.setenv("HEADRACE_SERVER_TOKEN", TOKENS["operate"])
    return call


def refused(result: Result, code: str) -> str:
    assert result.exit_code == 1 and code in result.stderr, result.output
    assert not any(token in result.output for token in TOKENS.values())
    return result.stderr


# against a server


def test_list_has_a_line_for_each_job(ask, service):
    head, first, second = ask("list").stdout.splitlines()
    assert head.split() == [
        "job", "state", "epoch", "committed", "rows/s", "lag", "late", "dead", "run", "by",
    ]  # fmt: skip
    assert first.startswith("fire alarm  inactive") and second.endswith("the server")
    rows = json.loads(ask("list", "--json").stdout)
    assert [row["job"] for row in rows] == ["fire alarm", "shop"]
    assert rows[0]["lag_rows"] == 4 and rows[0]["server"].startswith("http://127")


def test_describe_says_what_is_and_what_may_be_done(ask, service):
    service.become("shop", State.FAILED, "HR-STEP-001 it raised")
    shown = ask("describe", "shop").stdout
    assert shown.startswith("shop: failed for ")
    for line in (
        "  reason   HR-STEP-001 it raised", "  program  version 1 of /jobs/shop.py",
        "  input    orders: read 10000 = used 9000 + filtered 900 + late 60 + dead 40",
        "  output   alarms: wrote 300", "  possible activate, rebalance, upgrade, remove",
    ):  # fmt: skip
        assert line in shown.splitlines(), shown
    assert json.loads(ask("describe", "shop", "--json").stdout)["figures"]["epoch"] == 7


def test_a_verb_waits_until_it_is_done(ask, service):
    service.next["shop"] = (State.RUNNING,)
    assert ask("activate", "shop").stdout == "shop: running, version 1\n"
    service.next["shop"] = (State.INACTIVE,)
    assert ask("deactivate", "shop").stdout == "shop: inactive, version 1\n"
    assert ask("activate", "shop", "--no-wait").stdout == "shop: starting, version 1\n"
    refused(ask("activate", "shop"), "HR-SERVER-002")
    service.become("shop", State.RUNNING)
    service.next["shop"] = (State.FAILED, "HR-RUN-001 no Java")
    text = refused(ask("restart", "shop"), "HR-SERVER-086")
    assert "HR-RUN-001 no Java" in text and "headrace logs" in text
    assert json.loads(ask("activate", "shop", "--no-wait", "--json").stdout)["state"] == "starting"
    refused(ask("drain", "shop", "--timeout", "0"), "HR-SERVER-085")


def test_rebalance_of_a_job_that_rests_waits_for_nothing(ask, service):
    assert ask("rebalance", "shop", "8").stdout == "shop: inactive, version 1\n"
    assert service.job("shop").job.parallelism == 8
    assert ask("rebalance", "shop", "0").exit_code == 1


def test_submit_passes_the_absolute_path_and_the_options(ask, service, tmp_path):
    Path("new.py").write_text("")
    refused(ask("submit", "new.py", "--inactive"), "HR-SERVER-004")  # it is not below /jobs
    result = ask("submit", "/jobs/new.py", "--inactive", "--parallelism", "2", "--max-batch", "9")
    assert result.stdout == "new: inactive, version 1\n"
    assert service.asked[-1] == ("submitted", {"options": {"parallelism": 2, "max_batch": 9}})


def test_upgrade_shows_the_plan_and_with_dry_run_nothing_else(ask, service):
    result = ask("upgrade", "shop", "--dry-run", "--drop", "old")
    assert result.exit_code == 0 and result.stdout == "operator  sum: same\n"
    assert service.asked == [("plan_upgrade", {"drop": ["old"]})]
    result = ask("upgrade", "shop", "--note", "the new one")
    assert result.stdout == "operator  sum: same\nshop: inactive, version 2\n"
    assert service.asked[-1] == ("upgrade", {"note": "the new one"})


@pytest.mark.parametrize("verb", ["kill", "remove"])
def test_what_cannot_be_taken_back_is_asked_for(ask, service, verb):
    service.become("shop", State.RUNNING if verb == "kill" else State.INACTIVE)
    result = ask(verb, "shop", input="n\n")
    assert result.exit_code == 1 and "the server at http://" in result.output
    assert ask(verb, "shop").exit_code == 1  # nobody there to answer
    assert service.asked == [] and len(service.jobs()) == 2
    assert ask(verb, "shop", "--yes").exit_code == 0
    assert verb == "remove" or service.job("shop").job.state == State.KILLED
    assert verb == "kill" or [job.name for job in service.jobs()] == ["fire alarm"]


def test_events_and_logs(ask, service):
    assert ask("events").stdout == "nothing has happened yet\n"
    ask("activate", "shop", "--no-wait")
    head, line = ask("events", "shop").stdout.splitlines()
    assert head.split() == ["time", "job", "event", "by", "text"]
    assert line.split()[2:4] == ["shop", "activate"] and "operate from 127.0.0.1" in line
    assert json.loads(ask("events", "--json").stdout)[0]["id"] == 1
    assert ask("logs", "shop").stdout == "started\nepoch 1\nepoch 2\n"
    assert ask("logs", "shop", "--last", "1").stdout
    assert json.loads(ask("logs", "shop", "--json").stdout)["runs"] == [1]


def test_a_server_that_is_gone_a_wrong_token_and_an_unknown_job(ask, rest, monkeypatch):
    assert "headrace list" in refused(ask("describe", "nobody"), "HR-SERVER-001")
    refused(ask("deactivate", "some/folder", "--server", rest.url), "HR-SERVER-001")
    refused(ask("list", "--server", "http://127.0.0.1:1"), "HR-SERVER-080")
    refused(ask("list", "--server", "127.0.0.1:1"), "HR-SERVER-081")
    monkeypatch.setenv("HEADRACE_SERVER_TOKEN", TOKENS["read"])
    assert ask("list").exit_code == 0
    refused(ask("activate", "shop"), "HR-SERVER-052")
    monkeypatch.setenv("HEADRACE_SERVER_TOKEN", "not-the-token-at-all")
    refused(ask("list"), "HR-SERVER-051")


# without one


@pytest.fixture
def driver(call: Call) -> Iterator[Driver]:
    job = hr.Job("here")
    job.read(hr.rows([{"v": i} for i in range(6)], "v bigint"), name="in").write(
        "collect:", name="out"
    )
    made = Driver(job, JOBS / "here", max_batch=2)
    made.epoch()
    yield made
    made.close()


def test_jobs_of_this_machine_are_listed_described_and_have_batches(call, driver):
    assert "running (process" in call("list").stdout
    assert call("describe", "here").stdout.startswith("here: running (process ")
    assert call("events", "here").stdout == call("history", "here").stdout
    assert "headrace run" in refused(call("logs", "here"), "HR-CLI-028")


def test_one_is_stopped_and_drained_by_its_folder(call, driver):
    assert "it goes on until its batch is done" in call("drain", "here", "--no-wait").stdout
    assert drain_requested(JOBS / "here")
    refused(call("drain", "here", "--timeout", "0.1"), "HR-CLI-008")
    refused(call("deactivate", "here", "--timeout", "0.1"), "HR-CLI-008")
    driver.close()
    for verb in ("drain", "deactivate", "kill"):
        assert call(verb, "here").stdout == "here is not running\n"


HOLDING = """
import sys, time
sys.path.insert(0, {root!r})
import headrace as hr
from headrace.testing import Driver
job = hr.Job("other")
job.read(hr.rows([{{"v": 1}}], "v bigint"), name="in").write("collect:", name="out")
driver = Driver(job, {folder!r}, max_batch=1)
driver.epoch()
print("driving", flush=True)
time.sleep(600)
"""


def test_one_is_killed_by_its_own_process_number(call, driver, monkeypatch):
    folder = JOBS.absolute() / "other"
    root = str(Path(__file__).parents[2])
    text = textwrap.dedent(HOLDING.format(root=root, folder=str(folder)))
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"driving\n"
        assert EpochLog(folder).holder() is not None
        assert call("kill", "other", input="n\n").exit_code == 1 and other.poll() is None
        result = call("kill", "other", "--yes")
        assert result.stdout == "other has been killed after epoch 1\n", result.output
        assert other.wait(30) == -9
    assert is_alive(os.getpid())
    monkeypatch.setattr("socket.gethostname", lambda: "elsewhere")
    refused(call("kill", "here", "--yes"), "HR-CLI-027")


def test_a_number_that_is_somebody_elses_is_not_killed(call, driver, tmp_path):
    """The folder is held, by whom its fence does not say: in another container, for example."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        fence = EpochLog(driver.start.log.folder).fence_in_force()
        assert fence is not None and EpochLog(driver.start.log.folder).is_held()
        says = {"host": socket.gethostname(), "pid": other.pid}
        sealed.create_sealed(tmp_path / "other.json", "fence", says)
        fence.write_bytes((tmp_path / "other.json").read_bytes())  # the lock is on the file
        text = refused(call("kill", "here", "--yes"), "HR-CLI-030")
        assert str(other.pid) in text and other.poll() is None
        other.communicate(b"\n")


def test_a_job_that_a_server_would_start_again_is_killed_there(call, driver, tmp_path):
    folder, home = driver.start.log.folder, Home(tmp_path / "home")
    run = str(home.run("here", 3))
    write_live(folder, Live(SystemClock().now(), os.getpid(), 1, run=run))
    with Daemon(home.path) as daemon:
        daemon.home.say_address("http://127.0.0.1:8780", 5)
        text = refused(call("kill", str(folder), "--yes"), "HR-CLI-029")
        assert "headrace kill here --server http://127.0.0.1:8780" in " ".join(text.split())
    assert EpochLog(folder).is_held()
    result = call("kill", str(folder), input="n\n")  # no server: it is asked
    assert result.exit_code == 1 and "Kill job 'here'" in result.output


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (["submit", "job.py"], "headrace run job.py"),
        (["activate", "here"], "headrace run FILE"),
        (["restart", "here"], "headrace deactivate"),
        (["rebalance", "here", "4"], "--parallelism 4"),
        (["upgrade", "here"], "headrace plan"),
        (["remove", "here", "--yes"], ".headrace/jobs"),
        (["events"], "name a job"),
    ],
)
def test_what_needs_somebody_to_start_a_process_is_refused_and_says_what_to_do(
    call, driver, words, instead
):
    text = refused(call(*words), "HR-CLI-024")
    assert "headrace server" in text and instead in text


@pytest.mark.parametrize(("old", "new"), [("jobs", "list"), ("status", "describe"),
                                          ("stop", "deactivate")])  # fmt: skip
def test_a_command_of_another_name_says_its_new_one(call, old, new):
    result = call(old)
    assert result.exit_code == 2 and f"It is called '{new}' now" in result.output


# a server in this folder, with real processes


@contextmanager
def rows_coming(world: World) -> Iterator[None]:
    """Another file with a row now and then: a version proves itself with its first batch."""
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.3):
            world.send('{"k": "a", "n": 1}')

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def test_a_life_at_the_command_line_with_a_server_in_this_folder(call, world: World, driver):
    """Its jobs come first; those of the folder that it does not run are there as well."""
    path = world.write("shop.py", program())
    world.send('{"k": "a", "n": 1}')
    daemon = world.open()
    with (
        serve(daemon.service, port=0, tokens=daemon.tokens) as rest,
        pytest.MonkeyPatch.context() as patch,
    ):
        daemon.home.say_address(rest.url, STARTED)
        patch.setenv("HEADRACE_SERVER", str(daemon.home.path))
        assert isinstance(daemon.home, Home) and daemon.home.is_held()
        result = call("submit", path)
        assert result.stdout.startswith("shop: running, version 1, process "), result.output
        world.until(lambda: world.epoch("shop") >= 1)
        listed = call("list").stdout
        assert "the server" in listed and "headrace run" in listed, listed
        assert call("describe", "here").stdout.startswith("here: running (process ")
        refused(call("describe", "here", "--server", rest.url), "HR-SERVER-001")

        refused(call("upgrade", "shop"), "HR-SERVER-009")  # it is the same
        world.write("shop.py", program(more=', rows=hr.count(), since="restart"'))
        plan = call("upgrade", "shop", "--dry-run")
        assert plan.exit_code == 0 and "sums" in plan.stdout, plan.output
        with rows_coming(world):
            result = call("upgrade", "shop", "--note", "counts, too")
        assert "shop: running, version 2" in result.stdout, result.output
        assert "1: replaced, by operate" in call("describe", "shop").stdout
        world.write("shop.py", program(before="raise ValueError('broken')"))
        refused(call("upgrade", "shop"), "HR-")
        more = ', rows=hr.count(), since="restart"'
        fails = program(more=more).replace("hr.Job('shop')", 'hr.Job("shop", on_error="fail")')
        bad = '\nrows.map(lambda row: 1 / 0, schema="x bigint").write("files:bad", name="bad")'
        world.write("shop.py", fails + bad)
        with rows_coming(world):  # it runs, and fails on its first row
            text = refused(call("upgrade", "shop"), "HR-CLI-025")
        assert "version 3 of job 'shop' was rolled back" in text and "ZeroDivisionError" in text
        assert 0 < text.index("; version 2 runs again") < text.index("HR-STEP") and ".;" not in text
        world.until_state("shop", State.RUNNING)
        patch.setattr("headrace.cli.moves._QUIET", 0.5)
        world.write("shop.py", program(before='sums = sums.where("total > 5")', more=more))
        result = call("upgrade", "shop")  # nothing comes
        assert "shop: running, version 4" in result.stdout, result.output
        assert "version 4 is on trial" in result.stderr
        assert "  version  4: on trial, by operate" in call("describe", "shop").stdout
        assert call("deactivate", "shop").stdout == "shop: inactive, version 4\n"
        told = call("events", "shop", "--last", "100").stdout
        assert "submitted" in told and "after epoch" in told
        assert call("remove", "shop", "--yes").exit_code == 0
        assert "shop" in call("list").stdout  # its folder stays, without the server
