"""A folder of staged files: each written once, by one task, under a name with its epoch.

What is here is durable and seen by nobody. Files are named `part-<epoch>-<unique>-<n>`, so
leftovers can be told from what a running task is writing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from headrace.errors import OutputError
from headrace.files import file_name, sync_folder
from headrace.sinks.contract import Reference
from headrace.sinks.durable import check_bytes, folder_for, named, remove, write
from headrace.sinks.encode import fill, format_named, steps
from headrace.state.faults import point

_NAME = re.compile(r"part-(\d+)-.*")


@dataclass(frozen=True, slots=True)
class Staging:
    folder: Path
    format: str = "arrow"
    limit: int = 1 << 62  # bytes of a file after which the next one is begun

    def add(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        """Write the rows durably; a reference for each file."""
        if not table.num_rows:
            return []
        folder_for(self.folder)
        format, rest, references = format_named(self.format), steps(table), list[Reference]()
        while rest:
            name = f"part-{epoch:012d}-{file_name(unique)}-{len(references)}{format.suffix}"
            fill_one = partial(fill, format=format, tables=rest, limit=self.limit)
            made = write(self.folder / name, fill_one)
            rows = sum(t.num_rows for t in rest[: made.result])
            references.append({"file": name, "rows": rows, "bytes": made.size, "crc": made.crc})
            rest = rest[made.result :]
        with named(self.folder):
            sync_folder(self.folder)
        point("sink.stage.durable")
        return references

    def read(self, reference: Reference) -> pa.Table:
        """The rows that a reference stands for; an error if they are not as they were staged."""
        path = self.folder / safe_name(reference["file"])
        try:
            check_bytes(path, reference["bytes"], reference["crc"])
        except FileNotFoundError as cause:
            raise lost(path) from cause
        with named(path):
            return pa.concat_tables(format_named(self.format).batches(path, pa.schema([])))

    def sweep(self, live: Set[str], upto: int | None) -> None:
        """Remove the files that are not in `live`, of epoch `upto` and before."""
        for name, epoch in self._files():
            if name not in live and (upto is None or epoch <= upto):
                remove(self.folder / name)

    def _files(self) -> Iterator[tuple[str, int]]:
        names = [p.name for p in self.folder.iterdir()] if self.folder.is_dir() else []
        for name in names:
            match = _NAME.fullmatch(name)
            if match:
                yield name, int(match[1])


def safe_name(name: str) -> str:
    """The name itself, if it is one that this package gives."""
    if "/" in name or "\\" in name or not name.startswith(("part-", "merged-")):
        raise OutputError(
            "HR-OUTPUT-007",
            f"{name!r} is not the name of an output file",
            "The job's manifest is damaged: restore the job's folder from a backup.",
        )
    return name


def noted(reference: Reference, what: str) -> str:
    """What an output of its kind has noted in a reference."""
    if what not in reference:
        raise OutputError(
            "HR-OUTPUT-007",
            f"{reference.get('file')!r} was staged by an output of another kind",
            "Start the job once with the output as it was; then change it.",
        )
    return str(reference[what])


def lost(path: Path) -> OutputError:
    return OutputError(
        "HR-OUTPUT-005",
        f"the staged file {str(path)!r} is gone",
        "Restore it from a backup, or rewind the job to the epoch before it was staged.",
    )
