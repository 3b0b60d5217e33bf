"""Before a run: look at everything, refuse what must be refused, then take the folder.

A start is a transaction. `look` reads and `refuse` judges; neither changes a byte anywhere, so
a start that is refused has not happened. Then the folder is taken, what manifests promised is
published as it was described when it was written, outputs make what they need, and if the
program has changed, a manifest of its own records the change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.driver.commit import Committer
from headrace.driver.offers import offered
from headrace.driver.program_change import commit_change, is_changed, past_of
from headrace.driver.recompute import Past, Say, foreseen, sweep
from headrace.driver.start_checks import Consent, Inspection, ahead_of, refuse
from headrace.epoch.bundle import (
    REAL,
    Bundle,
    Edges,
    describe_inputs,
    describe_outputs,
    ids_of,
    open_input,
    open_sinks,
)
from headrace.errors import FencedError, HeadraceError, StateError
from headrace.files import remote_scheme
from headrace.guarantees import NOT_KNOWN, JobGuarantee, Offer
from headrace.plan.comparison import Comparison, Drop
from headrace.plan.evolution import compare
from headrace.plan.program import Program
from headrace.settings import Settings
from headrace.sources import Source
from headrace.state.epochs import EpochLog
from headrace.state.manifest import InputFacts, Manifest, OutputFacts, StepFacts

LOOKS = 50  # at a job that runs, whose epochs mostly last longer than a look


@dataclass(frozen=True)
class Start:
    """A job ready to run."""

    bundle: Bundle
    log: EpochLog
    token: int
    slots: int
    comparison: Comparison | None
    notes: tuple[str, ...] = ()  # what going back has done to the outputs


def folder_of(program: Program, settings: Settings, folder: str | None) -> str:
    chosen = folder or program.folder
    if chosen:
        if elsewhere := remote_scheme(chosen):
            raise StateError(
                "HR-STATE-025",
                f"the job's folder {chosen!r} is not a path",
                f"{elsewhere} is not a folder of this machine: pass the path of one.",
            )
        return os.path.abspath(chosen)
    return job_folder(program.name, settings)


def job_folder(name: str, settings: Settings) -> str:
    """The folder of a job by its name, if neither the program nor the start says another."""
    return os.path.join(settings.jobs, re.sub(r"[^\w.-]", "_", name))


def slots_for(program: Program, settings: Settings, cores: int) -> int:
    """A small multiple of the cores: it bounds later parallelism and costs little."""
    return program.slots or settings.slots or min(max(32, 8 * cores), 1024)


def prepare(
    program: Program,
    settings: Settings,
    tasks: int,
    *,
    folder: str | None = None,
    until: str | None = None,
    drop: Drop = (),
    drop_all: bool = False,
    take_over: bool = False,
    go_back: bool = False,
    for_good: bool = False,
    silent: bool = False,
    clock: Clock | None = None,
    edges: Edges = REAL,
    say: Say | None = None,
) -> Start:
    """Look, refuse, take the folder, publish what was promised, adopt changes.

    `say` is called with a line on what takes long.
    """
    place = folder_of(program, settings, folder)
    consent = Consent(drop_all or drop, take_over, go_back, for_good, silent)
    inspection = checked(lambda: look(program, place, until, clock, edges, tasks), consent)
    log, past = inspection.log, past_of(inspection, say)
    try:
        slots = log.open(program.name, slots_for(program, settings, tasks))
        disputed = log.is_held()  # by a driver that may still commit what it has begun
        return _take(inspection, consent, slots, settings, edges, disputed, past, say)
    except BaseException:
        log.release()
        raise
    finally:
        if past is not None:
            past.discard()


def _take(
    inspection: Inspection,
    consent: Consent,
    slots: int,
    settings: Settings,
    edges: Edges,
    disputed: bool,
    past: Past | None,
    say: Say | None,
) -> Start:
    """Take the folder and begin; look again if a driver that lived has gone on meanwhile."""
    log, bundle, until = inspection.log, inspection.bundle, inspection.until
    token = log.take_fence()
    sweep(log.folder, past)
    while True:
        if log.latest() != inspection.latest:  # another epoch, or the same one in other files
            folder, clock = str(log.folder), bundle.clock
            tasks = inspection.tasks
            inspect = partial(look, bundle.program, folder, until, clock, edges, tasks)
            inspection = replace(checked(inspect, replace(consent, take_over=True)), log=log)
            past = past_of(inspection, say)
        try:
            return _begin(inspection, token, slots, settings.keep_epochs, disputed, past)
        except FencedError:
            log.check_fence(token)
            if log.newest() == inspection.epoch:
                raise
        finally:
            if past is not None:
                past.discard()


def _begin(
    inspection: Inspection,
    token: int,
    slots: int,
    keep: int,
    disputed: bool,
    past: Past | None = None,
) -> Start:
    """Publish what was promised, open the outputs, and record what begins here.

    Where the folder is taken from a driver that lives, the next epoch is taken at once: nothing
    that it has begun can become the truth after that, in the place of an epoch of ours.
    """
    log, bundle, notes = inspection.log, inspection.bundle, list[str]()
    committer = Committer(bundle, log, token, slots, bundle.clock, keep)
    notes += committer.recover()
    for sink in bundle.sinks.values():
        sink.open()
    ahead = ahead_of(inspection)
    if inspection.latest is not None and (ahead or disputed or is_changed(inspection)):
        commit_change(inspection, token, ahead, past=past)
        notes += committer.recover()
    return Start(bundle, log, token, slots, inspection.comparison, tuple(notes))


def checked(inspect: Callable[[], Inspection], consent: Consent) -> Inspection:
    """What an inspection shows, unless it must be refused.

    A running driver goes on meanwhile, and then its outputs are ahead of the manifest that we have
    read: what is refused while the manifests move on is inspected again.
    """
    for _ in range(LOOKS):
        inspection = inspect()
        try:
            refuse(inspection, consent)
        except HeadraceError as error:
            refused = error
            if inspection.log.newest() == inspection.epoch:
                break
        else:
            return inspection
    raise refused


def look(
    program: Program,
    folder: str,
    until: str | None,
    clock: Clock | None,
    edges: Edges = REAL,
    tasks: int | None = None,
    at: Manifest | None = None,
) -> Inspection:
    """Everything a start has to know; nothing is changed.

    `at`: as if that manifest were the newest.
    """
    clock = clock or SystemClock()
    log = EpochLog(folder)
    slots = log.look(program.name)
    if tasks is not None and slots is not None:
        tasks = min(tasks, slots)
    latest = log.latest() if at is None else at
    manifest = latest or Manifest()
    read_ids = ids_of(program.sources(), manifest.reads, manifest.retired)
    write_ids = ids_of(program.outputs(), manifest.writes)
    sources = edges.inputs(program, folder, until, clock, read_ids)
    sinks = edges.outputs(program, folder, write_ids)
    reads = describe_inputs(program, sources, read_ids)
    writes = describe_outputs(sinks, write_ids, manifest.writes)
    endless = until != "end" and not all(s.bounded for s in sources.values())
    bundle = Bundle(program, sources, sinks, clock, edges.on_step, reads, writes, endless=endless)
    comparison = None if latest is None else _compared(bundle, latest)
    return Inspection(bundle, log, latest, comparison, until, tasks)


def _compared(bundle: Bundle, latest: Manifest) -> Comparison:
    """What the last manifest and this program have in common."""
    versions = {n.name: n.operator().version for n in bundle.program.stateful()}
    comparison = compare(
        bundle.program,
        _described(latest.ops),
        _described(latest.reads),
        _described(latest.writes),
        versions,
        reads=_described(bundle.reads),
        writes=_described(bundle.writes),
    )
    return foreseen(comparison, bundle, latest)


def _described(
    facts: Mapping[str, StepFacts] | Mapping[str, InputFacts] | Mapping[str, OutputFacts],
) -> dict[str, dict[str, Any]]:
    return {name: one.to_json() for name, one in facts.items()}


def review(program: Program, folder: str | None = None, *, until: str | None = None) -> Inspection:
    """What a start would find; changes nothing. `checked` says whether it may."""
    return look(program, folder_of(program, Settings.load(), folder), until, None)


def guarantee_of(program: Program) -> JobGuarantee:
    """What the job guarantees if it is killed. Nothing is connected or changed."""
    folder = folder_of(program, Settings.load(), None)
    sources, unknown = dict[str, Source](), list[Offer]()
    for read in program.sources():
        try:
            sources[read.name] = open_input(read, folder, None, SystemClock(), read.name)
        except HeadraceError as error:  # it need not be there yet
            unknown.append(Offer("input", read.name, NOT_KNOWN, error.message))
    found = offered(program, sources, open_sinks(program, folder))
    return JobGuarantee((*unknown, *found.offers))
