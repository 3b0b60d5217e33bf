"""The temporary folder of a process: private, and removed by the next start when it is dead."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from headrace.engine import temp_folder as subject
from tests.engine.stopping import short_temp

PROGRAM = """
import os, subprocess, sys
from headrace.engine.temp_folder import temp_folder
made = temp_folder()
(made.path / "socket").touch()
print(made.path, flush=True)
"""
# The owner's child, which uses the folder, may live longer.
WITH_CHILD = """
child = subprocess.Popen(["sleep", "60"], pass_fds=[made.lock])
print(child.pid, flush=True)
"""


def _owner(temp: Path, more: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM + more], env={**os.environ, "TMPDIR": str(temp)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def _path(owner: subprocess.Popen[str]) -> Path:
    assert owner.stdout is not None
    return Path(owner.stdout.readline().strip())


def test_it_is_private_and_goes_with_its_process() -> None:
    with short_temp() as temp:
        owner = _owner(temp, "sys.stdin.read()")
        path = _path(owner)
        assert path.parent == temp and stat.S_IMODE(path.stat().st_mode) == 0o700
        subject.clear_abandoned(temp)
        assert (path / "socket").exists()  # its owner lives
        owner.communicate(timeout=60)
        assert [*temp.iterdir()] == []


def test_the_folder_of_a_killed_process_is_cleared() -> None:
    with short_temp() as temp:
        owner = _owner(temp, "sys.stdin.read()")
        path = _path(owner)
        owner.kill()
        owner.communicate(timeout=60)
        assert (path / "socket").exists()
        subject.clear_abandoned(temp)
        assert [*temp.iterdir()] == []


def test_it_is_not_cleared_while_a_child_of_its_owner_uses_it() -> None:
    with short_temp() as temp:
        owner = _owner(temp, WITH_CHILD + "sys.stdin.read()")
        path = _path(owner)
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        try:
            owner.kill()
            owner.wait(timeout=60)
            subject.clear_abandoned(temp)
            assert (path / "socket").exists()
        finally:
            os.kill(child, 9)
        owner.communicate(timeout=60)
        while path.exists():  # the system takes a moment to close what it had open
            subject.clear_abandoned(temp)


def test_a_fork_of_the_owner_removes_nothing() -> None:
    with short_temp() as temp:
        forked = "\nif os.fork() == 0: sys.exit()\nos.wait()\nprint(flush=True)\nsys.stdin.read()"
        owner = _owner(temp, forked)
        path = _path(owner)
        assert owner.stdout is not None
        owner.stdout.readline()  # the fork has ended, as a program does
        assert path.exists()
        owner.communicate(timeout=60)
        assert not path.exists()


def test_what_is_not_provably_ours_stays(tmp_path: Path) -> None:
    def make(name: str, mode: int = 0o700, owner: bool = True) -> Path:
        path = tmp_path / name
        path.mkdir()
        path.chmod(mode)
        if owner:
            (path / subject.OWNER).touch()
        return path

    others = {
        make("headrace-without-owner", owner=False), make("headrace-open", mode=0o755),
        make("spark-1234"), make("elsewhere"),
    }  # fmt: skip
    linked = tmp_path / "headrace-linked"
    linked.symlink_to(tmp_path / "elsewhere")
    odd = make("headrace-odd", owner=False)
    (odd / subject.OWNER).symlink_to(tmp_path / "spark-1234" / subject.OWNER)
    file = tmp_path / "headrace-file"
    file.touch()
    dead = make("headrace-dead")
    subject.clear_abandoned(tmp_path)
    assert set(tmp_path.iterdir()) == others | {linked, odd, file} and not dead.exists()


def test_a_folder_whose_path_no_socket_can_have_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    long = tmp_path / ("long" * 30)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    assert subject._base() == Path("/tmp")
