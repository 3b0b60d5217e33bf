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
from typing import Any

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks.commits import FOLDER, Commits, Part, Record
from headrace.sinks.contract import EXACTLY_ONCE, Reference, Sink
from headrace.sinks.durable import folder_for, named, replace
from headrace.sinks.encode import format_named
from headrace.sinks.merging import Merging
from headrace.sinks.staging import Staging, lost, safe_name
from headrace.state.faults import point
from headrace.state.files import create_sealed, read_sealed, sync_folder

TARGET_MB = 128
_IDENTITY = "job-identity"


class FilesSink(Sink):
    guarantee = EXACTLY_ONCE

    def __init__(
        self, target: Path, schema: pa.Schema, job: str, name: str,
        *, format: str = "parquet", target_file_mb: float = TARGET_MB, merge: bool = True,
        append: bool = False,
    ) -> None:  # fmt: skip
        self.schema, self._target, self._format = schema, target, format
        self._job, self._name, self._append = job, name, append
        self._chain = hashlib.sha256(f"{job}/{name}".encode()).hexdigest()[:12]
        limit = max(1, int(target_file_mb * (1 << 20)))
        hidden = target / "_staging" / self._chain
        self._staging = Staging(hidden, format, limit)
        self._commits = Commits(target)
        self._merging = Merging(target, hidden, format, self._commits, limit, merge)

    def check(self) -> None:
        if self._target.exists() and not self._target.is_dir():
            raise OutputError(
                f"{str(self._target)!r} is a file, not a folder", code="HR-OUTPUT-009",
                hint="An output of files needs a folder: choose another path.",
            )  # fmt: skip
        self._check_schema()
        self._check_owner()
        folder_for(self._staging.folder)
        probe = self._staging.folder / f".probe-{uuid.uuid4().hex}"
        with named(self._target):
            probe.touch()
            probe.unlink()
        self._keep_schema(always=True)

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        rows = table.select(self.schema.names)
        return self._staging.add(rows, epoch, f"{self._chain}-{unique}")

    def publish(self, epoch: int, staged: list[Reference]) -> None:
        self._merging.recover(self._chain)
        if not staged:
            return
        if not self._published(epoch):
            for reference in staged:
                self._show(reference)
            with named(self._target):
                sync_folder(self._target)
            point("sink.publish.renamed")
            self._keep_schema()
            self._commits.write(self._record(epoch, staged))
            point("sink.publish.recorded")
        self._merging.advance(self._chain, self._job, self._name)
        point("sink.publish")

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging.sweep(live, upto)

    def _published(self, epoch: int) -> bool:
        names = self._commits.names(self._chain)
        return any(n.epoch == epoch or (n.whole and n.epoch >= epoch) for n in names)

    def _show(self, reference: Reference) -> None:
        """Rename a staged file into view, unless that was done before."""
        name = safe_name(reference["file"])
        hidden, shown = self._staging.folder / name, self._target / name
        with named(shown):
            try:
                hidden.rename(shown)
            except FileNotFoundError as cause:
                if not shown.exists() and not self._elsewhere(name, shown):
                    raise lost(hidden) from cause
        point("sink.publish.file")

    def _elsewhere(self, name: str, shown: Path) -> bool:
        """Whether the output had another name when it staged the file, and where it went."""
        for hidden in self._target.glob(f"_staging/*/{name}"):
            hidden.rename(shown)
            return True
        records = [r for chain in self._commits.chains() for r in self._commits.current(chain)]
        return any(name in r.gone or any(p.file == name for p in r.parts) for r in records)

    def _record(self, epoch: int, staged: list[Reference]) -> Record:
        parts = tuple(Part(r["file"], r["rows"], r["bytes"], epoch) for r in staged)
        return Record(epoch, self._chain, False, parts, (), self._job, self._name)

    def _check_owner(self) -> None:
        """Files of another job, or of an earlier life of this one, would be mixed with ours."""
        for chain in self._commits.chains():
            record = self._commits.current(chain)[-1]
            if record.job != self._job and not self._append:
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


def job_identity(folder: str) -> str:
    """What tells this job folder from every other; made when first asked for."""
    path = folder_for(Path(folder) / "outputs") / "identity"
    with named(path):
        if not path.exists():
            create_sealed(path, _IDENTITY, {"id": uuid.uuid4().hex})
        identity: Any = read_sealed(path, _IDENTITY)["id"]
    return str(identity)
