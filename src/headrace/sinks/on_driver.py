"""Outputs that the driver's process delivers, because it alone has a Spark session.

An epoch is published by another process, which has no session: it asks the driver, and waits
until the rows are delivered. At a start the driver delivers what was promised by itself. What
tasks stage, and the order of epochs, is that of every output elsewhere.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError, OutputError
from headrace.sinks.own import Output

TABLE = "table"  # the scheme of tables of Spark's catalog
Ask = Callable[[pa.Table, str, int], None]
_sessions: list[Callable[[], Any]] = []


def connect(session: Callable[[], Any]) -> None:
    """How a session is found, or started; the package says so."""
    _sessions[:] = [session]


def session() -> Any:
    """The Spark session of this process; one is started if there is none."""
    return _sessions[0]()


class DriverOutput(Output):
    """An output whose `on_driver` needs the driver's process."""

    ask: Ask | None = None  # in other processes: how the driver is asked

    def asking(self, ask: Ask) -> DriverOutput:
        """The same output for a process that is not the driver's."""
        other = copy.copy(self)
        other.ask = ask
        return other

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        if self.ask is not None:
            return self.ask(rows, producer, epoch)
        try:
            self.on_driver(rows, producer, epoch)
        except HeadraceError:
            raise
        except Exception as cause:
            raise self.failed(epoch, f"{type(cause).__name__}: {cause}") from cause

    def on_driver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        raise NotImplementedError

    def failed(self, epoch: int, why: str) -> OutputError:
        raise NotImplementedError


@dataclass(eq=False)
class ForEachBatch(DriverOutput):
    """A function of the user's that gets the rows of each epoch, and its number."""

    kind = "for_each_batch"  # at rest
    because = "after a crash the function may get an epoch again, with the same number and rows"
    engine: str = "spark"
    fn: Callable[[Any, int], object] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"fn": None}  # it may hold a session: it never travels

    def on_driver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        if self.fn is None:
            raise OutputError(
                "HR-OUTPUT-080",
                f"the job has rows of epoch {epoch} for a function of for_each_batch, and the "
                "program has no such output now",
                "Start the job once with the output it had; then leave it out.",
            )
        self.fn(session().createDataFrame(rows) if self.engine == "spark" else rows, epoch)

    def failed(self, epoch: int, why: str) -> OutputError:
        return OutputError(
            "HR-OUTPUT-081",
            f"the function of for_each_batch failed for epoch {epoch}: {why}",
            "Nothing is lost: the rows stay in the job's folder. Correct the cause and start the "
            "job again: the function is called with the same rows and the same epoch.",
        )


def is_driver_output(uri: object) -> bool:
    """Whether what a program writes to is delivered by the driver."""
    return isinstance(uri, DriverOutput) or str(uri).startswith(f"{TABLE}:")
