"""Programs: where they may be, and the copy of one that a version runs.

The server's owner allows folders. What is submitted is a path; with all links resolved it must lie
in one of them, and so must every file that is copied. A version is a copy, so that a job that is
started again runs what was submitted, whatever has become of the file.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServerError
from headrace.files import make_folder, sync_folder
from headrace.server.imported import MAIN, MOST_BYTES, files_of

_PROGRAM = "program"
_TRIES = 3
_Files = tuple[str, dict[str, tuple[Path, int, int, int]]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a program."""

    program: str  # the user's own path
    folder: Path  # of the copies
    file: Path  # the copy that makes the job
    digest: str  # of what all its files hold

    @property
    def own(self) -> Path:
        """The user's folder of which it is a copy."""
        return (
            Path(self.program) if Path(self.program).suffix != ".py" else Path(self.program).parent
        )

    def in_users_words(self, text: str) -> str:
        """A text in which the copies are called as the user calls the files."""
        return text.replace(str(self.folder), str(self.own))


class Programs:
    def __init__(self, allowed: Iterable[str | Path], cwd: str | Path) -> None:
        self._cwd = Path(cwd).resolve()
        self.allowed = tuple(dict.fromkeys((self._cwd / Path(a).expanduser()).resolve()
                                           for a in allowed))  # fmt: skip
        for folder in self.allowed:
            if not folder.is_dir():
                raise ServerError(
                    "HR-SERVER-017",
                    f"--programs {str(folder)!r} is not a folder",
                    "Name a folder that there is.",
                )

    def resolve(self, program: str) -> Path:
        """Where a program is; refused if it is not in an allowed folder, or there is none."""
        if "\0" in program or not program:
            raise self._refused(program)
        path = (self._cwd / program).resolve()
        self._check(path, program)
        if not path.is_dir() and not (path.is_file() and path.suffix == ".py"):
            raise ServerError(
                "HR-SERVER-014",
                f"there is no Python file {program!r}",
                "Give the path of a .py file that makes a job, or of a folder with __main__.py or "
                "job.py; paths are relative to the folder in which the server runs.",
            )
        return path

    def _check(self, path: Path, said: str) -> None:
        """Raise an error unless a resolved path is in an allowed folder, and not hidden there."""
        for folder in self.allowed:
            if path.is_relative_to(folder):
                inside = path.relative_to(folder).parts
                if not any(part.startswith(".") for part in inside):
                    return
        raise self._refused(said)

    def _refused(self, said: str) -> ServerError:
        allowed = ", ".join(repr(str(folder)) for folder in self.allowed)
        return ServerError(
            "HR-SERVER-004",
            f"the program {said!r} is in no folder that this server takes programs from",
            f"It takes them from {allowed}, without what is hidden there."
            if allowed
            else "It takes none yet: its owner allows a folder with `headrace server --programs "
            "DIR`.",
        )

    def snapshot(self, program: str, version: Path) -> Snapshot:
        """Copy a program into the folder of a version, which is new."""
        try:
            for _ in range(_TRIES):
                own = self.resolve(program)
                files = self._files(own)
                found = self._copied(own, files, version)
                if self._files(own) == files:
                    return found
        except OSError as error:
            raise ServerError(
                "HR-SERVER-034",
                f"the program {program!r} cannot be copied: {error}",
                "May the server read all of its files, and is there room on the disk?",
            ) from error
        raise ServerError(
            "HR-SERVER-035",
            f"the program {program!r} changes while it is copied",
            "Submit it again when its files are in place.",
        )

    def _files(self, own: Path) -> _Files:
        """Of a program: which makes the job, where they are, and what changes when they do."""
        files, main = files_of(own)
        found = {}
        for at, file in files.items():
            path = file.resolve()
            self._check(path, str(file))
            status = path.stat()
            found[at] = path, status.st_ino, status.st_size, status.st_mtime_ns
        return main, found

    def _copied(self, own: Path, files: _Files, version: Path) -> Snapshot:
        """A copy of what they hold now."""
        shutil.rmtree(version, ignore_errors=True)  # of a server that has died meanwhile
        target, digest, left = version / _PROGRAM, hashlib.sha256(), MOST_BYTES
        main, found = files
        for at, (path, *_) in sorted(found.items()):
            with path.open("rb") as file:
                content = file.read(left + 1)  # it may grow meanwhile
            left = max(0, left - len(content))
            digest.update(f"{at}\0{len(content)}\0".encode() + content)
            copy = target / at
            make_folder(copy.parent)
            copy.write_bytes(content)
        sync_folder(target)
        return Snapshot(str(own), target, target / main, digest.hexdigest())


def opened(program: str, version: Path, digest: str = "") -> Snapshot:
    """The copy that was made before."""
    folder = version / _PROGRAM
    own = Path(program)
    if own.suffix == ".py" and (folder / own.name).is_file():
        return Snapshot(program, folder, folder / own.name, digest)
    main = next((folder / name for name in MAIN if (folder / name).is_file()), folder / MAIN[0])
    return Snapshot(program, folder, main, digest)
