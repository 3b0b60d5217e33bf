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
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO

from headrace.files import sync_folder
from headrace.sinks.commits import (
    SPANS_SUFFIX,
    Commits,
    Name,
    OutputFile,
    Record,
    Replaced,
    Slot,
    in_force,
    owner_of,
    parts_of,
    retried,
    spans_of,
    store_spans,
)
from headrace.sinks.contract import EpochWriter
from headrace.sinks.durable import check_bytes, named, remove, write
from headrace.sinks.formats import Format, format_named, join
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
        records = self.commits.read_chain(names)
        slot = Slot(records[-1].epoch, 0)
        remaining, replaced = self._merge(list(parts_of(records)), slot, writer)
        point("sink.merge.written")
        snapshot = Record(
            slot.epoch,
            self.chain,
            tuple(remaining),
            records[-1].epoch,
            writer.token,
            job,
            output,
            writer.timeline,
            slot.revision,
            tuple(replaced),
        )
        self.install(snapshot, writer)

    def install(self, snapshot: Record, writer: EpochWriter) -> None:
        """Write the snapshot, unless another driver was first; finish the one in force."""
        writer.check()
        if not self.commits.write(snapshot):
            self._drop(p.file for p in snapshot.parts if _slot(p.file) == _slot_of(snapshot))
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
            hidden, shown = self.hidden / part.file, self.target / part.file
            if hidden.exists():
                writer.check()
                with named(hidden), suppress(FileNotFoundError):  # another driver did it
                    hidden.rename(shown)
                point("sink.merge.renamed")
            elif not shown.exists():
                raise Replaced(part.file)
        with named(self.target):
            sync_folder(self.target)

    def _sweep(self, snapshot: Record, names: list[Name], writer: EpochWriter) -> None:
        """Remove files of this chain that no snapshot can name any more."""
        live = {p.file for n in names for p in self.commits.read(n).parts}
        places = (self.target, self.hidden, self.commits.folder)
        with named(self.target):
            paths = [path for place in places if place.is_dir() for path in place.iterdir()]
        for path in paths:
            file = path.name.removesuffix(SPANS_SUFFIX)
            owner = owner_of(file)
            if owner is None or owner[0] != self.chain or file in live:
                continue
            staged = path.parent == self.hidden and file.startswith("part-")
            if owner[1] <= _slot_of(snapshot) and not staged:
                writer.check()
                remove(path)

    def _drop(self, files: Iterable[str]) -> None:
        for file in files:
            for path in (self.target / file, self.hidden / file, self._rows(file)):
                remove(path)

    def _rows(self, file: str) -> Path:
        return self.commits.folder / f"{file}{SPANS_SUFFIX}"

    def _merge(
        self, parts: list[OutputFile], slot: Slot, writer: EpochWriter
    ) -> tuple[list[OutputFile], list[str]]:
        """The parts after merging, and the files that are no longer needed."""
        remaining, replaced = parts, list[str]()
        by_level = sorted(self._small(parts), key=lambda p: p.level)
        for level, group in groupby(by_level, key=lambda p: p.level):
            chosen = self._choose(list(group))
            if len(chosen) >= FEW:
                merged = self._join(chosen, slot, level + 1, writer)
                names = {p.file for p in chosen}
                remaining = [*(p for p in remaining if p.file not in names), merged]
                replaced += sorted(names)
        return remaining, replaced

    def _small(self, parts: list[OutputFile]) -> list[OutputFile]:
        """Files that are worth joining; those of another format stay as they are."""
        suffix = format_named(self.format).suffix
        small = (p for p in parts if p.bytes < self.limit // 2)
        return [p for p in small if p.file.endswith(suffix)] if self.enabled else []

    def _choose(self, parts: list[OutputFile]) -> list[OutputFile]:
        """The oldest files that fit into one, of those with the most common columns.

        They are of one timeline, so that another one can be given up."""
        alike: dict[tuple[str, str], list[OutputFile]] = {}
        for part in sorted(parts, key=lambda p: (p.epoch, p.file))[:MANY]:
            alike.setdefault((part.schema, part.timeline), []).append(part)
        chosen, size = list[OutputFile](), 0
        for part in max(alike.values(), key=len):
            size += part.bytes
            if size > self.limit:
                break
            chosen.append(part)
        return chosen

    def _join(
        self, parts: list[OutputFile], slot: Slot, level: int, writer: EpochWriter
    ) -> OutputFile:
        format = format_named(self.format)
        file = self.fresh(slot, level, writer) + format.suffix
        paths = [self.find(p) for p in parts]
        for part, path in zip(parts, paths, strict=True):
            check_bytes(path, part.bytes, part.crc)
        written = write(self.hidden / file, lambda out: _joined(out, format, paths))
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

    def fresh(self, slot: Slot, level: int, writer: EpochWriter) -> str:
        """A name for a merged file that nobody else uses, without its suffix."""
        place = f"{slot.epoch:012d}-{slot.revision}-{self.chain}"
        return f"merged-{place}-{level}-{writer.token}-{uuid.uuid4().hex[:8]}"

    def find(self, part: OutputFile) -> Path:
        """A merged file is hidden until the files it replaces are gone."""
        for path in (self.target / part.file, self.hidden / part.file, self.target / part.file):
            if path.exists():
                return path
        raise Replaced(part.file)


def _joined(file: IO[bytes], format: Format, paths: list[Path]) -> None:
    try:
        join(file, format, paths)
    except FileNotFoundError as cause:
        raise Replaced(str(cause.filename or cause)) from cause


def _slot(file: str) -> Slot | None:
    owner = owner_of(file)
    return owner[1] if owner is not None and file.startswith("merged-") else None


def _slot_of(snapshot: Record) -> Slot:
    return Slot(snapshot.epoch, snapshot.revision or 0)
