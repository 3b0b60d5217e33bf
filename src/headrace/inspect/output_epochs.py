"""Which epochs the outputs of a job show, asked of the places themselves.

An epoch is committed by its manifest, and then published to one output after the other. Between a
crash and the next start an output may therefore be behind the manifest; a start publishes what is
missing before it reads anything. Only looks: nothing is published or changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headrace.epoch.bundle import DEAD, ids_of, open_dead, open_sinks
from headrace.errors import HeadraceError, StateError
from headrace.plan.program import Drafted, build
from headrace.sinks import Sink, Timelines
from headrace.sinks.delivered import StagedSink, within
from headrace.sinks.open import reopen_sink
from headrace.sinks.ownership import Identity
from headrace.state.deliveries import BegunMark
from headrace.state.epochs import EpochLog, PublishedMark
from headrace.state.manifest import Manifest, OutputFacts


@dataclass(frozen=True, slots=True)
class OutputEpochs:
    """How far one output has come."""

    name: str  # of the output
    place: str  # where it writes
    shows: int | None  # every row of the epochs up to this one is there; None: it cannot be asked
    last: int  # the last committed epoch that has rows for it
    holds: int | None  # the last epoch with rows that the place itself records; None: it does not
    producer: str | None  # under which name the place records it, where it does by producer
    note: str  # what a reader should know, if anything


@dataclass(frozen=True, slots=True)
class JobOutputs:
    """Which epochs the outputs of a job show: print it."""

    epoch: int  # the last one that is committed
    outputs: tuple[OutputEpochs, ...]

    @property
    def common(self) -> int | None:
        """All outputs show every row of the epochs up to this one; None if one cannot be asked."""
        shown = [output.shows for output in self.outputs]
        known = [epoch for epoch in shown if epoch is not None]
        return min(known, default=self.epoch) if len(known) == len(shown) else None

    @property
    def json(self) -> dict[str, Any]:
        """The same as plain values."""
        outputs = [asdict(output) for output in self.outputs]
        return {"epoch": self.epoch, "common": self.common, "outputs": outputs}

    @property
    def lines(self) -> Iterator[str]:
        """What is committed, then each output."""
        not_ = "" if self.common == self.epoch else "not "
        yield f"epoch {self.epoch} is committed; {not_}every output shows it"
        for o in self.outputs:
            shows = "unknown" if o.shows is None else f"epoch {o.shows}"
            yield f"  {o.name}: {shows}{f' ({o.note})' if o.note else ''}"

    def __str__(self) -> str:
        return "\n".join(self.lines)


def outputs(
    folder: str | Path, job: Drafted | None = None, *, without: Collection[str] = ()
) -> JobOutputs:
    """Which epochs the outputs of the job in `folder` show now; each place is asked.

    Those whose kind is in `without` are left out. With `job`, the program, outputs are opened as
    it says: needed for passwords and tokens that are not in the environment, and for outputs of
    classes of your own. Nothing is changed.
    """
    log = EpochLog(folder)
    manifest = log.latest() if (Path(folder) / "epochs").is_dir() else None
    if manifest is None:
        raise StateError(
            "HR-RUN-020",
            f"there is no committed epoch in {str(folder)!r}",
            "Pass the folder of a job that has run: it has a file job.json.",
        )
    due = [*manifest.writes.items()]
    if DEAD not in manifest.writes and (Path(folder) / DEAD).is_dir():
        place = {"kind": "files", "place": f"{folder}/{DEAD}"}
        due.append((DEAD, OutputFacts(DEAD, place, manifest.last_dead)))
    kinds = {"loop", *without}  # a loop is the job's own affair
    due = [(name, facts) for name, facts in due if facts.about.get("kind") not in kinds]
    found = [_epochs_of(log, manifest, name, facts, job) for name, facts in due]
    return JobOutputs(manifest.epoch, tuple(found))


def _epochs_of(
    log: EpochLog, manifest: Manifest, name: str, facts: OutputFacts, job: Drafted | None
) -> OutputEpochs:
    kind, place = facts.about.get("kind"), facts.place
    place = place if str(kind) == "console" else f"{kind}:{place}"
    try:
        sink = opened(str(log.folder), manifest, name, facts, job)
        held = sink.held()
    except HeadraceError as error:
        note = f"it cannot be asked: {error.message}"
        return OutputEpochs(name, place, None, facts.last, None, None, note)
    timelines, producer = Timelines.of(manifest), None
    if isinstance(sink, StagedSink) and (id := Identity(log.folder).known()) is not None:
        producer = within(f"{id}/{facts.id}", timelines.at(facts.last))
    unpublished = _unpublished(log, facts.id)
    if held is None:
        late = [epoch for epoch in unpublished if epoch > PublishedMark(log.folder).epoch()]
        shows = min(late) - 1 if late else manifest.epoch
        note = "by the job's folder: the place records no epochs"
        note += f"; rows of epoch {late[0]} may be there already" if late else ""
        if passed := BegunMark(log.folder).missing(facts.id):
            shown = ", ".join(map(str, passed))
            note += f"; at most once: rows of these epochs may be missing: {shown}"
        return OutputEpochs(name, place, shows, facts.last, None, producer, note)
    timelines = timelines.plus(manifest.stays().get(facts.place, {}))
    counts = [epoch for line, epoch in held.own.items() if epoch <= timelines.upto(line)]
    holds = max(counts, default=0)
    missing = [epoch for epoch in unpublished if epoch > holds]
    shows, note = (min(missing) - 1 if missing else manifest.epoch), ""
    if missing:
        note = "the next start publishes the rest"
    if holds < facts.last and not missing:
        shows, note = holds, f"it holds nothing after epoch {holds}: it was deleted or replaced"
    if timelines.beyond(held.own):
        note = "it has rows of epochs that the folder does not know or has gone back behind"
    return OutputEpochs(name, place, shows, facts.last, holds, producer, note)


def _unpublished(log: EpochLog, id: str) -> list[int]:
    """The epochs with rows for an output that were not yet known to be published."""
    done, found = PublishedMark(log.folder).epoch(), list[int]()
    line = Timelines.of(log.latest() or Manifest())
    for epoch in log.epochs():
        manifest = log.read(epoch) if epoch > done else Manifest()
        if not line.counts(manifest):
            continue  # it was given up
        ids = {DEAD: DEAD} | {name: facts.id for name, facts in manifest.writes.items()}
        if any(staged and ids.get(name) == id for name, staged in manifest.outputs.items()):
            found.append(epoch)
    return found


def opened(
    folder: str, manifest: Manifest, name: str, facts: OutputFacts, job: Drafted | None
) -> Sink:
    """An output as a manifest describes it, or as the program says."""
    if name == DEAD and DEAD not in manifest.writes:
        return open_dead(folder)
    if job is not None:
        program = build(job)
        ids = ids_of(program.outputs(), manifest.writes)
        named = next((n for n, id in ids.items() if id == facts.id), None)
        if named is not None:
            return open_sinks(program, folder, ids)[named]
    return reopen_sink(dict(facts.about), folder, name, facts.id)
