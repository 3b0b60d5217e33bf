"""Files as an output: Parquet or JSON lines, exactly once, by epoch.

    stage     <target>/_staging/<chain>/part-<epoch>-...     durable, hidden
    publish   1 rename the epoch's files into <target>
              2 record them in <target>/_commits             the epoch counts from here on
              3 now and then, merge small files (`merging.py`)

Exact readers go by the records (`read_output`); a reader that globs sees whole files and, at
rest, every row once. Each output of each job has a chain of records of its own.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Set
from pathlib import Path

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks.commits import FOLDER, Commits, Part, Record
from headrace.sinks.contract import EXACTLY_ONCE, Reference, Sink
from headrace.sinks.durable import folder_for, named, replace
from headrace.sinks.encode import format_named
from headrace.sinks.identity import Identity
from headrace.sinks.merging import Merging
from headrace.sinks.staging import Staging, lost, safe_name
from headrace.state.faults import point
from headrace.state.files import sync_folder

TARGET_MB = 128


class FilesSink(Sink):
    guarantee = EXACTLY_ONCE

    def __init__(
        self, target: Path, schema: pa.Schema, job: Identity, name: str,
        *, format: str = "parquet", target_file_mb: float = TARGET_MB, merge: bool = True,
        append: bool = False,
    ) -> None:  # fmt: skip
        self.schema, self._target, self._format = schema, target, format
        self._identity, self._name, self._append = job, name, append
        self._limit = max(1, int(target_file_mb * (1 << 20)))
        self._merge = merge
        self._commits = Commits(target)
        self._mergings: dict[str, Merging] = {}

    @property
    def _job(self) -> str:
        return self._identity.get()

    @property
    def _chain(self) -> str:
        return hashlib.sha256(f"{self._job}/{self._name}".encode()).hexdigest()[:12]

    def check(self) -> None:
        if self._target.exists() and not self._target.is_dir():
            raise OutputError(
                f"{str(self._target)!r} is a file, not a folder", code="HR-OUTPUT-009",
                hint="An output of files needs a folder: choose another path.",
            )  # fmt: skip
        self._check_schema()
        self._check_owner()
        hidden = folder_for(self._staging(self._chain).folder)
        probe = hidden / f".probe-{uuid.uuid4().hex}"
        with named(self._target):
            probe.touch()
            probe.unlink()
        self._keep_schema(always=True)

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        rows = table.select(self.schema.names)
        references = self._staging(self._chain).add(rows, epoch, f"{self._chain}-{unique}")
        return [{**r, "chain": self._chain} for r in references]

    def publish(self, epoch: int, staged: list[Reference]) -> None:
        if not staged:
            return
        chain = staged[0]["chain"]  # of the output as it was named when it staged them
        self._merging(chain).recover()
        if not self._published(chain, epoch):
            for reference in staged:
                self._show(chain, reference)
            with named(self._target):
                sync_folder(self._target)
            point("sink.publish.renamed")
            self._keep_schema()
            self._commits.write(self._record(chain, epoch, staged))
            point("sink.publish.recorded")
        self._merging(chain).advance(self._job, self._name)

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging(self._chain).sweep(live, upto)

    def _staging(self, chain: str) -> Staging:
        return Staging(self._target / "_staging" / chain, self._format, self._limit)

    def _merging(self, chain: str) -> Merging:
        if chain not in self._mergings:
            hidden = self._staging(chain).folder
            self._mergings[chain] = Merging(
                chain, self._target, hidden, self._format, self._limit, self._merge
            )
        return self._mergings[chain]

    def _published(self, chain: str, epoch: int) -> bool:
        names = self._commits.names(chain)
        return any(n.epoch == epoch or (n.whole and n.epoch >= epoch) for n in names)

    def _show(self, chain: str, reference: Reference) -> None:
        """Rename a staged file into view, unless that was done before."""
        name = safe_name(reference["file"])
        hidden, shown = self._staging(chain).folder / name, self._target / name
        with named(shown):
            try:
                hidden.rename(shown)
            except FileNotFoundError as cause:
                if not shown.exists():
                    raise lost(hidden) from cause
        point("sink.publish.file")

    def _record(self, chain: str, epoch: int, staged: list[Reference]) -> Record:
        parts = tuple(Part(r["file"], r["rows"], r["bytes"], epoch) for r in staged)
        return Record(epoch, chain, False, parts, (), self._job, self._name)

    def _check_owner(self) -> None:
        """Files of another job, or of an earlier life of this one, would be mixed with ours."""
        for chain in self._commits.chains():
            record = self._commits.current(chain)[-1]
            if record.job != self._identity.known() and not self._append:
                raise OutputError(
                    f"{str(self._target)!r} holds files that another job folder's output "
                    f"{record.output!r} wrote", code="HR-OUTPUT-004",
                    hint='Remove the folder, choose another, or say mode="append" to add to it.',
                )  # fmt: skip

    def _check_schema(self) -> None:
        try:
            format_named(self._format).writer(pa.BufferOutputStream(), self.schema).close()
        except (pa.ArrowException, ValueError, TypeError) as cause:
            raise OutputError(
                f"these columns cannot be written to {str(self._target)!r}: {cause}",
                code="HR-OUTPUT-006", hint="Cast or drop the column, or choose another format.",
            ) from cause  # fmt: skip

    def _keep_schema(self, always: bool = False) -> None:
        """Readers need the columns even when there is no row, and types that JSON has not."""
        path = self._target / FOLDER / f"{self._chain}.schema"
        content = bytes(self.schema.serialize())
        if not path.exists() or (always and path.read_bytes() != content):
            folder_for(path.parent)
            replace(path, content)
