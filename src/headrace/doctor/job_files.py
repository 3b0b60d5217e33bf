"""The files that say what a job is: its own, manifests, fence, mark, identity, savepoints."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headrace.doctor.finding import FROM_BACKUP, Finding, Looked
from headrace.epoch.bundle import DEAD
from headrace.errors import FencedError, HeadraceError, StateError
from headrace.files import irregular, put_away, unusable
from headrace.sinks import Timelines
from headrace.sinks.files import chain_of
from headrace.sinks.ownership import KIND as IDENTITY
from headrace.sinks.ownership import Identity
from headrace.state import sealed
from headrace.state.deliveries import BEGUN
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from headrace.state.resends import Resends
from headrace.state.savepoints import Savepoint, SavepointFolder

SET_ASIDE = ".damaged"  # what --repair adds to the name of a manifest that nothing needs
_MANIFEST = re.compile(rf"(\d{{12}})\.json({re.escape(SET_ASIDE)})?")
_FENCE = re.compile(r"(\d+)\.json")


@dataclass(slots=True)
class JobFacts:
    """A job as its files show it."""

    folder: Path
    look: Looked
    runs: bool = False  # whether a driver lives that is not us
    log: EpochLog = field(init=False)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    savepoints: dict[str, Savepoint] = field(default_factory=dict)
    published: int = 0  # by the mark
    last: int = 0  # the newest epoch of which anything in the folder knows
    identity: str | None = None
    stored: dict[str, tuple[int, ...]] = field(default_factory=dict)  # from where on, by input

    def __post_init__(self) -> None:
        self.log = EpochLog(self.folder)

    @property
    def newest(self) -> Manifest:
        """The newest manifest that is whole, or that of a job without one."""
        return self.manifests[max(self.manifests)] if self.manifests else Manifest()

    @property
    def going_back(self) -> bool:
        """Whether a crash has cut going back short: the next start completes it."""
        return self.newest.rewound is not None and self.published < self.newest.epoch

    @property
    def counting(self) -> dict[int, Manifest]:
        """The manifests of epochs that were not given up."""
        line = Timelines.of(self.newest)
        return {epoch: m for epoch, m in self.manifests.items() if line.counts(m)}


def check_job_files(job: JobFacts) -> Iterator[Finding]:
    """Everything but state, inputs and outputs."""
    manifests = list(_manifests(job))
    yield from _job_file(job)
    yield from _mark(job)
    yield from _settled(job, manifests)
    yield from check_fence(job)
    yield from _identity(job)
    yield from _savepoints(job)
    yield from _asked(job)


def wrong_of(path: Path, error: HeadraceError) -> str:
    """What an error says of a file, without its name, which is beside it."""
    if text := irregular(path):
        return text
    return re.sub(r"^(?:.*, )?'[^']*',? (?:is corrupt: )?", "", error.message) or error.message


def _job_file(job: JobFacts) -> Iterator[Finding]:
    path = job.folder / "job.json"
    job.look(path)
    try:
        content = sealed.read_sealed(path, "job")
        _ = content["job"], int(content["slots"])
    except (StateError, KeyError, ValueError) as error:
        wrong = wrong_of(path, error) if isinstance(error, StateError) else f"it lacks {error}"
        means = "whose folder it is, and into how many slots its state is divided"
        yield Finding(path, wrong, means, starts=False)


# Manifests.


def _manifests(job: JobFacts) -> Iterator[Finding]:
    names = sorted(p.name for p in _listed(job.folder / "epochs"))
    found = {int(m[1]): m[2] for name in names if (m := _MANIFEST.fullmatch(name))}
    job.last = max(found, default=0)
    for epoch, aside in found.items():
        path = job.folder / "epochs" / f"{epoch:012d}.json"
        if aside and f"{epoch:012d}.json" not in names:
            continue
        job.look(path)
        try:
            job.manifests[epoch] = job.log.read(epoch)
        except FencedError:
            continue  # the job runs, and has cleared it away
        except (HeadraceError, KeyError, TypeError, ValueError, AttributeError) as error:
            wrong = wrong_of(path, error) if isinstance(error, HeadraceError) else str(error)
            yield Finding(path, wrong, "", starts=False, epochs=frozenset({epoch}))
    oldest = min(found, default=1)
    for epoch in sorted({*range(oldest, job.last)} - found.keys()):
        path = job.folder / "epochs" / f"{epoch:012d}.json"
        means = f"the job cannot go back to epoch {epoch}; it needs it for nothing else"
        yield Finding(path, "it is missing", means, epochs=frozenset({epoch}))


def _settled(job: JobFacts, found: list[Finding]) -> Iterator[Finding]:
    """What damage of manifests means, which depends on how far publishing has come."""
    whole = max(job.manifests, default=0)
    if job.published > job.last:
        path = job.folder / "epochs" / f"{job.published:012d}.json"
        wrong = f"it is missing: epoch {job.published} was published"
        yield Finding(path, wrong, _newest(job.published), starts=False)
    elif job.published < whole and not job.runs:
        what = "going back to an earlier epoch" if job.going_back else "publishing the newest epoch"
        wrong = f"a crash has cut short {what}"
        means = "nothing: the next start completes it before it reads anything"
        yield Finding(job.folder / "published", wrong, means, harm=False)
    for one in found:
        (epoch,) = one.epochs
        if one.means:
            yield one
        elif epoch > whole:
            yield Finding(one.path, one.wrong, _newest(epoch), starts=False, epochs=one.epochs)
        elif epoch <= job.published and job.published >= whole:
            means = f"the job cannot go back to epoch {epoch}; what follows from it is in the next"
            aside = one.path.with_name(one.path.name + SET_ASIDE)
            yield Finding(
                one.path, one.wrong, means, starts=False, epochs=one.epochs,
                repair=f"set aside as {aside.name}", mend=partial(os.rename, one.path, aside),
            )  # fmt: skip
        else:
            means = f"what epoch {epoch} has for the outputs, and may not be published yet"
            yield Finding(one.path, one.wrong, means, starts=False, epochs=one.epochs)


def _newest(epoch: int) -> str:
    return f"what is true since epoch {epoch}: how far inputs are read, which state there is"


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


# How far publishing has come.


def _mark(job: JobFacts) -> Iterator[Finding]:
    path = job.folder / "published"
    if not job.last:
        return
    job.look(path)
    try:
        job.published = int(sealed.read_sealed(path, "published")["epoch"])
    except (StateError, KeyError, ValueError) as error:
        wrong = wrong_of(path, error) if isinstance(error, StateError) else f"it lacks {error}"
        broken = bool(unusable(path))
        means = (
            "how far publishing has come: a start publishes again what manifests name, which only "
            "outputs at least once (console, webhook, mqtt) show"
        )
        yield Finding(
            path, wrong, means, harm=broken, starts=not broken,
            repair="removed, so that a start makes it again", mend=partial(put_away, path),
        )  # fmt: skip


# Who drives the job.


def check_fence(job: JobFacts) -> Iterator[Finding]:
    """Files of drivers that have taken the folder."""
    folder = job.folder / "fence"
    found = {int(m[1]): p for p in _listed(folder) if (m := _FENCE.fullmatch(p.name))}
    for _, path in sorted(found.items()):
        job.look(path)
        try:
            sealed.read_sealed(path, "fence")
        except StateError as error:
            if not path.exists() and not path.is_symlink():
                continue  # a driver that starts has taken its place
            broken = bool(irregular(path))
            means = "which driver has the folder; the next start takes the next number"
            renewed = partial(_new_fence, path, folder / f"{max(found) + 1}.json")
            yield Finding(
                path, wrong_of(path, error), means, harm=broken, starts=not broken,
                repair="replaced by the next one, as a start does", mend=renewed,
            )  # fmt: skip


def _new_fence(path: Path, following: Path) -> None:
    sealed.create_sealed(following, "fence", {"host": "", "pid": 0})
    put_away(path)


# By what the outputs know the job.


def _identity(job: JobFacts) -> Iterator[Finding]:
    path = Identity(job.folder).path
    if path.exists() or path.is_symlink():
        job.look(path)
    try:
        job.identity = str(sealed.read_sealed(path, IDENTITY)["id"])
        return
    except (StateError, KeyError) as error:
        wrong = wrong_of(path, error) if isinstance(error, StateError) else "it says no identity"
    if wrong == "it is missing" and not _has_written(job):
        return
    means = "by it the outputs know their rows: to the job they would be another's"
    known = _recorded_identity(job)
    if known is None:
        yield Finding(path, wrong, means, starts=False)
        return
    job.identity = known
    again = partial(_new_identity, path, known)
    repair = "made again: the manifests name what it was"
    yield Finding(path, wrong, means, starts=False, repair=repair, mend=again)


def _has_written(job: JobFacts) -> bool:
    newest = job.newest
    return bool(newest.last_dead or any(f.last for f in newest.writes.values()))


def _recorded_identity(job: JobFacts) -> str | None:
    """The identity that references in manifests name; or that of records at an output of which
    manifests name the chain, which is made of the identity."""
    references = [
        (m, name, ref) for m in job.manifests.values() for name, r in m.outputs.items() for ref in r
    ]
    for _, _, ref in references:
        if "producer" in ref:
            return str(ref["producer"]).partition("/")[0]
    for manifest, name, ref in references:
        facts = manifest.writes.get(name)
        id = DEAD if facts is None else facts.id
        for record in _listed(_target(job, name, manifest) / "_commits"):
            try:
                named = str(sealed.read_sealed(record, "output-commit")["job"])
            except (StateError, KeyError):
                continue
            if chain_of(named, id) == ref.get("chain"):
                return named
    return None


def _target(job: JobFacts, name: str, manifest: Manifest) -> Path:
    return files_target(job.folder, name, manifest) or job.folder / DEAD


def files_target(folder: Path, name: str, manifest: Manifest) -> Path | None:
    """The folder of an output that consists of files; None if it is of another kind."""
    facts = manifest.writes.get(name)
    if facts is None:
        return folder / DEAD if name == DEAD else None
    about: Mapping[str, Any] = facts.about
    if about.get("kind") == "collect":
        from headrace.sinks.file_options import collect_folder

        return collect_folder(str(folder), facts.place.removeprefix("collect:"))
    return Path(facts.place) if about.get("kind") == "files" else None


def _new_identity(path: Path, id: str) -> None:
    sealed.make_folder(path.parent)
    put_away(path)
    sealed.create_sealed(path, IDENTITY, {"id": id})


# Savepoints.


def _savepoints(job: JobFacts) -> Iterator[Finding]:
    folder = SavepointFolder(job.folder)
    for name in folder.names():
        path = folder.path / f"{name}.json"
        job.look(path)
        try:
            job.savepoints[name] = folder.read(name)
        except StateError as error:
            if not path.exists() and not path.is_symlink():
                continue  # it is deleted at this moment
            means = f"savepoint {name!r}; and nothing is tidied away before it is deleted"
            do = f"{FROM_BACKUP}, or give it up: headrace savepoint delete {job.folder} {name}"
            yield Finding(path, wrong_of(path, error), means, do=do,
                          savepoints=frozenset({name}))  # fmt: skip


# What has begun to be delivered, and what is to be sent again.


def _asked(job: JobFacts) -> Iterator[Finding]:
    for mark in sorted((job.folder / BEGUN).glob("*.json")):
        job.look(mark)
        try:
            _ = sealed.read_sealed(mark, BEGUN)["outputs"]
        except (StateError, KeyError) as error:
            wrong = wrong_of(mark, error) if isinstance(error, StateError) else f"it lacks {error}"
            do = (
                f"{FROM_BACKUP}, or remove {str(mark.parent)!r}: what is not known to be published "
                "counts as delivered then, and its rows may be missing at outputs at most once"
            )
            means = "which deliveries have begun, of outputs that are at most once"
            yield Finding(mark, wrong, means, starts=False, do=do)
    resends = Resends(job.folder)
    done = {number for number, _ in job.newest.resent or ()}
    for number in sorted({*resends.numbers(), *done}):
        path = resends.path(number)
        job.look(path)
        try:
            resends.read(number)
        except HeadraceError as error:
            due = number not in done
            means = (
                "which dead letters are to be replayed"
                if due
                else "which dead letters were replayed: `headrace dead` cannot list any"
            )
            yield Finding(path, wrong_of(path, error), means, starts=not due)
