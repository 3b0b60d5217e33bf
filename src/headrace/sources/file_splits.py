"""Which split reads a file, so that files that overlap in time do not make each other's rows late.

The files of one split are read one after the other, and a split has one watermark: rows of a
file that begins before the last one ended are late. So files that overlap in time belong into
splits of their own. The split of a file is chosen once, when the file is first seen, and is
stored with it in the list of files (`listing.py`); a later change of `splits=` concerns new files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import milliseconds
from headrace.clock import FIRST_TIME, LAST_TIME, MIN_TIME
from headrace.errors import InputError
from headrace.sources.layout import Extent, FileLayout
from headrace.sources.listing import Listing

MOST_SPLITS = 1_000  # each is planned in every epoch, and is an entry of every manifest
Span = tuple[int, int]  # the least and the greatest event time of a file

_FIRST = "files"


def split_name(number: int) -> str:
    return _FIRST if number == 0 else f"{_FIRST} {number + 1}"


def split_number(name: str) -> int:
    return 0 if name == _FIRST else int(name.removeprefix(_FIRST)) - 1


def check_splits(how: object, uri: str) -> None:
    """Refuse what `splits=` cannot be."""
    number = isinstance(how, int) and not isinstance(how, bool) and 1 <= how <= MOST_SPLITS
    if not number and how not in (None, "file", "folder"):
        raise InputError(
            "HR-INPUT-013",
            f"{uri!r} has splits={how!r}",
            'Write splits="file" for a split per file, splits="folder" for one split, or a number '
            f"from 1 to {MOST_SPLITS:,}.",
        )


@dataclass(frozen=True, slots=True)
class SplitChoice:
    """How the splits of new files are chosen; `how` None: by the times in the files."""

    how: str | int | None
    by_time: bool  # whether the times in the files may decide

    def assign(
        self,
        new: Sequence[Extent],
        grown: Sequence[Extent],
        listing: Listing,
        span: Callable[[Extent], Span | None],
    ) -> list[Extent]:
        """The files that are new, each with its split, in the order in which they are read.

        `listing` has the files that have a split; `grown` is what some of them have more.
        """
        if self.how == "file":
            return _each_its_own(new, listing)
        if isinstance(self.how, int):
            return [replace(e, split=(listing.count() + i) % self.how) for i, e in enumerate(new)]
        if self.how is None and self.by_time and len(new) + listing.count() > 1:
            return _side_by_side(new, _as_wholes(grown, listing), span)
        return list(new)


def _as_wholes(grown: Sequence[Extent], listing: Listing) -> list[Extent]:
    """The files that are listed, as far as they go now."""
    ends = {e.path: e.end for e in grown}
    return [replace(e, end=ends.get(e.path, e.end)) for e in listing.files()]


def _each_its_own(new: Sequence[Extent], listing: Listing) -> list[Extent]:
    first = max(listing.splits(), default=-1) + 1
    if first + len(new) > MOST_SPLITS:
        raise InputError(
            "HR-INPUT-017",
            f'{first + len(new):,} files, and splits="file" makes a split of each',
            f"At most {MOST_SPLITS:,} splits are possible. Write splits=100: the files are dealt "
            "out to a hundred splits.",
        )
    return [replace(e, split=first + i) for i, e in enumerate(new)]


def _side_by_side(
    new: Sequence[Extent], known: Sequence[Extent], span: Callable[[Extent], Span | None]
) -> list[Extent]:
    """By time: a file follows one that has ended when it begins; else it gets a split of its own.

    A file whose times are not known may hold any, so nothing follows it.
    """
    spans = {e.path: span(e) for e in (*known, *new)} if new else {}
    ends: list[int] = []  # the last event time of each split
    for extent in known if new else ():
        ends += [MIN_TIME] * (extent.split + 1 - len(ends))
        _, end = spans[extent.path] or (FIRST_TIME, LAST_TIME)
        ends[extent.split] = max(ends[extent.split], end)
    placed = []
    for extent in sorted(new, key=lambda e: spans[e.path] or (FIRST_TIME, LAST_TIME)):
        begin, end = spans[extent.path] or (FIRST_TIME, LAST_TIME)
        free = (i for i, until in enumerate(ends) if until <= begin)
        split = next(free, len(ends))
        if split >= MOST_SPLITS:
            split = ends.index(min(ends))  # the least overlap; its late rows are counted
        ends += [MIN_TIME] * (split + 1 - len(ends))
        ends[split] = max(ends[split], end)
        placed.append(replace(extent, split=split))
    return placed


def time_span(layout: FileLayout, path: str, extent: Extent, column: str) -> Span | None:
    """The event times between which a file lies, as far as a first look shows; None if unknown."""
    seen = [_least_and_greatest(c) for c in layout.first_look(path, extent, column)]
    known = [s for s in seen if s is not None]
    if not known or len(known) < len(seen):  # where no time was seen there may be any behind it
        return None
    return min(s[0] for s in known), max(s[1] for s in known)


def _least_and_greatest(values: pa.ChunkedArray) -> Span | None:
    kind = values.type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind)):
        return None
    reach = pc.min_max(milliseconds(values)).as_py()
    return None if reach["min"] is None else (reach["min"], reach["max"])
