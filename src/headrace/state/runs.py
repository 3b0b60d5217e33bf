"""Files of runs: written once by one task under a name of its own, then only read.

A file is a header of 64 bytes and blocks, each an Arrow IPC stream of one run, aligned to 64
bytes so that it can be memory-mapped. A reference says where a block is, its checksum, and
for which slots it was written; whoever opens a block gets what was written, or a StateError.
Which references count is up to the slot state in a manifest.
"""

from __future__ import annotations

import os
import weakref
import zlib
from collections import OrderedDict
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from headrace import files
from headrace.chunk import HASH, TIME
from headrace.errors import StateError
from headrace.state import sealed
from headrace.state.faults import point
from headrace.state.prune import RUNS
from headrace.state.sorted_run import SortedRun
from headrace.state.spec import GONE, TableSpec

_ALIGN = 64
_MAGIC = b"headrace run file, format "
_HEADER = (_MAGIC + str(sealed.FORMAT).encode()).ljust(_ALIGN - 1) + b"\n"
_CACHE_BYTES = 64 << 30  # of address space: pages belong to the system's cache
_LOOK = 64  # runs opened between two looks for deleted files


@dataclass(frozen=True, slots=True)
class RunRef:
    """Where a run is: a block of a file, and the slots [lo, hi) it was written for."""

    file: str
    offset: int
    length: int
    crc: int
    rows: int
    max_time: int | None
    lo: int
    hi: int

    def to_json(self) -> list[Any]:
        return list(astuple(self))

    @classmethod
    def from_json(cls, value: list[Any]) -> RunRef:
        return cls(*value)


class RunWriter:
    """The one file that a task writes: the runs of all its tables, and merged ones."""

    def __init__(self, folder: str | Path, unique: str) -> None:
        self.file = f"{unique}.run"
        self._path = Path(folder) / RUNS / self.file
        self._out: int | None = None  # a file descriptor, closed even if the task fails
        self._at = 0
        self.merged_slot = False  # whether this task has merged a slot in this epoch

    def add(self, table: pa.Table, lo: int, hi: int) -> RunRef:
        """Append a run; the reference may be used once the writer is closed."""
        block = _block(table)
        with sealed.named_failures(self._path):
            out = self._open() if self._out is None else self._out
            files.write_all(out, memoryview(block))
            files.write_all(out, bytes(-block.size % _ALIGN))
        point("run.added")
        offset, self._at = self._at, self._at + block.size + -block.size % _ALIGN
        crc, last = zlib.crc32(block), _last_time(table)
        return RunRef(self.file, offset, block.size, crc, table.num_rows, last, lo, hi)

    def _open(self) -> int:
        sealed.make_folder(self._path.parent)
        out = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._closing = weakref.finalize(self, os.close, out)
        files.write_all(out, _HEADER)
        self._out, self._at = out, len(_HEADER)
        return out

    def close(self) -> None:
        """Make the file durable; without runs there is none."""
        if self._out is None:
            return
        with sealed.named_failures(self._path):
            point("run.written")
            files.sync(self._out)
            point("run.synced")
            files.sync_folder(self._path.parent)
            point("run.durable")
        self._out = None
        self._closing()


def _last_time(table: pa.Table) -> int | None:
    timed = table.num_rows and table.column_names[0] == TIME
    return int(table[TIME][-1].as_py()) if timed else None


def _block(table: pa.Table) -> pa.Buffer:
    """One record batch in the stream, so that every column is one piece when mapped."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return sink.getvalue()


class RunCache:
    """Runs of one job, opened and verified once per process.

    They are mapped, not read, so they cost address space only; but a file that is mapped takes
    space on disk even after its deletion, so deleted ones are evicted.
    """

    def __init__(self, folder: str | Path, most: int | None = None) -> None:
        self._folder = Path(folder) / RUNS
        self._most = _CACHE_BYTES if most is None else most
        self._entries: OrderedDict[tuple[str, int, int], tuple[SortedRun, int]] = OrderedDict()
        self._opened = 0
        self._bytes = 0
        self._lock = Lock()

    def open(self, ref: RunRef, spec: TableSpec) -> SortedRun:
        """The run under `ref`; StateError if it is not what was written, or does not fit."""
        key = (ref.file, ref.offset, ref.crc)  # a folder may be emptied and filled again
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = self._run(ref, spec), ref.length
                self._bytes += ref.length
                self._opened += 1
                self._evict()
            self._entries.move_to_end(key)
        _check_columns(spec, ref, entry[0].table.schema)
        return entry[0]

    def raw(self, ref: RunRef) -> pa.Table:
        """The run under `ref` with the columns that it was written with, whatever they are."""
        return pa.ipc.open_stream(self._block(ref)).read_all()

    def _evict(self) -> None:
        """Drop the runs whose files were deleted, and the oldest while there are too many bytes."""
        if self._opened % _LOOK == 0:
            existing = set(os.listdir(self._folder))
            for key in [key for key in self._entries if key[0] not in existing]:
                self._bytes -= self._entries.pop(key)[1]
        while self._bytes > self._most and len(self._entries) > 1:
            self._bytes -= self._entries.popitem(last=False)[1][1]

    def _run(self, ref: RunRef, spec: TableSpec) -> SortedRun:
        table = pa.ipc.open_stream(self._block(ref)).read_all()
        _check_columns(spec, ref, table.schema)
        return SortedRun.of(spec, table)

    def _block(self, ref: RunRef) -> pa.Buffer:
        path = self._folder / ref.file
        with sealed.named_failures(path):
            mapped = pa.memory_map(str(path))
            header, block = mapped.read_at(_ALIGN, 0), _slice(mapped, ref)
        _check_header(path, header)
        if len(block) != ref.length:
            raise sealed.corrupt(path, f"it ends at byte {mapped.size()}")
        if zlib.crc32(block) != ref.crc:
            raise sealed.corrupt(path, f"the checksum of the block at {ref.offset} does not match")
        return block


def _slice(mapped: pa.MemoryMappedFile, ref: RunRef) -> pa.Buffer:
    mapped.seek(min(ref.offset, mapped.size()))
    return mapped.read_buffer(ref.length)


def _check_header(path: Path, header: bytes) -> None:
    if header == _HEADER:
        return
    if header.startswith(_MAGIC) and len(header) == _ALIGN:
        version = header[len(_MAGIC) :].strip().decode(errors="replace")
        raise sealed.unknown_format(path, version)
    raise sealed.corrupt(path, "it is not a run file")


def _check_columns(spec: TableSpec, ref: RunRef, stored: pa.Schema) -> None:
    if not stored.equals(spec.run):
        raise StateError(
            "HR-STATE-005",
            f"table {spec.name!r} has the columns {_columns(spec.run)}, but its state in "
            f"{ref.file!r} has {_columns(stored)}",
            "Give the changed step a new name, or drop its old state.",
        )


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}" for f in schema if f.name not in (HASH, GONE))


@lru_cache(maxsize=16)
def cache_of(folder: str) -> RunCache:
    """The cache of a job's folder in this process."""
    return RunCache(folder)
