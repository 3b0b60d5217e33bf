"""The head of a topic: up to where each partition is acknowledged, in one small file.

Appenders sync their blocks first and publish the head afterwards, so a reader that stays
below the head sees only durable, whole appends, and an append over several partitions
becomes visible at once. The file has two slots, written in turn: a writer that dies spoils
the older one only.

The head itself is synced rarely. It is *trusted* only on the boot that wrote it (then the
page cache vouches for it) and only when both slots are sound; otherwise it is a lower bound,
and blocks beyond it are found by scanning (see `recovery.py`).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import subprocess
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headrace.errors import LogError
from headrace.log.contract import unreadable
from headrace.log.lock import locked

MAGIC = b"HRH1"
_PAGE = 4096
_SLOT = struct.Struct("<4sIIIQ16s")  # magic, crc of the rest, partitions, topic id, version, boot
_ENTRY = struct.Struct("<qqqqq")
_TRIES = 20  # a reader that meets a writer in both slots reads again


class Entry(NamedTuple):
    """One partition: its last segment, the bytes used there, and the offsets it holds."""

    segment: int = 0
    position: int = 0
    end: int = 0
    earliest: int = 0
    time: int = 0  # of the last append


@dataclass(frozen=True, slots=True)
class Heads:
    topic: int
    version: int
    boot: bytes
    entries: tuple[Entry, ...]


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
        return secrets.token_hex(16)  # nobody trusts another's head then: slower, as right


class HeadFile:
    def __init__(self, path: Path, topic: int, partitions: int, lock: Path) -> None:
        self.path = path
        self.topic = topic
        self.lock = lock
        self.partitions = partitions
        length = _SLOT.size + partitions * _ENTRY.size
        self._slot = -(-length // _PAGE) * _PAGE

    def read(self) -> tuple[Heads | None, bool]:
        """The newest sound slot, and whether it can be trusted."""
        heads: Heads | None = None
        for _ in range(_TRIES):
            heads, whole = self._read()
            if whole:
                assert heads is not None
                return heads, heads.boot == boot_id()
        return heads, False

    def _read(self) -> tuple[Heads | None, bool]:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None, False
        except OSError as error:
            raise unreadable(self.path, error) from error
        try:
            data = os.pread(fd, 2 * self._slot, 0)
        except OSError as error:
            raise unreadable(self.path, error) from error
        finally:
            os.close(fd)
        slots = [s for s in (self._parse(data, 0), self._parse(data, self._slot)) if s]
        newest = max(slots, key=lambda s: s.version, default=None)
        whole = len(slots) == 2 and abs(slots[0].version - slots[1].version) == 1
        return newest, whole

    def _parse(self, data: bytes, at: int) -> Heads | None:
        length = _SLOT.size + self.partitions * _ENTRY.size
        raw = data[at : at + length]
        if len(raw) < length:
            return None
        magic, crc, count, topic, version, boot = _SLOT.unpack_from(raw)
        if magic != MAGIC or count != self.partitions or zlib.crc32(raw[8:]) != crc:
            return None
        entries = tuple(map(Entry._make, _ENTRY.iter_unpack(raw[_SLOT.size :])))
        return Heads(topic, version, boot, entries)

    def publish(self, changes: Mapping[int, Entry]) -> None:
        """Move some partitions' heads, all at once for readers."""
        with locked(self.lock):
            heads, trusted = self.read()
            if heads is None or not trusted:
                raise LogError(
                    f"the head '{self.path}' was damaged during an append", code="HR-LOG-011",
                    hint="The append is not acknowledged. Append again: the log repairs its head.",
                )  # fmt: skip
            entries = [changes.get(p, e) for p, e in enumerate(heads.entries)]
            self._write(heads.version + 1, entries)

    def restart(self, entries: list[Entry]) -> None:
        """Write both slots anew for this boot; durable when it returns."""
        with locked(self.lock):
            heads, _ = self.read()
            version = heads.version if heads else 0
            self._write(version + 1, entries)
            self._write(version + 2, entries)
            self.sync()

    def _write(self, version: int, entries: list[Entry]) -> None:
        body = b"".join(_ENTRY.pack(*e) for e in entries)
        rest = _SLOT.pack(b"", 0, len(entries), self.topic, version, boot_id())[8:] + body
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            slot = _SLOT.pack(MAGIC, zlib.crc32(rest), 0, 0, 0, b"")[:8] + rest
            os.pwrite(fd, slot, version % 2 * self._slot)
        finally:
            os.close(fd)

    def sync(self) -> None:
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
