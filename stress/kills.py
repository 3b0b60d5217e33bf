"""Many appenders and readers on one log, killed, and failing, at any moment.

Appenders die by SIGKILL from outside and at random durable steps, and get errors of the disk
at others; a ballast fills a small disk now and then, where there is one. Readers check all the
while that ends never go back and that no append is half there.
"""

from __future__ import annotations

import errno
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa

from headrace.errors import LogError
from headrace.log import EmbeddedLog
from headrace.state import faults
from stress.journal import PARTITIONS, Journal, Tally, compare, contents, read_notes

FORK = multiprocessing.get_context("fork")
FAILING = ("log.write", "log.sync", "log.sync_folder", "log.cut", "log.remove")
SEGMENT = 200_000


def append(log: EmbeddedLog, journal: Journal, number: int, chance: random.Random) -> None:
    """One append over all partitions; half of them may be retried, and are."""
    name = f"{journal.name}:{number} {'x' * chance.randrange(200)}"
    retry = {"producer": journal.name, "sequence": number} if number % 2 else {}
    for _ in range(3):
        journal.note("T", number)
        try:
            acks = log.append(
                "t", [name] * PARTITIONS, partitioner=lambda *_: range(PARTITIONS), **retry
            )
            journal.note("A", number, *(acks[p].first for p in range(PARTITIONS)))
            return
        except LogError as error:
            journal.note("E", number, error.code)
            if not retry:
                return


def appender(root: Path, notes: Path, name: str, seed: int, risk: float) -> None:
    chance, journal = random.Random(seed), Journal(notes, name)

    def hook(point: str) -> None:
        drawn = chance.random()
        if drawn < risk:
            os.kill(os.getpid(), signal.SIGKILL)
        if drawn < 2 * risk and point in FAILING:
            number = errno.EIO if point == "log.sync" else errno.ENOSPC
            raise OSError(number, os.strerror(number))

    log = EmbeddedLog(root, patience=30)
    with faults.hooked(hook):
        for number in itertools.count():
            append(log, journal, number, chance)


def reader(root: Path, found: Path) -> None:
    """Look again and again; note what is wrong."""
    log, before = EmbeddedLog(root), {p: 0 for p in range(PARTITIONS)}
    names: dict[int, list[str]] = {p: [] for p in range(PARTITIONS)}
    while True:
        try:
            ends = log.latest("t")
            back = [p for p in ends if ends[p] < before[p]]
            if back or len(set(ends.values())) > 1:
                raise AssertionError(f"ends went from {before} to {ends}")
            for p, end in ends.items():
                for first, table in log.read("t", p, before[p], end):
                    assert first == len(names[p])
                    names[p] += [v.decode().split(" ")[0] for v in table["value"].to_pylist()]
            assert all(names[p] == names[0] for p in names), "half of an append"
            before = ends
        except (Exception, AssertionError) as error:
            found.write_text(f"{type(error).__name__} {error}")
            raise


def kills(
    folder: Path, notes: Path, seconds: float, appenders: int, seed: int, *, disk: bool = False
) -> Tally:
    """Run it for some time and compare; `disk` says that the folder is a disk of its own."""
    pa.array([0])  # imports what it needs here, and not in every fork
    root, chance = folder / "log", random.Random(seed)
    EmbeddedLog(root).create("t", PARTITIONS, segment_bytes=SEGMENT)
    names = (f"a{n}" for n in itertools.count())
    tally = Tally()

    def start() -> BaseProcess:
        work = (root, notes, next(names), chance.getrandbits(32), 0.000_5)
        process = FORK.Process(target=appender, args=work, daemon=True)
        process.start()
        return process

    readers = [
        FORK.Process(target=reader, args=(root, notes / f"reader{i}"), daemon=True)
        for i in range(2)
    ]
    for process in readers:
        process.start()
    running, until, ballast = [start() for _ in range(appenders)], time.monotonic() + seconds, None
    while time.monotonic() < until:
        time.sleep(chance.random() * 0.2)  # no synchronisation: a moment like any other
        victim = chance.randrange(appenders)
        if chance.random() < 0.5:
            running[victim].kill()
        for i, process in enumerate(running):
            if not process.is_alive() or (i == victim and chance.random() < 0.1):
                process.kill()
                process.join()
                running[i], tally.faults = start(), tally.faults + 1
        if disk and chance.random() < 0.1:
            ballast = _fill(folder) if ballast is None else ballast.unlink()
            tally.faults += 1
    for process in [*running, *readers]:
        if process in readers and process.exitcode is not None:
            tally.violations.append(f"a reader ended with {process.exitcode}")
        process.kill()
        process.join()
    if ballast is not None:
        ballast.unlink()
    tally.violations += [p.read_text() for p in notes.glob("reader*")]
    tally += check(root, notes)
    return tally


def check(root: Path, notes: Path) -> Tally:
    """Compare after everybody has gone, and once more after another append."""
    log = EmbeddedLog(root)
    tally = compare(read_notes(notes), contents(log))
    append(log, Journal(notes, "last"), 0, random.Random(0))
    tally.violations += compare(read_notes(notes), contents(log)).violations
    return tally


def _fill(folder: Path) -> Path:
    """Take what room there is."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(min(1 << 16, max(1, shutil.disk_usage(folder).free))))
    return ballast
