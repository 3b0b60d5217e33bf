"""The unit of systemd: what it says, and that systemd itself finds nothing wrong with it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.errors import ServerError
from headrace.server.systemd import ServiceUnit

COMMAND = ("/bin/sh", "server", "--programs", "/srv/my jobs/100%", "--port", "0")


def unit(folder: Path, scope: str = "system", command: tuple[str, ...] = COMMAND) -> ServiceUnit:
    return ServiceUnit(command, folder, scope, "root")


def lines(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def verified(file: Path, scope: str) -> list[str]:
    """What systemd says of a unit; of other units of this machine, too."""
    verify = ["systemd-analyze", f"--{scope}", "--man=no", "verify", str(file)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(file.parent)}
    done = subprocess.run(verify, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


@pytest.mark.parametrize("scope", ["user", "system"])
@pytest.mark.parametrize("name", ["plain", "with space", 'quo"te', "100%", "$HOME", "back\\slash"])
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path, scope: str, name: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze: Debian's package systemd has it")
    (tmp_path / name).mkdir()
    file = tmp_path / "headrace.service"
    command = (*COMMAND, str(tmp_path / name))
    file.write_text(unit(tmp_path / name, scope, command).text)
    said = verified(file, scope)
    assert [line for line in said if "headrace" in line] == []


def test_systemd_would_say_what_is_wrong(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze: Debian's package systemd has it")
    file = tmp_path / "headrace.service"
    file.write_text(unit(tmp_path).text.replace("Restart=always", "Restart=allways"))
    assert any("restart specifier" in line for line in verified(file, "system"))


@pytest.mark.parametrize("scope", ["user", "system"])
def test_jobs_outlive_the_service(tmp_path: Path, scope: str) -> None:
    facts = lines(unit(tmp_path, scope).text)
    assert facts["KillMode"] == "process" and facts["Restart"] == "always"
    assert "PrivateTmp" not in facts and "MemoryDenyWriteExecute" not in facts
    assert facts["WantedBy"] == ("multi-user.target" if scope == "system" else "default.target")
    assert ("User" in facts) is ("ProtectSystem" in facts) is (scope == "system")


def test_words_are_quoted_as_systemd_reads_them(tmp_path: Path) -> None:
    command = ("/bin/sh", "a b", 'c"d', "100%", "$HOME", "back\\slash", "")
    words = lines(unit(tmp_path, command=command).text)["ExecStart"]
    expanded = words.replace("%%", "%").replace("$$", "$")
    assert shlex.split(expanded) == list(command)
    with pytest.raises(ServerError) as caught:
        unit(tmp_path, command=("/bin/sh", "a\nExecStartPre=/bin/rm")).text  # noqa: B018
    assert caught.value.code == "HR-SERVER-028"


def test_install_prints_and_writes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "jobs").mkdir()
    words = ["server", "install", "--user", "--programs", "jobs", "--port", "0"]
    printed = CliRunner().invoke(app, [*words, "--print"])
    assert printed.exit_code == 0, printed.output
    assert f"--programs {tmp_path}/jobs" in printed.stdout
    assert f"WorkingDirectory={tmp_path}" in printed.stdout
    path = tmp_path / ".config/systemd/user/headrace.service"
    assert not path.exists()
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and path.read_text() == printed.stdout
    assert "systemctl --user daemon-reload" in done.stderr
    assert CliRunner().invoke(app, words).exit_code == 0  # the same again
    other = CliRunner().invoke(app, [*words, "--host", "::1"])
    assert other.exit_code == 1 and "HR-SERVER-026" in other.stderr
    assert path.read_text() == printed.stdout


def test_install_takes_every_option_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["server", "install", "--print"]
    server = get_command(app).commands["server"]  # type: ignore[attr-defined]
    own = {option.name for option in server.params}
    assert own - {option.name for option in server.commands["install"].params} == set()
    remote = ["--host", "0.0.0.0", "--name", "a.example", "--name", "b.example"]
    refused = CliRunner().invoke(app, [*common, *remote])  # it would fail at each of its starts
    assert refused.exit_code == 1 and "HR-SERVER-075" in refused.stderr
    unsure = CliRunner().invoke(app, [*common, "--restart-hanging", "soon"])
    assert unsure.exit_code == 1 and not unsure.stdout
    nowhere = CliRunner().invoke(app, [*common, "--programs", "jbos"])
    assert nowhere.exit_code == 1 and "HR-SERVER-017" in nowhere.stderr and not nowhere.stdout
    printed = CliRunner().invoke(
        app, [*common, *remote, "--plain-http", "--restart-hanging", "never"]
    )
    assert printed.exit_code == 0, printed.output
    words = lines(printed.stdout)["ExecStart"]
    assert "--plain-http --name a.example --name b.example --restart-hanging never" in words
