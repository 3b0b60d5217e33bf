"""The folder of a server: who may enter, who holds it, and where its things are.

    lock            held by the server that runs here
    server.sqlite   jobs, versions, events, samples
    tokens.json     one for each role: `tokens.py`
    sessions.json   those of the page that were ended: `ended_sessions.py`
    address.json    {"url", "pid", "started"} while a server runs
    jobs/<job>/versions/<n>/program/...    a program as it was submitted; plan.json, plan.svg
    jobs/<job>/runs/<n>/...                what `launcher.py` writes

All of it is for the owner alone (0700). A job's name is a folder's name as `files.file_name`
spells it, so none leads elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.errors import ServerError
from headrace.files import close_lock, file_name, make_folder, replacing, take_lock

_RUNS = 20  # folders of runs that are kept of a job


class Home:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve()
        self._locks: list[int] = []

    # the folder itself

    def make(self) -> None:
        """Make it, for its owner alone; refuse one that others can write to, or own."""
        try:
            make_folder(self.path.parent)
            self.path.mkdir(mode=0o700, exist_ok=True)
            status = self.path.stat()
            if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) & 0o077:
                self.path.chmod(0o700)
            make_folder(self.path / "jobs")
        except OSError as error:
            raise ServerError(
                "HR-SERVER-006",
                f"the server's folder {str(self.path)!r} cannot be used: {error.strerror}",
                "Choose another one: --home DIR, or the setting `server`.",
            ) from error
        if status.st_uid != os.geteuid():
            raise ServerError(
                "HR-SERVER-006",
                f"the server's folder {str(self.path)!r} belongs to another user",
                "Choose another one: --home DIR, or the setting `server`.",
            )

    def hold(self) -> None:
        """Be the one server that runs here. The folder itself is locked as well, where the file
        system can do that: the file may be removed, and made anew by another server."""
        try:
            self._take(self.path / "lock", os.O_RDWR | os.O_CREAT)
            with suppress(OSError):
                self._take(self.path, os.O_RDONLY)
        except BaseException:
            self.release()
            raise

    def _take(self, path: Path, flags: int) -> None:
        lock = take_lock(path, flags=flags)
        if lock is None:
            raise self._held()
        self._locks.append(lock)

    def _held(self) -> ServerError:
        at = self.address()
        where = f", at {at['url']}" if at and at.get("url") else ""
        return ServerError(
            "HR-SERVER-007",
            f"a server runs in {str(self.path)!r} already{where}",
            "`headrace server status` shows it; --home DIR makes another one.",
        )

    def release(self) -> None:
        while self._locks:
            close_lock(self._locks.pop())

    def is_held(self) -> bool:
        """Whether a server runs here."""
        for path in (self.path, self.path / "lock"):
            with suppress(OSError):
                lock = take_lock(path, flags=os.O_RDONLY)
                if lock is None:
                    return True
                close_lock(lock)
        return False

    # tokens and the address

    @property
    def tokens_file(self) -> Path:
        return self.path / "tokens.json"

    @property
    def ended_sessions(self) -> Path:
        return self.path / "sessions.json"

    def address(self) -> dict[str, Any] | None:
        """Where the server listens; None if none has said so."""
        try:
            found = json.loads((self.path / "address.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def say_address(self, url: str, started: int) -> None:
        facts = {"url": url, "pid": os.getpid(), "started": started}
        _write_private(self.path / "address.json", facts)

    def forget_address(self) -> None:
        (self.path / "address.json").unlink(missing_ok=True)

    # folders of a job

    @property
    def store(self) -> Path:
        return self.path / "server.sqlite"

    def job(self, name: str) -> Path:
        return self.path / "jobs" / file_name(name)

    def version(self, name: str, version: int) -> Path:
        return self.job(name) / "versions" / str(version)

    def run(self, name: str, run: int) -> Path:
        return self.job(name) / "runs" / str(run)

    def runs(self, name: str) -> list[int]:
        """The runs of which there are folders, ascending."""
        folder = self.job(name) / "runs"
        found = folder.iterdir() if folder.is_dir() else ()
        return sorted(int(path.name) for path in found if path.name.isdecimal())

    def tidy_runs(self, name: str) -> None:
        """Remove all folders of runs but the newest."""
        for run in self.runs(name)[:-_RUNS]:
            shutil.rmtree(self.run(name, run), ignore_errors=True)

    def remove_job(self, name: str) -> None:
        shutil.rmtree(self.job(name), ignore_errors=True)


def _write_private(path: Path, content: dict[str, Any]) -> None:
    with replacing(path) as fresh:
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
