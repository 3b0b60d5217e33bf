"""A changed program, or going back, recorded as an epoch of its own.

So a change is atomic, too: state moved to a new name, state and offsets dropped with consent,
outputs under new descriptions. Going back takes a number above all that are known anywhere:
no epoch is ever used twice, whatever outputs remember.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headrace.clock import MIN_TIME
from headrace.driver.recompute import Past, Say, recomputed
from headrace.driver.redistribution import redistribute, rescaled
from headrace.driver.start_checks import Ahead, Inspection, incomplete_outputs
from headrace.driver.state_migration import migrate_state, migrate_waiting
from headrace.driver.window_migration import lateness_kept
from headrace.epoch.bundle import DEAD
from headrace.plan.evolution import DROPPED, OUTPUT, SAME, describe
from headrace.plan.lineage import roots
from headrace.plan.program import Program
from headrace.state.manifest import Manifest, StepFacts, table_key


def is_changed(inspection: Inspection) -> bool:
    """Whether the program is another than the last manifest's, or something else is."""
    assert inspection.comparison is not None
    if any(c.verdict != SAME for c in inspection.comparison.changes):
        return True
    if is_rescaled(inspection):
        return True
    described, stored = describe(inspection.bundle.program), inspection.manifest.ops
    if any(stored[n].fingerprint != described[n]["fingerprint"] for n in stored if n in described):
        return True
    edges = (inspection.bundle.reads, inspection.bundle.writes)
    return (inspection.manifest.reads, inspection.manifest.writes) != edges or bool(
        incomplete_outputs(inspection)
    )


def is_rescaled(inspection: Inspection) -> bool:
    """Whether operator state is stored for another number of tasks."""
    if inspection.tasks is None:
        return False
    assert inspection.comparison is not None
    stored, moves = inspection.manifest, inspection.comparison.moves()
    program = inspection.bundle.program
    return any(rescaled(program, stored.state, stored.ops, inspection.tasks, moves))


def past_of(inspection: Inspection, say: Say | None = None) -> Past | None:
    """What new aggregates are of past rows, where the program asks for that; changes nothing."""
    if inspection.latest is None or inspection.comparison is None:
        return None
    return recomputed(inspection, changed_manifest(inspection, inspection.comparison.moves()), say)


def commit_change(
    inspection: Inspection,
    token: int,
    ahead: Sequence[Ahead],
    kept: Collection[str] = (),
    past: Past | None = None,
) -> None:
    """Commit the manifest of the program as it is now, with the offsets of the last one.

    Outputs at the places `kept` take nothing back, though they could.
    """
    moves = inspection.comparison.moves() if inspection.comparison is not None else {}
    program = inspection.bundle.program
    now = changed_manifest(inspection, moves)
    folder = str(inspection.log.folder)
    state, ops = migrate_state(program, folder, dict(now.state), now.ops, now.clock)
    state = state if past is None else past.adopt(inspection.log.folder, state)
    state = migrate_waiting(program, folder, state, moves, _retimed(inspection, moves))
    slots = inspection.log.look(program.name)
    if inspection.tasks is not None and slots is not None:
        state, ops = redistribute(program, folder, state, ops, inspection.tasks, slots)
    lost = incomplete_outputs(inspection)
    now = replace(
        now,
        epoch=1 + max([inspection.epoch, *(one.number for one in ahead)]),
        token=token,
        attempt=uuid.uuid4().hex,
        state=state,
        ops=_described(program, ops),
        last_dead=0 if DEAD in lost else now.last_dead,
        writes={n: replace(f, last=0) if n in lost else f for n, f in now.writes.items()},
    )
    inspection.log.commit(_gone_back(now, inspection, ahead, kept) if ahead else now)


def _gone_back(
    now: Manifest, inspection: Inspection, ahead: Sequence[Ahead], kept: Collection[str]
) -> Manifest:
    """On a new timeline; with what is given up of the one before, and stays where it is."""
    acknowledged = {place: dict(reached) for place, reached in now.acknowledged.items()}
    for one in ahead:
        if one.place in kept and not one.final:
            acknowledged[one.place] = {**acknowledged.get(one.place, {}), **one.beyond}
    return replace(
        now,
        wall=inspection.bundle.clock.now(),
        timing={},  # no batch has taken any time
        acknowledged=acknowledged,
        timeline=uuid.uuid4().hex,
        forks=(*inspection.manifest.forks, (inspection.manifest.timeline, inspection.epoch)),
        rewound={one.place: dict(one.beyond) for one in ahead if one.final},
    )


def changed_manifest(inspection: Inspection, moves: Mapping[str, str]) -> Manifest:
    """The manifest as the changed program needs it: state under its new names, or gone."""
    before, program = inspection.manifest, inspection.bundle.program
    names = {old: new for new, old in moves.items()}
    steps = {n.name for n in program.stateful()}
    stored = {n.name for n in program.stateful() if not n.what.stateless}
    reads = inspection.bundle.reads
    ops = {names.get(n, n): facts for n, facts in before.ops.items()}
    ops |= {n.name: lateness_kept(n, ops[n.name]) for n in program.stateful() if n.name in ops}
    tables = {_renamed_table(t, names): runs for t, runs in before.state.items()}
    splits = [replace(s, input=names.get(s.input, s.input)) for s in before.splits]
    retimed = _retimed(inspection, moves)
    removed = {f.id for f in before.reads.values()} - {f.id for f in reads.values()}
    return replace(
        before,
        watermark=MIN_TIME if retimed else before.watermark,
        outputs={},
        epoch_counts={},
        ops=_begun_anew({n: facts for n, facts in ops.items() if n in steps}, program, retimed),
        state={t: runs for t, runs in tables.items() if t.rpartition("/")[0] in stored},
        splits=tuple(
            replace(s, watermark=MIN_TIME, memory=None) if s.input in retimed else s
            for s in splits
            if s.input in reads
        ),
        next_split=before.free_split_id(),
        counts={names.get(n, n): c for n, c in before.counts.items()},
        steps={names.get(n, n): c for n, c in before.steps.items()},
        windows={names.get(n, n): c for n, c in before.windows.items()},
        rows={names.get(n, n): c for n, c in before.rows.items()},
        metrics={names.get(n, n): c for n, c in before.metrics.items()},
        measures=before.measures.renamed(names),
        reads=reads,
        writes=inspection.bundle.writes,
        retired=tuple(sorted({*before.retired, *removed})),
        dropped=_dropped(inspection),
        acknowledged=before.stays(),
        rewound=None,
    )


def _retimed(inspection: Inspection, moves: Mapping[str, str]) -> set[str]:
    """The inputs whose event time is another column now: their watermark begins anew."""
    retimed = set()
    for name, facts in inspection.bundle.reads.items():
        stored = inspection.manifest.reads.get(moves.get(name, name))
        if stored is not None and stored.time not in ("", facts.time):
            retimed.add(name)
    return retimed


def _begun_anew(
    ops: Mapping[str, StepFacts], program: Program, retimed: set[str]
) -> dict[str, StepFacts]:
    """No step that is left goes by the time that was: those that do have been refused."""
    above = {n.name: {r for e in n.inputs for r in roots(e)} for n in program.stateful()}
    return {
        name: replace(facts, watermark=MIN_TIME, over=None) if above[name] & retimed else facts
        for name, facts in ops.items()
    }


def _dropped(inspection: Inspection) -> tuple[str, ...]:
    """What the change drops, and others since the last epoch that read: until the next such one
    the same start may be repeated, however often."""
    changes = inspection.comparison.changes if inspection.comparison is not None else ()
    there = {c.name for c in changes}
    before = [name for name in inspection.manifest.dropped or () if name not in there]
    return (*before, *(c.name for c in changes if c.verdict == DROPPED and c.role != OUTPUT))


def _described(program: Program, ops: Mapping[str, StepFacts]) -> dict[str, StepFacts]:
    """What is known of each step's state, and what it looks like from now on."""
    described = describe(program)
    return {name: replace(facts, **described[name]) for name, facts in ops.items()}


def _renamed_table(table: str, names: Mapping[str, str]) -> str:
    op, _, name = table.rpartition("/")
    return table_key(names.get(op, op), name)
