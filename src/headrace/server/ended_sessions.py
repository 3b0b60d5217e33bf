"""Sessions that were ended before their time: remembered until they would have ended by themselves.

They are in a file of the server's home as well, for its owner alone, so that a cookie that was
given up is worth nothing after a restart of the server either. Where that file cannot be read, no
session that began before now is any good: better a login too many than one that nobody wanted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from headrace.errors import ServerError
from headrace.files import replacing

_MOST = 10_000


class EndedSessions:
    """By id, with the second of their own end; without a path in memory alone."""

    def __init__(self, path: Path | None, now: Callable[[], float]) -> None:
        self._path, self._now = path, now
        self._ends = dict[str, int]()
        self.begun_after = 0.0  # sessions that began before are none
        if path is not None:
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            self._ends = {str(id): int(end) for id, end in found.items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, AttributeError, OverflowError):
            self.begun_after = self._now()

    def __contains__(self, id: str) -> bool:
        return id in self._ends

    def add(self, id: str, end: int) -> None:
        now = self._now()
        self._ends = {i: e for i, e in self._ends.items() if e > now}
        if len(self._ends) >= _MOST:
            del self._ends[next(iter(self._ends))]
        self._ends[id] = end
        if self._path is not None:
            self._write(self._path)

    def _write(self, path: Path) -> None:
        try:
            with replacing(path) as fresh:
                handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump(self._ends, file)
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise ServerError(
                "HR-SERVER-037",
                f"the session has ended, but that cannot be stored in {str(path)!r}: {error}",
                "Make room on the disk and log in and out again: once the server is restarted, "
                "its cookie would be good for the rest of its time.",
            ) from error
