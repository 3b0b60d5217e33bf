"""What the driver does with Spark on behalf of tasks, because it alone has a session.

It does so in a thread of its own, next to the query; what is unfinished when the run is over is
abandoned. The names of files that it leaves for tasks begin with the number of this start, so a
driver that has lost the folder cannot touch the files of the next one.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from headrace.files import TEMPORARY
from headrace.sinks.durable import folder_for, named

_OF_A_START = re.compile(r"(\d+)-.*")
_RAISED = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt)\b(: |$)")  # of a traceback
_POLL = 0.1  # seconds
_PATIENCE = 5.0  # seconds for a batch to notice that the run is over


class DriverThread:
    """A thread that calls a function again and again, until it is closed."""

    def __init__(self, spark: SparkSession, name: str, say: Callable[[str], None]) -> None:
        self._spark, self._name, self._say = spark, name, say
        self._reported = ""
        self._over = threading.Event()
        self._tag = f"{name}-{uuid.uuid4().hex}"
        self._thread: threading.Thread | None = None

    @property
    def over(self) -> bool:
        return self._over.is_set()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, turn: Callable[[], None], every: float) -> None:
        """From now on, call `turn` every so many seconds."""

        def work() -> None:
            while not self._over.wait(every):
                try:
                    turn()
                except BaseException as error:  # whatever it is, the next turn must come
                    self._complain(error)

        self._thread = threading.Thread(target=work, name=self._name, daemon=True)
        self._thread.start()

    def answer_each(self, requests: Iterable[Path], answer: Callable[[Path], None]) -> None:
        """Answer requests that lie in files, until it is closed; no file is left."""
        for request in requests:
            if self.over:
                return
            try:
                answer(request)
            finally:
                request.unlink(missing_ok=True)  # also without an answer: nobody waits for ever

    def _complain(self, error: BaseException) -> None:
        """Report what went wrong, once however often it does."""
        message = reason(error)
        if message != self._reported and not self.over:
            self._reported = message
            self._say(f"what the driver does for its tasks failed: {message}")

    @contextmanager
    def tagged(self) -> Iterator[None]:
        """Spark's jobs in here can be cancelled by `close`."""
        self._spark.sparkContext.addJobTag(self._tag)
        try:
            yield
        finally:
            with suppress(Exception):  # what went wrong before says more
                self._spark.sparkContext.removeJobTag(self._tag)

    def close(self) -> None:
        """Do no more; a batch that is under way is cancelled."""
        self._over.set()
        deadline = time.monotonic() + _PATIENCE
        while self._thread and self.alive and time.monotonic() < deadline:
            with suppress(Exception):  # Spark may be gone
                self._spark.sparkContext.cancelJobsWithTag(self._tag)
            self._thread.join(_POLL)  # one that had not begun may have, since


def clean_folder(folder: Path, token: int) -> None:
    """Create the folder if it is missing; remove what earlier starts have left there."""
    folder_for(folder)
    with named(folder):
        for path in folder.iterdir():
            match = _OF_A_START.fullmatch(path.name)
            if path.name.startswith(TEMPORARY) or (match and int(match[1]) < token):
                path.unlink(missing_ok=True)


def to_arrow_table(result: Any) -> pa.Table:
    """What a function of the user's returned: a DataFrame, or a table that it has collected."""
    if isinstance(result, pa.Table):
        return result
    if not hasattr(result, "toArrow"):
        raise TypeError(f"the function returned {result!r}, not a DataFrame")
    return result.toArrow()


def reason(error: BaseException) -> str:
    """What happened in one line: of Spark's text, the first line that explains anything."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        return lines[1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def why(error: BaseException) -> str:
    """The same; of what failed in a Python worker, what the user's function raised."""
    raised = [line for line in str(error).splitlines() if _RAISED.match(line)]
    found = reason(error)
    return raised[-1] if raised and "Python worker" in found else found
