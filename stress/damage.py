"""Every kind of file of a log damaged in every way: the right answer or a named error.

A log is made, copied, and one file of the copy is flipped, cut, removed, emptied, filled with
noise, or replaced by what it was earlier. Whoever reads then gets what was acknowledged, or an
error of the log; whoever appends is refused, or adds to all that was acknowledged.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from headrace.clock import ManualClock
from headrace.errors import LogError
from headrace.log import EmbeddedLog
from stress.journal import PARTITIONS, Tally, contents

Harm = Callable[[Path, Path, random.Random], None]


def _flip(path: Path, _: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _cut(path: Path, _: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size + 1))


def _remove(path: Path, _: Path, chance: random.Random) -> None:
    path.unlink()


def _noise(path: Path, _: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(path.stat().st_size))


def _empty(path: Path, _: Path, chance: random.Random) -> None:
    os.truncate(path, 0)


def _earlier(path: Path, earlier: Path, chance: random.Random) -> None:
    if (earlier / path.name).exists():
        shutil.copy(earlier / path.name, path)


def _lengthen(path: Path, _: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 500)))


HARMS: tuple[Harm, ...] = (_flip, _cut, _remove, _noise, _empty, _earlier, _lengthen)


def make(folder: Path) -> tuple[Path, Path, dict[int, list[str]]]:
    """A log with several segments, a copy from earlier, and what was acknowledged."""
    root, earlier = folder / "log", folder / "earlier"
    log = EmbeddedLog(root, ManualClock(1_000_000))
    log.create("t", PARTITIONS, segment_bytes=6_000)
    for number in range(30):
        log.append(
            "t", [f"a:{number}"] * PARTITIONS, partitioner=lambda *_: range(PARTITIONS),
            producer="a", sequence=number,
        )  # fmt: skip
        if number == 20:
            shutil.copytree(root / "t", earlier)
    return root, earlier, contents(log)


def damage(folder: Path, rounds: int, seed: int) -> Tally:
    root, earlier, acked = make(folder)
    tally, chance = Tally(), random.Random(seed)
    files = sorted(path.name for path in (root / "t").iterdir())
    for _ in range(rounds):
        for name in files:
            for harm in HARMS:
                copy = folder / "copy"
                shutil.copytree(root, copy)
                harm(copy / "t" / name, earlier, chance)
                fault = f"{harm.__name__[1:]} {name}"
                tally += _judge(copy, fault, acked)
                shutil.rmtree(copy)
    return tally


def _judge(root: Path, fault: str, acked: dict[int, list[str]]) -> Tally:
    tally = Tally(faults=1)
    for step in (_reads, _appends, _reads):
        try:
            found = step(EmbeddedLog(root, ManualClock(2_000_000), patience=5))
        except LogError:
            continue
        except Exception as error:
            tally.violations.append(f"{fault}: {type(error).__name__} {error}")
            continue
        tally.records += sum(map(len, found.values()))
        for partition, names in acked.items():
            kept, more = found[partition][: len(names)], found[partition][len(names) :]
            stale = fault.startswith("earlier head") and step is _reads
            if kept != names[: len(kept)] or (len(kept) < len(names) and not stale):
                tally.violations.append(f"{fault}: {step.__name__} partition {partition} is wrong")
            if set(more) - {"new"}:
                tally.violations.append(f"{fault}: {more} were never appended")
    return tally


def _reads(log: EmbeddedLog) -> dict[int, list[str]]:
    log.describe("t")
    for partition in range(PARTITIONS):
        log.offset_for_time("t", partition, 1_000_000)
    return contents(log)


def _appends(log: EmbeddedLog) -> dict[int, list[str]]:
    log.append("t", ["new"] * PARTITIONS, partitioner=lambda *_: range(PARTITIONS))
    log.append(
        "t", ["a:29"] * PARTITIONS, partitioner=lambda *_: range(PARTITIONS),
        producer="a", sequence=29,
    )  # fmt: skip
    return contents(log)
