"""Small output files made into larger ones, a bounded amount at a time.

After every few epochs one snapshot takes the place of the records before it. While at it,
small files of one level (0: as staged, 1: merged once, ...) are joined, at most a target
file's worth per level, so a row is rewritten a handful of times however long the job runs.

    1 write the merged file under a hidden name        readers: nothing has changed
    2 write the snapshot that names it                 exact readers: the merged file
    3 remove the files it replaces                     globbing readers: rows are missing
    4 rename the merged file into view                 everybody: every row once
    5 remove what no later snapshot can name any more

A crash between any two is mended by `recover`, which does 3 to 5 again, for the snapshot that
is in force on disk, whoever wrote it. Two drivers may do all of it at once: a merged file has a
name of its own; of two snapshots of one slot only one is created, and the driver of the other
deletes nothing but its own file; and a file whose slot is not beyond that of the snapshot in
force, which does not name it, is never named again. A globbing reader may miss rows of old
epochs between 3 and 4, or fail on a file that has been removed; it never sees a row twice.

Only files of one partition are joined, and of one period, if the output has periods: by the
epoch's clock, so a repeated epoch is of the same one. Before the first file of another period
appears, what is left of the one before is joined (`close`); after that its files stay for ever.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import attrgetter
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from headrace.files import sync_folder
from headrace.sinks import columns
from headrace.sinks.commits import (
    SPANS_SUFFIX,
    Commits,
    Name,
    OutputFile,
    Record,
    Replaced,
    Slot,
    in_force,
    newest_period,
    owner_of,
    parts_of,
    retried,
    shown_files,
    spans_of,
    store_spans,
)
from headrace.sinks.contract import EpochWriter
from headrace.sinks.durable import check_bytes, named, remove, sync_folders, write
from headrace.sinks.file_formats import Format, format_named
from headrace.sinks.partitions import file_columns
from headrace.state.faults import point

EVERY = 16  # records between two snapshots
FEW = 8  # files of a level that are not worth joining yet
MANY = 256  # files that are joined at once


@dataclass(slots=True)
class FileMerging:
    chain: str
    target: Path
    hidden: Path
    format: str
    limit: int  # bytes of a full file
    enabled: bool
    recovered: Slot | None = None  # the snapshot that was finished last
    period: int = -1  # of the newest rows, when it was looked at last

    @property
    def commits(self) -> Commits:
        return Commits(self.target)

    def advance(self, job: str, output: str, writer: EpochWriter) -> None:
        """Write a snapshot if enough records have gathered."""
        retried(self.target, lambda: self._advance(job, output, writer))

    def _advance(self, job: str, output: str, writer: EpochWriter) -> None:
        names = in_force(self.commits.names(self.chain))
        if sum(not n.is_snapshot for n in names) < EVERY:
            return
        parts = list(parts_of(self.commits.read_chain(names)))
        slot, period = Slot(names[-1].epoch, 0), newest_period(parts)
        small = [p for p in self._small(parts) if p.until in (0, period)]
        groups = (self._choose(group) for group in _divided(small, _LEVEL))
        merged = self._join_each([g for g in groups if len(g) >= FEW], slot, writer)
        point("sink.merge.written")
        self._install(parts, merged, slot, job, output, writer)

    def close(self, until: int, job: str, output: str, writer: EpochWriter) -> None:
        """Before rows of the period that ends at `until` appear: merge what is left of the one
        before, whose files are final from then on."""
        if until != self.period:
            retried(self.target, lambda: self._close(until, job, output, writer))
            self.period = until

    def _close(self, until: int, job: str, output: str, writer: EpochWriter) -> None:
        names = in_force(self.commits.names(self.chain))
        records = self.commits.read_chain(names)
        parts = list(parts_of(records))
        period = newest_period(parts)
        if period in (0, until) or records[-1].closed == period:
            return
        small = [p for p in self._small(parts) if p.until == period]
        groups = [g for group in _divided(small, _ALIKE) for g in self._full(group)]
        if groups:
            slot = Slot(names[-1].epoch, 1 + (-1 if (r := names[-1].revision) is None else r))
            merged = self._join_each(groups, slot, writer)
            point("sink.merge.written")
            self._install(parts, merged, slot, job, output, writer, period)

    def _install(
        self,
        parts: list[OutputFile],
        merged: list[tuple[list[OutputFile], OutputFile]],
        slot: Slot,
        job: str,
        output: str,
        writer: EpochWriter,
        closed: int = 0,
    ) -> None:
        gone = sorted(p.place for group, _ in merged for p in group)
        left = [p for p in parts if p.place not in set(gone)]
        snapshot = Record(
            slot.epoch,
            self.chain,
            (*left, *(file for _, file in merged)),
            slot.epoch,
            writer.token,
            job,
            output,
            writer.timeline,
            slot.revision,
            tuple(gone),
            closed,
        )
        self.install(snapshot, writer)

    def install(self, snapshot: Record, writer: EpochWriter) -> None:
        """Write the snapshot, unless another driver was first; finish the one in force."""
        writer.check()
        if not self.commits.write(snapshot):
            self._drop(p.place for p in _new_in(snapshot))
        point("sink.merge.recorded")
        self.recover(writer)

    def recover(self, writer: EpochWriter) -> None:
        """Finish what the snapshot in force began; nothing to do if that was done."""
        retried(self.target, lambda: self._recover(writer))

    def _recover(self, writer: EpochWriter) -> None:
        names = self.commits.names(self.chain)
        newest = max((i for i, n in enumerate(names) if n.is_snapshot), default=None)
        if newest is None or names[newest].slot == self.recovered:
            return
        snapshot = self.commits.read(names[newest])
        writer.check()
        self._drop(snapshot.gone)
        point("sink.merge.removed")
        self._show(snapshot, writer)
        self._sweep(snapshot, names[newest:], writer)
        old = [n for n in names[:newest] if n.epoch < snapshot.epoch or n.is_snapshot]
        writer.check()
        self.commits.remove(old)  # all but that of its own epoch, by which a loss is noticed
        self.recovered = names[newest].slot

    def _show(self, snapshot: Record, writer: EpochWriter) -> None:
        for part in (p for p in snapshot.parts if p.level):
            hidden, shown = self.hidden / part.file, self.target / part.place
            if hidden.exists():
                writer.check()
                with named(hidden), suppress(FileNotFoundError):  # another driver did it
                    hidden.rename(shown)
                point("sink.merge.renamed")
            elif not shown.exists():
                raise Replaced(part.place)
        sync_folders(self.target, (p.folder for p in _new_in(snapshot)))

    def _sweep(self, snapshot: Record, names: list[Name], writer: EpochWriter) -> None:
        """Remove files of this chain that no snapshot can name any more."""
        live = {p.file for n in names for p in self.commits.read(n).parts}
        places = (self.hidden, self.commits.folder)
        with named(self.target):
            paths = [path for place in places if place.is_dir() for path in place.iterdir()]
        for path in (*paths, *(self.target / place for place in shown_files(self.target))):
            file = path.name.removesuffix(SPANS_SUFFIX)
            owner = owner_of(file)
            if owner is None or owner[0] != self.chain or file in live:
                continue
            staged = path.parent == self.hidden and file.startswith("part-")
            if owner[1] <= _slot_of(snapshot) and not staged:
                writer.check()
                remove(path)

    def _drop(self, places: Iterable[str]) -> None:
        for place in places:
            file = place.rpartition("/")[2]
            for path in (self.target / place, self.hidden / file, self._rows(file)):
                remove(path)

    def _rows(self, file: str) -> Path:
        return self.commits.folder / f"{file}{SPANS_SUFFIX}"

    def _small(self, parts: list[OutputFile]) -> list[OutputFile]:
        """Files that are worth joining; those of another format stay as they are."""
        suffix = format_named(self.format).suffix
        small = (p for p in parts if p.bytes < self.limit // 2)
        return [p for p in small if p.file.endswith(suffix)] if self.enabled else []

    def _choose(self, parts: list[OutputFile]) -> list[OutputFile]:
        """The oldest files that fit into one, of those with the most common columns."""
        return self._fitting(max(_divided(parts[:MANY], _ALIKE), key=len))

    def _fitting(self, parts: list[OutputFile]) -> list[OutputFile]:
        """The first ones, as far as they fit into one file."""
        sizes = accumulate(p.bytes for p in parts)
        return [p for p, size in zip(parts, sizes, strict=True) if size <= self.limit]

    def _full(self, parts: list[OutputFile]) -> Iterator[list[OutputFile]]:
        """All of them, in groups that each fit into one file; without single ones."""
        while parts:
            group = self._fitting(parts) or parts[:1]
            parts = parts[len(group) :]
            if len(group) > 1:
                yield group

    def _join_each(
        self, groups: list[list[OutputFile]], slot: Slot, writer: EpochWriter
    ) -> list[tuple[list[OutputFile], OutputFile]]:
        stored = columns.stored(self.commits.folder)
        return [(group, self._join(group, slot, stored, writer)) for group in groups]

    def _join(
        self,
        parts: list[OutputFile],
        slot: Slot,
        stored: Mapping[tuple[str, str], pa.Schema],
        writer: EpochWriter,
    ) -> OutputFile:
        format, level = format_named(self.format), max(p.level for p in parts) + 1
        file = self.fresh(slot, parts[0], level, writer) + format.suffix
        paths = [self.find(p) for p in parts]
        for part, path in zip(parts, paths, strict=True):
            check_bytes(path, part.bytes, part.crc)
        known = columns.of_file(parts[0], self.commits.folder, self.chain, stored)
        schema = file_columns(known)
        written = write(self.hidden / file, lambda out: _joined(out, format, paths, schema))
        epochs = [span for p in parts for span in spans_of(self.commits.folder, p)]
        store_spans(self.commits.folder, file, epochs)
        with named(self.hidden):
            sync_folder(self.hidden)
        rows, last = sum(p.rows for p in parts), max(p.last for p in parts)
        first = min(p.epoch for p in parts)
        return replace(
            parts[0],
            file=file,
            rows=rows,
            bytes=written.size,
            crc=written.crc,
            epoch=first,
            last=last,
            level=level,
        )

    def fresh(self, slot: Slot, like: OutputFile, level: int, writer: EpochWriter) -> str:
        """A name for a merged file that nobody else uses, without its suffix."""
        place = f"{slot.epoch:012d}-{slot.revision}-{self.chain}{period_mark(like.until)}"
        return f"merged-{place}-{level}-{writer.token}-{uuid.uuid4().hex[:8]}"

    def find(self, part: OutputFile) -> Path:
        """A merged file is hidden until the files it replaces are gone."""
        shown = self.target / part.place
        for path in (shown, self.hidden / part.file, shown):
            if path.exists():
                return path
        raise Replaced(part.place)


def period_end(clock: int, every: int) -> int:
    """When the period ends that `clock` is in, in ms; 0 if there are none."""
    return (clock // every + 1) * every if every else 0


def period_mark(until: int) -> str:
    """What the name of a file says of its period."""
    if not until:
        return ""
    end = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=until)
    return f"-until-{end:%Y%m%dT%H%M%S}{f'.{until % 1000:03d}' if until % 1000 else ''}Z"


def _joined(file: IO[bytes], format: Format, paths: list[Path], schema: pa.Schema) -> None:
    try:
        format.join(file, paths, schema)
    except FileNotFoundError as cause:
        raise Replaced(str(cause.filename or cause)) from cause


def _new_in(snapshot: Record) -> list[OutputFile]:
    """The files that the snapshot has, and none before it."""
    return [p for p in snapshot.parts if _slot(p.file) == _slot_of(snapshot)]


# Files that are joined are of one partition and one period; of one timeline, so that another one
# can be given up; and of the same columns.
_LEVEL = attrgetter("folder", "until", "level")
_ALIKE = attrgetter("folder", "until", "schema", "timeline")


def _divided(
    parts: Iterable[OutputFile], by: Callable[[OutputFile], Any]
) -> list[list[OutputFile]]:
    """The parts in groups, the oldest of each group first."""
    groups: dict[Any, list[OutputFile]] = {}
    for part in sorted(parts, key=lambda p: (p.epoch, p.file)):
        groups.setdefault(by(part), []).append(part)
    return list(groups.values())


def _slot(file: str) -> Slot | None:
    owner = owner_of(file)
    return owner[1] if owner is not None and file.startswith("merged-") else None


def _slot_of(snapshot: Record) -> Slot:
    return Slot(snapshot.epoch, snapshot.revision or 0)
