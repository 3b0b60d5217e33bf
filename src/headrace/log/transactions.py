"""Transactions: records of several topics that appear together, or not at all.

    <log>/.transactions/<n>.records   the records of transaction n
    <log>/.transactions/pending       the one that is committed, and perhaps not in all its topics
    <log>/.transactions/last          the one before
    <log>/.transactions/lock          held by whoever commits or completes one

One at a time, in this order:

    1. lock; complete what a process that died has left
    2. write the records, already divided among partitions, and sync them
    3. write what belongs to it as `pending`, by a rename, and sync: this is the commit
    4. append to each topic; it is the log's own append number n, so that it is made once however
       often it is repeated
    5. rename `pending` to `last`; remove the records; unlock

Whoever reads a topic looks for `pending` first, and completes it if the topic is among its own. So
once a reader has seen any part of a transaction, every part is there to be seen. A topic that was
deleted meanwhile is left out.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import LogError
from headrace.files import make_folder, sync_folder
from headrace.log import disk
from headrace.log.block import pad
from headrace.log.contract import unreadable
from headrace.log.lock import locked
from headrace.log.sealed import load_sealed, store_sealed
from headrace.log.segment import damaged
from headrace.state.faults import point

FOLDER = ".transactions"
PRODUCER = "__transactions-"  # how the names begin under which transactions are appended
FORMAT = 1

Parts = Mapping[tuple[str, str], Mapping[int, pa.Table]]  # topic and its id: records by partition
Apply = Callable[[str, str, Mapping[int, pa.Table], str, int], None]


class Transactions:
    """The transactions of one log. `apply` appends to one topic, which may have gone."""

    def __init__(self, root: Path, patience: float, apply: Apply) -> None:
        self._folder = root / FOLDER
        self._pending = os.fspath(self._folder / "pending")
        self._patience, self._apply = patience, apply

    def settle(self, topic: str) -> None:
        """Complete a transaction that is committed and has records for this topic."""
        if not os.path.exists(self._pending):
            return
        manifest = load_sealed(self._folder / "pending", FORMAT, _damaged)
        if manifest is not None and any(part[0] == topic for part in manifest["parts"]):
            with self._locked():
                self._complete()

    def commit(self, parts: Parts, producer: str | None, sequence: int | None) -> bool:
        """Commit records of several topics; False if this producer has done so before."""
        make_folder(self._folder)
        with self._locked():
            self._complete()
            last = load_sealed(self._folder / "last", FORMAT, _damaged) or {
                "number": 0, "id": secrets.token_hex(8), "producers": {},
            }  # fmt: skip
            producers = last["producers"]
            if producer is not None:
                if sequence <= producers.get(producer, -1):
                    return False
                producers = {**producers, producer: sequence}
            number = last["number"] + 1
            with self._before_commit():
                entries = self._write(number, parts)
                manifest = {
                    "number": number, "id": last["id"], "producers": producers, "parts": entries,
                }  # fmt: skip
                store_sealed(self._folder / "prepared", FORMAT, manifest)
                point("log.transaction.prepared")
                os.rename(self._folder / "prepared", self._pending)
            with self._after_commit():
                sync_folder(self._folder)
                point("log.transaction.committed")
                self._complete()
        return True

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            with locked(self._folder / "lock", self._patience):
                yield
        except OSError as error:
            raise unreadable(self._folder, error) from error

    def _write(self, number: int, parts: Parts) -> list[list[Any]]:
        """The records as Arrow streams, one after the other; where each lies."""
        buffers: list[Any] = []
        entries: list[list[Any]] = []
        at = 0
        for (topic, id), tables in parts.items():
            for partition, table in tables.items():
                data = _packed(table)
                entries.append([topic, id, partition, at, data.size, zlib.crc32(data)])
                buffers += [data, bytes(pad(data.size))]
                at += data.size + pad(data.size)
        path = self._records(number)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            disk.write(fd, buffers, 0)
            disk.sync(fd)
        finally:
            os.close(fd)
        return entries

    def _records(self, number: int) -> Path:
        return self._folder / f"{number}.records"

    def _complete(self) -> None:
        """Append what is committed, if anything is; the caller holds the lock."""
        manifest = load_sealed(self._folder / "pending", FORMAT, _damaged)
        if manifest is None:
            return
        number, producer = manifest["number"], PRODUCER + manifest["id"]
        for (topic, id), tables in self._read(number, manifest["parts"]).items():
            self._apply(topic, id, tables, producer, number)
            point("log.transaction.applied")
        os.rename(self._pending, self._folder / "last")
        sync_folder(self._folder)
        point("log.transaction.done")
        with suppress(OSError):  # what is left costs space only
            self._records(number).unlink(missing_ok=True)

    def _read(self, number: int, entries: list[list[Any]]) -> Parts:
        return _stored(self._records(number), entries)

    @contextmanager
    def _before_commit(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LogError(
                "HR-LOG-010",
                f"cannot commit a transaction: {error.strerror or error} ({self._folder})",
                "Nothing of it was appended. Free space or repair the permissions, then try again.",
            ) from error

    @contextmanager
    def _after_commit(self) -> Iterator[None]:
        try:
            yield
        except (OSError, LogError) as error:
            why = error.message if isinstance(error, LogError) else error.strerror or error
            raise LogError(
                "HR-LOG-029",
                f"a transaction is committed, but not in all its topics yet: {why}",
                "Do not send it again. Readers of its topics see all of it, or an error, and the "
                "next of them completes it once the disk can be written.",
            ) from error


def _packed(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def check_committed(path: Path) -> None:
    """Raise LogError unless `pending`, or `last`, is whole, and the records of what is pending."""
    manifest = load_sealed(path, FORMAT, _damaged)
    if manifest is not None and path.name == "pending":
        _stored(path.with_name(f"{manifest['number']}.records"), manifest["parts"])


def _stored(path: Path, entries: list[list[Any]]) -> Parts:
    try:
        with pa.memory_map(str(path)) as file:
            data = file.read_buffer()
    except FileNotFoundError as error:
        raise _damaged(path) from error
    parts: dict[tuple[str, str], dict[int, pa.Table]] = {}
    for topic, id, partition, at, size, crc in entries:
        packed = data.slice(at, size)
        if packed.size < size or zlib.crc32(packed) != crc:
            raise damaged(path, at, "the records of a transaction are damaged")
        table = pa.ipc.open_stream(packed).read_all()
        parts.setdefault((topic, id), {})[partition] = table
    return parts


def _damaged(path: Path) -> LogError:
    return LogError(
        "HR-LOG-011",
        f"the file '{path}' of a transaction is damaged or missing",
        "Restore it from a copy: it says what was committed and is not in all topics yet.",
    )
