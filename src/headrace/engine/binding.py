"""The one Spark query of a job: a Python source, a level per shuffle, a Python sink.

Everything here is glue: it turns Arrow batches into envelopes and calls `task/` and `driver/`. The
source's planner and the sink's committer each live in a driver-side process of their own;
they meet only in the job's folder.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

from headrace import import_path
from headrace.driver.commit import Committer
from headrace.driver.planner import Pace, Planner
from headrace.engine.failure import marked
from headrace.epoch.bundle import Bundle
from headrace.epoch.envelope import DDL, REPORT, Envelope, pack, unpack
from headrace.epoch.report import Report
from headrace.epoch.values import Offset
from headrace.errors import is_users
from headrace.ops.watermarks import CustomWatermark
from headrace.plan.nodes import Chunks, Stateful
from headrace.state.epochs import EpochLog
from headrace.state.faults import point
from headrace.task.level_task import run_level
from headrace.task.source_task import run_source

_BEAT = 1.0  # seconds between signs that the planner answers


@dataclass(frozen=True)
class PickledBundle:
    """A bundle as bytes that every worker can open: in flight, never at rest.

    It is pickled by value once per query and unpickled once per worker process; each task after
    that finds it by its digest.
    """

    digest: str
    content: bytes
    folders: tuple[str, ...] = ()  # where the modules are that it names

    @staticmethod
    def pack(bundle: Bundle) -> PickledBundle:
        modules = _user_modules(bundle)
        for module in modules:  # the user's script is not installed where the workers run
            cloudpickle.register_pickle_by_value(module)
        try:
            content = cloudpickle.dumps(bundle)
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)
        return PickledBundle(
            hashlib.sha256(content).hexdigest(), content, tuple(import_path.users())
        )

    def open(self) -> Bundle:
        return _opened(self)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PickledBundle) and other.digest == self.digest


@lru_cache(maxsize=4)
def _opened(cargo: PickledBundle) -> Bundle:
    import_path.extend(cargo.folders)
    bundle: Bundle = cloudpickle.loads(cargo.content)
    return bundle


def _user_modules(bundle: Bundle) -> tuple[ModuleType, ...]:
    """The modules of the user's functions that are not installed packages."""
    program = bundle.program
    functions: list[Any] = [p.function.fn for p in program.python()]
    functions += [s.fn for s in bundle.sources.values() if hasattr(s, "fn")]
    watermarks = [r.watermark for r in program.sources()]
    functions += [w.kind for w in watermarks if isinstance(w, CustomWatermark)]
    for node in program.nodes.values():
        functions += node.what.functions if isinstance(node, Chunks | Stateful) else ()
    names = {getattr(f, "__module__", None) for f in functions}
    modules = [sys.modules[n] for n in names if n and n != "__main__" and n in sys.modules]
    return tuple(m for m in modules if _is_users(m))


def _is_users(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None) or ""
    installed = ("site-packages", "dist-packages")
    return bool(file) and is_users(file) and not any(place in file for place in installed)


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
        self._cached: Planner | None = None
        self._last_beat = 0.0

    @property
    def _planner(self) -> Planner:
        if self._cached is None:
            bundle, log = self._binding.cargo.open(), EpochLog(self._binding.folder)
            self._cached = Planner(bundle, log, bundle.clock, self._binding.pace)
        return self._cached

    def __getstate__(self) -> dict[str, Any]:
        return {"_binding": self._binding, "_cached": None, "_last_beat": 0.0}

    def initialOffset(self) -> dict[str, Any]:
        with marked():
            return self._planner.start().to_json()

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:
        with marked():
            offset = self._planner.advance(Offset.from_json(start)).to_json()
        if time.monotonic() - self._last_beat >= _BEAT:
            self._last_beat = time.monotonic()
            Path(self._binding.heartbeat).touch()
        return offset

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with marked():
            point("offset.written")
            tasks = self._planner.tasks(Offset.from_json(start), Offset.from_json(end))
            return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with releasing_memory(), marked():
            yield from _batches(run_source(self._binding.cargo.open(), partition.value, _retries()))

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
            yield from _batches(
                run_level(self.cargo.open(), self.number, unpack(batches), _retries())
            )


def _batches(envelopes: Iterator[Envelope]) -> Iterator[pa.RecordBatch]:
    """A few envelopes a batch: chunks leave as they come, small ones and notes together."""
    batch: list[Envelope] = []
    size = 0
    for envelope in envelopes:
        batch.append(envelope)
        size += len(envelope.payload)
        if size > _BATCH_BYTES:
            yield pack(batch)
            batch, size = [], 0
    if batch:
        yield pack(batch)


_BATCH_BYTES = 1 << 20


def _retries() -> int:
    """How often Spark has begun this task before."""
    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0


@dataclass
class TaskReports(WriterCommitMessage):
    reports: list[dict[str, Any]]


class JobWriter(DataSourceStreamArrowWriter):
    """The sink: tasks hand over their reports, the driver commits the epoch."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._cached: Committer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_binding": self._binding, "_cached": None}

    @property
    def _committer(self) -> Committer:
        if self._cached is None:
            binding = self._binding
            bundle, log = binding.cargo.open(), EpochLog(binding.folder)
            self._cached = Committer(
                bundle, log, binding.token, binding.pace.slots, bundle.clock, binding.keep
            )
        return self._cached

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return TaskReports([e.note() for e in unpack(iterator) if e.op == REPORT])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with marked():
            received = [m for m in messages if isinstance(m, TaskReports)]
            self._committer.commit([Report.from_json(r) for m in received for r in m.reports])
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
