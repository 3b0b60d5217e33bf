"""What a start refuses, in this order; nothing here changes anything.

1. a driver that lives holds the folder;
2. the program, or this number of tasks, cannot go on from what is there;
3. the job, or a step, has closed its windows for good, or would close those of a job without
   an end;
4. an input or an output cannot be used;
5. the job is asked for a guarantee that an input or an output does not give;
6. outputs hold more, or less, than the folder knows of;
7. a step would never emit anything.

Each can be consented to where it makes sense; the error says how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import MAX_TIME
from headrace.driver.never_firing import refuse_never_firing
from headrace.driver.offers import refuse_weaker
from headrace.driver.redistribution import refuse_rescaled
from headrace.epoch.bundle import DEAD, Bundle, as_written
from headrace.errors import OutputError, Site, StateError, written_at
from headrace.plan.comparison import Comparison, Drop, consent, named
from headrace.plan.lineage import roots
from headrace.plan.nodes import Stateful
from headrace.plan.shapes import goes_by_event_time
from headrace.sinks import Sink, Timelines, in_groups
from headrace.sinks.ownership import Identity
from headrace.sources.received import received
from headrace.sources.spouts import stored_tuples
from headrace.state.epochs import EpochLog, PublishedMark
from headrace.state.manifest import ENDED, Manifest
from headrace.state.sealed import missing

FOLDER = "the job's folder"


@dataclass(frozen=True)
class Consent:
    """What the user allows a start to do that cannot be undone."""

    drop: Drop = ()  # what may be lost, by name; or all of it
    take_over: bool = False  # from a driver that lives
    go_back: bool = False  # behind what outputs have
    for_good: bool = False  # close the windows of a job that was without an end
    silent: bool = False  # run steps that emit nothing before an end that may never come


@dataclass(frozen=True)
class Inspection:
    """A job as a start finds it."""

    bundle: Bundle
    log: EpochLog
    latest: Manifest | None
    comparison: Comparison | None
    until: str | None
    tasks: int | None = None  # how many the start has; None where nothing is to run

    @property
    def name(self) -> str:
        return self.bundle.program.name

    @property
    def epoch(self) -> int:
        return self.latest.epoch if self.latest is not None else 0

    @property
    def timelines(self) -> Timelines:
        return Timelines.of(self.manifest)

    @property
    def manifest(self) -> Manifest:
        """The last manifest, or that of a job without one."""
        return self.latest or Manifest()


def refuse(inspection: Inspection, allowed: Consent) -> None:
    """Raise the first reason why the job must not start."""
    if not allowed.take_over:
        _refuse_living(inspection)
    if inspection.comparison is not None:
        inspection.comparison.check(
            allowed.drop, {*incomplete_outputs(inspection), *(inspection.manifest.dropped or ())}
        )
    program, moves = inspection.bundle.program, _moves(inspection)
    refuse_rescaled(program, inspection.manifest, inspection.tasks, moves)
    _refuse_ended(inspection)
    if inspection.until == "end" and not allowed.for_good:
        _refuse_to_end(inspection)
    _check_identity(inspection)
    _refuse_unread(inspection)
    _check_edges(inspection)
    refuse_weaker(inspection.bundle)
    if not (allowed.go_back and inspection.latest):
        _refuse_ahead(inspection)
    _refuse_short(inspection, allowed)
    _refuse_other(inspection)
    if not allowed.silent:
        refuse_never_firing(program, inspection.bundle.sources)


def _refuse_living(inspection: Inspection) -> None:
    driver = inspection.log.driver()
    if driver is not None:
        raise StateError(
            "HR-STATE-021",
            f"job {inspection.name!r} is running: {driver} drives it in "
            f"{str(inspection.log.folder)!r}",
            "Stop that run first, or give this one another folder. take_over=True "
            "(--take-over on the command line) takes the folder from it: that run then fails.",
        )


def _refuse_ended(inspection: Inspection) -> None:
    """A job or step that has closed its windows at the end of its input cannot read on."""
    if inspection.manifest.ended:
        for name in inspection.bundle.sources:
            if _has_more(inspection, name):
                raise StateError(
                    "HR-STATE-020",
                    f"job {inspection.name!r} has run to the end of its input and "
                    f"closed its windows; there is more in input {name!r} now",
                    "To read everything again, give the job another folder, and its outputs "
                    "other places: those that are there keep what this folder has written.",
                )
    for step in _ended_steps(inspection):
        for name in dict.fromkeys(name for edge in step.inputs for name in roots(edge)):
            if name in inspection.bundle.sources and _has_more(inspection, name):
                raise StateError(
                    "HR-STATE-020",
                    f"the step {step.name!r} has read its input to the end and closed what was "
                    f"open; there is more in input {name!r} now",
                    "Give the step another name to start it afresh (its state is then "
                    "dropped, which needs your consent), or give the job another folder.",
                )


def _ended_steps(inspection: Inspection) -> Iterator[Stateful]:
    """The steps that go by event time and have seen the end of their input."""
    ops, moves = inspection.manifest.ops, _moves(inspection)
    for step in inspection.bundle.program.stateful():
        facts = ops.get(moves.get(step.name, step.name))
        if facts is not None and facts.watermark >= MAX_TIME and goes_by_event_time(step):
            yield step


def _has_more(inspection: Inspection, name: str) -> bool:
    """Whether an input has more than was read of it when it was at its end."""
    source, before = inspection.bundle.sources[name], _moves(inspection).get(name, name)
    read_splits = {s.name: s for s in inspection.manifest.splits if s.input == before}
    for split in source.splits():
        stored = read_splits.get(split)
        if stored is None or stored.state != ENDED or source.has_more(split, stored.at):
            return True
    return False


def _moves(inspection: Inspection) -> Mapping[str, str]:
    return inspection.comparison.moves() if inspection.comparison is not None else {}


def _refuse_to_end(inspection: Inspection) -> None:
    if inspection.manifest.endless and not inspection.manifest.ended:
        raise StateError(
            "HR-STATE-024",
            f'job {inspection.name!r} has run without an end so far; until="end" would close its '
            "windows for good, and nothing that comes later could be read",
            "If that is what you want, pass for_good=True (--for-good on the command line); "
            'if not, run it without until or with until="now", or in another folder.',
        )


def _check_identity(inspection: Inspection) -> None:
    """Outputs know their rows by the identity of the folder; without it they are another's."""
    identity = Identity(inspection.log.folder)
    sinks, writes = inspection.bundle.sinks, inspection.manifest.writes
    owned = [n for n, facts in writes.items() if facts.last and n in sinks]
    if identity.known() is None and any(sinks[n].held() is not None for n in owned):
        raise missing(identity.path)


def _refuse_unread(inspection: Inspection) -> None:
    """Without a manifest names are all there is: lines of an input that has another one now
    would never be read."""
    if inspection.latest is not None:
        return
    keys = {facts.id for facts in inspection.bundle.reads.values()}
    folder = inspection.log.folder
    found = {"lines": received(folder), "tuples": stored_tuples(folder)}
    for what, key, place in ((w, k, p) for w, places in found.items() for k, p in places.items()):
        if key not in keys:
            raise StateError(
                "HR-STATE-026",
                f"input {key!r} has received {what} that no batch has read yet, in {str(place)!r}, "
                f"and job {inspection.name!r} has no input of that name",
                "Give the input that name until a batch is committed; from then on was= "
                f"renames it. If the {what} may be lost, remove that folder.",
            )


def _check_edges(inspection: Inspection) -> None:
    offsets: dict[str, dict[str, Any]] = {}
    for split in inspection.manifest.splits:
        offsets.setdefault(split.input, {})[split.name] = split.at
    moves = _moves(inspection)
    program = inspection.bundle.program
    sites = {node.name: node.site for node in (*program.sources(), *program.outputs())}
    for name, source in inspection.bundle.sources.items():
        with written_at(sites.get(name)):
            source.check(offsets.get(moves.get(name, name), {}))
    for name, sink in inspection.bundle.sinks.items():
        with written_at(sites.get(name)):
            sink.check()
    _check_groups(inspection.bundle.sinks, sites)


def _check_groups(sinks: Mapping[str, Sink], sites: Mapping[str, Site | None]) -> None:
    for names in in_groups(sinks):
        if len(names) > 1:
            with written_at(sites.get(names[-1])):
                sinks[names[0]].check_group([sinks[name] for name in names])


@dataclass(frozen=True)
class Ahead:
    """Something that knows of epochs that are not the folder's."""

    who: str
    number: int  # the largest epoch that it knows of
    beyond: Mapping[str, int] = field(default_factory=dict)  # by timeline: what it holds
    place: str = ""  # of the output
    final: bool = False  # it cannot take it back

    def __str__(self) -> str:
        if self.beyond:
            return f"{self.who} has rows of epoch {max(self.beyond.values())}"
        return f"{self.who} has epoch {self.number}"


def ahead_of(inspection: Inspection) -> list[Ahead]:
    """Who knows of epochs that the folder does not, or has gone back behind."""
    published, ahead = PublishedMark(inspection.log.folder).epoch(), list[Ahead]()
    if published > inspection.epoch:
        ahead.append(Ahead(FOLDER, published))
    acknowledged = inspection.manifest.stays()
    # Whether a crash has cut going back short:
    under_way = inspection.manifest.rewound is not None and published < inspection.epoch
    for name, sink in inspection.bundle.sinks.items():
        held = sink.held()
        if held is None:
            continue
        place = inspection.bundle.place_of(name)
        counts = inspection.timelines.plus(acknowledged.get(place, {}))
        beyond = {} if under_way else counts.beyond(held.all)
        if beyond or held.number > inspection.epoch:
            ahead.append(Ahead(f"output {name!r}", held.number, beyond, place, held.final))
    return ahead


def _refuse_ahead(inspection: Inspection) -> None:
    ahead = ahead_of(inspection)
    if not ahead:
        return
    differences = "; ".join(map(str, ahead))
    folder = str(inspection.log.folder / "epochs")
    if inspection.latest is None:
        raise StateError(
            "HR-STATE-022",
            f"job {inspection.name!r} has no manifest in {folder!r}, but {differences}: "
            "its manifests were deleted",
            "Restore the folder from a copy; or start afresh, in another folder and with "
            "other outputs.",
        )
    raise StateError(
        "HR-STATE-022",
        f"the newest manifest of job {inspection.name!r} in {folder!r} is of epoch "
        f"{inspection.epoch}, but {differences}, which it does not know or has gone back behind: "
        "the folder or an output was restored from a copy, or manifests were deleted",
        "Put the newest folder, or the newest output, back if you have it. To go on from this "
        "folder, pass go_back=True (--go-back on the command line): files outputs then lose what "
        "the folder does not know, and it is written again as far as the inputs still have it; "
        "topics keep it and get it twice.",
    )


def incomplete_outputs(inspection: Inspection) -> dict[str, tuple[int, int]]:
    """Outputs that have lost something: by name, what they hold and what was published there.

    Of the newest epoch publishing may not be complete, so the one before counts; unless a place
    has gone beyond it: then it cannot be published there any more.
    """
    settled = inspection.manifest
    unsettled = PublishedMark(inspection.log.folder).epoch() < inspection.epoch
    if unsettled and settled.rewound is None:  # else the one before was given up
        earlier = [e for e in inspection.log.epochs() if e < inspection.epoch]
        settled = inspection.log.read(earlier[-1]) if earlier else Manifest()
    due, promised = _last_epochs(settled), _last_epochs(inspection.manifest)
    ids = {DEAD: DEAD} | {n: f.id for n, f in inspection.bundle.writes.items() if f.last}
    lost = {}
    for name, sink in inspection.bundle.sinks.items():
        held, id = sink.held(), ids.get(name, "")
        last = due.get(id, 0)
        if held is not None and unsettled and promised.get(id) == inspection.epoch:
            last = inspection.epoch if held.number >= inspection.epoch else last
        if held is None or not last:
            continue
        newest = held.own.get(inspection.timelines.at(last), 0)
        if newest < last:
            lost[name] = newest, last
    return lost


def _last_epochs(manifest: Manifest) -> dict[str, int]:
    """By the ids of outputs: the last epoch with rows, as a manifest knows it."""
    last = {facts.id: facts.last for facts in manifest.writes.values()}
    return {**last, DEAD: manifest.last_dead}


def _refuse_short(inspection: Inspection, allowed: Consent) -> None:
    for name, (held, due) in incomplete_outputs(inspection).items():
        if name not in named(allowed.drop):
            raise output_lost(inspection.bundle, inspection.log, name, held, due)


def _refuse_other(inspection: Inspection) -> None:
    """What was not published yet may have been, as another epoch of the same number: by another
    copy of the folder, which did not know of this one."""
    if PublishedMark(inspection.log.folder).epoch() >= inspection.epoch:
        return
    for name, staged in inspection.manifest.outputs.items():
        if staged:
            folder = str(inspection.log.folder)
            sink = as_written(name, inspection.manifest.writes, folder, inspection.bundle)
            sink.check_same(inspection.epoch, staged)


def output_overtaken(
    bundle: Bundle, log: EpochLog, output: str, beyond: Mapping[str, int]
) -> OutputError:
    """The error of an output to which a copy of the folder has published, `beyond` our own."""
    return OutputError(
        "HR-OUTPUT-013",
        f"output {output!r} ({_place(bundle, log, output)}) has epoch {max(beyond.values())} of "
        f"another driver, which runs on a copy of the folder of job {bundle.program.name!r}",
        "Nothing of this batch is committed or published. Go on with one of the two folders, "
        "and let the other write to other outputs. A start of this one says what has to be "
        "taken back.",
    )


def _place(bundle: Bundle, log: EpochLog, output: str) -> str:
    written = bundle.writes.get(output)
    return written.place if written is not None else str(log.folder / DEAD)


def output_lost(bundle: Bundle, log: EpochLog, output: str, held: int, due: int) -> StateError:
    """The error of an output that holds nothing after epoch `held`."""
    holds = f"holds nothing after epoch {held}" if held else "holds nothing"
    return StateError(
        "HR-STATE-023",
        f"output {output!r} ({_place(bundle, log, output)}) {holds}, but job "
        f"{bundle.program.name!r} has published up to epoch {due} there: it was deleted, or "
        "replaced by an older copy",
        f"Restore it. If its earlier rows may be lost, say {consent(output)}; or give "
        "the output another name.",
    )
