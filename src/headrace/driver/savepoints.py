"""Savepoints of a job: create, look at, restore into a folder of their own, delete.

Creating one copies a manifest and changes nothing else, so it works while the job runs. A restore
makes a new folder under another name and gives it its own in one step; the folder that it is of
is only read. What the restored job begins with is the state and the offsets of the savepoint; its
outputs begin as those of a new job.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.clock import SystemClock
from headrace.driver.start import job_folder
from headrace.errors import FencedError, HeadraceError, StateError
from headrace.files import TEMPORARY, size, sync, sync_folder
from headrace.settings import Settings
from headrace.sinks.ownership import Identity
from headrace.sources.stored_bounds import check_stored
from headrace.state import sealed
from headrace.state.epochs import EpochLog, PublishedMark
from headrace.state.faults import point
from headrace.state.loops import FOLDER as LOOPS
from headrace.state.loops import LoopFolder
from headrace.state.manifest import Manifest
from headrace.state.prune import RUNS
from headrace.state.resends import Resends
from headrace.state.runs import RunRef, cache_of
from headrace.state.savepoints import (
    Savepoint,
    SavepointFolder,
    creating,
    without_outputs,
)
from headrace.state.store import SlotState

_INPUTS = "inputs"
_LOOP = "loop"
_TRIES = 20
_ALONE = {"mqtt": "a session of the broker", "slot": "a replication slot"}


@dataclass(frozen=True, slots=True)
class SavepointFacts:
    """What a savepoint holds: print it."""

    savepoint: Savepoint
    bytes: int  # of the files of state that it pins
    folder: str  # of the job

    def delete(self) -> None:
        """Forget it; what it alone has pinned is removed when the job next tidies up."""
        delete_savepoint(self.folder, self.savepoint.name)

    @property
    def json(self) -> dict[str, Any]:
        """As plain values."""
        one, manifest = self.savepoint, self.savepoint.manifest
        splits: dict[str, dict[str, Any]] = {name: {} for name in manifest.reads}
        for split in manifest.splits:
            splits.setdefault(split.input, {})[split.name] = split.at
        return {
            "name": one.name,
            "job": manifest.job,
            "epoch": manifest.epoch,
            "committed": manifest.wall,
            "created": one.created,
            "bytes": self.bytes,
            "steps": {name: facts.held for name, facts in manifest.ops.items()},
            "inputs": splits,
            "outputs": {name: facts.last for name, facts in manifest.writes.items()},
        }

    @property
    def lines(self) -> Iterator[str]:
        """The epoch, then each step, input and output."""
        manifest = self.savepoint.manifest
        yield (
            f"savepoint {self.savepoint.name} of job {manifest.job}: epoch {manifest.epoch}, "
            f"{size(self.bytes)} of state"
        )
        facts = self.json
        for name, rows in facts["steps"].items():
            yield f"  step {name}: {manifest.ops[name].kind}, about {rows:,} rows"
        for name, offsets in facts["inputs"].items():
            read = sum(manifest.counts.get(name, {}).get(n, 0) for n in ("read",))
            at = ", ".join(f"{split} at {offset}" for split, offset in offsets.items())
            yield f"  input {name}: {read:,} rows read; {at or 'not read yet'}"
        for name, last in facts["outputs"].items():
            written = manifest.rows.get(name, 0)
            yield f"  output {name}: {written:,} rows, the last in epoch {last}"

    def __str__(self) -> str:
        return "\n".join(self.lines)


def create_savepoint(folder: str | Path, name: str, epoch: int | None = None) -> SavepointFacts:
    """Name the newest epoch of the job in `folder`, or `epoch`, and keep what it needs."""
    log, there = EpochLog(folder), SavepointFolder(folder)
    slots = int(sealed.read_sealed(log.folder / "job.json", "job")["slots"])
    there.refuse(name)
    with creating(folder):
        manifest = _manifest(log, epoch)
        check_files(folder, manifest)
        _check_stored(folder, manifest)
        now = SystemClock().now()
        savepoint = Savepoint(name, now, slots, without_outputs(manifest))
        there.add(savepoint)
    return SavepointFacts(savepoint, size_of(folder, manifest), str(folder))


def _manifest(log: EpochLog, epoch: int | None) -> Manifest:
    for _ in range(_TRIES):
        epochs = log.epochs()
        wanted = epoch if epoch is not None else max(epochs, default=0)
        if wanted not in epochs:
            kept = f"{epochs[0]} to {epochs[-1]}" if epochs else "none yet"
            raise StateError(
                "HR-SAVEPOINT-004",
                f"the job in {str(log.folder)!r} has no manifest of epoch {wanted}"
                if epoch is not None
                else f"no epoch of the job in {str(log.folder)!r} is committed yet",
                f"Those that are kept are: {kept}. The setting keep_epochs says how many are.",
            )
        with suppress(FencedError):  # it was pruned meanwhile
            return log.read(wanted)
    raise AssertionError("unreachable")


def list_savepoints(folder: str | Path) -> list[SavepointFacts | tuple[str, HeadraceError]]:
    """The savepoints of a job, by epoch; of a damaged one its name and what is wrong."""
    found = list[SavepointFacts]()
    damaged = list[tuple[str, HeadraceError]]()
    for name in SavepointFolder(folder).names():
        try:
            found.append(show_savepoint(folder, name))
        except HeadraceError as error:
            damaged.append((name, error))
    found.sort(key=lambda facts: (facts.savepoint.manifest.epoch, facts.savepoint.created))
    return [*found, *damaged]


def savepoints(folder: str | Path) -> list[SavepointFacts]:
    """The savepoints of the job in `folder`, by epoch; StateError if one is damaged."""
    return sorted(
        (show_savepoint(folder, name) for name in SavepointFolder(folder).names()),
        key=lambda facts: (facts.savepoint.manifest.epoch, facts.savepoint.created),
    )


def show_savepoint(folder: str | Path, name: str) -> SavepointFacts:
    savepoint = SavepointFolder(folder).read(name)
    return SavepointFacts(savepoint, size_of(folder, savepoint.manifest), str(folder))


def delete_savepoint(folder: str | Path, name: str) -> None:
    """Forget a savepoint; what it alone has pinned is removed when the job next tidies up."""
    SavepointFolder(folder).remove(name)


# what a manifest needs


def runs_of(manifest: Manifest) -> list[RunRef]:
    """The runs that a manifest names."""
    slots = (SlotState.from_json(dict(state)) for state in manifest.state.values())
    return list(dict.fromkeys(r for s in slots for segment in s.segments for r in segment.refs))


def files_of(manifest: Manifest) -> dict[str, int]:
    """The files of these runs, and how long each must be."""
    lengths: dict[str, int] = {}
    for ref in runs_of(manifest):
        lengths[ref.file] = max(lengths.get(ref.file, 0), ref.offset + ref.length)
    return lengths


def size_of(folder: str | Path, manifest: Manifest) -> int:
    sizes = 0
    for file in files_of(manifest):
        with suppress(OSError):
            sizes += (Path(folder) / RUNS / file).stat().st_size
    return sizes


def check_files(folder: str | Path, manifest: Manifest, *, whole: bool = False) -> None:
    """Raise StateError unless all files of state are there; if `whole`, read what they hold."""
    for file, length in files_of(manifest).items():
        path = Path(folder) / RUNS / file
        with sealed.named_failures(path):
            found = path.stat().st_size
        if found < length:
            raise sealed.corrupt(path, f"it ends at byte {found}")
    if whole:
        cache = cache_of(str(folder))
        for ref in runs_of(manifest):
            cache.raw(ref)


def _check_stored(folder: str | Path, manifest: Manifest) -> None:
    """Raise an error if rows that inputs have stored here, and would read again, are forgotten."""
    for name, facts in manifest.reads.items():
        offsets = {s.name: s.at for s in manifest.splits if s.input == name}
        check_stored(folder, facts.id, name, offsets)
        if facts.about.get("kind") == _LOOP:
            loop = LoopFolder(folder, str(facts.about["place"]))
            for at in offsets.values():
                for _ in loop.parts(at, loop.end()):
                    pass


# restoring


def restore_savepoint(
    folder: str | Path, name: str, *, job: str | None = None, to: str | Path | None = None
) -> str:
    """Make a folder for `job` of a savepoint; the folder, which is `to`, or that of the job.

    1. make a folder under another name;
    2. check every run of the savepoint, and link it there;
    3. copy what inputs remember, and the requests to replay that were done by then;
    4. write the job's file and the one manifest;
    5. give the folder its name.
    """
    source, savepoint = Path(folder), SavepointFolder(folder).read(name)
    new = job or savepoint.manifest.job
    target = Path(to) if to is not None else Path(job_folder(new, Settings.load()))
    _refuse_target(source, target)
    _refuse_alone(source, savepoint.manifest)
    check_files(source, savepoint.manifest, whole=True)
    sealed.make_folder(target.parent)
    fresh = target.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with sealed.named_failures(fresh):
            fresh.mkdir()
            point("restore.made")
            _link_runs(source / RUNS, fresh / RUNS, savepoint.manifest)
            with creating(source):  # nothing is forgotten meanwhile
                _copy_inputs(source, fresh)
                _copy_resends(source, fresh, savepoint.manifest)
            _copy_loops(source, fresh, savepoint.manifest)
        point("restore.copied")
        _write_manifest(fresh, savepoint, new)
        with sealed.named_failures(target):
            _sync_folders(fresh)
            point("restore.written")
            fresh.rename(target)
            point("restore.named")
            sync_folder(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return str(target)


def _refuse_target(source: Path, target: Path) -> None:
    if target.resolve() == source.resolve():
        raise StateError(
            "HR-SAVEPOINT-005",
            f"a savepoint of {str(source)!r} cannot be restored into that folder",
            "Give the new job another name (--as) or folder (--folder). To take the job itself "
            "back to the savepoint: headrace rewind JOB --to-savepoint NAME.",
        )
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StateError(
            "HR-SAVEPOINT-005",
            f"{str(target)!r} is there already",
            "Choose another name or folder for the restored job; nothing is overwritten.",
        )


def _refuse_alone(source: Path, manifest: Manifest) -> None:
    """Two jobs cannot share what one consumer has at a server: each would take the other's."""
    homes = {id.name: id for id in (source / _INPUTS).glob("*") if (id / "slot.json").exists()}
    for name, facts in manifest.reads.items():
        kind = "slot" if facts.id in homes else str(facts.about.get("kind"))
        if kind in _ALONE:
            raise StateError(
                "HR-SAVEPOINT-006",
                f"input {name!r} has {_ALONE[kind]} that is its own: a second job cannot read on "
                "from it",
                "Take the job itself back (headrace rewind JOB --to-savepoint NAME); or move the "
                "whole folder, and do not start the old one again.",
            )


def _link_runs(source: Path, target: Path, manifest: Manifest) -> None:
    target.mkdir()
    for file in files_of(manifest):
        try:
            os.link(source / file, target / file)
        except FileNotFoundError:
            raise
        except OSError:  # another file system, or one without links
            _copy(source / file, target / file)
        point("restore.run")


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    with target.open("rb") as file:
        sync(file.fileno())


def _copy_inputs(source: Path, target: Path) -> None:
    """What inputs remember; of a topic its head first, because a reader goes by the head.

    What is appended meanwhile lies behind what the head says, and is as if it came later.
    """
    root = source / _INPUTS
    paths = sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(TEMPORARY))
    for path in sorted(paths, key=lambda p: p.name != "head"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # a note that comes and goes
            _copy(path, copy)


def _copy_resends(source: Path, target: Path, manifest: Manifest) -> None:
    for number, _ in manifest.resent or ():
        path, copy = Resends(source).path(number), Resends(target).path(number)
        copy.parent.mkdir(exist_ok=True)
        with sealed.named_failures(path):
            _copy(path, copy)


def _copy_loops(source: Path, target: Path, manifest: Manifest) -> None:
    """What goes round: the rows of the epochs up to the savepoint's."""
    for path in sorted((source / LOOPS).glob("*/*.arrow")):
        if int(path.name.split("-")[0]) <= manifest.epoch:
            copy = target / path.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            _copy(path, copy)


def _write_manifest(folder: Path, savepoint: Savepoint, job: str) -> None:
    """The state and the offsets of the savepoint; outputs that have nothing yet."""
    before = savepoint.manifest
    loops = {n: f for n, f in before.writes.items() if f.about.get("kind") == _LOOP}
    manifest = replace(
        before,
        job=job,
        token=0,
        attempt=uuid.uuid4().hex,
        writes=loops,
        rows={name: rows for name, rows in before.rows.items() if name in loops},
        last_dead=0,
        acknowledged={},
        rewound=None,
        dropped=None,
    )
    content = {"job": job, "slots": savepoint.slots, "created": SystemClock().now()}
    sealed.create_sealed(folder / "job.json", "job", content)
    sealed.make_folder(folder / "epochs")
    path = folder / "epochs" / f"{manifest.epoch:012d}.json"
    sealed.create_sealed(path, "manifest", manifest.to_json())
    PublishedMark(folder).reached(manifest.epoch)
    Identity(folder).get()  # another than that of the job whose savepoint it is


def _sync_folders(folder: Path) -> None:
    for path in (folder, *(p for p in folder.rglob("*") if p.is_dir())):
        sync_folder(path)
