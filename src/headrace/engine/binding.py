"""The one Spark query of a job: a Python source, a level per shuffle, a Python sink.

Everything here is glue: it turns Arrow batches into envelopes and calls `task/` and `driver/`. The
source's planner and the sink's committer each live in a driver-side process of their own;
they meet only in the job's folder.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from headrace.driver.commit import Committer
from headrace.driver.planner import Pace, Planner
from headrace.engine.failure import marked
from headrace.engine.pickled_program import PickledBundle
from headrace.epoch.envelope import DDL, REPORT, Envelope, pack, unpack
from headrace.epoch.report import Report
from headrace.epoch.values import Offset
from headrace.state.epochs import EpochLog
from headrace.state.faults import point
from headrace.task.level_task import run_level
from headrace.task.source_task import run_source

_BEAT = 1.0  # seconds between signs that the planner answers


@dataclass(frozen=True)
class Binding:
    """What the query's processes must know of the run."""

    name: str  # of the format under which Spark knows this run
    cargo: PickledBundle
    folder: str
    token: int
    pace: Pace
    keep: int
    heartbeat: str  # the file that says that the planner answers


def data_source(binding: Binding) -> type[DataSource]:
    """Spark's view of a job: a format that is both its source and its sink."""

    class HeadraceDataSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return binding.name

        def schema(self) -> str:
            return DDL

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return JobReader(binding)

        def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
            return JobWriter(binding)

    return HeadraceDataSource


class JobReader(DataSourceStreamReader):
    """The source: on the driver it plans epochs, in tasks it reads."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._made: Planner | None = None
        self._beaten = 0.0

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            bundle, log = self._binding.cargo.open(), EpochLog(self._binding.folder)
            self._made = Planner(bundle, log, bundle.clock, self._binding.pace)
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {"_binding": self._binding, "_made": None, "_beaten": 0.0}

    def initialOffset(self) -> dict[str, Any]:
        with marked():
            return self._planner.start().to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        with marked():
            offset = self._planner.advance(Offset.from_json(start)).to_json()
        if time.monotonic() - self._beaten >= _BEAT:
            self._beaten = time.monotonic()
            Path(self._binding.heartbeat).touch()
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with marked():
            point("offset.written")
            tasks = self._planner.tasks(Offset.from_json(start), Offset.from_json(end))
            return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with releasing_memory(), marked():
            yield from _batches(run_source(self._binding.cargo.open(), partition.value))

    def commit(self, end: dict[str, Any]) -> None:
        with marked():
            self._planner.committed(Offset.from_json(end))

    def stop(self) -> None:
        for source in self._binding.cargo.open().sources.values():
            source.close()


@dataclass(frozen=True)
class Level:
    """The function that Spark maps over each partition of a level."""

    cargo: PickledBundle
    number: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with releasing_memory(), marked():
            yield from _batches(run_level(self.cargo.open(), self.number, unpack(batches)))


def _batches(envelopes: Iterator[Envelope]) -> Iterator[pa.RecordBatch]:
    """A few envelopes a batch: chunks leave as they come, small ones and notes together."""
    held: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        held.append(envelope)
        size += len(envelope.payload)
        if size > _BATCH_BYTES:
            yield pack(held)
            held, size = [], 0
    if held:
        yield pack(held)


_BATCH_BYTES = 1 << 20


@dataclass
class TaskReports(WriterCommitMessage):
    reports: list[dict[str, Any]]


class JobWriter(DataSourceStreamArrowWriter):
    """The sink: tasks hand over their reports, the driver commits the epoch."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._made: Committer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_binding": self._binding, "_made": None}

    @property
    def _committer(self) -> Committer:
        if self._made is None:
            binding = self._binding
            bundle, log = binding.cargo.open(), EpochLog(binding.folder)
            self._made = Committer(
                bundle, log, binding.token, binding.pace.slots, bundle.clock, binding.keep
            )
        return self._made

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return TaskReports([e.note() for e in unpack(iterator) if e.op == REPORT])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with marked():
            found = [m for m in messages if isinstance(m, TaskReports)]
            self._committer.commit([Report.from_json(r) for m in found for r in m.reports])
            point("commit.done")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing to undo: what no manifest names does not exist."""


# Memory that a task no longer needs goes back to the system.
#
# Spark's Python workers live on between tasks and take turns, so what each of them keeps for
# later adds up: four workers that once held a chunk hold four chunks.


@contextmanager
def releasing_memory() -> Iterator[None]:
    """Free what is free when the task is done."""
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
        _trim()


def _trimmer() -> Callable[[], object]:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return lambda: None
    return lambda: trim(0)


_trim = _trimmer()
