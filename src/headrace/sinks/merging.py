"""Small output files made into larger ones, a bounded amount at a time.

After every few epochs one snapshot takes the place of the records before it. While at it,
small files of one level (0: as staged, 1: merged once, ...) are joined, at most a target
file's worth per level, so a row is rewritten a handful of times however long the job runs.

    1 write the merged file under a hidden name        readers: nothing has changed
    2 write the snapshot that names it                 exact readers: the merged file
    3 remove the files it replaces                     globbing readers: rows are missing
    4 rename the merged file into view                 everybody: every row once

A crash between any two is mended by `recover`, which does 3 and 4 again. A globbing reader
may miss rows of old epochs between 3 and 4, or fail on a file that has gone; it never sees a
row twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from headrace.sinks.commits import Commits, Part, Record, in_force, parts_of
from headrace.sinks.durable import named, write
from headrace.sinks.encode import format_named, join
from headrace.state.faults import point
from headrace.state.files import sync_folder

EVERY = 16  # records between two snapshots
FEW = 8  # files of a level that are not worth joining yet
MANY = 256  # files that are joined at once


@dataclass(slots=True)
class Merging:
    chain: str
    target: Path
    hidden: Path
    format: str
    limit: int  # bytes of a full file
    enabled: bool
    recovered: bool = False

    @property
    def commits(self) -> Commits:
        return Commits(self.target)

    def advance(self, job: str, output: str) -> None:
        """Write a snapshot if enough records have gathered."""
        names = in_force(self.commits.names(self.chain))
        if sum(not n.whole for n in names) < EVERY:
            return
        records = [self.commits.read(n) for n in names]
        epoch = records[-1].epoch
        kept, gone = self._merge(list(parts_of(records)), epoch)
        point("sink.merge.written")
        snapshot = Record(epoch, self.chain, True, tuple(kept), tuple(gone), job, output)
        self.commits.write(snapshot)
        point("sink.merge.recorded")
        self.recovered = False
        self.recover()

    def recover(self) -> None:
        """Finish what the newest snapshot began; nothing to do if that was done."""
        if self.recovered:
            return
        names = self.commits.names(self.chain)
        newest = max((i for i, n in enumerate(names) if n.whole), default=None)
        if newest is not None:
            snapshot = self.commits.read(names[newest])
            for file in snapshot.gone:
                with named(self.target / file):
                    (self.target / file).unlink(missing_ok=True)
            point("sink.merge.removed")
            self._show(snapshot)
            self.commits.remove(names[:newest])
        self.recovered = True

    def _show(self, snapshot: Record) -> None:
        merged = {p.file for p in snapshot.parts if p.level}
        for path in sorted(self.hidden.glob("merged-*")):
            with named(path):
                if path.name in merged:
                    path.rename(self.target / path.name)
                else:
                    path.unlink()  # of a merge that no snapshot names
            point("sink.merge.renamed")
        with named(self.target):
            sync_folder(self.target)

    def _merge(self, parts: list[Part], epoch: int) -> tuple[list[Part], list[str]]:
        """The parts after merging, and the files that are no longer needed."""
        kept, gone = parts, list[str]()
        by_level = sorted(self._small(parts), key=lambda p: p.level)
        for level, group in groupby(by_level, key=lambda p: p.level):
            chosen = self._choose(list(group))
            if len(chosen) >= FEW:
                merged = self._join(chosen, epoch, level + 1)
                names = {p.file for p in chosen}
                kept = [*(p for p in kept if p.file not in names), merged]
                gone += sorted(names)
        return kept, gone

    def _small(self, parts: list[Part]) -> list[Part]:
        return [p for p in parts if p.bytes < self.limit // 2] if self.enabled else []

    def _choose(self, parts: list[Part]) -> list[Part]:
        """The oldest files that fit into one, of those with the most common columns."""
        alike: dict[bytes, list[Part]] = {}
        for part in sorted(parts, key=lambda p: (p.epoch, p.file))[:MANY]:
            alike.setdefault(self._columns(part), []).append(part)
        chosen, size = list[Part](), 0
        for part in max(alike.values(), key=len):
            size += part.bytes
            if size > self.limit:
                break
            chosen.append(part)
        return chosen

    def _columns(self, part: Part) -> bytes:
        with named(self.target / part.file):
            schema = format_named(self.format).schema(self.target / part.file)
        return b"" if schema is None else bytes(schema.serialize())

    def _join(self, parts: list[Part], epoch: int, level: int) -> Part:
        format = format_named(self.format)
        name = f"merged-{epoch:012d}-{self.chain}-{level}{format.suffix}"
        paths = [self.target / p.file for p in parts]
        (self.hidden / name).unlink(missing_ok=True)  # of a try that was cut short
        size, _ = write(self.hidden / name, lambda file: join(file, format, paths))
        with named(self.hidden):
            sync_folder(self.hidden)
        rows = sum(p.rows for p in parts)
        return Part(name, rows, size, min(p.epoch for p in parts), level)
