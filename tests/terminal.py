"""A terminal for tests: `headrace` commands typed in this process, on its Spark session.

Standard output and standard error are one screen, for Python's streams and for the file
descriptors: what a job prints comes from a process that Spark started, and goes to the latter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import typer

from headrace.cli.app import app


@dataclass(frozen=True)
class Typed:
    """What came of a command."""

    exit_code: int
    output: str


def type_in(words: list[str], ctrl_c: Callable[[str], bool] | None = None) -> Typed:
    """Run `headrace WORDS`; press Ctrl-C once `ctrl_c` says so of what is on the screen."""
    with tempfile.NamedTemporaryFile("w", 1, encoding="utf-8") as screen:  # as > out 2>&1 does
        with _shown_on(screen), _pressed_when(Path(screen.name), ctrl_c):
            code = _call(words)
        return Typed(code, Path(screen.name).read_text(encoding="utf-8"))


def forget(folder: Path) -> None:
    """Unload the modules that were loaded from files in `folder`."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}/"):
            del sys.modules[name]


def _call(words: list[str]) -> int:
    try:
        typer.main.get_command(app).main(words, prog_name="headrace")
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@contextlib.contextmanager
def _shown_on(screen: TextIO) -> Iterator[None]:
    kept = [os.dup(1), os.dup(2)]
    try:
        for descriptor in (1, 2):
            os.dup2(screen.fileno(), descriptor)
        with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
            yield
    finally:
        for descriptor, known in zip((1, 2), kept, strict=True):
            os.dup2(known, descriptor)
            os.close(known)


@contextlib.contextmanager
def _pressed_when(screen: Path, ready: Callable[[str], bool] | None) -> Iterator[None]:
    if ready is None:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            if ready(screen.read_text(encoding="utf-8")):
                os.kill(os.getpid(), signal.SIGINT)
                return

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
