"""Who owns a folder of output files: the job's identity, and a check of the folder against it.

The identity is a random text in the job's folder, created when a job first starts (not when its
outputs are only looked at), and recorded with everything that the job publishes. The check runs
when a job starts, and changes nothing. What a crash has left is the job's own: staged files,
visible files whose record is not written yet (of one epoch, the next one), merged files that
nothing names any more.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from headrace.errors import OutputError
from headrace.sinks import columns
from headrace.sinks.commits import FOLDER, Commits, Record, owner_of, parts_of, retried
from headrace.sinks.durable import check_size, folder_for, named
from headrace.state.sealed import create_sealed, read_sealed

_KIND = "job-identity"


class Identity:
    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "outputs" / "identity"
        self._id: str | None = None

    def known(self) -> str | None:
        """The identity, if there is one yet."""
        if self._id is None:
            with named(self.path):
                if self.path.exists():
                    self._id = str(read_sealed(self.path, _KIND)["id"])
        return self._id

    def get(self) -> str:
        """The identity, created if there is none; if two processes create one, the first wins."""
        stored = self.known()
        if stored is None:
            folder_for(self.path.parent)
            with named(self.path):
                create_sealed(self.path, _KIND, {"id": uuid.uuid4().hex})
            return self.get()
        return stored


def check_folder(target: Path, job: str | None, own: str | None, append: bool) -> None:
    """Raise OutputError unless `target` holds what its records say, and nothing else.

    `own` is the chain of the output that asks. With `append` others' files may be there, too.
    """
    commits = Commits(target)
    chains = {chain: commits.current(chain) for chain in commits.chains()}
    recorded = {chain for chain, _ in columns.stored(target / FOLDER)} | set(chains)
    if not append:
        _check_owners(target, chains, job)
    if own in chains:
        retried(target, lambda: _check_files(target, commits.current(own)))
    for file in _visible(target):
        owner = owner_of(file)
        if owner is not None and owner[0] in recorded:
            continue
        if owner is not None and owner[0] == own:
            raise _lost(target, f"{file!r} is there, but its records are not")
        if not append:
            raise _foreign(target, file)
    _check_unrecorded(target, own, chains.get(own or "", []))


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
        check_size(find(target, part.file), part.bytes)


def _check_unrecorded(target: Path, own: str | None, records: list[Record]) -> None:
    """A crash leaves files of one epoch without a record: the one that was being published."""
    newest = records[-1].epoch if records else -1
    owners = [owner for file in _visible(target) if (owner := owner_of(file)) is not None]
    ahead = {slot.epoch for chain, slot in owners if chain == own and slot.epoch > newest}
    if len(ahead) > 1:
        raise _lost(target, f"files of epochs {min(ahead)} to {max(ahead)} have no record")


def _visible(target: Path) -> list[str]:
    """The files that a globbing reader finds."""
    with named(target):
        if not target.is_dir():
            return []
        return sorted(p.name for p in target.iterdir() if p.name[0] not in "._" and not p.is_dir())


def find(target: Path, name: str) -> Path:
    """A merged file is hidden until the files it replaces are gone."""
    places = [target / name, *target.glob(f"_staging/*/{name}"), target / name]
    path = next((p for p in places if p.exists()), None)
    if path is None:
        raise FileNotFoundError(name)
    return path


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
