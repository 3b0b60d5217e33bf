"""Inputs whose splits are the partitions of a topic: what those of every log have in common.

Offsets count records, so a range is divided by arithmetic. Before each use it is checked that the
records are still there.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise

from headrace.errors import InputError
from headrace.sources.contract import Range, Source, even_cuts

LEAST = 16_384  # records: fewer are not worth a task of their own


class TopicSource(Source):
    _topic: str
    _ends: dict[str, int]  # of a bounded input, once they are known

    @abstractmethod
    def end_now(self, split: str) -> int:
        """The offset after the last record that is there now."""

    @abstractmethod
    def still_there(self, split: str, start: int, end: int) -> None:
        """Raise InputError if records of the range are gone."""

    def latest(self, split: str) -> int:
        if split in self._ends:
            return self._ends[split]
        end = self.end_now(split)
        if self.bounded:
            self._ends[split] = end
        return end

    def clamp(self, split: str, start: int, end: int, rows: int) -> int:
        self.still_there(split, start, end)
        return min(end, start + max(1, rows))

    def rows(self, split: str, start: int, end: int) -> int:
        self.still_there(split, start, end)
        return end - start

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        self.still_there(split, start, end)
        return [Range(split, a, b) for a, b in pairwise(even_cuts(start, end, pieces, LEAST))]

    def in_words(self, split: str) -> str:
        return f"partition {split} of topic {self._topic!r}"

    def where(self, split: str, offset: int) -> str:
        return f"topic {self._topic} partition {split} offset {offset}"

    def overtaken(self, split: str, start: int, earliest: int, hint: str) -> InputError:
        """The error of records that retention has removed before they were read."""
        return InputError(
            "HR-INPUT-011",
            f"records {start} to {earliest - 1} of {self.in_words(split)} were removed by "
            "retention before they were read",
            f"Keep records for longer than the job may be behind. {hint}",
        )
