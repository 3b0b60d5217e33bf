"""Inputs whose rows are stored in the job's folder first, and read from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import InputError
from headrace.sources.columns import conform
from headrace.sources.contract import BEGINNING, Chunk, Range, Source, even_cuts, refuse_shorter
from headrace.sources.stored_rows import StoredInput

SPLIT = "rows"
LEAST = 16_384  # rows: fewer are not worth a task of their own


class StoredSource(Source):
    """What inputs share whose rows are stored first."""

    raw = False
    forgets = True
    because = "rows are stored in the job's folder before they are used"

    def __init__(self, schema: pa.Schema, home: Path | None, what: str) -> None:
        self.schema, self._home, self.what = schema, home, what
        self._opened: StoredInput | None = None
        self._committed = 0

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def rows_stored(self) -> StoredInput:
        if self._home is None:
            raise InputError(
                "HR-INPUT-013",
                f"{self.what} needs a job's folder, to store what is read",
                "Read it in a job.",
            )
        if self._opened is None:
            self._opened = StoredInput(self._home)
        return self._opened

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        start, end = self._bounds()
        at = offsets.get(SPLIT, start)
        refuse_shorter(self.in_words(SPLIT), at, end)
        if at < start:
            raise InputError(
                "HR-INPUT-011",
                f"the first {start} rows of {self.what} were read and forgotten",
                "Go on from a later epoch, or start with a new job folder.",
            )

    def _bounds(self) -> tuple[int, int]:
        return self.rows_stored.bounds() if self._home is not None else (0, 0)

    def has_more(self, split: str, offset: int) -> bool:
        return self._bounds()[1] != offset

    def splits(self) -> list[str]:
        return [SPLIT]

    def start(self, split: str) -> int:
        return self._bounds()[0]

    def latest(self, split: str) -> int:
        return self._bounds()[1]

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        refuse_shorter(self.in_words(split), start, end)
        bounds = even_cuts(start, end, pieces, LEAST)
        return [Range(split, a, b) for a, b in pairwise(bounds)]

    def read(self, range: Range) -> Iterator[Chunk]:
        for table, offsets in self.rows_stored.read(range.start, range.end):
            yield conform(table, self.schema), offsets

    def where(self, split: str, offset: int) -> str:
        return f"{self.what} row {offset + 1}"

    def commit(self, offsets: Mapping[str, int]) -> None:
        if SPLIT in offsets:
            self._committed = offsets[SPLIT]
            self.rows_stored.forget(self.forgettable(SPLIT, offsets[SPLIT]))

    def close(self) -> None:
        if self._opened is not None:
            self._opened.unlock()
