"""What appenders tried and were answered, written down outside the log, and the comparison.

Every append is one record for each partition, named by its appender and a number of its own,
so that whoever reads the log can tell what is missing, doubled or half there.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from headrace.log import EmbeddedLog

PARTITIONS = 4
NOTHING = ("HR-LOG-010", "HR-LOG-016")  # errors that say that nothing was appended


@dataclass(slots=True)
class Tally:
    """What a check did and found."""

    faults: int = 0
    records: int = 0
    violations: list[str] = field(default_factory=list)

    def __iadd__(self, other: Tally) -> Tally:
        self.faults += other.faults
        self.records += other.records
        self.violations += other.violations
        return self


class Journal:
    """One appender's notes: `T n` tried, `A n first...` acknowledged, `E n code` refused."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._fd = os.open(folder / f"{name}.journal", flags, 0o644)

    def note(self, kind: str, number: int, *more: object) -> None:
        os.write(self._fd, (" ".join(map(str, (kind, number, *more))) + "\n").encode())


@dataclass(slots=True)
class Notes:
    tried: set[str] = field(default_factory=set)
    acked: dict[str, tuple[int, ...]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)


def read_notes(folder: Path) -> Notes:
    notes = Notes()
    for path in folder.glob("*.journal"):
        for line in path.read_text().splitlines():
            kind, number, *more = line.split()
            append = f"{path.stem}:{number}"
            if kind == "T":
                notes.tried.add(append)
                notes.refused.discard(append)
            elif kind == "A":
                notes.acked[append] = tuple(map(int, more))
            elif more[0] in NOTHING:
                notes.refused.add(append)
    return notes


def contents(log: EmbeddedLog, topic: str = "t") -> dict[int, list[str]]:
    """The names of the appends in each partition, in order."""
    found: dict[int, list[str]] = {}
    for partition, end in log.latest(topic).items():
        names = found[partition] = []
        for first, table in log.read(topic, partition, 0, end):
            assert first == len(names)
            names += [value.decode().split(" ")[0] for value in table["value"].to_pylist()]
        assert len(names) == end
    return found


def compare(notes: Notes, found: dict[int, list[str]]) -> Tally:
    """Acknowledged ones are there, once, where they were said to be; others in all or none."""
    tally = Tally(records=sum(map(len, found.values())))
    wrong = tally.violations
    for partition, names in found.items():
        wrong += [f"{n} is there {c} times" for n, c in Counter(names).items() if c > 1]
        wrong += [f"{n} was never appended" for n in set(names) - notes.tried]
        wrong += [f"{n} was refused, and is there" for n in set(names) & notes.refused]
        wrong += [f"{n} is half there" for n in set(names) ^ set(found[0])]
        for name, places in notes.acked.items():
            place = places[partition]
            if place >= len(names) or names[place] != name:
                wrong.append(f"{name} was acknowledged at {partition}/{place}, and is not there")
    return tally
