"""Questions that need the user's program, asked of a process of its own: `headrace VERB --json`.

The server never imports a program. A question has a limit of time and of what is printed, and
leaves no process behind, whatever the program has started while it was imported. What fails is
raised here as the error that the command has noted, in the user's words.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from headrace.errors import ServerError
from headrace.restarts import command_of
from headrace.server.processes import kill_marked
from headrace.server.programs import Snapshot

PATIENCE = 120.0  # seconds
AT_ONCE = 2  # processes that answer at the same time
MOST = 16 << 20  # bytes of an answer
_LOOK = 0.1  # seconds
_MARK = "HEADRACE_QUESTION"  # in the environment of all that it starts
_HOME = "HEADRACE_ASKED_FROM"  # likewise: the home of the server
_NOTE = "HEADRACE_NOTE_ERROR"  # of `cli/error_note.py`


class Questions:
    def __init__(
        self,
        folder: Path,
        command: Callable[[Sequence[str]], list[str]] = command_of,
        patience: float = PATIENCE,
        home: Path | None = None,
    ) -> None:
        """`home`: of the server that asks. What another one there has left behind is ended: it was
        killed while it asked, and nobody waits for the answer."""
        self._home = {} if home is None else {_HOME: str(home)}
        for name, value in self._home.items():
            kill_marked(f"{name}={value}")
        self._folder, self._command, self._patience = folder, command, patience
        self._turn = threading.BoundedSemaphore(AT_ONCE)

    def ask(self, arguments: Sequence[str], snapshot: Snapshot | None = None) -> str:
        """What the command prints; ServerError if it fails, takes too long or prints too much."""
        with self._turn, tempfile.TemporaryDirectory(prefix="headrace-") as scratch:
            note = Path(scratch) / "error.json"
            with (Path(scratch) / "said").open("w+b") as said, tempfile.TemporaryFile() as rest:
                process = subprocess.Popen(
                    self._command(arguments), cwd=self._folder, stdin=subprocess.DEVNULL,
                    stdout=said, stderr=rest, start_new_session=True,
                    env={**os.environ, **self._home, _NOTE: str(note), _MARK: scratch},
                )  # fmt: skip
                try:
                    code = self._wait(process, arguments[0], (said, rest))
                finally:
                    _end(process, scratch)
                if code:
                    rest.seek(0)
                    words = rest.read(65_536).decode(errors="replace")
                    raise _failed(arguments[0], code, note, words, snapshot)
                said.seek(0)
                answer = said.read(MOST + 1)
        if len(answer) > MOST:
            raise _too_long(arguments[0])
        return answer.decode(errors="replace")

    def ask_json(self, arguments: Sequence[str], snapshot: Snapshot | None = None) -> Any:
        answer = self.ask(arguments, snapshot)
        try:
            return json.loads(answer)
        except ValueError:
            raise ServerError(
                "HR-SERVER-033",
                f"`headrace {arguments[0]}` has not answered in JSON: {answer[:200]!r}",
                "Does the program write to standard output itself, past Python's print?",
            ) from None

    def _wait(self, process: subprocess.Popen[bytes], verb: str, printed: Sequence[IO[Any]]) -> int:
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK)
            if any(os.fstat(file.fileno()).st_size > MOST for file in printed):
                raise _too_long(verb)
        raise ServerError(
            "HR-SERVER-018",
            f"`headrace {verb}` has not answered within {self._patience:g} s",
            "Does the program wait for something while it is imported? Or ask again later.",
        )


def _end(process: subprocess.Popen[bytes], scratch: str) -> None:
    """With all that it has started."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    kill_marked(f"{_MARK}={scratch}")


def _too_long(verb: str) -> ServerError:
    return ServerError(
        "HR-SERVER-019",
        f"the answer of `headrace {verb}` is longer than {MOST >> 20} MB",
        "Ask for less: a limit, or a part. Does the program print while it is imported?",
    )


def _failed(verb: str, code: int, note: Path, words: str, snapshot: Snapshot | None) -> ServerError:
    """The error that the command has noted; else what it has printed."""
    own: Callable[[str], str] = snapshot.in_users_words if snapshot else str
    with suppress(OSError, ValueError, KeyError):
        noted = json.loads(note.read_text(encoding="utf-8"))
        where = f"  ({noted['site']})" if noted.get("site") else ""
        return _noted(str(noted["code"]), own(noted["fact"]) + where, own(noted["hint"] or ""))
    last = own(words.strip().splitlines()[-1]) if words.strip() else "it has said nothing"
    return ServerError(
        "HR-SERVER-020",
        f"`headrace {verb}` has ended with {code}: {last}",
        "Try the same command by hand.",
    )


def _noted(code: str, fact: str, hint: str) -> ServerError:
    """The error of another process, under its own code."""
    return ServerError(code, fact, hint or None)
