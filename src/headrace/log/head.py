"""The head of a topic: up to where it is published, in one small file.

What a head says is on disk: blocks are synced first, the head is written afterwards, so a
reader that stays below it sees only durable, whole appends. The file has two slots, written
in turn: a writer that dies spoils the older one only. Whoever writes holds the lock `sync`.

The head itself is synced rarely. It is *trusted* only on the boot that wrote it (then the
page cache vouches for it) and only when both slots are sound; otherwise it is a lower bound,
and what lies beyond is found by whoever holds the locks (see `recovery.py`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import subprocess
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headrace.clock import SystemClock
from headrace.log import disk
from headrace.log.contract import unreadable

MAGIC = b"HRH2"
_PAGE = 4096
_SLOT = struct.Struct("<4sIIIQ16sI4xqqqqqqqq")
_TRIES = 20  # a reader that meets a writer in both slots reads again


class Head(NamedTuple):
    """A place in the log, and what the partitions hold there."""

    version: int
    boot: bytes
    generation: int  # grows when what was written and not published is given up
    since: int  # the place from which on it was
    first: int  # the oldest segment
    segment: int  # the newest one
    start: int  # where blocks begin in it
    opened: int  # when it was begun, milliseconds
    position: int  # the bytes used in it
    time: int  # of the last append
    clock: int  # the same for retention: see `age`
    ends: tuple[int, ...]
    sizes: tuple[int, ...]  # bytes of each partition since the topic was made
    earliest: tuple[int, ...]
    removed: tuple[int, ...]  # bytes of each partition that retention has removed

    @property
    def place(self) -> int:
        """The same as a number that grows through all segments."""
        return self.segment + self.position


def age(time: int) -> int:
    """From when on an append of this time counts as old: not later than the machine's clock says.

    The time of an append never goes back; where a clock was set back, it is in the future.
    """
    return min(time, SystemClock().now())


@cache
def boot_id() -> bytes:
    """What changes when this machine restarts."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        text = _sysctl("kern.bootsessionuuid")  # macOS
    return hashlib.blake2b(text.strip().encode(), digest_size=16).digest()


def _sysctl(name: str) -> str:
    command = ["sysctl", "-n", name]
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return secrets.token_hex(16)  # then no other process trusts the head: slower, but correct


class HeadFile:
    def __init__(self, path: Path, topic: int, partitions: int) -> None:
        self.path = path
        self._name = os.fspath(path)
        self._topic = topic
        self._partitions = partitions
        self._entries = struct.Struct(f"<{4 * partitions}q")
        self._length = _SLOT.size + self._entries.size
        self._slot = -(-self._length // _PAGE) * _PAGE
        self._parsed: dict[int, tuple[bytes, Head]] = {}  # the slots as they were read last

    def read(self) -> tuple[Head | None, bool]:
        """The newest sound slot, and whether it can be trusted."""
        head: Head | None = None
        for _ in range(_TRIES):
            head, whole = self._read()
            if head is None or whole:
                break
        else:
            whole = False
        return head, head is not None and whole and head.boot == boot_id()

    def is_whole(self) -> bool:
        """Whether both slots are sound, so that the file is as it was written last."""
        return self.read()[0] is not None and any(self._read()[1] for _ in range(_TRIES))

    def _raw(self) -> bytes | None:
        """The bytes of the file; None if there is none."""
        try:
            fd = os.open(self._name, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise unreadable(self.path, error) from error
        try:
            return os.pread(fd, self._slot + self._length, 0)
        except OSError as error:
            raise unreadable(self.path, error) from error
        finally:
            os.close(fd)

    def _read(self) -> tuple[Head | None, bool]:
        data = self._raw()
        if data is None:
            return None, False
        slots = [s for s in (self._parse(data, 0), self._parse(data, self._slot)) if s]
        newest = max(slots, key=lambda s: s.version, default=None)
        whole = len(slots) == 2 and abs(slots[0].version - slots[1].version) == 1
        return newest, whole

    def _parse(self, data: bytes, at: int) -> Head | None:
        raw = data[at : at + self._length]
        cached = self._parsed.get(at)
        if cached is not None and cached[0] == raw:
            return cached[1]
        if len(raw) < self._length:
            return None
        magic, crc, count, topic, *values = _SLOT.unpack_from(raw)
        if magic != MAGIC or (topic, count) != (self._topic, self._partitions):
            return None
        if zlib.crc32(raw[8:]) != crc:
            return None
        entries = self._entries.unpack_from(raw, _SLOT.size)
        n = self._partitions
        head = Head(*values, *(entries[i * n : i * n + n] for i in range(4)))
        self._parsed[at] = (raw, head)
        return head

    def publish(self, head: Head, after: int) -> Head:
        """Write the head as the version that follows `after`; readers see it at once."""
        head = head._replace(version=after + 1, boot=boot_id())
        slot = _SLOT.pack(b"", 0, self._partitions, self._topic, *head[:11])
        entries = self._entries.pack(*head.ends, *head.sizes, *head.earliest, *head.removed)
        rest = slot[8:] + entries
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            whole = MAGIC + zlib.crc32(rest).to_bytes(4, "little") + rest
            disk.write(fd, [whole], head.version % 2 * self._slot)
        finally:
            os.close(fd)
        return head

    def restart(self, head: Head) -> Head:
        """Write both slots anew for this boot; durable when it returns."""
        head = self.publish(head, head.version)
        head = self.publish(head, head.version)
        self.sync()
        return head

    def sync(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            disk.sync(fd)
        finally:
            os.close(fd)
