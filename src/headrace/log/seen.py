"""Which appends of a producer have been made, so that a retry is recognised and nothing else is.

For each producer and partition the sequences made, as ranges: numbers that grow by one are one
range for ever. Where they leave gaps the oldest ranges are forgotten in the end; a sequence
from before that cannot be told apart from one that was made, and is refused by name.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import LogError
from headrace.log.block import Note
from headrace.log.contract import Ack

RANGES = 256  # remembered of one producer in one partition


@dataclass(slots=True)
class _Made:
    """Sequences made, as inclusive ranges in order; nothing is known of those below `floor`."""

    last: Note | None = None
    ranges: list[tuple[int, int]] = field(default_factory=list)
    floor: int = 0

    def __contains__(self, sequence: int) -> bool:
        at = bisect_right(self.ranges, (sequence, 2**63)) - 1
        return at >= 0 and sequence <= self.ranges[at][1]

    def add(self, sequence: int) -> None:
        if sequence in self:
            return
        insort(self.ranges, (sequence, sequence))
        at = self.ranges.index((sequence, sequence))
        for i in (at + 1, at):  # join with the range after, then with the one before
            if 0 < i < len(self.ranges) and self.ranges[i - 1][1] + 1 == self.ranges[i][0]:
                self.ranges[i - 1 : i + 1] = [(self.ranges[i - 1][0], self.ranges[i][1])]
        if len(self.ranges) > RANGES:
            self.floor = self.ranges.pop(0)[1] + 1


class Seen:
    """What producers have appended to a topic, up to some place."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, int], _Made] = {}

    def answer(self, producer: str, partition: int, sequence: int) -> Ack | None:
        """What an append made before was answered (its place, if it was the last one)."""
        made = self._made.get((producer, partition))
        if made is None or (sequence not in made and sequence >= made.floor):
            return None
        if sequence not in made:
            raise _too_old(producer, partition, sequence, made.floor)
        last = made.last
        assert last is not None
        return Ack(last.first, last.end if sequence == last.sequence else last.first)

    def note(self, partition: int, notes: Iterable[Note]) -> None:
        for note in notes:
            made = self._made.setdefault((note.producer, partition), _Made())
            made.last = note
            made.add(note.sequence)

    def dump(self) -> list[Any]:
        return [
            [name, partition, made.floor, list(made.last or ())[1:], made.ranges]
            for (name, partition), made in self._made.items()
        ]

    @classmethod
    def load(cls, dumped: Iterable[Any]) -> Seen:
        seen = cls()
        for name, partition, floor, last, ranges in dumped:
            made = _Made(Note(name, *last), [(low, high) for low, high in ranges], floor)
            seen._made[name, partition] = made
        return seen


def _too_old(producer: str, partition: int, sequence: int, floor: int) -> LogError:
    return LogError(
        f"producer {producer!r} appends sequence {sequence} to partition {partition}, where only "
        f"those from {floor} on are remembered", code="HR-LOG-017",
        hint="It may have been made long ago, or never. Give each appender a name of its own, "
        "and numbers that grow by one.",
    )  # fmt: skip
