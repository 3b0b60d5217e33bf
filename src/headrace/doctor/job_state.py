"""State: every block of every run that a manifest or a savepoint names; and what goes round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headrace.doctor.finding import Finding
from headrace.doctor.job_files import JobFacts, wrong_of
from headrace.errors import HeadraceError
from headrace.printed import counted, spans
from headrace.state.loops import FOLDER as LOOPS
from headrace.state.loops import LoopFolder
from headrace.state.manifest import Manifest
from headrace.state.prune import RUNS
from headrace.state.runs import RunCache, RunRef
from headrace.state.store import SlotState

_LOOP = "loop"
_FEW = 3  # tables that a finding lists


@dataclass(slots=True)
class NamedBy:
    """Who names a block of a file of state."""

    tables: dict[str, tuple[int, int]] = field(default_factory=dict)  # and for which slots
    epochs: set[int] = field(default_factory=set)
    savepoints: set[str] = field(default_factory=set)


def check_state(job: JobFacts) -> Iterator[Finding]:
    """Each file once, whoever names it."""
    named = dict[str, dict[RunRef, NamedBy]]()
    for epoch, manifest in job.manifests.items():
        for ref, one in _named(named, manifest):
            one.epochs.add(epoch)
            _ = ref
    for name, savepoint in job.savepoints.items():
        for _, one in _named(named, savepoint.manifest):
            one.savepoints.add(name)
    for file, blocks in sorted(named.items()):
        yield from _file(job, job.folder / RUNS / file, blocks)
    yield from _loops(job)


def _named(
    named: dict[str, dict[RunRef, NamedBy]], manifest: Manifest
) -> Iterator[tuple[RunRef, NamedBy]]:
    for table, stored in manifest.state.items():
        for segment in SlotState.from_json(dict(stored)).segments:
            for ref in segment.refs:
                one = named.setdefault(ref.file, {}).setdefault(ref, NamedBy())
                lo, hi = one.tables.get(table, (segment.lo, segment.hi))
                one.tables[table] = min(lo, segment.lo), max(hi, segment.hi)
                yield ref, one


def _file(job: JobFacts, path: Path, blocks: dict[RunRef, NamedBy]) -> Iterator[Finding]:
    job.look(path)
    cache, wrong, hurt = RunCache(job.folder), "", dict[RunRef, NamedBy]()
    for ref, one in sorted(blocks.items(), key=lambda item: item[0].offset):
        try:
            rows = cache.raw(ref).num_rows
            text = "" if rows == ref.rows else f"the block at {ref.offset} has {rows} rows"
        except HeadraceError as error:
            text = wrong_of(path, error)
        except (pa.ArrowException, OSError) as error:
            text = str(error)
        if text:
            wrong, hurt[ref] = wrong or text, one
    if not hurt or _cleared_away(job, path, hurt):
        return
    epochs = frozenset(e for one in hurt.values() for e in one.epochs)
    savepoints = sorted({s for one in hurt.values() for s in one.savepoints})
    yield Finding(
        path, wrong, _means(hurt, epochs, savepoints),
        starts=job.newest.epoch not in epochs, epochs=epochs,
        savepoints=frozenset(savepoints),
    )  # fmt: skip


def _cleared_away(job: JobFacts, path: Path, hurt: dict[RunRef, NamedBy]) -> bool:
    """Whether the job runs, and has no use for the file any more."""
    if path.exists() or path.is_symlink():
        return False
    there = {*job.log.epochs()}
    names = {s for one in hurt.values() for s in one.savepoints}
    return not names and not any(one.epochs & there for one in hurt.values())


def _means(hurt: dict[RunRef, NamedBy], epochs: frozenset[int], savepoints: list[str]) -> str:
    tables = dict[str, tuple[int, int]]()
    for one in hurt.values():
        for table, (lo, hi) in one.tables.items():
            first, last = tables.get(table, (lo, hi))
            tables[table] = min(first, lo), max(last, hi)
    listed = [f"{_step(t)}, slots {lo} to {hi - 1}" for t, (lo, hi) in sorted(tables.items())]
    more = f" and {len(listed) - _FEW} more tables" if len(listed) > _FEW else ""
    of = [f"epoch{'s' if len(epochs) > 1 else ''} {spans(epochs)}"] if epochs else []
    of += [f"savepoint {name!r}" for name in savepoints]
    rows = sum(ref.rows for ref in hurt)
    return f"{counted(rows, 'row')} of state: {'; '.join(listed[:_FEW])}{more}; of {', '.join(of)}"


def _step(table: str) -> str:
    step, _, name = table.rpartition("/")
    return f"step {step!r} ({name})"


# What goes round.


def _loops(job: JobFacts) -> Iterator[Finding]:
    folders = job.folder / LOOPS
    names = {str(f.about["place"]) for f in job.newest.reads.values() if _is_loop(f.about)}
    known = {LoopFolder(job.folder, name).path.name: name for name in names}
    for path in sorted(folders.iterdir()) if folders.is_dir() else []:
        known.setdefault(path.name, path.name)
    for name in sorted(known.values()):
        loop, needed = LoopFolder(job.folder, name), frozenset(job.manifests)
        means = f"rows that step {name!r} has sent back, and that are still to be read"
        try:
            there = loop.files()
            for input, facts in job.newest.reads.items():
                if _is_loop(facts.about) and facts.about["place"] == name:
                    for split in (s for s in job.newest.splits if s.input == input):
                        for _ in loop.parts(split.at, max(split.at, loop.end())):
                            pass
        except HeadraceError as error:
            yield Finding(loop.path, wrong_of(loop.path, error), means, starts=False, epochs=needed)
            continue
        for file in there:
            path = loop.path / file.name
            job.look(path)
            try:
                loop.read(file)
            except HeadraceError as error:
                yield Finding(path, wrong_of(path, error), means, starts=False, epochs=needed)


def _is_loop(about: object) -> bool:
    return isinstance(about, dict) and about.get("kind") == _LOOP
