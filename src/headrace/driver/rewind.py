"""Rewind: a stopped job goes back to an earlier epoch of its own, and goes on from there.

A plan says what that means for each input and output, and changes nothing; carrying it out writes
one manifest, on a new timeline, that has the state and the offsets of the earlier epoch, and then
outputs take back what they can. It is what a start with `go_back` does from an older folder, with
the same mechanism; a crash in between is completed by the next start.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.clock import Moment, SystemClock, moment_millis
from headrace.driver.commit import Committer
from headrace.driver.program_change import commit_change, past_of
from headrace.driver.savepoints import check_files
from headrace.driver.start import folder_of, look
from headrace.driver.start_checks import FOLDER, Ahead, Consent, Inspection, ahead_of, refuse
from headrace.epoch.bundle import DEAD
from headrace.errors import HeadraceError, StateError, did_you_mean
from headrace.plan.comparison import Drop
from headrace.plan.program import Drafted, Program, build
from headrace.printed import spans
from headrace.settings import Settings
from headrace.sinks import EpochWriter, Timelines
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from headrace.state.savepoints import SavepointFolder

TAKEN_BACK, STAYS, NOTHING = "taken back", "stays", "nothing"


@dataclass(frozen=True, slots=True)
class InputRewind:
    """What a rewind means for an input."""

    name: str
    rows: int  # that were read after the epoch, and are read again
    gone: str = ""  # why that is not possible


@dataclass(frozen=True, slots=True)
class OutputRewind:
    """What a rewind means for an output."""

    name: str
    place: str
    what: str  # TAKEN_BACK, STAYS or NOTHING
    rows: int  # that it got after the epoch
    note: str = ""
    refused: bool = False  # it stays, which needs to be said


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What a rewind would do: print it, then `apply` it."""

    job: str
    folder: str
    newest: int  # the epoch that the job has come to
    epoch: int  # the one that it goes back to
    committed: int  # when that was
    inputs: tuple[InputRewind, ...]
    outputs: tuple[OutputRewind, ...]
    steps: str  # what becomes of the program's steps, if it has changed since
    refused: str = ""  # why it cannot be done as it is
    _work: Rewind | None = field(default=None, repr=False, compare=False)

    @property
    def json(self) -> dict[str, Any]:
        """As plain values."""
        names = ("job", "folder", "newest", "epoch", "committed", "steps", "refused")
        inputs, outputs = map(asdict, self.inputs), map(asdict, self.outputs)
        facts = {name: getattr(self, name) for name in names}
        return facts | {"inputs": list(inputs), "outputs": list(outputs)}

    @property
    def lines(self) -> Iterator[str]:
        """The epochs, then each input and output, then what becomes of the program's steps."""
        yield f"job {self.job} goes back from epoch {self.newest} to epoch {self.epoch}"
        for one in self.inputs:
            yield f"  input {one.name}: {one.gone or f'{one.rows:,} rows are read again'}"
        for out in self.outputs:
            yield f"  output {out.name} ({out.place}): {out.note}"
        if self.steps:
            yield from (f"  {line}" for line in self.steps.splitlines())
        if self.refused:
            yield f"refused: {self.refused}"

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def apply(self) -> tuple[str, ...]:
        """Do it; sentences that say what was done at each output."""
        assert self._work is not None
        return self._work.apply()


def plan_rewind(
    job: Drafted,
    *,
    to_epoch: int | None = None,
    to_time: Moment | None = None,
    to_savepoint: str | None = None,
    keep: Collection[str] = (),
    drop: str | Collection[str] = (),
    folder: str | None = None,
) -> RewindPlan:
    """What happens if `job`, which is not running, goes back to an earlier epoch of its own.

    To the epoch `to_epoch`, to the last one that was committed by `to_time`, or to a savepoint.
    Outputs that can take rows back do so; the names in `keep` do not, and get rows twice. What an
    output cannot take back stays, which must be said by naming it in `keep`. `drop` is as that of
    `hr.run`. Nothing is changed before `apply` of the plan is called.
    """
    program = build(job)
    place = folder_of(program, Settings.load(), folder)
    log = EpochLog(place)
    newest = log.latest() if log.look(program.name) is not None else None
    if newest is None:
        raise StateError(
            "HR-REWIND-001",
            f"job {program.name!r} has committed no epoch in {place!r}",
            "Pass the folder in which it ran (folder=, --folder on the command line).",
        )
    target = _target(log, newest, to_epoch, to_time, to_savepoint)
    return Rewind(program, log, newest, target, tuple(keep), drop).plan()


def _target(
    log: EpochLog,
    newest: Manifest,
    to_epoch: int | None,
    to_time: Moment | None,
    to_savepoint: str | None,
) -> Manifest:
    if sum(to is not None for to in (to_epoch, to_time, to_savepoint)) != 1:
        raise StateError(
            "HR-REWIND-002",
            "a rewind goes to an epoch, to a time or to a savepoint",
            "Pass one of to_epoch, to_time and to_savepoint (--to-epoch, --to-time, "
            "--to-savepoint).",
        )
    if to_savepoint is not None:
        target = SavepointFolder(log.folder).read(to_savepoint).manifest
        if not Timelines.of(newest).counts(target):
            raise _given_up(target.epoch, newest)
    else:
        target = _of_epoch(log, newest, to_epoch, to_time)
    return target


def _of_epoch(
    log: EpochLog, newest: Manifest, to_epoch: int | None, to_time: Moment | None
) -> Manifest:
    """The manifest of an epoch, or the last one by a time."""
    found = _kept(log)
    line = Timelines.of(newest)
    counting = {epoch: m for epoch, m in found.items() if line.counts(m)}
    if to_time is not None:
        by = moment_millis(to_time, SystemClock().now())
        in_time = [epoch for epoch, manifest in counting.items() if manifest.wall <= by]
        to_epoch = max(in_time, default=None)
    if to_epoch in counting:
        return counting[to_epoch]
    if to_epoch in found:
        raise _given_up(found[to_epoch].epoch, newest)
    what = f"no epoch was committed by {to_time}" if to_time is not None else f"epoch {to_epoch}"
    raise StateError(
        "HR-REWIND-004",
        f"{what}{'' if to_time is None else ', of those'} "
        f"{'is not' if to_time is None else 'that are'} kept in {str(log.folder)!r}",
        f"Kept are: {spans(counting)}. The setting keep_epochs says how many are kept, "
        "and a savepoint keeps its epoch. To read everything again, start in another folder.",
    )


def _kept(log: EpochLog) -> dict[int, Manifest]:
    savepoints, found = SavepointFolder(log.folder), dict[int, Manifest]()
    for name in savepoints.names():
        try:
            manifest = savepoints.read(name).manifest
        except StateError:  # `savepoint list` shows it
            continue
        found[manifest.epoch] = manifest
    return found | {epoch: log.read(epoch) for epoch in log.epochs()}


def _given_up(epoch: int, newest: Manifest) -> StateError:
    back = next((last for _, last in newest.forks if last < epoch), 0)
    return StateError(
        "HR-REWIND-005",
        f"epoch {epoch} was given up when the job went back to epoch {back}",
        "Its rows are not at the outputs any more, so the job cannot go there. A savepoint of it "
        "can be restored as another job: headrace savepoint restore.",
    )


@dataclass(frozen=True)
class Rewind:
    """From one manifest of a job to another."""

    program: Program
    log: EpochLog
    newest: Manifest
    target: Manifest
    keep: tuple[str, ...]
    drop: Drop

    def _inspect(self) -> Inspection:
        return look(self.program, str(self.log.folder), None, None, at=self.target)

    def plan(self) -> RewindPlan:
        inspection = self._inspect()
        try:
            self._refuse_names(inspection)
            outputs = tuple(self._outputs(inspection))
            if self.target.epoch == self.newest.epoch and all(o.what == NOTHING for o in outputs):
                raise StateError(
                    "HR-REWIND-003",
                    f"epoch {self.newest.epoch} is the newest, and no output has rows after it",
                    "Name an earlier one; `headrace history` lists them.",
                )
            inputs = tuple(self._inputs(inspection))
            refused = self._refused(inspection, outputs)
        finally:
            _close(inspection)
        comparison = inspection.comparison
        changed = comparison is not None and any(c.verdict != "same" for c in comparison.changes)
        return RewindPlan(
            self.program.name,
            str(self.log.folder),
            self.newest.epoch,
            self.target.epoch,
            self.target.wall,
            inputs,
            outputs,
            str(comparison) if changed else "",
            refused,
            self,
        )

    def _refused(self, inspection: Inspection, outputs: tuple[OutputRewind, ...]) -> str:
        try:
            self._check(inspection, outputs)
        except HeadraceError as error:
            return str(error)
        return ""

    def _check(self, inspection: Inspection, outputs: tuple[OutputRewind, ...]) -> None:
        """Raise the first reason why the job must not go back."""
        refuse(inspection, Consent(self.drop, go_back=True, silent=True))
        for one in outputs:
            if one.refused:
                raise StateError(
                    "HR-REWIND-006",
                    f"output {one.name!r} cannot take back the {one.rows:,} rows that it got after "
                    f"epoch {self.target.epoch}",
                    f"If they may stay, and come a second time, say keep=[{one.name!r}] (--keep "
                    f"{one.name} on the command line).",
                )
        for name, source in inspection.bundle.sources.items():
            self._refuse_forgotten(inspection, name, source)
        check_files(self.log.folder, self.target)

    def _refuse_forgotten(self, inspection: Inspection, name: str, source: Any) -> None:
        """An input that the epoch does not know, and which has forgotten rows that it stored."""
        known = {s.name for s in inspection.manifest.splits if s.input == name}
        if not source.forgets:
            return
        for split in source.splits():
            if split not in known and (first := source.start(split)):
                raise StateError(
                    "HR-REWIND-007",
                    f"input {name!r} came after epoch {self.target.epoch}, and its first {first} "
                    "rows were read and forgotten",
                    "Go back to a later epoch, or to a savepoint: what it needs is not forgotten.",
                )

    def _refuse_names(self, inspection: Inspection) -> None:
        known = [*inspection.bundle.sinks]
        for name in self.keep:
            if name not in known:
                raise StateError(
                    "HR-REWIND-008",
                    f"keep names {name!r}, which is no output of job {self.program.name!r}",
                    f"{did_you_mean(name, known)}Its outputs: {', '.join(known)}.",
                )
        kept = {inspection.bundle.place_of(name) for name in self.keep}
        for name, facts in inspection.bundle.writes.items():
            if facts.place in kept and name not in self.keep:
                raise StateError(
                    "HR-REWIND-008",
                    f"output {name!r} writes to {facts.place!r} as one of those does that keep "
                    "names: rows stay there, or are taken back, together",
                    f"Name {name!r}, too, or none of them.",
                )

    def _inputs(self, inspection: Inspection) -> Iterator[InputRewind]:
        now, then = (_counts(m, m.reads, "read") for m in (self.newest, self.target))
        offsets: dict[str, dict[str, Any]] = {}
        comparison = inspection.comparison
        moves = comparison.moves() if comparison is not None else {}
        for split in self.target.splits:
            offsets.setdefault(split.input, {})[split.name] = split.at
        for name, source in inspection.bundle.sources.items():
            id, gone = inspection.bundle.reads[name].id, ""
            try:
                source.check(offsets.get(moves.get(name, name), {}))
            except HeadraceError as error:
                gone = f"cannot be read again: {error.message}"
            yield InputRewind(name, now.get(id, 0) - then.get(id, 0), gone)

    def _outputs(self, inspection: Inspection) -> Iterator[OutputRewind]:
        now, then = ({**_rows(m)} for m in (self.newest, self.target))
        bundle = inspection.bundle
        for name, sink in bundle.sinks.items():
            id = bundle.writes[name].id if name in bundle.writes else DEAD
            rows, place = now.get(id, 0) - then.get(id, 0), bundle.place_of(name)
            shown = "dead letters" if name not in bundle.writes else place
            held, line = sink.held(), inspection.timelines
            counts = line.plus(inspection.manifest.stays().get(place, {}))
            beyond = counts.beyond(held.all) if held is not None else {}
            got = f"{rows:,} rows"
            if max(beyond.values(), default=0) > self.newest.epoch:
                got = (
                    f"rows of epochs up to {max(beyond.values())}, which the folder does not know,"
                )
            if not beyond and (held is not None or not rows):
                note = f"has no rows after epoch {self.target.epoch}"
                yield OutputRewind(name, shown, NOTHING, 0, note)
            elif held is None or held.final:
                said = sink.go_back(counts, EpochWriter(0, lambda: None, line))
                note = said.removeprefix(f"output {name!r}: ")
                refused = held is not None and name not in self.keep
                note += f"; needs --keep {name}" if refused else ""
                yield OutputRewind(name, shown, STAYS, rows, note, refused)
            elif name in self.keep:
                note = f"keeps {got} of epochs that are given up; they come twice"
                yield OutputRewind(name, shown, STAYS, rows, note)
            else:
                yield OutputRewind(name, shown, TAKEN_BACK, rows, f"{got} are taken back")
        ids = {facts.id for facts in bundle.writes.values()}
        for name, facts in self.newest.writes.items():
            if facts.id not in ids and facts.last > self.target.epoch:
                rows = now.get(facts.id, 0) - then.get(facts.id, 0)
                note = "is not in the program: what it holds stays"
                yield OutputRewind(name, facts.place, STAYS, rows, note)

    def apply(self) -> tuple[str, ...]:
        """1. Look again, and refuse what must be refused;
        2. take the folder, and publish what was promised up to the earlier epoch;
        3. commit the manifest of the earlier epoch, on a new timeline;
        4. let outputs take back what was given up.
        """
        inspection, log = self._inspect(), self.log
        try:
            self._check(inspection, tuple(self._outputs(inspection)))
            slots = log.look(self.program.name)
            assert slots is not None
            token = log.take_fence()
            try:
                if log.latest() != self.newest:  # another epoch, or the same one in other files
                    raise StateError(
                        "HR-REWIND-009",
                        f"job {self.program.name!r} has gone on meanwhile, or was rewritten: its "
                        f"epoch is {log.newest()}",
                        "Plan it again, while the job is not running.",
                    )
                check_files(log.folder, self.target)  # of which a forget may have removed some
                return self._go(inspection, token, slots)
            finally:
                log.release()
        finally:
            _close(inspection)

    def _go(self, inspection: Inspection, token: int, slots: int) -> tuple[str, ...]:
        bundle = inspection.bundle
        everything = sys.maxsize  # of what there is now the next manifest may need anything
        committer = Committer(bundle, self.log, token, slots, bundle.clock, everything)
        committer.recover(self.target.epoch)
        for sink in bundle.sinks.values():
            sink.open()
        ahead = [*ahead_of(inspection), Ahead(FOLDER, self.log.newest())]
        kept = {bundle.place_of(name) for name in self.keep}
        commit_change(inspection, token, ahead, kept, past_of(inspection))
        return tuple(committer.recover())


def _counts(manifest: Manifest, facts: Mapping[str, Any], what: str) -> dict[str, int]:
    """By id of the input."""
    counts = manifest.counts
    return {f.id: counts.get(name, {}).get(what, 0) for name, f in facts.items()}


def _rows(manifest: Manifest) -> dict[str, int]:
    """By id of the output: the rows that it has got."""
    rows = {facts.id: manifest.rows.get(name, 0) for name, facts in manifest.writes.items()}
    return {DEAD: manifest.rows.get(DEAD, 0), **rows}


def _close(inspection: Inspection) -> None:
    for source in inspection.bundle.sources.values():
        source.close()
