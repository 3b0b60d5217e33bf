"""Before a run: check everything that can be checked, and bring the folder up to date.

Nothing is read or written outside the job's folder before all checks have passed. If the
program has changed since the last manifest, a manifest of its own records the change: state
moved to a new name, state dropped with consent. So a change is atomic, too.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.errors import StateError
from headrace.plan.evolution import SAME, Comparison, compare, describe
from headrace.plan.program import Program
from headrace.runtime.bundle import Bundle
from headrace.runtime.commit import Committer, uri_of
from headrace.runtime.epoch import ENDED
from headrace.runtime.migrating import migrated
from headrace.runtime.operators import operator_for
from headrace.runtime.outputs import open_sinks
from headrace.runtime.tables import table_key
from headrace.settings import Settings
from headrace.sinks import Sink
from headrace.sources import Source, open_source
from headrace.state.manifest import EpochLog


@dataclass(frozen=True)
class Start:
    """A job ready to run."""

    bundle: Bundle
    log: EpochLog
    token: int
    slots: int
    comparison: Comparison | None


def folder_of(program: Program, settings: Settings, folder: str | None) -> str:
    given = folder or program.folder
    if given:
        return os.path.abspath(given)
    return os.path.join(settings.jobs, re.sub(r"[^\w.-]", "_", program.name))


def slots_for(program: Program, settings: Settings, cores: int) -> int:
    """A small multiple of the cores: it bounds later parallelism and costs little."""
    return program.slots or settings.slots or min(max(32, 8 * cores), 1024)


def open_inputs(
    program: Program, folder: str, until: str | None, clock: Clock
) -> dict[str, Source]:
    return {
        r.name: open_source(
            r.uri, r.declared or r.schema, r.format, r.options,
            folder=folder, name=r.name, until=until, clock=clock,
        )
        for r in program.sources()
    }  # fmt: skip


@dataclass(frozen=True)
class Edges:
    """How a job's inputs and outputs are opened, and who is told of a commit's durable steps."""

    inputs: Callable[[Program, str, str | None, Clock], Mapping[str, Source]] = open_inputs
    outputs: Callable[[Program, str], Mapping[str, Sink]] = open_sinks
    told: Callable[[str], None] | None = None


REAL = Edges()


def prepare(
    program: Program,
    settings: Settings,
    cores: int,
    *,
    folder: str | None = None,
    until: str | None = None,
    drop: Collection[str] = (),
    drop_all: bool = False,
    clock: Clock | None = None,
    edges: Edges = REAL,
) -> Start:
    """Open and check inputs, outputs and the folder; take the folder; adopt changes."""
    place = folder_of(program, settings, folder)
    log = EpochLog(place)
    slots = log.open(program.name, slots_for(program, settings, cores))
    comparison = compare_with(program, log)
    if comparison is not None:
        comparison.check(drop_all or drop)
    clock = clock or SystemClock()
    sources = edges.inputs(program, place, until, clock)
    sinks = edges.outputs(program, place)
    for source in sources.values():
        source.check()
    for sink in sinks.values():
        sink.check()
    token = log.take_fence()
    for sink in sinks.values():
        sink.open()
    bundle = Bundle(program, sources, sinks, clock, edges.told)
    start = Start(bundle, log, token, slots, comparison)
    Committer(bundle, log, token, slots, clock, settings.keep_epochs).recover()
    if comparison is not None and _changed(comparison, program, log):
        adopt(start, comparison.moves())
    return start


def compare_with(program: Program, log: EpochLog) -> Comparison | None:
    """What the last manifest and this program have in common; None for a new job."""
    latest = log.latest()
    if latest is None:
        return None
    body = latest.body
    versions = {n.name: operator_for(n).version for n in program.stateful()}
    return compare(program, body["ops"], body["reads"], body["writes"], versions)


def _changed(comparison: Comparison, program: Program, log: EpochLog) -> bool:
    """Whether the program is another than the last manifest's, or its state looks different."""
    if any(c.verdict != SAME for c in comparison.changes):
        return True
    latest = log.latest()
    known = latest.body["ops"] if latest is not None else {}
    told = describe(program)
    return any(known[n]["fingerprint"] != told[n]["fingerprint"] for n in known if n in told)


def adopt(start: Start, moves: Mapping[str, str]) -> None:
    """Record the changed program as an epoch of its own, with the same offsets."""
    latest = start.log.latest()
    assert latest is not None
    program = start.bundle.program
    body = adopted(program, latest.body, moves)
    folder, clock = str(start.log.folder), latest.body["clock"]
    body["state"] = migrated(program, folder, body["state"], body["ops"], clock)
    body["ops"] = _described(program, body["ops"])
    start.log.commit(latest.epoch + 1, body, start.token, uuid.uuid4().hex)


def adopted(program: Program, body: Mapping[str, Any], moves: Mapping[str, str]) -> dict[str, Any]:
    """The manifest as the changed program needs it: state under its new names, or gone."""
    names = {old: new for new, old in moves.items()}
    kept = {n.name for n in program.stateful()}
    ops = {names.get(n, n): facts for n, facts in body["ops"].items()}
    tables = {_renamed_table(t, names): runs for t, runs in body["state"].items()}
    return {
        **body,
        "outputs": {},
        "epoch_counts": {},
        "ops": {n: facts for n, facts in ops.items() if n in kept},
        "state": {t: runs for t, runs in tables.items() if t.rpartition("/")[0] in kept},
        "splits": [{**s, "input": names.get(s["input"], s["input"])} for s in body["splits"]],
        "counts": {names.get(n, n): c for n, c in body["counts"].items()},
        "steps": {names.get(n, n): c for n, c in body["steps"].items()},
        "windows": {names.get(n, n): c for n, c in body.get("windows", {}).items()},
        "rows": {names.get(n, n): c for n, c in body["rows"].items()},
        "metrics": {names.get(n, n): c for n, c in body.get("metrics", {}).items()},
        "reads": {r.name: uri_of(r) for r in program.sources()},
        "writes": {w.name: w.uri for w in program.outputs()},
        "ended": False,
    }


def _described(program: Program, ops: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What is known of each step's state, and what it looks like from now on."""
    told = describe(program)
    return {name: {**facts, **told[name]} for name, facts in ops.items()}


def _renamed_table(table: str, names: Mapping[str, str]) -> str:
    op, _, name = table.rpartition("/")
    return table_key(names.get(op, op), name)


def refuse_ended(start: Start) -> None:
    """A job that has closed its windows at the end of its input cannot read on."""
    latest = start.log.latest()
    if latest is None or not latest.body["ended"]:
        return
    stood = {(s["input"], s["name"]): s for s in latest.body["splits"]}
    for name, source in start.bundle.sources.items():
        for split in source.splits():
            known = stood.get((name, split))
            if known is None or known["state"] != ENDED or known["at"] != source.latest(split):
                raise StateError(
                    f"job {start.bundle.program.name!r} has run to the end of its input and "
                    f"closed its windows; there is more in input {name!r} now",
                    code="HR-STATE-020",
                    hint=f"Start afresh: give it another folder, or remove {start.log.folder}.",
                )


def review(program: Program, folder: str | None = None) -> Comparison | None:
    """What a start would do with the state that is there; changes nothing."""
    place = folder_of(program, Settings.load(), folder)
    if not os.path.exists(os.path.join(place, "job.json")):
        return None
    log = EpochLog(place)
    log.open(program.name, 1)
    return compare_with(program, log)


def describe_outputs(program: Program) -> dict[str, str]:
    """What each output of the program offers when the job is killed."""
    sinks = open_sinks(program, folder_of(program, Settings.load(), None))
    return {name: sink.guarantee for name, sink in sinks.items()}
