"""Files as an output: Parquet or JSON lines, exactly once, by epoch.

    stage     <target>/_staging/<chain>/part-<epoch>-...     durable, hidden
    publish   1 rename the epoch's files into <target>
              2 record them in <target>/_commits             the epoch counts from here on
              3 now and then, merge small files (`merging.py`)

Exact readers go by the records (`read_output`); a reader that globs sees whole files and, at
rest, every row once. Each output of each job has a chain of records of its own. Before each
visible step the driver's fence is checked; a step of a driver that was paused right after that
check repeats what its successor has done, and changes nothing.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Set
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import OutputError
from headrace.files import file_name, sync_folder
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
    OutputKind,
    OutputRequest,
    Reached,
    Reference,
    Sink,
    Timelines,
    appends,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.durable import (
    Staging,
    check_size,
    check_writable,
    folder_for,
    lost,
    named,
    noted,
    safe_name,
)
from headrace.sinks.formats import format_named
from headrace.sinks.merging import FileMerging
from headrace.sinks.ownership import Identity, check_folder
from headrace.state.faults import point

TARGET_MB = 128


class FilesSink(Sink):
    guarantee = EXACTLY_ONCE

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
        append: bool = False,
        described: Description | None = None,
    ) -> None:
        self.schema, self._target, self._format = schema, target, format
        self._identity, self._name, self._append = job, name, append
        self._key = name if key is None else key
        self._limit = max(1, int(target_file_mb * (1 << 20)))
        self._merge, self._described = merge, described or {}
        self._commits = Commits(target)
        self._mergings: dict[str, FileMerging] = {}
        self._newest: Name | None = None  # the last record that is known to count

    @property
    def _job(self) -> str:
        return self._identity.get()

    @property
    def _chain(self) -> str:
        return chain_of(self._job, self._key)

    def describe(self) -> Description:
        return {**self._described, "schema": columns.packed(self.schema)}

    def check(self) -> None:
        check_writable(self._target)
        self._check_schema()
        job = self._identity.known()
        own = None if job is None else chain_of(job, self._key)
        check_folder(self._target, job, own, self._append)
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
        rows, schema = table.select(self.schema.names), columns.digest_of(self.schema)
        references = self._staging(self._chain).add(rows, epoch, f"{self._chain}-{unique}")
        return [{**r, "chain": self._chain, "schema": schema} for r in references]

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        if not staged:
            return
        chain = noted(staged[0], "chain")  # of the output as it was named when it staged them
        self._merging(chain).recover(writer)
        record = self._record(chain, epoch, staged, writer)
        if not self._published(record) and self._show(record, writer):
            with named(self._target):
                sync_folder(self._target)
            point("sink.publish.renamed")
            self._store_columns(chain, staged)
            writer.check()
            self._commits.write(record)
            point("sink.publish.recorded")
        self._merging(chain).advance(self._job, self._name, writer)

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
        hidden = self._staging(record.chain).folder
        for part in record.parts:
            staged, shown = hidden / part.file, self._target / part.file
            writer.check()
            with named(shown):
                try:
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
                safe_name(r["file"]),
                r["rows"],
                r["bytes"],
                r["crc"],
                r["schema"],
                epoch,
                epoch,
                writer.timeline,
            )
            for r in staged
        )
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
            format_named(self._format).writer(pa.BufferOutputStream(), self.schema).close()
        except (pa.ArrowException, ValueError, TypeError) as cause:
            raise OutputError(
                "HR-OUTPUT-006",
                f"these columns cannot be written to {str(self._target)!r}: {cause}",
                "Cast or drop the column, or choose another format.",
            ) from cause


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, ("format", "target_file_mb", "merge", "mode"))
    if not o.rest:
        raise OutputError("HR-OUTPUT-001", f"{o.uri!r} names no folder", 'Write "files:folder".')
    appends(o)
    size, format = o.options.get("target_file_mb", 1), o.options.get("format")
    if format not in (None, "parquet", "json"):
        raise bad_option(o, "format", o.options["format"], 'Pass format="parquet" or "json".')
    if not isinstance(size, int | float) or not 0 < size < math.inf:
        hint = "Give the size of a file in megabytes, above 0."
        raise bad_option(o, "target_file_mb", size, hint)
    if not isinstance(o.options.get("merge", True), bool):
        raise bad_option(o, "merge", o.options["merge"], "Pass merge=True or merge=False.")


def _open(o: OutputRequest) -> Sink:
    target = Path(os.path.abspath(os.path.expanduser(o.rest)))
    format = o.options.get("format") or "parquet"
    options = {n: v for n, v in o.options.items() if n != "format"}
    return FilesSink(
        target,
        o.schema,
        Identity(o.folder),
        o.name,
        key=o.key,
        format=format,
        append=appends(o),
        described={"kind": "files", "place": str(target), "format": format, "options": options},
        **{n: v for n, v in options.items() if n != "mode"},
    )


def _check_collect(o: OutputRequest) -> None:
    refuse_unknown(o, ())


def _open_collect(o: OutputRequest) -> Sink:
    place = o.rest or o.key
    about = {"kind": "collect", "place": f"collect:{place}", "format": "arrow", "options": {}}
    target, job = collect_folder(o.folder, place), Identity(o.folder)
    return FilesSink(target, o.schema, job, o.name, key=o.key, format="arrow", described=about)


def collect_folder(folder: str, key: str) -> Path:
    """Where a job's folder holds what "collect:" has collected."""
    return Path(folder) / "collect" / file_name(key)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    return about["place"], {**about["options"], "format": about["format"]}


def _reopen_collect(about: Description) -> tuple[str, dict[str, Any]]:
    return about["place"].removeprefix("collect:"), dict(about["options"])


FILES = OutputKind(_check, _open, _reopen)
COLLECT = OutputKind(_check_collect, _open_collect, _reopen_collect)


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
