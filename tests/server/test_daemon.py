"""One server for each home: its lock, its tokens, its folder; and a server that is killed."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, ServerError
from headrace.server.daemon import Daemon
from headrace.server.home import Home
from headrace.server.lifecycle import State
from tests.server.forking import Command
from tests.server.worlds import World, is_alive, program

ROOT = Path(__file__).parents[2]
# A server as a process of its own: it opens, says so, and does what is typed.
SERVER = """
import sys
from pathlib import Path
from tests.server.worlds import World
place, fork, forking = sys.argv[1:]
world = World(Path(place), lambda words: [sys.executable, "-I", "-S", forking, fork, *words])
world.open()
print("open", flush=True)
for line in sys.stdin:
    world.service.submit(line.strip())
    print("submitted", flush=True)
"""


def refused(make, code: str) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        make()
    assert caught.value.code == code, caught.value
    return caught.value


def test_two_servers_in_one_home_are_refused(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home") as daemon:
        daemon.home.say_address("http://127.0.0.1:1234", 5)
        assert Home(tmp_path / "home").is_held()
        error = refused(lambda: Daemon(tmp_path / "home"), "HR-SERVER-007")
        assert "http://127.0.0.1:1234" in error.message
    assert not Home(tmp_path / "home").is_held() and daemon.home.address() is None
    with Daemon(tmp_path / "home"):  # and now another one
        pass


def test_the_address_of_a_server_that_was_killed_is_forgotten_at_once(tmp_path: Path) -> None:
    """Its process number and its port may be anybody's until the next one listens: one is sent a
    signal by `headrace server stop`, the other a token by every command."""
    with Daemon(tmp_path / "home") as daemon:
        daemon.home.say_address("http://127.0.0.1:1234", 5)
        left = (tmp_path / "home" / "address.json").read_bytes()
    (tmp_path / "home" / "address.json").write_bytes(left)  # as it is after `kill -9`
    with Daemon(tmp_path / "home") as daemon:
        assert daemon.home.is_held() and daemon.home.address() is None


def test_a_second_server_is_refused_also_where_the_lock_was_removed(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home") as daemon:
        (tmp_path / "home" / "lock").unlink()
        assert Home(tmp_path / "home").is_held()
        with pytest.raises(ServerError, match="HR-SERVER-007"):
            Daemon(tmp_path / "home")
        (tmp_path / "home").rename(tmp_path / "moved")
        with pytest.raises(ServerError, match="HR-SERVER-007"):
            Daemon(tmp_path / "moved")
        (tmp_path / "moved").rename(tmp_path / "home")
        assert daemon.service.jobs() == []
    assert not Home(tmp_path / "home").is_held()


def test_what_a_server_that_died_had_not_taken_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "home" / "incoming" / "abc" / "program"
    left.mkdir(parents=True)
    with Daemon(tmp_path / "home"):
        assert not left.exists()


def test_a_server_that_cannot_open_its_store_leaves_the_home(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "server.sqlite").write_text("no database here, and long enough" * 100)
    refused(lambda: Daemon(tmp_path / "home"), "HR-SERVER-011")
    assert not Home(tmp_path / "home").is_held()


def test_the_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    with Daemon(tmp_path / "home") as daemon:
        tokens = daemon.tokens
        assert mode(tmp_path / "home") == 0o700
        assert mode(tmp_path / "home" / "tokens.json") == 0o600
        assert set(tokens) == {"read", "operate"} and len(set(tokens.values())) == 2
        daemon.home.say_address("http://x", 1)
        assert mode(tmp_path / "home" / "address.json") == 0o600
    with Daemon(tmp_path / "home") as daemon:
        assert daemon.tokens == tokens
        kinds = [event.kind for event in daemon.service.events()]
        assert kinds == ["server started", "server ended", "server started"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused(lambda: Daemon(tmp_path / "file"), "HR-SERVER-006")


def test_a_name_of_a_job_leads_nowhere_else(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    for name in ("../../etc", "a/b", "..", ".hidden", "plain", "für dich"):
        folder = home.job(name)
        assert folder.parent == home.path / "jobs" and folder.name not in (".", "..")
    assert home.job("plain").name == "plain"


def test_a_server_that_is_killed_leaves_jobs_running(tmp_path: Path, command: Command) -> None:
    """`kill -9` of the server, at a moment of its own choosing and while it starts a job."""
    place = tmp_path / "world"
    words = command(())
    arguments = [sys.executable, "-c", SERVER, str(place), words[4], words[3]]
    server = subprocess.Popen(
        arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])},
    )  # fmt: skip
    assert server.stdin is not None and server.stdout is not None
    assert server.stdout.readline() == "open\n"
    world = World.at(place, command)
    try:
        world.send('{"k": "a", "n": 1}')
        for name in ("one", "two"):
            server.stdin.write(world.write(f"{name}.py", program(name)) + "\n")
            server.stdin.flush()
            assert server.stdout.readline() == "submitted\n"
            if name == "one":
                world.until(lambda: world.epoch("one") >= 1)
        server.send_signal(signal.SIGKILL)
        server.wait()
        with world.running() as service:
            world.until_state("one", State.RUNNING)
            pid = service.job("one").job.pid
            assert world.kinds("one").count("started") == 1  # it has gone on
            world.until(lambda: world.epoch("two") >= 1)
            world.until_state("two", State.RUNNING)
            run = world.place / "home" / "jobs" / "one" / "runs" / "1" / "process.json"
            assert json.loads(run.read_text())["pid"] == pid
            service.deactivate("one")
            world.until_state("one", State.INACTIVE)
            assert not is_alive(pid)
    finally:
        server.kill()
        server.communicate()
        world.end()
