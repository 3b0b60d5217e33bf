"""New aggregates computed of past rows: a job on the side, before a changed program starts.

    1. what the last manifest knows says whether the inputs may still have all their rows;
    2. the part of the program that leads to the step reads them again, from the first offset up to
       the committed one, into state of its own, in a scratch folder;
    3. as many records must have been read as the manifest has counted;
    4. what is stored is compared (`recomputed_tables.py`): every aggregate that goes on must have
       come out as it is, for every key and window, and nothing else must have;
    5. the new aggregates' columns are taken over.

So what a start goes on from is what this program would have stored, had it read all. All of this
comes before the folder is taken: a refusal, or a crash, leaves it as it was.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace import files
from headrace.clock import MIN_TIME
from headrace.driver.aggregate_migration import migrated_aggregates
from headrace.driver.local_runner import run_tasks
from headrace.driver.recomputed_tables import Recomputed, not_of_past, taken_over
from headrace.driver.rewritten_runs import State
from headrace.driver.setting_migration import migrated_settings
from headrace.driver.start_checks import Inspection
from headrace.epoch.bundle import DEAD, Bundle, open_dead
from headrace.epoch.report import add_up
from headrace.epoch.values import Epoch, Piece, SourceTask
from headrace.errors import StateError
from headrace.plan.aggregate_changes import to_recompute
from headrace.plan.comparison import NEW, OPERATOR, REFUSED, VALUE, Change, Comparison
from headrace.plan.evolution import ONLY_NEW
from headrace.plan.nodes import Read, Stateful
from headrace.plan.program import Program
from headrace.plan.recomputation import inputs_of, late_by, part_before
from headrace.sources import Source
from headrace.state.faults import point
from headrace.state.manifest import Manifest, Split, StepFacts
from headrace.state.prune import RUNS
from headrace.state.runs import RunCache, RunWriter
from headrace.state.store import SlotState

Say = Callable[[str], None]
SCRATCH = f"{files.TEMPORARY}recompute-"
_ROWS = 1_000_000  # records read at a time
_EVERY = 5.0  # seconds between two lines about how far it is
_HOLDER = -1  # a split that holds the watermark back: nothing is due


@dataclass(frozen=True)
class Past:
    """What steps store with their new aggregates, in a scratch folder until it is adopted."""

    of: Manifest  # the one that it goes on from
    state: State  # the tables that are others
    scratch: Path
    file: str

    def adopt(self, folder: Path, state: State) -> State:
        """All tables, these in the job's folder now; a manifest has to name them yet."""
        written = self.scratch / RUNS / self.file
        if written.exists():  # else no key and no window is open
            os.replace(written, folder / RUNS / self.file)
            files.sync_folder(folder / RUNS)
        point("past.adopted")
        self.discard()
        return {**state, **self.state}

    def discard(self) -> None:
        shutil.rmtree(self.scratch, ignore_errors=True)


# Before anything is read: what can be known of the past.


def foreseen(comparison: Comparison, bundle: Bundle, stored: Manifest) -> Comparison:
    """With what is known of the inputs that have to be read again; refused if they have not all."""
    moves = comparison.moves()
    refused, said = dict[str, str](), dict[str, str]()
    unusable = {c.name for c in comparison.of(REFUSED)}
    for node, _ in _to_do(bundle.program, stored, moves):
        if node.name not in unusable:
            reads = [_PastInput.of(r, bundle, stored, moves) for r in inputs_of(node)]
            refused[node.name] = next((why for r in reads if (why := r.why_not())), "")
            said[node.name] = ", ".join(map(str, reads))

    def known(change: Change) -> Change:
        step = next((name for name in said if change.name.startswith(f"{name}.")), "")
        if change.role == OPERATOR and refused.get(change.name):
            because = f"its new aggregates cannot be computed of past rows: {refused[change.name]}"
            return replace(
                change, verdict=REFUSED, because=because, hint=ONLY_NEW, code="HR-EVOLVE-008"
            )
        if change.role == VALUE and change.verdict == NEW and said.get(step):
            return replace(change, because=f"{change.because} ({said[step]})")
        return change

    return Comparison(tuple(map(known, comparison.changes)))


def _to_do(
    program: Program, stored: Manifest, moves: Mapping[str, str]
) -> Iterator[tuple[Stateful, StepFacts]]:
    for node in program.stateful():
        old = stored.ops.get(moves.get(node.name, node.name))
        if old is None or old.kind != node.what.at_rest or not node.what.aggregates:
            continue
        if to_recompute(node, old.shape or {}):
            yield node, old


@dataclass(frozen=True)
class _PastInput:
    """What was read of an input, and what there is of it now."""

    read: Read
    source: Source
    splits: tuple[Split, ...]
    counts: Mapping[str, int] | None
    resent: bool

    @staticmethod
    def of(read: Read, bundle: Bundle, stored: Manifest, moves: Mapping[str, str]) -> _PastInput:
        before = moves.get(read.name, read.name)
        splits = tuple(replace(s, input=read.name) for s in stored.splits if s.input == before)
        counts = stored.counts.get(before)
        return _PastInput(read, bundle.sources[read.name], splits, counts, bool(stored.resent))

    @property
    def records(self) -> int:
        """How many were read."""
        return (self.counts or {}).get("read", 0)

    def __str__(self) -> str:
        return f"{self.records:,} record{'' if self.records == 1 else 's'} of {self.read.name!r}"

    def why_not(self) -> str:
        """Why its past rows are not all there any more, as far as it can be seen."""
        name = self.read.name
        if self.counts is None and self.splits:
            return f"how many records of {name!r} were read is not recorded"
        if self.resent:
            return "dead letters were sent again, and come at other places than they came"
        if self.read.max_skew is not None and (self.counts or {}).get("dead"):
            return (
                f"some rows of {name!r} may have been too far ahead of the clock (max_skew), "
                "which is another by now"
            )
        there = {*self.source.splits()}
        for split in self.splits:
            if split.name not in there:
                return f"{self.source.in_words(split.name)} is not there any more"
            if why := self.source.lost(split.name, split.at):
                return why
        most = self._most()
        if most is not None and most < self.records:
            return (
                f"{self.records:,} records of {name!r} were read, and of these it has "
                f"{most:,} at most"
            )
        return ""

    def _most(self) -> int | None:
        """The number of records that can be there: each has an offset of its own."""
        ranges = [(self.source.start(s.name), s.at) for s in self.splits]
        if not all(isinstance(at, int) for pair in ranges for at in pair):
            return None
        return sum(max(0, int(end) - int(start)) for start, end in ranges)


# Reading it again.


def recomputed(inspection: Inspection, now: Manifest, say: Say | None = None) -> Past | None:
    """What steps with new aggregates store, computed of past rows; None if none has any.

    `now` is the last manifest as the changed program needs it: under its names.
    """
    stored, program = inspection.manifest, inspection.bundle.program
    moves = inspection.comparison.moves() if inspection.comparison is not None else {}
    work = list(_to_do(program, stored, moves))
    slots = inspection.log.look(program.name)
    if not work or slots is None:
        return None
    folder = inspection.log.folder
    scratch = folder / f"{SCRATCH}{uuid.uuid4().hex}"
    try:
        _borrow_runs(folder, scratch)
        unique, state = f"recomputed-{uuid.uuid4().hex[:12]}", dict[str, Any]()
        writer = RunWriter(scratch, unique)
        for node, old in work:
            job = _SideJob(node, inspection.bundle, now, slots, scratch / f"{len(state)}", say)
            found = job.run()
            facts = now.ops.get(node.name, old)
            before = _as_now(node, facts, dict(now.state), scratch)
            state |= taken_over(node, facts, before, found, writer, RunCache(scratch))
        writer.close()
        point("past.computed")
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    return Past(stored, state, scratch, writer.file)


def sweep(folder: Path, but: Past | None) -> None:
    """Remove what starts that crashed have left; by whoever holds the folder."""
    for left in folder.glob(f"{SCRATCH}*"):
        if but is None or left != but.scratch:
            shutil.rmtree(left, ignore_errors=True)


def _borrow_runs(folder: Path, scratch: Path) -> None:
    """The job's runs under links, so that what is rewritten of them can lie beside them."""
    (scratch / RUNS).mkdir(parents=True)
    for run in (folder / RUNS).glob("*.run"):
        (scratch / RUNS / run.name).symlink_to(run.absolute())


def _as_now(node: Stateful, old: StepFacts, state: State, scratch: Path) -> State:
    """What is stored of a step, in the columns that it has now; the new ones are of no rows."""
    writer, cache = RunWriter(scratch, f"before-{uuid.uuid4().hex[:12]}"), RunCache(scratch)
    old, state = migrated_settings(node, old, state, writer, cache)
    state = migrated_aggregates(node, old, state, writer, cache)
    writer.close()
    return state


class _SideJob:
    """The part of a program that leads to one step, over what was read."""

    def __init__(
        self,
        node: Stateful,
        bundle: Bundle,
        now: Manifest,
        slots: int,
        folder: Path,
        say: Say | None,
    ) -> None:
        program = part_before(bundle.program, node.name)
        self._node, self._now, self._slots, self._folder = node, now, slots, folder
        self._say, self._job = say, bundle.program.name
        self._sources = {r.name: bundle.sources[r.name] for r in program.sources()}
        sinks = {DEAD: open_dead(str(folder))}  # where nobody looks: these letters are old
        self._bundle = Bundle(program, self._sources, sinks, bundle.clock)
        self._splits = tuple(
            replace(s, watermark=MIN_TIME, memory=None)
            for s in now.splits
            if s.input in self._sources
        )
        self._read, self._arrived = Counter[str](), 0
        self._memory, self._state = dict[str, Any](), dict[str, Any]()
        self._said = time.monotonic()

    def run(self) -> Recomputed:
        self._tell()
        at = {s.id: self._sources[s.input].start(s.name) for s in self._splits}
        number = 0
        while left := [s for s in self._splits if at[s.id] != s.at]:
            number += 1
            pieces = list[Piece]()
            for split in left:
                source, begin = self._sources[split.input], at[split.id]
                if isinstance(begin, int) and begin > split.at:
                    raise self._refused(f"{source.in_words(split.name)} begins at {begin} now")
                end = source.clamp(split.name, begin, split.at, max(1, _ROWS // len(left)))
                pieces += [Piece(split.id, r) for r in source.cut(split.name, begin, end, 1)]
                at[split.id] = end
            self._epoch(number, pieces)
            point("past.epoch")
            if time.monotonic() - self._said > _EVERY:
                self._tell()
        self._check_read()
        return Recomputed(self._state, self._folder, self._slots, self._arrived == self._came)

    @property
    def _came(self) -> int:
        """How many rows have come to the step, since it has been there."""
        return self._now.steps.get(self._node.name, {}).get("in", 0)

    def _epoch(self, number: int, pieces: list[Piece]) -> None:
        holder = replace(self._splits[0], id=_HOLDER, name="", at=0)
        memories = (replace(s, memory=self._memory.get(str(s.id))) for s in self._splits)
        facts = self._now.ops[self._node.name]
        epoch = Epoch(
            number=number,
            attempt=uuid.uuid4().hex,
            clock=self._now.clock,
            folder=str(self._folder),
            slots=self._slots,
            tasks=1,
            before={self._node.name: late_by(self._node, facts.watermark)},
            splits=(*memories, holder),
        )
        total = add_up(run_tasks(self._bundle, [SourceTask(0, epoch, tuple(pieces), self._state)]))
        for table, parts in total.state.items():
            stored = self._state.get(table)
            whole = SlotState.from_json(stored) if stored else SlotState.empty(self._slots)
            self._state[table] = whole.apply([SlotState.from_json(p) for p in parts]).to_json()
        self._memory |= total.memory
        for name, counts in total.inputs.items():
            self._read[name] += counts["read"]
        self._arrived += total.steps[self._node.name]["in"]

    def _check_read(self) -> None:
        for name in self._sources:
            was = self._now.counts.get(name, {}).get("read", 0)
            if self._read[name] != was:
                raise self._refused(
                    f"{was:,} records of input {name!r} were read, and {self._read[name]:,} are "
                    "there now"
                )

    def _refused(self, because: str) -> StateError:
        return not_of_past(self._node.name, because)

    def _tell(self) -> None:
        self._said = time.monotonic()
        if self._say is not None:
            whole = sum(self._now.counts.get(name, {}).get("read", 0) for name in self._sources)
            self._say(
                f"{self._job}: reading past rows again for the new aggregates of "
                f"{self._node.name!r}: {self._read.total():,} of {whole:,} records"
            )
