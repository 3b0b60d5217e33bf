"""Batches that Spark transforms: a task asks, the driver answers.

A task has the rows of a batch, and the driver has the session. So the task writes its rows to a
file in the job's folder and waits; the driver passes them to the user's function as a DataFrame
and writes the result next to them. None of it is durable: a task that starts again asks again.

A task that waits holds one of Spark's cores, and what it waits for needs another.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.driver.start import Start
from headrace.engine.driver_worker import DriverThread, clean_folder, reason, to_arrow_table
from headrace.engine.session import at_once
from headrace.errors import RunError
from headrace.files import replacing
from headrace.ops.stream.whole_batches import Transform
from headrace.plan.nodes import Node, Stateful
from headrace.sinks.durable import named
from headrace.task.dead_letters import user_trace

FOLDER = "batches"
REQUEST, RESULT, FAILURE = ".asked", ".given", ".failed"
_STEP = b"headrace.step"
_POLL = 0.01  # seconds
_LONGEST = 0.05  # seconds that a task sleeps before it looks again

_lock = threading.Lock()
_running: set[SparkBatches] = set()  # in this process: a task of each may wait


class SparkFailure(Exception):
    """The user's function, or what it asked of Spark, failed on the driver."""


@dataclass(frozen=True)
class DriverCall:
    """In a task, stands in for the function that the driver has."""

    folder: str
    token: int
    step: str

    def __call__(self, rows: pa.Table) -> pa.Table:
        place = Path(self.folder) / f"{self.token}-{uuid.uuid4().hex}"
        write_rows(place.with_suffix(REQUEST), rows.replace_schema_metadata({_STEP: self.step}))
        try:
            return self._answer(place)
        finally:
            for suffix in (REQUEST, RESULT, FAILURE):
                place.with_suffix(suffix).unlink(missing_ok=True)

    def _answer(self, place: Path) -> pa.Table:
        pause = _POLL
        while True:
            waiting = place.with_suffix(REQUEST).exists()  # it goes when the answer is there
            if place.with_suffix(RESULT).exists():
                return read_rows(place.with_suffix(RESULT))
            if place.with_suffix(FAILURE).exists():
                failed = json.loads(place.with_suffix(FAILURE).read_text())
                failure = SparkFailure(failed["reason"])
                failure.add_note(failed["trace"])
                raise failure
            if not waiting:
                raise RunError(
                    "HR-RUN-012",
                    f"the driver does not answer step {self.step!r}",
                    "It could not write to the job's folder, or another run has taken it. "
                    "Nothing is lost: start the job again.",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)


class SparkBatches:
    """All steps of one run whose batches go through Spark."""

    def __init__(self, start: Start, spark: SparkSession, say: Callable[[str], None]) -> None:
        self._spark = spark
        self._folder, self._token = Path(start.log.folder) / FOLDER, start.token
        self._steps: dict[str, tuple[Stateful, Transform]] = {}
        for node in start.bundle.program.nodes.values():
            if isinstance(node, Stateful) and isinstance(node.what, Transform) and node.what.spark:
                self._steps[node.name] = node, node.what
        self._worker = DriverThread(spark, "headrace-batches", say)

    def first(self) -> dict[str, Node]:
        """Be ready to answer; the nodes that tasks must have to ask."""
        if self._steps or self._folder.is_dir():
            clean_folder(self._folder, self._token)
        if not self._steps:
            return {}
        self._take_core()
        self._worker.begin(self._answer_all, _POLL)
        return {name: self._calling(name) for name in self._steps}

    def _calling(self, name: str) -> Stateful:
        node, what = self._steps[name]
        ask = DriverCall(str(self._folder), self._token, name)
        return replace(node, what=replace(what, ask=ask))

    def give_core(self) -> None:
        """No task of this run waits any more."""
        with _lock:
            _running.discard(self)

    def close(self) -> None:
        """Answer no more."""
        self.give_core()
        self._worker.close()

    def _take_core(self) -> None:
        """Refuse to begin if tasks could hold all cores, waiting for a batch that needs one."""
        cores = at_once(self._spark)
        with _lock:
            if len(_running) + 1 >= cores:
                node, _ = next(iter(self._steps.values()))
                raise _no_core(node, cores, len(_running))
            _running.add(self)

    def _answer_all(self) -> None:
        requests = self._folder.glob(f"{self._token}-*{REQUEST}")
        self._worker.answer_each(requests, self._answer)

    def _answer(self, request: Path) -> None:
        try:
            rows = read_rows(request)
            result = self._transformed(rows)
        except BaseException as error:  # a function may call sys.exit
            if self._worker.over:  # it was cancelled, and so is the task
                return
            failed = {"reason": reason(error), "trace": user_trace(error)}
            replace_file(
                request.with_suffix(FAILURE), lambda path: path.write_text(json.dumps(failed))
            )
        else:
            write_rows(request.with_suffix(RESULT), result)

    def _transformed(self, rows: pa.Table) -> pa.Table:
        _, what = self._steps[rows.schema.metadata[_STEP].decode()]
        with self._worker.tagged():
            assert what.fn is not None
            return to_arrow_table(
                what.fn(self._spark.createDataFrame(rows.replace_schema_metadata()))
            )


def write_rows(path: Path, rows: pa.Table) -> None:
    def write(fresh: Path) -> None:
        with pa.OSFile(str(fresh), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
            writer.write_table(rows)

    replace_file(path, write)


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Write `path` so that a reader sees all of it or nothing."""
    with named(path), replacing(path) as fresh:
        write(fresh)


def read_rows(path: Path) -> pa.Table:
    with pa.OSFile(str(path)) as file:
        return pa.ipc.open_stream(file).read_all()


def _no_core(node: Node, cores: int, others: int) -> RunError:
    shared = f", and {others} of them can be held by other runs of this process" if others else ""
    return RunError(
        "HR-RUN-011",
        f"step {node.name!r} holds a core while Spark transforms its batch on another, but there "
        f"{'is one' if cores == 1 else f'are {cores}'}{shared}",
        'Give Spark more cores: master="local[2]" or above; or use engine="arrow".',
        site=node.site,
    )
