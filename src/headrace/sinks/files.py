"""Files as an output: Parquet, JSON lines, CSV, text or Avro, exactly once, by epoch.

    stage     <target>/_staging/<chain>/part-<epoch>-...     durable, hidden
    publish   1 rename the epoch's files into <target>, or into folders of partitions there
              2 record them in <target>/_commits             the epoch counts from here on
              3 now and then, merge small files (`merging.py`)

Exact readers go by the records (`read_output`); a reader that globs sees whole files and, at
rest, every row once. Each output of each job has a chain of records of its own. Before each
visible step the driver's fence is checked; a step of a driver that was paused right after that
check repeats what its successor has done, and changes nothing.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks import columns, going_back
from headrace.sinks.commits import (
    FOLDER,
    NEVER,
    Commits,
    Name,
    OutputFile,
    Record,
    Replaced,
    in_force,
    newest_period,
    parts_of,
    reached,
    retried,
    spans_of,
)
from headrace.sinks.contract import (
    EXACTLY_ONCE,
    Description,
    EpochWriter,
    HeldEpochs,
    Reached,
    Reference,
    Sink,
    Timelines,
)
from headrace.sinks.durable import (
    Staging,
    check_bytes,
    check_size,
    check_writable,
    folder_for,
    lost,
    named,
    noted,
    sync_folders,
)
from headrace.sinks.file_formats import format_named
from headrace.sinks.line_files import CsvFormat
from headrace.sinks.merging import FileMerging, period_end, period_mark
from headrace.sinks.ownership import Identity, check_folder
from headrace.sinks.partitions import (
    MOST,
    by_folder,
    check_partitions,
    file_columns,
    partition_columns,
    safe_place,
)
from headrace.state.faults import point

TARGET_MB = 128


class FilesSink(Sink):
    guarantee = EXACTLY_ONCE
    because = "the files of an epoch appear with a record of it, or not at all"

    def __init__(
        self,
        target: Path,
        schema: pa.Schema,
        job: Identity,
        name: str,
        *,
        key: str | None = None,
        format: str = "parquet",
        target_file_mb: float = TARGET_MB,
        merge: bool = True,
        roll_every: int = 0,
        max_partitions: int = MOST,
        append: bool = False,
        described: Description | None = None,
    ) -> None:
        self.schema, self._target, self._format = schema, target, format
        self._identity, self._name, self._append = job, name, append
        self._key = name if key is None else key
        self._limit = max(1, int(target_file_mb * (1 << 20)))
        self._merge, self._roll_every, self._clock = merge, roll_every, 0
        self._most, self._described = max_partitions, described or {}
        self._commits = Commits(target)
        self._mergings: dict[str, FileMerging] = {}
        self._newest: Name | None = None  # the last record that is known to count

    @property
    def _job(self) -> str:
        return self._identity.get()

    @property
    def _chain(self) -> str:
        return chain_of(self._job, self._key)

    @property
    def target(self) -> Path:
        """The folder that readers see."""
        return self._target

    def at(self, clock: int) -> FilesSink:
        sink = copy.copy(self)
        sink._clock = clock
        return sink

    def describe(self) -> Description:
        return {**self._described, "schema": columns.packed(self.schema)}

    def check(self) -> None:
        check_writable(self._target)
        check_partitions(self._name, self.schema)
        self._check_schema()
        job = self._identity.known()
        own = None if job is None else chain_of(job, self._key)
        check_folder(self._target, job, own, self._append, self.schema)
        stored = columns.stored(self._target / FOLDER).values()
        columns.unified(self._target, [*stored, self.schema])

    def open(self) -> None:
        folder_for(self._staging(self._chain).folder)
        columns.store(self._target / FOLDER, self._chain, self.schema)
        self._newest = next(reversed(self._commits.names(self._chain)), None)

    def held(self) -> HeldEpochs | None:
        job = self._identity.known()
        if job is None:
            return HeldEpochs()
        chains = self._commits.of_job(job)
        own = chain_of(job, self._key)
        return HeldEpochs(
            max((r.epoch for records in chains.values() for r in records), default=0),
            own=reached(chains.get(own, ())),
            all=reached(r for records in chains.values() for r in records),
        )

    def check_same(self, epoch: int, staged: list[Reference]) -> None:
        chain = noted(staged[0], "chain")
        retried(self._target, lambda: self._check_same(chain, epoch, staged))

    def _check_same(self, chain: str, epoch: int, staged: list[Reference]) -> None:
        """Compares the names of files; of merged files, whose names differ, the rows."""
        records = self._commits.current(chain)
        parts = [p for p in parts_of(records) if p.epoch <= epoch <= p.last]
        runs = [run for p in parts for run in spans_of(self._commits.folder, p)]
        rows = sum(n for of, n in runs if of == epoch)
        names = {r["file"] for r in staged}
        strange = any(p.file not in names for p in parts if not p.level)
        if strange or (rows and rows != sum(r["rows"] for r in staged)):
            raise _conflict(self._target, epoch, records[-1])

    def reached(self, epoch: int) -> bool:
        return any(n.epoch >= epoch for n in self._commits.names(self._chain))

    def beyond(self, timelines: Timelines) -> Reached:
        """Looks at the newest record only, and reads it once."""
        return retried(self._target, lambda: self._beyond(timelines))

    def _beyond(self, timelines: Timelines) -> Reached:
        names = self._commits.names(self._chain)
        if not names or names[-1] == self._newest:
            return {}
        record = self._commits.read(names[-1])
        beyond = timelines.beyond({record.timeline: record.epoch})
        if not beyond:
            self._newest = names[-1]
        return beyond

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        until = period_end(self._clock, self._roll_every)
        name = f"{self._chain}{period_mark(until)}-{unique}"
        folders, pieces = self._divided(table.select(self.schema.names))
        staged = self._staging(self._chain).add_each(pieces, epoch, name)
        about: Reference = {"chain": self._chain, "schema": columns.digest_of(self.schema)}
        about |= {"until": until} if until else {}
        places = [about | ({"folder": folder} if folder else {}) for folder in folders]
        return [{**r, **place} for place, refs in zip(places, staged, strict=True) for r in refs]

    def _divided(self, rows: pa.Table) -> tuple[Sequence[str], Sequence[pa.Table]]:
        """The rows of each folder. It is made here already: what the file system does not allow
        stops the epoch before it is committed."""
        style, by = CsvFormat.of(self.schema), partition_columns(self.schema)
        if not by:
            return [""], [style.mark(rows)]
        pieces = list(by_folder(rows, by, self._most))
        for folder, _ in pieces:
            folder_for(self._target / folder)
        return [folder for folder, _ in pieces], [style.mark(piece) for _, piece in pieces]

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        if not staged:
            return
        chain = noted(staged[0], "chain")  # of the output as it was named when it staged them
        self._merging(chain).recover(writer)
        record = self._record(chain, epoch, staged, writer)
        if not self._published(record) and self._show(record, writer):
            sync_folders(self._target, (p.folder for p in record.parts))
            point("sink.publish.renamed")
            self._store_columns(chain, staged)
            writer.check()
            self._commits.write(record)
            point("sink.publish.recorded")
        self._merging(chain).advance(self._job, self._name, writer)

    def staged_at(self, reference: Reference) -> Path | None:
        """In view, if a crash came after that."""
        hidden = self._staging(noted(reference, "chain")).at(reference)
        shown = self._target / reference.get("folder", "") / hidden.name
        return shown if shown.exists() and not hidden.exists() else hidden

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging(self._chain).sweep(live, upto)

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        """For all outputs that this job has had there, whatever their names."""
        taken = [
            going_back.go_back(self._merging(chain), timelines, records[-1], writer)
            for chain, records in self._commits.of_job(self._job).items()
        ]
        return going_back.describe_taken(
            self._name, self._target, [t for t in taken if t is not None]
        )

    def mergings(self) -> dict[str, FileMerging]:
        """Of all outputs that this job has had there: by their chain, what writes its files."""
        job = self._identity.known()
        chains = () if job is None else (chain_of(job, self._key), *self._commits.of_job(job))
        return {chain: self._merging(chain) for chain in dict.fromkeys(chains)}

    @property
    def chain(self) -> str:
        """The name of this output's own chain."""
        return self._chain

    def _staging(self, chain: str) -> Staging:
        return Staging(self._target / "_staging" / chain, self._format, self._limit)

    def _merging(self, chain: str) -> FileMerging:
        if chain not in self._mergings:
            hidden = self._staging(chain).folder
            self._mergings[chain] = FileMerging(
                chain, self._target, hidden, self._format, self._limit, self._merge
            )
        return self._mergings[chain]

    def _published(self, record: Record) -> bool:
        """Whether the epoch is there; an error if it is there with other files."""
        for name in self._commits.names(record.chain):
            if name.is_snapshot and name.epoch >= record.epoch:
                return True
            if name.epoch == record.epoch:
                try:
                    published = self._commits.read(name)
                except Replaced:
                    return True
                if {p.file for p in published.parts} != {p.file for p in record.parts}:
                    raise _conflict(self._target, record.epoch, published)
                return True
        return False

    def _show(self, record: Record, writer: EpochWriter) -> bool:
        """Rename staged files into view, unless that was done before.

        False if another driver has meanwhile published them, and merged them away.
        """
        merging, hidden = self._merging(record.chain), self._staging(record.chain).folder
        merging.close(newest_period(record.parts), self._job, self._name, writer)
        for part in record.parts:
            staged, shown = hidden / part.file, self._target / part.place
            folder_for(shown.parent)
            writer.check()
            with named(shown):
                try:
                    if writer.recovers:
                        check_bytes(staged, part.bytes, part.crc)
                    else:
                        check_size(staged, part.bytes)
                    staged.rename(shown)
                except FileNotFoundError as cause:
                    if not shown.exists() and self._published(record):
                        return False
                    if not shown.exists():
                        raise lost(staged) from cause
            point("sink.publish.file")
        return True

    def _record(
        self, chain: str, epoch: int, staged: list[Reference], writer: EpochWriter
    ) -> Record:
        earlier = [n for n in in_force(self._commits.names(chain)) if n.epoch < epoch]
        parts = tuple(
            OutputFile(
                r["file"],
                r["rows"],
                r["bytes"],
                r["crc"],
                r["schema"],
                epoch,
                epoch,
                writer.timeline,
                folder=r.get("folder", ""),
                until=r.get("until", 0),
            )
            for r in staged
        )
        for part in parts:
            safe_place(part.place)
        before = earlier[-1].epoch if earlier else NEVER
        return Record(
            epoch, chain, parts, before, writer.token, self._job, self._name, writer.timeline
        )

    def _store_columns(self, chain: str, staged: list[Reference]) -> None:
        """Store the columns again: the folder may have been removed since `open`."""
        if any(r["schema"] == columns.digest_of(self.schema) for r in staged):
            columns.store(self._target / FOLDER, chain, self.schema)

    def _check_schema(self) -> None:
        try:
            files = file_columns(self.schema)
            format_named(self._format).writer(pa.BufferOutputStream(), files).close()
        except (pa.ArrowException, ValueError, TypeError) as cause:
            raise OutputError(
                "HR-OUTPUT-006",
                f"these columns cannot be written to {str(self._target)!r}: {cause}",
                "Cast or drop the column, or choose another format.",
            ) from cause


def chain_of(job: str, key: str) -> str:
    """The name of the chain of files and records of one output of one job's folder."""
    return hashlib.sha256(f"{job}/{key}".encode()).hexdigest()[:12]


def _conflict(target: Path, epoch: int, record: Record) -> OutputError:
    details: dict[str, Any] = {"driver": record.token, "output": record.output}
    return OutputError(
        "HR-OUTPUT-013",
        f"epoch {epoch} was published to {str(target)!r} with other files than the job's "
        f"manifest names ({', '.join(f'{k} {v!r}' for k, v in details.items())})",
        "Another copy of the job's folder has gone on from an earlier epoch: put that one "
        "back, or write to a new folder.",
    )
