"""Power cuts: what was not synced may be gone, file by file, when the machine comes back.

Appends run until a drawn step; then every file is cut somewhere between what was synced and
what was written (the head may also be what it was when it was synced), the machine "boots", and
what was acknowledged must be there, the append in flight as a whole or not at all.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.clock import ManualClock
from headrace.errors import LogError
from headrace.log import EmbeddedLog, disk, head, recovery
from headrace.state import faults
from stress.journal import PARTITIONS, Journal, Tally, compare, contents, read_notes
from stress.kills import append


class Cut(BaseException):
    """The power is gone."""


class Disk:
    """What is on disk for certain: the bytes of each file when it was synced last."""

    def __init__(self) -> None:
        self.synced: dict[int, bytes] = {}  # by inode

    def sync(self, fd: int) -> None:
        faults.point("log.sync")
        self.synced[os.fstat(fd).st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def lose(self, folder: Path, chance: random.Random) -> None:
        for path in sorted(folder.iterdir()):
            now, then = path.read_bytes(), self.synced.get(path.stat().st_ino, b"")
            if path.suffix in (".log", ".json"):
                kept = chance.randrange(len(then), len(now) + 1) if len(now) > len(then) else 0
                data = bytearray(now[:kept] if kept else now)
                for at in range(len(then), len(data), 64):  # pages of the tail come in any order
                    if chance.random() < 0.2:
                        data[at : at + 64] = bytes(len(data[at : at + 64]))
                path.write_bytes(data)
            elif path.name == "head" and then and chance.random() < 0.7:
                slot = chance.choice([slice(0, 4096), slice(4096, None), slice(None)])
                data = bytearray(now.ljust(len(then), b"\0"))
                data[slot] = then[slot]
                path.write_bytes(data)
            elif path.suffix == ".index" and chance.random() < 0.5:
                path.unlink()


@contextmanager
def _machine(disk_: Disk, boot: int) -> Iterator[None]:
    before = disk.sync, head.boot_id, recovery.boot_id
    disk.sync = disk_.sync
    head.boot_id = recovery.boot_id = lambda: boot.to_bytes(16, "little")
    try:
        yield
    finally:
        disk.sync, head.boot_id, recovery.boot_id = before


def power(folder: Path, rounds: int, seed: int) -> Tally:
    tally, chance = Tally(), random.Random(seed)
    for number in range(rounds):
        place = folder / str(number)
        (place / "notes").mkdir(parents=True)
        tally += _one(place, chance)
        shutil.rmtree(place)
    return tally


def _one(place: Path, chance: random.Random) -> Tally:
    drive, tally = Disk(), Tally()
    journal, number = Journal(place / "notes", "a"), 0
    for boot in range(1, 4):
        with _machine(drive, boot):
            log = EmbeddedLog(place / "log", ManualClock(1_000_000))
            with suppress(LogError):
                log.create("t", PARTITIONS, segment_bytes=3_000)
            left = chance.randrange(5, 300)

            def hook(_: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    raise Cut

            with suppress(Cut), faults.hooked(hook):
                while left > 0 and number < 1_000 * boot:
                    number += 1
                    append(log, journal, number, chance)
        drive.lose(place / "log" / "t", chance)
        tally.faults += 1
        with _machine(drive, boot + 1):
            try:
                log = EmbeddedLog(place / "log", ManualClock(1_000_000))
                tally += compare(read_notes(place / "notes"), contents(log))
            except LogError as error:
                tally.violations.append(f"after a power cut: {error}")
                break
    return tally
