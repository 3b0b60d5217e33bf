"""`headrace server` as its user types it: run, status, stop, token; a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import server
from headrace.cli.app import app
from headrace.server.daemon import Daemon


def call(place: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["server", *words, "--home", str(place / "home")])


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, ["server", "--home", str(tmp_path / "home")])
    assert done.exit_code == 1 and "HR-SERVER-023" in done.stderr
    assert "pip install 'headrace[server]'" in done.stderr
    assert not (tmp_path / "home").exists()


def test_status_without_a_server(tmp_path: Path) -> None:
    done = call(tmp_path, "status")
    assert done.exit_code == 1 and "no server runs in" in done.stdout
    done = call(tmp_path, "status", "--json")
    assert json.loads(done.stdout) == {"running": False, "home": str(tmp_path / "home")}
    assert "no server runs in" in call(tmp_path, "stop").stdout
    assert not (tmp_path / "home").exists()


def test_tokens_before_the_first_start(tmp_path: Path) -> None:
    done = call(tmp_path, "token", "--show")
    assert done.exit_code == 1 and "HR-SERVER-034" in done.stderr
    assert "no server has run here yet" in done.stderr and not done.stdout


def test_options_before_a_subcommand_are_refused(tmp_path: Path) -> None:
    home = str(tmp_path / "home")
    for words in (["--home", home, "status"], ["--programs", "jobs", "install", "--print"]):
        done = CliRunner().invoke(app, ["server", *words])
        assert done.exit_code == 2 and not done.stdout
        assert f"write it after '{words[2]}'" in done.stderr


def test_status_and_tokens_of_a_server(tmp_path: Path) -> None:
    with Daemon(tmp_path / "home") as daemon:
        done = call(tmp_path, "stop")
        assert done.exit_code == 1 and "HR-SERVER-030" in done.stderr  # it has not said who it is
        daemon.home.say_address("http://127.0.0.1:8780", 5)
        done = call(tmp_path, "status", "--json")
        assert done.exit_code == 0 and json.loads(done.stdout)["url"] == "http://127.0.0.1:8780"
        assert "http://127.0.0.1:8780" in call(tmp_path, "status").stdout
        assert call(tmp_path, "token").stdout.strip() == str(tmp_path / "home" / "tokens.json")
        for role in ("read", "operate"):
            shown = call(tmp_path, "token", "--show", "--role", role).stdout.strip()
            assert shown == daemon.tokens[role]
        done = call(tmp_path, "token", "--show", "--role", "root")
        assert done.exit_code == 1 and "HR-SERVER-032" in done.stderr


def test_the_server_as_a_process(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    words = ["server", "--programs", "jobs", "--port", "0", "--home", "home"]
    command = [sys.executable, "-P", "-m", "headrace_command", *words]
    environment = {k: v for k, v in os.environ.items() if k != "HEADRACE_ZYGOTE"}
    running = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        url = running.stdout.readline().strip()
        assert re.fullmatch(r"http://127.0.0.1:\d+", url), "a token is for a terminal, not a log"
        token = json.loads((tmp_path / "home" / "tokens.json").read_text())["read"]
        asked = urllib.request.Request(f"{url}/api/v1/server")
        asked.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(asked) as answer:
            facts = json.load(answer)
        assert facts["programs"] == [str(tmp_path / "jobs")]
        assert facts["home"] == str(tmp_path / "home")
        again = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert again.returncode == 1 and "HR-SERVER-007" in again.stderr and url in again.stderr
        assert json.loads(call(tmp_path, "status", "--json").stdout)["pid"] == running.pid
        running.send_signal(signal.SIGTERM)
        _, said = running.communicate(timeout=60)
        assert running.returncode == 0 and "ends; jobs go on" in said
        assert "its token: headrace server token --show" in said
        assert call(tmp_path, "status").exit_code == 1
        assert not (tmp_path / "home" / "address.json").exists()
    finally:
        running.kill()
        running.communicate()
