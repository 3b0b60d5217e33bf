"""A topic's folder: its settings in `topic.json`, its head, its segments.

    <log>/<topic>/topic.json      settings, checksummed, written once
    <log>/<topic>/head            up to where the topic is published
    <log>/<topic>/<place>.log     segments, with the blocks of all partitions, each with an .index
    <log>/<topic>/write, sync     locks of appenders

A topic appears and disappears by one rename, so no process sees half of one. The random id in
the settings is repeated, shortened, in the head and in every block: a topic that was deleted
and made again is never mistaken for its namesake.
"""

from __future__ import annotations

import base64
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import LogError
from headrace.files import replace_durably
from headrace.log import disk
from headrace.log.contract import BYTES, unreadable
from headrace.log.head import Head, HeadFile
from headrace.log.lock import locked
from headrace.log.segment import SegmentSnapshot, pack_snapshot, segment_path
from headrace.schema import ddl_of

FORMAT = 2
EXTENDED = 3  # the format of topics that an earlier version would read wrongly
MOST_VERSIONS = 4096  # of a topic's columns: what the flags of a block can hold
SEGMENT_BYTES = 128 * 1024 * 1024
_LEAST_SEGMENT = 64 * 1024
_NEW, _GONE = ".new-", ".gone-"  # folders of topics that are being made, or removed
_LEFT = re.compile(r"\.(new|gone)-.+-[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Topic:
    """Where a topic lies and what it was made to be."""

    path: Path
    id: str  # 32 hexadecimal digits, drawn when the topic was made
    partitions: int
    schema: pa.Schema | None
    key: str | None
    retention_ms: int | None
    retention_bytes: int | None
    segment_bytes: int
    created: int
    widths: tuple[int, ...] = ()  # how many columns each version had, if any were added
    retention_groups: bool = False  # records that a consumer group has not committed stay
    tombstone_ms: int | None = None  # compacted: how long the deletion of a key stays

    @property
    def version(self) -> int:
        """The number of times that columns were added."""
        return max(0, len(self.widths) - 1)

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that were added: records may leave them out."""
        return tuple(self.columns.names[self.widths[0] :]) if self.widths else ()

    def columns_of(self, version: int) -> pa.Schema:
        """The columns of a block of this version, which are the first ones of today's."""
        return (
            pa.schema(list(self.columns)[: self.widths[version]]) if self.widths else self.columns
        )

    @property
    def compacted(self) -> bool:
        """Whether only the newest record of each key stays."""
        return self.tombstone_ms is not None

    @property
    def key_column(self) -> str:
        """The column that compaction goes by."""
        return self.key or "key"

    @property
    def compact_lock(self) -> Path:
        return self.path / "compact"

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def columns(self) -> pa.Schema:
        return BYTES if self.schema is None else self.schema

    @property
    def segment_ms(self) -> int | None:
        """How long a segment is filled, so that retention by time has segments to remove."""
        return None if self.retention_ms is None else max(1, self.retention_ms // 8)

    @property
    def tag(self) -> int:
        """The id, shortened to fit a block's header."""
        return int(self.id[:8], 16)

    def is_current(self) -> bool:
        """Whether its folder still holds this topic, and not another one of the same name."""
        stored = load(self.path)
        return stored is not None and stored.id == self.id

    def check_current(self) -> None:
        if not self.is_current():
            raise FileNotFoundError(f"{self.path} was replaced")

    @property
    def head(self) -> HeadFile:
        return HeadFile(self.path / "head", self.tag, self.partitions)

    @property
    def write_lock(self) -> Path:
        return self.path / "write"

    @property
    def sync_lock(self) -> Path:
        return self.path / "sync"


def segment_size(retention_bytes: int | None, partitions: int) -> int:
    """Segments small enough that retention by size is kept to within an eighth."""
    if retention_bytes is None:
        return SEGMENT_BYTES
    return min(SEGMENT_BYTES, max(_LEAST_SEGMENT, retention_bytes * partitions // 8))


def new_id() -> str:
    return secrets.token_hex(16)


def create(topic: Topic) -> bool:
    """Make the folder, durable when it returns; False if there is one of that name."""
    root = topic.path.parent
    root.mkdir(parents=True, exist_ok=True)
    clear_abandoned(root)
    with _draft(root, topic.name) as draft:
        try:
            _fill(draft, topic)
            disk.rename(draft, topic.path)
        except OSError as error:
            shutil.rmtree(draft, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
    disk.sync_folder(root)
    return True


@contextmanager
def _draft(root: Path, name: str) -> Iterator[Path]:
    """A new folder, locked while a topic is made in it: one without a lock is abandoned."""
    while True:
        draft = root / f"{_NEW}{name}-{secrets.token_hex(8)}"
        draft.mkdir()
        try:
            folder = os.open(draft, os.O_RDONLY)
        except FileNotFoundError:  # it was taken for abandoned before it was locked
            continue
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            if draft.exists():
                yield draft
                return
        finally:
            os.close(folder)


def abandoned(root: Path) -> list[str]:
    """The folders that a `create` or `remove` that was killed may have left."""
    return sorted(filter(_LEFT.fullmatch, os.listdir(root))) if root.is_dir() else []


def clear_abandoned(root: Path) -> None:
    """Remove what a `create` or `remove` that was killed has left."""
    for name in filter(_LEFT.fullmatch, os.listdir(root)):
        if name.startswith(_GONE):
            shutil.rmtree(root / name, ignore_errors=True)
        else:
            _remove_unlocked(root / name)


def _remove_unlocked(draft: Path) -> None:
    try:
        folder = os.open(draft, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(draft, ignore_errors=True)  # it stays locked: whoever made it makes another
    except OSError:
        return
    finally:
        os.close(folder)


def _fill(draft: Path, topic: Topic) -> None:
    disk.new_file(draft / "topic.json", _dump(topic))
    none = (0,) * topic.partitions
    snapshot = SegmentSnapshot(0, 0, topic.created, 0, 0, none, none, [])
    data = pack_snapshot(topic.tag, snapshot)
    disk.new_file(segment_path(draft, 0), data)
    start, now = len(data), topic.created
    head = Head(0, b"", 0, 0, 0, 0, start, now, start, 0, 0, none, none, none, none)
    HeadFile(draft / "head", topic.tag, topic.partitions).restart(head)
    for lock in (topic.write_lock, topic.sync_lock):
        (draft / lock.name).touch()
    disk.sync_folder(draft)


def remove(topic: Topic, patience: float) -> None:
    """Take the folder away once running appends are done."""
    removed = topic.path.parent / f"{_GONE}{topic.name}-{secrets.token_hex(8)}"
    with locked(topic.sync_lock, patience), locked(topic.write_lock, patience):
        topic.check_current()
        disk.rename(topic.path, removed)
    disk.sync_folder(topic.path.parent)
    shutil.rmtree(removed, ignore_errors=True)


def alter(topic: Topic, widened: Callable[[Topic], Topic], patience: float) -> None:
    """Store the settings that `widened` makes of those that are there."""
    with locked(topic.sync_lock, patience), locked(topic.write_lock, patience):
        topic.check_current()
        stored = load(topic.path)
        assert stored is not None
        new = widened(stored)
        if new != stored:
            replace_durably(topic.path / "topic.json", _dump(new))


def load(path: Path) -> Topic | None:
    """The topic in this folder; None if there is none."""
    try:
        data = json.loads((path / "topic.json").read_bytes())
        crc = data.pop("crc")
        if crc != _crc(data):
            raise ValueError("checksum")
        return _parse(path, data)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(path / "topic.json", error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LogError(
            "HR-LOG-011",
            f"the settings '{path / 'topic.json'}' are damaged",
            "Restore the file from a copy; it changes only when columns are added.",
        ) from error


def _parse(path: Path, data: dict[str, Any]) -> Topic:
    if data["format"] not in (FORMAT, EXTENDED):
        raise LogError(
            "HR-LOG-014",
            f"topic '{path.name}' has format {data['format']}, this version reads {EXTENDED}",
            "Use the version of headrace that wrote it, or a later one.",
        )
    packed = data["schema"]
    schema = packed and pa.ipc.read_schema(pa.py_buffer(base64.b64decode(packed)))
    return Topic(
        path,
        data["id"],
        data["partitions"],
        schema,
        data["key"],
        data["retention_ms"],
        data["retention_bytes"],
        data["segment_bytes"],
        data["created"],
        tuple(data.get("widths", ())),
        data.get("retention_groups", False),
        data.get("tombstone_ms"),
    )


def _dump(topic: Topic) -> bytes:
    schema = topic.schema
    data = {
        "format": FORMAT,
        "id": topic.id,
        "partitions": topic.partitions,
        "columns": None if schema is None else ddl_of(schema),  # for people; `schema` is exact
        "schema": None if schema is None else base64.b64encode(schema.serialize()).decode(),
        "key": topic.key,
        "retention_ms": topic.retention_ms,
        "retention_bytes": topic.retention_bytes,
        "segment_bytes": topic.segment_bytes,
        "created": topic.created,
    }
    extended: dict[str, Any] = {}
    if topic.widths:
        extended["widths"] = topic.widths
    if topic.retention_groups:
        extended["retention_groups"] = True
    if topic.tombstone_ms is not None:
        extended["tombstone_ms"] = topic.tombstone_ms
    if extended:
        data |= {"format": EXTENDED, **extended}
    return json.dumps({**data, "crc": _crc(data)}, indent=2).encode() + b"\n"


def _crc(data: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(data, sort_keys=True).encode())
