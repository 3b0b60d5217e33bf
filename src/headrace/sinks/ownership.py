"""Who owns a folder of output files: the job's identity, and a check of the folder against it.

The identity is a random text in the job's folder, created when a job first starts (not when its
outputs are only looked at), and recorded with everything that the job publishes. The check runs
when a job starts, and changes nothing. What a crash has left is the job's own: staged files,
visible files whose record is not written yet (of one epoch, the next one), merged files that
nothing names any more.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks import columns
from headrace.sinks.commits import (
    FOLDER,
    Commits,
    OutputFile,
    Record,
    owner_of,
    parts_of,
    retried,
    shown_files,
)
from headrace.sinks.durable import check_size, folder_for, named
from headrace.sinks.partitions import partition_columns
from headrace.state.sealed import create_sealed, read_sealed

KIND = "job-identity"


class Identity:
    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "outputs" / "identity"
        self._id: str | None = None

    def known(self) -> str | None:
        """The identity, if there is one yet."""
        if self._id is None:
            with named(self.path):
                if self.path.exists():
                    self._id = str(read_sealed(self.path, KIND)["id"])
        return self._id

    def get(self) -> str:
        """The identity, created if there is none; if two processes create one, the first wins."""
        stored = self.known()
        if stored is None:
            folder_for(self.path.parent)
            with named(self.path):
                create_sealed(self.path, KIND, {"id": uuid.uuid4().hex})
            return self.get()
        return stored


def check_folder(
    target: Path, job: str | None, own: str | None, append: bool, columns_now: pa.Schema
) -> None:
    """Raise OutputError unless `target` holds what its records say, and nothing else.

    `own` is the chain of the output that asks, and `columns_now` are its columns. With `append`
    others' files may be there, too.
    """
    commits = Commits(target)
    chains = {chain: commits.current(chain) for chain in commits.chains()}
    stored = columns.stored(target / FOLDER)
    recorded = {chain for chain, _ in stored} | set(chains)
    shown = shown_files(target)
    if not any(partition_columns(schema) for schema in (*stored.values(), columns_now)):
        shown = [place for place in shown if "/" not in place]
    if not append:
        _check_owners(target, chains, job)
    if own in chains:
        retried(target, lambda: _check_files(target, commits.current(own)))
    _check_partitions(target, chains, stored, columns_now)
    for file in shown:
        owner = owner_of(file)
        if owner is not None and owner[0] in recorded:
            continue
        if owner is not None and owner[0] == own:
            raise _lost(target, f"{file!r} is there, but its records are not")
        if not append:
            raise _foreign(target, file)
    _check_unrecorded(target, own, chains.get(own or "", []), shown)


def _check_owners(target: Path, chains: dict[str, list[Record]], job: str | None) -> None:
    """Files of another job, or of an earlier life of this one, would be mixed with ours."""
    for records in chains.values():
        if records[-1].job != job:
            raise OutputError(
                "HR-OUTPUT-004",
                f"{str(target)!r} holds files that another job folder's output "
                f"{records[-1].output!r} wrote",
                "If it is this job that wrote them, start it with the job folder it had then "
                "(folder=, --folder on the command line). If not, write to another place, or say "
                'mode="append" to add to what is there.',
            )


def _check_files(target: Path, records: list[Record]) -> None:
    for part in parts_of(records):
        check_size(find(target, part), part.bytes)


def _check_partitions(
    target: Path,
    chains: dict[str, list[Record]],
    stored: dict[tuple[str, str], pa.Schema],
    columns_now: pa.Schema,
) -> None:
    """Files that are partitioned in another way: only we could read both."""
    by = partition_columns(columns_now)
    for chain, records in chains.items():
        for part in parts_of(records):
            schema = stored.get((chain, part.schema))
            if schema is not None and partition_columns(schema) != by:
                before = ", ".join(partition_columns(schema)) or "nothing"
                raise OutputError(
                    "HR-OUTPUT-073",
                    f"{str(target)!r} holds files that are partitioned by {before}, and they "
                    f"would now be by {', '.join(by) or 'nothing'}",
                    "Leave partition_by as it was, or write to another folder: readers find "
                    "either the one or the other.",
                )


def _check_unrecorded(
    target: Path, own: str | None, records: list[Record], shown: list[str]
) -> None:
    """A crash leaves files of one epoch without a record: the one that was being published."""
    newest = records[-1].epoch if records else -1
    owners = [owner for file in shown if (owner := owner_of(file)) is not None]
    ahead = {slot.epoch for chain, slot in owners if chain == own and slot.epoch > newest}
    if len(ahead) > 1:
        raise _lost(target, f"files of epochs {min(ahead)} to {max(ahead)} have no record")


def find(target: Path, part: OutputFile) -> Path:
    """A merged file is hidden until the files it replaces are gone."""
    shown = target / part.place
    path = next((p for p in (shown, *_hidden(target, part), shown) if p.exists()), None)
    if path is None:
        raise FileNotFoundError(part.place)
    return path


def _hidden(target: Path, part: OutputFile) -> Iterator[Path]:
    yield from target.glob(f"_staging/*/{part.file}")


def _lost(target: Path, what: str) -> OutputError:
    return OutputError(
        "HR-OUTPUT-005",
        f"records of the output {str(target)!r} are missing: {what}",
        f"Restore {FOLDER} in that folder from a backup; only the job itself may remove "
        "what is in it.",
    )


def _foreign(target: Path, file: str) -> OutputError:
    return OutputError(
        "HR-OUTPUT-011",
        f"{str(target)!r} holds {file!r}, which no job has written there",
        'Move the file away, choose another folder, or pass mode="append" to add to the folder.',
    )
