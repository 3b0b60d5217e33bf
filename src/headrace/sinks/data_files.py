"""Data files that tasks write for a table of a lake, and a commit names: rows are written once.

    stage    <table>/_headrace/<job>/<output>/part-<epoch>-...    hidden from those who clean up
    settle   linked under the name that the reference says, which no other file will ever have
    clear    once the epoch is committed: what its commit does not name is removed

The driver writes no row of an epoch: it reads the files once, to see that their bytes are those
that were written. It may be repeated, by whoever publishes the same references: what is staged
stays until the commit, whatever becomes of files that no commit names yet. Jobs that append to the
same table do not see each other's files.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Sequence, Set
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import OutputError
from headrace.files import file_name, sync_folder
from headrace.sinks.contract import Reference
from headrace.sinks.durable import (
    Staging,
    check_bytes,
    folder_for,
    lost,
    named,
    remove,
    safe_name,
    write,
)
from headrace.sinks.ownership import Identity
from headrace.state.faults import point

PATH = "path"  # of a reference: what the file will be called in the table
_NAME = re.compile(r"part-[0-9a-f]{32}\.parquet")


class DataFiles:
    """Of an output; a kind of lake adds what its commits say of them."""

    compression = "snappy"  # as the kind's library writes

    def __init__(self, table: Path, settled: Path, identity: Identity, output: str) -> None:
        self._table, self._settled = table, settled
        self._identity, self._output = identity, output

    @property
    def staging(self) -> Staging:
        job = self._table / "_headrace" / self._identity.get()
        return Staging(job / file_name(self._output), "parquet")

    def stage(self, tables: Iterable[pa.Table], epoch: int, unique: str) -> list[Reference]:
        """A file for each table; durable when this returns."""
        folder = folder_for(self.staging.folder)
        references = [
            self._write(rows, folder / f"part-{epoch:012d}-{file_name(unique)}-{i}.parquet")
            for i, rows in enumerate(tables)
        ]
        with named(folder):
            sync_folder(folder)
        point("sink.stage.durable")
        return references

    def _write(self, rows: pa.Table, path: Path) -> Reference:
        """Written as the library would, in few row groups."""
        texts = [f.name for f in rows.schema if _is_text(f.type)]
        written = write(
            path,
            lambda file: pq.write_table(
                rows, file, compression=self.compression, use_dictionary=texts
            ),
        )
        facts = {"rows": rows.num_rows, "bytes": written.size, "crc": written.crc}
        return {"file": path.name, **facts, PATH: f"part-{uuid.uuid4().hex}.parquet"}

    def check(self, staged: Sequence[Reference]) -> None:
        """Raise OutputError unless all files are as they were written."""
        for reference in staged:
            size, crc = reference["bytes"], reference["crc"]
            try:
                check_bytes(self._source(reference), size, crc)
            except FileNotFoundError:  # settled, where links are not possible, or by somebody else
                try:
                    check_bytes(self.at(reference), size, crc)
                except FileNotFoundError:
                    raise lost(self._source(reference)) from None

    def settle(self, staged: Sequence[Reference]) -> None:
        """Bring files that were checked to where the commit will name them."""
        folder_for(self._settled)
        for reference in staged:
            with named(self.at(reference)):
                _link(self._source(reference), self.at(reference))
        with named(self._settled):
            sync_folder(self._settled)

    def clear(self, staged: Sequence[Reference], by_name: bool) -> None:
        """Remove what a commit has left that names these files, or that has their rows."""
        for reference in staged:
            remove(self._source(reference))
            if not by_name:
                remove(self.at(reference))

    def _source(self, reference: Reference) -> Path:
        return self.staging.folder / safe_name(reference["file"])

    def where(self, reference: Reference) -> Path:
        """Where the bytes of a file are, settled or not."""
        source = self._source(reference)
        return source if source.exists() else self.at(reference)

    def at(self, reference: Reference) -> Path:
        """Where a settled file is."""
        if not _NAME.fullmatch(str(reference[PATH])):
            raise OutputError(
                "HR-OUTPUT-007",
                f"{reference[PATH]!r} is not the name of an output file",
                "The job's manifest is damaged: restore the job's folder from a backup.",
            )
        return self._settled / str(reference[PATH])

    def sweep(self, live: Set[str], upto: int | None) -> None:
        if self._identity.known() is not None:
            self.staging.sweep(live, upto)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _link(source: Path, target: Path) -> None:
    """A second name, as new as a file can be: whoever cleans up goes by age."""
    try:
        os.utime(source)
        os.link(source, target)
    except FileNotFoundError:  # it was done by somebody else, who has removed the first name
        os.utime(target)
    except FileExistsError:
        os.utime(target)
    except OSError:  # a file system without links
        os.rename(source, target)
