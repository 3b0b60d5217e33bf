"""The contract of a source: splits, offsets, and ranges that can be read again.

A source is small and picklable: the driver asks it how far it goes, tasks ask it for ranges.
Reading the same range again returns the same rows with the same offsets, for as long as the range
has not been passed to `commit`. Offsets are JSON-able; nothing here knows about Spark. At the end:
what sources share, to be opened by a URI and to store what they must remember.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Mask
from headrace.clock import MIN_TIME, Clock
from headrace.errors import InputError, did_you_mean
from headrace.files import replace_durably
from headrace.guarantees import AT_MOST_ONCE, EXACTLY_ONCE
from headrace.state.sealed import make_folder

Offset = Any  # JSON-able; an int for every source in this package
Positions = npt.NDArray[np.int64]
Chunk = tuple[pa.Table, Positions]  # rows, and the offset of each: strictly increasing
Decoded = tuple[pa.Table, Mask, list[str]]

RAW = "__raw"  # the first column of a chunk that is still to be decoded: what was read
BEGINNING: Mapping[str, Offset] = MappingProxyType({})  # of a new job
MISFIT = "__misfit"  # a column of a typed chunk with bad rows: the reasons; null in good rows


@dataclass(frozen=True, slots=True)
class Range:
    """What one task reads: the records of `split` from `start` up to `end`."""

    split: str
    start: Offset
    end: Offset
    parts: tuple[Any, ...] = ()  # whatever else the source needs to read it


class Source(Protocol):
    schema: pa.Schema
    bounded: bool  # it ends: see `ended`
    raw: bool  # chunks have the column `__raw`, and what else `decode` needs after it
    format: str | None = None  # of bytes or lines, unless their place determines it
    label: ClassVar[str] = (
        ""  # of one made in a program: the name of its input if the program has none
    )
    loops: bool = False  # the job itself writes it, so it ends when all others have
    least: int = 1  # rows: to read fewer of a split in an epoch costs as much
    dense: bool = False  # every offset is that of a record: ranges can be counted unread
    dated: bool = False  # it knows when each record came to it: see `read_dated`
    forgets: bool = False  # it removes rows that it has stored in the job's folder: see `hold`
    held: Mapping[str, int] | None = None

    @property
    def loses(self) -> str:
        """What a crash may lose of this input, said when the job starts; empty if nothing."""
        return ""

    @property
    def guarantee(self) -> str:
        """What the job sees of this input when it is killed: see `guarantees.py`."""
        return AT_MOST_ONCE if self.loses else EXACTLY_ONCE

    @property
    def because(self) -> str:
        """Why it is so, in a few words, for the start of the job."""
        return "what a crash undoes is read again"

    @property
    def waiting(self) -> str | None:
        """What it waits for now before it can be read on; None if for nothing."""
        return None

    @property
    def listens_at(self) -> tuple[str, str] | None:
        """Where others can send to it now, and a mark of the start that began it; None if
        nowhere."""
        return None

    def identity(self) -> dict[str, str]:
        """What this input reads: as long as it is equal, offsets mean the same records.

        `kind`: the kind of input. `place`: where it is, as a user would recognise it. `thing`: what
        is there, if another may take its place under the same name. Changes nothing.
        """
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return {"kind": kind, "place": "", "thing": ""}

    def check(self, offsets: Mapping[str, Offset] = BEGINNING) -> None:
        """Raise an error, with a hint, if the input cannot be continued from `offsets`.

        `offsets` is how far the job has read, by split; empty for a new job. Changes nothing:
        no folder is created.
        """
        return None

    def has_more(self, split: str, offset: Offset) -> bool:
        """Whether there is anything after `offset` now. Changes nothing."""
        return bool(self.latest(split) != offset)

    def discover(self) -> None:
        """Look for new splits and rows, durably; called before an epoch is planned."""
        return None

    def splits(self) -> list[str]:
        """The splits there are, as far as they were discovered. Changes nothing."""
        ...

    def start(self, split: str) -> Offset:
        """The earliest offset there is."""
        return 0

    def latest(self, split: str) -> Offset:
        """The offset after the last record that can be read now; cheap, durable when returned."""
        ...

    def ended(self, split: str, offset: Offset) -> bool:
        """Whether nothing will ever come at or after `offset`; never true of unbounded input."""
        return self.bounded and bool(offset >= self.latest(split))

    def clamp(self, split: str, start: Offset, end: Offset, rows: int) -> Offset:
        """An offset about `rows` records after `start`, in (start, end] unless they are equal."""
        return min(end, start + max(1, rows))

    def rows(self, split: str, start: Offset, end: Offset) -> int:
        """The number of records in between, exact or estimated; for lag.

        An input that has become shorter than what was read of it is an InputError.
        """
        refuse_shorter(self.in_words(split), start, end)
        return int(end - start)

    def cut(self, split: str, start: Offset, end: Offset, pieces: int) -> list[Range]:
        """The range as at most `pieces` ranges of similar size, in order, without gaps."""
        bounds = even_cuts(start, end, pieces)
        return [Range(split, a, b) for a, b in pairwise(bounds)]

    def read(self, range: Range) -> Iterator[Chunk]:
        """Chunks of 64 thousand to a million rows, in order of offset."""
        ...

    def read_dated(self, range: Range) -> Iterator[tuple[Chunk, np.ndarray | None]]:
        """The same, with the times at which the records of a chunk came, in ms, if it knows."""
        return ((chunk, None) for chunk in self.read(range))

    def lost(self, split: str, end: Offset) -> str:
        """Why the records before `end` cannot all be read again, as far as it is known without
        reading them; empty if nothing is. Changes nothing."""
        return ""

    def encoding(self, names: Sequence[str]) -> Source:
        """The same source; these text columns may come dictionary encoded, as they are stored."""
        return self

    def decode(self, chunk: pa.Table) -> Decoded:
        """A raw chunk as typed rows: the good rows, a mask of the bad ones, why each is bad."""
        raise TypeError(f"{type(self).__name__} gives typed chunks")

    def commit(self, offsets: Mapping[str, Offset]) -> None:
        """Everything before `offsets` is safe: the source may forget it."""
        return None

    def hold(self, offsets: Mapping[str, int] | None) -> None:
        """Rows from `offsets` on stay, whatever is safe, until this is called again; of splits
        that it does not name all rows. None: nothing is held. Of inputs that `forgets`."""
        self.held = offsets

    def forgettable(self, split: str, safe: int) -> int:
        """Of the rows before `safe`, up to where none is held."""
        return safe if self.held is None else min(safe, self.held.get(split, 0))

    def watermark(self, split: str, offset: Offset) -> int:
        """The event time that the split has reached at `offset`, where the input itself says so."""
        return MIN_TIME

    def idle(self, split: str, offset: Offset) -> bool:
        """Whether the input itself says that nothing will come for a while after `offset`."""
        return False

    def unsettled(self, split: str) -> bool:
        """Whether something is there that may become readable or turn out to be damaged soon."""
        return False

    def gather(self) -> None:
        """What is there now is to be read before the run is over; see `gathering`."""
        return None

    def gathering(self, split: str) -> bool:
        """Whether some of what was there when the run began, or at `gather`, is still to be stored:
        `latest` will show it."""
        return False

    def in_words(self, split: str) -> str:
        """The split and its input, for errors: what was read, and from where."""
        kind, place = (self.identity()[fact] for fact in ("kind", "place"))
        return f"split {split!r} of the input {f'{kind}:{place}' if place else kind}"

    def where(self, split: str, offset: Offset) -> str:
        """The position of a record in words, for errors and dead letters."""
        return f"{split}@{offset}"

    def close(self) -> None:
        """Release threads and files; a closed source may be used again."""
        return None


def even_cuts(start: int, end: int, pieces: int, least: int = 1) -> list[int]:
    """Bounds of at most `pieces` ranges over [start, end), each at least `least` long."""
    if end <= start:
        return []
    count = max(1, min(pieces, (end - start) // max(1, least)))
    return [start + (end - start) * i // count for i in range(count + 1)]


def refuse_shorter(what: str, start: int, end: int) -> None:
    """Raise InputError if `what` ends before the place it was read up to."""
    if end < start:
        raise InputError(
            "HR-INPUT-007",
            f"{what} ends at {end}, but was read up to {start} before",
            "The input, or what the job's folder knows of it, was replaced: restore it, "
            "or start with a new job folder.",
        )


def write_durably(path: Path, content: bytes) -> None:
    """Write a file of an input in the job's folder: whole or not at all, and durable."""
    make_folder(path.parent)
    replace_durably(path, content)


def damaged(what: str, path: Path, how: str) -> InputError:
    """The error for a file of an input in the job's folder that is not as it was written."""
    return InputError(
        "HR-INPUT-009",
        f"{what}, {str(path)!r}, {how}",
        "Restore it from a copy of the job's folder, or start with a new job folder.",
    )


@dataclass(frozen=True, slots=True)
class InputRequest:
    """All that is known when an input is opened."""

    uri: str
    rest: str  # of the URI, after the colon
    schema: pa.Schema | None
    format: str | None
    options: Mapping[str, Any]
    home: Path | None  # in the job's folder: where the input stores what it must remember
    bounded: bool
    clock: Clock
    time: str | None = None  # the column of event time
    used: tuple[str, ...] | None = None  # the columns of the schema that the program reads
    guessed: bool = False  # the schema is what the input itself said when the program was built


def refuse_unknown(o: InputRequest, known: tuple[str, ...]) -> None:
    for option in o.options:
        if option not in known:
            raise InputError(
                "HR-INPUT-013",
                f"{o.uri!r} has no option {option!r}",
                f"{did_you_mean(option, known)}Known: {', '.join(known) or 'none'}.",
            )
