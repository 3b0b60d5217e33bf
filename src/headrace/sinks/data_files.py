"""Data files that tasks write for a table of a lake, and a commit names: rows are written once.

    stage    <table>/_headrace/<job>/<output>/part-<epoch>-...    hidden from those who clean up
    settle   renamed to the name that the reference says, which no other file will ever have

The driver writes no row of an epoch: it reads the files once, to see that their bytes are those
that were written. It may be repeated, by whoever publishes the same references. Jobs that append
to the same table do not see each other's files.
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

    def settle(self, staged: Sequence[Reference]) -> None:
        """Bring the files to where the commit will name them."""
        folder_for(self._settled)
        for reference in staged:
            source, target = self.staging.folder / safe_name(reference["file"]), self.at(reference)
            size, crc = reference["bytes"], reference["crc"]
            try:
                check_bytes(source, size, crc)
                with named(target):
                    os.rename(source, target)
            except FileNotFoundError:  # it was done before, or by somebody else at this moment
                _check_settled(source, target, size, crc)
            except OutputError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                _check_settled(source, target, size, crc)
        with named(self._settled):
            sync_folder(self._settled)

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


def _check_settled(source: Path, target: Path, size: int, crc: int) -> None:
    try:
        check_bytes(target, size, crc)
    except FileNotFoundError:
        raise lost(source) from None
