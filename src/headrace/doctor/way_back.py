"""The way out where a file cannot be put back: the newest epoch that is whole, and the command.

Nothing is guessed: an epoch is whole if its manifest is, all state that it names, and all rows that
inputs have stored in the job's folder from its offsets on. What lies elsewhere (topics, tables and
files that inputs read) `headrace rewind` looks at, and says by name what is gone.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.doctor.finding import Finding
from headrace.doctor.job_files import JobFacts
from headrace.doctor.job_inputs import offsets
from headrace.printed import counted
from headrace.sinks import Timelines
from headrace.state.manifest import Manifest

_TAKE_BACK = ("files", "collect")
_COMES_AGAIN = ("console", "webhook", "mqtt", "loop")
_INDENT = "  "


def way_back(job: JobFacts, damage: Sequence[Finding], program: str | None) -> Iterator[str]:
    """Lines that say what to do; none if the newest epoch is whole."""
    hurt = {epoch for f in damage for epoch in f.epochs}
    lost = [f.path for f in damage if f.path.parent.name == "epochs" and not f.repair]
    newest = job.newest.epoch
    whole = [e for e in sorted(job.counting) if e not in hurt and _stored(job, job.manifests[e])]
    last = max(job.last, job.published)
    later = sorted(p for p in lost if p.stem.isdecimal() and int(p.stem) > newest)
    if newest and last > newest and newest in whole and not set(lost) - set(later):
        yield from _without_newest(job, [p for p in later if p.exists() or p.is_symlink()], program)
    elif newest in hurt and not lost:
        if whole:
            yield from _rewind(job, job.manifests[whole[-1]], f"--to-epoch {whole[-1]}", program)
        elif (name := _savepoint(job, damage)) is not None:
            target = job.savepoints[name].manifest
            yield from _rewind(job, target, f"--to-savepoint {name}", program)
        else:
            yield "no epoch and no savepoint of the job is whole: put the files back from a backup,"
            yield f"{_INDENT}or start in a new folder, which reads again what the inputs still have"


def _stored(job: JobFacts, manifest: Manifest) -> bool:
    """Whether the folder still has all rows of inputs from the manifest's offsets on."""
    ids = {facts.id: name for name, facts in job.newest.reads.items()}
    for name, facts in manifest.reads.items():
        first = job.stored.get(ids.get(facts.id, name), ())
        for split, at in offsets(manifest, name).items():
            partition = int(split) if split.isdigit() else 0
            if partition < len(first) and isinstance(at, int) and at < first[partition]:
                return False
    return True


def _savepoint(job: JobFacts, damage: Sequence[Finding]) -> str | None:
    """The newest savepoint that is whole, and of an epoch that counts."""
    hurt = {name for f in damage for name in f.savepoints}
    line = Timelines.of(job.newest)
    good = {
        name: one.manifest.epoch
        for name, one in job.savepoints.items()
        if name not in hurt and line.counts(one.manifest) and _stored(job, one.manifest)
    }
    return max(good, key=lambda name: good[name], default=None)


def _rewind(job: JobFacts, target: Manifest, to: str, program: str | None) -> Iterator[str]:
    yield f"or go back to epoch {target.epoch}, the newest that is whole:"
    kept = [name for name, _ in _staying(job, target.epoch)]
    keep = "".join(f" --keep {shlex.quote(name)}" for name in kept)
    yield f"{_INDENT}headrace rewind {_program(program)} {to}{keep}{_folder(job)}"
    yield f"{_INDENT}(it says what happens; with --yes it is done)"
    yield from _losses(job, target)


def _without_newest(job: JobFacts, there: list[Path], program: str | None) -> Iterator[str]:
    """The newest manifests are lost: a start from the one before takes back what came after."""
    yield f"or go on from epoch {job.newest.epoch}, the newest that is whole:"
    aside = shlex.quote(f"{job.folder}-damaged")
    if there:
        names = " ".join(shlex.quote(str(p)) for p in there)
        yield f"{_INDENT}mkdir -p {aside} && mv {names} {aside}"
    yield f"{_INDENT}headrace run {_program(program)} --go-back{_folder(job)}"
    yield f"{_INDENT}files outputs lose what came after, and get it again; topics get it twice"


def _losses(job: JobFacts, target: Manifest) -> Iterator[str]:
    """What going back means, as far as manifests know."""
    newest = job.newest
    for name, facts in newest.reads.items():
        then = next((n for n, f in target.reads.items() if f.id == facts.id), name)
        rows = newest.counts.get(name, {}).get("read", 0) - target.counts.get(then, {}).get(
            "read", 0
        )
        if rows:
            yield f"{_INDENT}input {name}: {counted(rows, 'row')} read again, if still there"
    staying = dict(_staying(job, target.epoch))
    for name in newest.writes:
        rows = newest.rows.get(name, 0) - target.rows.get(name, 0)
        if rows and name in staying:
            yield f"{_INDENT}output {name}: {counted(rows, 'row')} stay there, and come again"
        elif rows:
            yield f"{_INDENT}output {name}: {counted(rows, 'row')} taken back, or printed again"


def _staying(job: JobFacts, epoch: int) -> Iterator[tuple[str, str]]:
    """Outputs that have rows of later epochs and cannot take them back."""
    for name, facts in job.newest.writes.items():
        kind = str(facts.about.get("kind"))
        if facts.last > epoch and kind not in (*_TAKE_BACK, *_COMES_AGAIN):
            yield name, kind


def _program(program: str | None) -> str:
    return shlex.quote(program) if program else "JOB.py"


def _folder(job: JobFacts) -> str:
    return f" --folder {shlex.quote(str(job.folder))}"
