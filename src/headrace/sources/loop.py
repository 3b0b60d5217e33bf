"""What a component of a topology sends back to an earlier one, as an input of the job.

Its end is where the others' is and nothing goes round any more, which the planner knows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import InputError
from headrace.schema import ddl_of
from headrace.sources.contract import BEGINNING, Chunk, Range, Source, even_cuts, refuse_shorter
from headrace.state.loops import LoopFolder, place_of

_SPLIT = "0"


class LoopSource(Source):
    label = "loop"
    raw = False
    forgets = True
    bounded = True
    loops = True

    def __init__(self, name: str, schema: pa.Schema, folder: Path | None = None) -> None:
        self._name, self.schema, self._folder = name, schema, folder

    @property
    def title(self) -> str:
        """What it is, for `explain`."""
        return "what comes back"

    def for_job(self, home: Path | None) -> LoopSource:
        """The same source in the folder of a job, in which `home` is the input's."""
        return LoopSource(self._name, self.schema, None if home is None else home.parent.parent)

    def identity(self) -> dict[str, str]:
        return {"kind": "loop", "place": self._name, "thing": ddl_of(self.schema)}

    def check(self, offsets: Mapping[str, int] = BEGINNING) -> None:
        end = self.latest(_SPLIT)
        for split, offset in offsets.items():
            refuse_shorter(self.in_words(split), offset, end)
            for _ in self._loop().parts(offset, end):  # an error if one is missing
                pass

    def splits(self) -> list[str]:
        return [_SPLIT]

    def start(self, split: str) -> int:
        return 0

    def latest(self, split: str) -> int:
        return 0 if self._folder is None else self._loop().end()

    def clamp(self, split: str, start: int, end: int, rows: int) -> int:
        left = max(1, rows)
        for file, lo, hi in self._loop().parts(start, end):
            if hi - lo >= left:
                return place_of(file.epoch, lo + left)
            left -= hi - lo
        return end

    def rows(self, split: str, start: int, end: int) -> int:
        refuse_shorter(self.in_words(split), start, end)
        return sum(hi - lo for _, lo, hi in self._loop().parts(start, end)) if start < end else 0

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        rows = self.rows(split, start, end)
        cuts, at, ranges = even_cuts(0, rows, pieces), start, list[Range]()
        for begin, until in pairwise(cuts):
            upto = end if until == rows else self.clamp(split, at, end, until - begin)
            ranges.append(Range(split, at, upto))
            at = upto
        return ranges

    def read(self, range: Range) -> Iterator[Chunk]:
        loop = self._loop()
        for file, lo, hi in loop.parts(range.start, range.end):
            rows = loop.read(file).slice(lo, hi - lo)
            first = place_of(file.epoch, lo)
            yield rows.select(self.schema.names), np.arange(first, first + rows.num_rows)

    def where(self, split: str, offset: int) -> str:
        return f"{self._name}, tuple {offset}"

    def commit(self, offsets: Mapping[str, int]) -> None:
        for split, offset in offsets.items():
            self._loop().forget(self.forgettable(split, offset))

    def _loop(self) -> LoopFolder:
        if self._folder is None:
            raise InputError("HR-INPUT-013", "a loop needs a job's folder", "Read it in a job.")
        return LoopFolder(self._folder, self._name)
