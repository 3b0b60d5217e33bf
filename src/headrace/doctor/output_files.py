"""An output that consists of files: its records, the files that they name, their columns."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from headrace.doctor.finding import Finding
from headrace.doctor.job_files import JobFacts, wrong_of
from headrace.errors import HeadraceError, OutputError
from headrace.files import irregular, put_away
from headrace.plan.nodes import DEAD_SCHEMA
from headrace.printed import counted
from headrace.sinks import columns
from headrace.sinks.commits import (
    FOLDER,
    NEVER,
    SPANS_SUFFIX,
    Commits,
    Name,
    OutputFile,
    Record,
    Replaced,
    Slot,
    in_force,
    owner_of,
    parts_of,
    shown_files,
    spans_of,
)
from headrace.sinks.durable import check_bytes
from headrace.sinks.ownership import find
from headrace.state.sealed import create_sealed

_TRIES = 3  # of a look at an output that is written meanwhile


def check_output_files(
    job: JobFacts, name: str, target: Path, own: str | None, last: int
) -> Iterator[Finding]:
    """All chains of records that are at the place, the job's own and others' beside it."""
    found = list[Finding]()
    for _ in range(_TRIES):
        before = Commits(target).names()
        found = list(_chains(job, name, target, own, last))
        if not found or before == Commits(target).names():
            break
    yield from found
    yield from _columns(job, name, target, own)


def _chains(
    job: JobFacts, name: str, target: Path, own: str | None, last: int
) -> Iterator[Finding]:
    commits = Commits(target)
    for chain in commits.chains():
        yield from _RecordChain(job, name, target, chain, chain == own).findings()
    if own is not None and own not in commits.chains() and last:
        path = target / FOLDER / f"{last:012d}.{own}.json"
        means = f"output {name!r} has published rows up to epoch {last}, and has no record of them"
        yield Finding(path, "it is missing, as all records of the output are", means, starts=False)


class _RecordChain:
    """The records of one output, and what they name."""

    def __init__(self, job: JobFacts, name: str, target: Path, chain: str, own: bool) -> None:
        self._job, self._target, self._chain = job, target, chain
        self._commits, self._folder = Commits(target), target / FOLDER
        self._who = f"output {name!r}" if own else f"another output beside {name!r}"
        self._starts = not own

    def findings(self) -> Iterator[Finding]:
        names = self._commits.names(self._chain)
        current, records = in_force(names), dict[Name, Record]()
        for one in names:
            path = self._folder / one.file
            self._job.look(path)
            try:
                records[one] = self._commits.read(one)
            except Replaced as error:
                if path.is_symlink():
                    yield self._record(path, error, one in current)
            except (OutputError, KeyError, TypeError) as error:
                yield self._record(path, error, one in current)
        whole = [records[one] for one in current if one in records]
        if len(whole) == len(current):
            lost = list(self._missing(whole))
            yield from lost
            if not lost:
                yield from self._short(whole)
        for part in parts_of(whole):
            yield from self._part(part)

    def _record(self, path: Path, error: Exception, counts: bool) -> Finding:
        wrong = irregular(path) or str(error)
        if isinstance(error, HeadraceError) and not irregular(path):
            wrong = wrong_of(path, error).removeprefix("the output's own record is not usable: ")
            wrong = wrong.rpartition("is corrupt: ")[2]
        if not counts:
            means = "nothing: a later record stands for it"
            return Finding(path, wrong, means, harm=False)
        means = (
            f"which files {self._who} has since epoch {int(path.name[:12])}: readers are refused"
        )
        return Finding(path, wrong, means, starts=self._starts)

    def _missing(self, records: Sequence[Record]) -> Iterator[Finding]:
        """A record, or a snapshot, that those after it go by."""
        means = f"which files {self._who} had until then: readers are refused"
        pairs = pairwise([None, *records])
        for before, record in pairs:
            previous = NEVER if before is None else before.epoch
            if record is None or record.revision is not None or record.before == previous:
                continue
            slot = self._unnamed_slot(records)
            if slot is not None and before is None:
                file = f"{slot.epoch:012d}.{self._chain}.all.{slot.revision}.json"
            else:
                file = f"{record.before:012d}.{self._chain}.json"
            wrong = f"it is missing: the record of epoch {record.epoch} goes by it"
            yield Finding(self._folder / file, wrong, means, starts=self._starts)

    def _unnamed_slot(self, records: Sequence[Record]) -> Slot | None:
        """The snapshot that merged files are of which no record names."""
        named = {part.file for part in parts_of(records)}
        files = {*shown_files(self._target), *(p.name for p in self._folder.iterdir())}
        owners = [
            (file, owner)
            for file in {f.rpartition("/")[2].removesuffix(SPANS_SUFFIX) for f in files}
            if file.startswith("merged-") and (owner := owner_of(file)) is not None
        ]
        slots = [
            slot for file, (chain, slot) in owners if chain == self._chain and file not in named
        ]
        return max(slots, default=None)

    def _short(self, records: Sequence[Record]) -> Iterator[Finding]:
        """A record at the end is missing: there are files in view, or an epoch was published."""
        job, last = self._job, records[-1].epoch if records else NEVER
        if self._starts or job.identity is None:
            return
        due = _last_published(job, self._chain)
        if due > last:
            means = f"which files {self._who} has of epoch {due}: readers miss its rows"
            path = self._folder / f"{due:012d}.{self._chain}.json"
            slot = self._unnamed_slot(records)
            if slot is not None and slot.epoch >= due:
                path = path.with_name(f"{slot.epoch:012d}.{self._chain}.all.{slot.revision}.json")
            yield Finding(path, f"it is missing: epoch {due} was published", means, starts=False)

    def _part(self, part: OutputFile) -> Iterator[Finding]:
        what = f"epochs {part.epoch} to {part.last}" if part.last > part.epoch else (
            f"epoch {part.epoch}"
        )  # fmt: skip
        means = f"{counted(part.rows, 'row')} of {what} of {self._who}: readers are refused"
        path, starts = self._target / part.place, self._starts
        try:
            path = find(self._target, part)
            self._job.look(path)
            check_bytes(path, part.bytes, part.crc)
        except FileNotFoundError:
            yield Finding(path, irregular(path) or "it is missing", means, starts=starts)
        except OutputError as error:
            wrong = irregular(path) or error.message.rpartition("is damaged: ")[2]
            yield Finding(path, wrong, means, starts=starts)
        try:
            spans_of(self._folder, part)
            if part.level:
                self._job.look(self._folder / f"{part.file}{SPANS_SUFFIX}")
        except (Replaced, OutputError, ValueError, TypeError, KeyError) as error:
            rows = self._folder / f"{part.file}{SPANS_SUFFIX}"
            wrong = irregular(rows) or str(error).splitlines()[0].rpartition("is corrupt: ")[2]
            means = f"of which epochs the rows of {part.file} are: going back stops, and merging it"
            yield Finding(rows, wrong, means)


def _last_published(job: JobFacts, chain: str) -> int:
    """The newest epoch of which manifests name files of the chain, and which was published."""
    epochs = [
        epoch
        for epoch, manifest in job.counting.items()
        for references in manifest.outputs.values()
        if epoch <= job.published and any(r.get("chain") == chain for r in references)
    ]
    return max(epochs, default=NEVER)


# Columns.


def _columns(job: JobFacts, name: str, target: Path, own: str | None) -> Iterator[Finding]:
    """The columns that each file was written with."""
    folder, known = target / FOLDER, _known_columns(job)
    needed, facts = set[tuple[str, str]](), job.newest.writes.get(name)
    current = columns.digest_of(DEAD_SCHEMA)
    if facts is not None:
        current = hashlib.sha256(str(facts.about.get("schema")).encode()).hexdigest()[:12]
    commits = Commits(target)
    for chain in commits.chains():
        for one in in_force(commits.names(chain)):
            try:
                needed |= {(chain, part.schema) for part in commits.read(one).parts}
            except (OutputError, Replaced, KeyError, TypeError):
                continue
    there = {(chain, digest) for p in folder.glob("*.schema") for chain, digest in [_split(p)]}
    for chain, digest in sorted(needed | there):
        path = folder / f"{chain}.{digest}.schema"
        job.look(path)
        try:
            columns.check(path)
            continue
        except HeadraceError as error:
            wrong = irregular(path) or wrong_of(path, error).rpartition("is corrupt: ")[2]
        means = f"the columns of files of output {name!r}: readers are refused"
        made = wrong == "it is missing" and digest == current  # a start makes it again
        if (text := known.get(digest)) is None:
            yield Finding(path, wrong, means, starts=chain != own or made)
        else:
            again = partial(_store, path, text)
            yield Finding(
                path, wrong, means, starts=chain != own or made,
                repair="made again: a manifest has the same columns", mend=again,
            )  # fmt: skip


def _split(path: Path) -> tuple[str, str]:
    chain, _, digest = path.stem.partition(".")
    return chain, digest


def _known_columns(job: JobFacts) -> dict[str, str]:
    """By digest, which is the name of their file: columns that manifests know."""
    manifests = [*job.manifests.values(), *(s.manifest for s in job.savepoints.values())]
    texts = {str(f.about["schema"]) for m in manifests for f in m.writes.values()
             if "schema" in f.about}  # fmt: skip
    texts |= {base64.b64encode(DEAD_SCHEMA.serialize()).decode()}
    return {hashlib.sha256(text.encode()).hexdigest()[:12]: text for text in texts}


def _store(path: Path, text: str) -> None:
    put_away(path)
    create_sealed(path, columns.KIND, {"schema": text})
