"""A changed program, or going back, recorded as an epoch of its own.

So a change is atomic, too: state moved to a new name, state and offsets dropped with consent,
outputs under new descriptions. Going back takes a number above all that anybody knows of:
no epoch is ever used twice, whatever outputs remember.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.clock import MIN_TIME
from headrace.driver.migrating import migrated
from headrace.driver.refusing import Ahead, Inspection, acknowledged, short
from headrace.epoch.opening import DEAD, ID, LAST, TIME
from headrace.epoch.values import next_split
from headrace.plan.evolution import DROPPED, OUTPUT, SAME, describe
from headrace.plan.lineage import roots
from headrace.plan.program import Program
from headrace.task.tables import table_key

Body = dict[str, Any]


def is_changed(found: Inspection) -> bool:
    """Whether the program is another than the last manifest's, or something else is."""
    assert found.comparison is not None
    if any(c.verdict != SAME for c in found.comparison.changes):
        return True
    told, known = describe(found.bundle.program), found.body["ops"]
    if any(known[n]["fingerprint"] != told[n]["fingerprint"] for n in known if n in told):
        return True
    described = (found.bundle.reads, found.bundle.writes)
    return (found.body["reads"], found.body["writes"]) != described or bool(short(found))


def adopt(found: Inspection, token: int, ahead: Sequence[Ahead]) -> None:
    """Commit the manifest of the program as it is now, with the offsets of the last one."""
    moves = found.comparison.moves() if found.comparison is not None else {}
    program = found.bundle.program
    body = adopted(found, moves)
    folder = str(found.log.folder)
    body["state"] = migrated(program, folder, body["state"], body["ops"], body["clock"])
    body["ops"] = _described(program, body["ops"])
    for name in short(found):
        if name == DEAD:
            body["last_dead"] = 0
        else:
            body["writes"][name] = {**body["writes"][name], LAST: 0}
    if ahead:
        body |= _gone_back(found, ahead)
    epoch = 1 + max([found.epoch, *(one.number for one in ahead)])
    found.log.commit(epoch, body, token, uuid.uuid4().hex)


def _gone_back(found: Inspection, ahead: Sequence[Ahead]) -> Body:
    """A new timeline; what is given up of the one before, and stays where it is."""
    return {
        "timeline": uuid.uuid4().hex,
        "forks": [*found.body.get("forks", ()), [found.body["timeline"], found.epoch]],
        "rewound": {one.stays: dict(one.beyond) for one in ahead if one.stays is not None},
    }


def adopted(found: Inspection, moves: Mapping[str, str]) -> Body:
    """The manifest as the changed program needs it: state under its new names, or gone."""
    body, program = found.body, found.bundle.program
    names = {old: new for new, old in moves.items()}
    kept = {n.name for n in program.stateful()}
    stored = {n.name for n in program.stateful() if not n.what.stateless}
    reads = found.bundle.reads
    ops = {names.get(n, n): facts for n, facts in body["ops"].items()}
    tables = {_renamed_table(t, names): runs for t, runs in body["state"].items()}
    splits = [{**s, "input": names.get(s["input"], s["input"])} for s in body["splits"]]
    retimed = _retimed(found, moves)
    ids = {facts[ID] for facts in reads.values()}
    gone = {f[ID] for f in body["reads"].values()} - ids
    return {
        **{name: value for name, value in body.items() if name != "rewound"},
        "watermark": MIN_TIME if retimed else body["watermark"],
        "outputs": {},
        "epoch_counts": {},
        "ops": _begun_anew({n: facts for n, facts in ops.items() if n in kept}, program, retimed),
        "state": {t: runs for t, runs in tables.items() if t.rpartition("/")[0] in stored},
        "splits": [
            {**s, "watermark": MIN_TIME, "memory": None} if s["input"] in retimed else s
            for s in splits
            if s["input"] in reads
        ],
        "next_split": next_split(body),
        "counts": {names.get(n, n): c for n, c in body["counts"].items()},
        "steps": {names.get(n, n): c for n, c in body["steps"].items()},
        "windows": {names.get(n, n): c for n, c in body.get("windows", {}).items()},
        "rows": {names.get(n, n): c for n, c in body["rows"].items()},
        "metrics": {names.get(n, n): c for n, c in body.get("metrics", {}).items()},
        "reads": dict(reads),
        "writes": dict(found.bundle.writes),
        "retired": sorted({*body.get("retired", ()), *gone}),
        "dropped": _dropped(found),
        "acknowledged": acknowledged(body),
    }


def _retimed(found: Inspection, moves: Mapping[str, str]) -> set[str]:
    """The inputs whose event time is another column now: their watermark begins anew."""
    known = found.body["reads"]
    return {
        name
        for name, facts in found.bundle.reads.items()
        if facts[TIME] != known.get(moves.get(name, name), {}).get(TIME, facts[TIME])
    }


def _begun_anew(ops: Mapping[str, Any], program: Program, retimed: set[str]) -> dict[str, Any]:
    """No step that is left goes by the time that was: those that do have been refused."""
    above = {n.name: {r for e in n.inputs for r in roots(e)} for n in program.stateful()}
    return {
        name: {**facts, "watermark": MIN_TIME} if above[name] & retimed else facts
        for name, facts in ops.items()
    }


def _dropped(found: Inspection) -> list[str]:
    """What the change drops: until the next epoch the same start may be made again."""
    changes = found.comparison.changes if found.comparison is not None else ()
    return [c.name for c in changes if c.verdict == DROPPED and c.role != OUTPUT]


def _described(program: Program, ops: Mapping[str, Mapping[str, Any]]) -> dict[str, Body]:
    """What is known of each step's state, and what it looks like from now on."""
    told = describe(program)
    return {name: {**facts, **told[name]} for name, facts in ops.items()}


def _renamed_table(table: str, names: Mapping[str, str]) -> str:
    op, _, name = table.rpartition("/")
    return table_key(names.get(op, op), name)
