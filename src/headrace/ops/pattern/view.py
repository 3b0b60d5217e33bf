"""What a match step holds, as people look at it: partial matches, and rows that wait.

A row per partial match: its pattern, the row it waits for, the rows it has, when the first of
them was and when time ends it. A match that the skip policy holds back is shown as well, and a row
that waits for the watermark is shown as if it were a partial match that nobody has begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MAX_TIME
from headrace.ops.agg.groups import integers
from headrace.ops.agg.keys import key_numbers
from headrace.ops.pattern.automaton import ACCEPT, Automaton
from headrace.ops.pattern.machine import HELD, Machine, Run
from headrace.ops.pattern.rules import Rule
from headrace.ops.pattern.selection import Laid, whole_rows, whole_schema
from headrace.ops.pattern.store import Kept
from headrace.ops.view import free
from headrace.schema import TIMESTAMP

PARTIAL, MATCH, ROW = "partial", "match", "row"  # what is held


@dataclass(frozen=True, slots=True)
class _Seen:
    """One thing that is held."""

    key: int  # its place among the keys
    held: str
    pattern: str | None
    waits_for: str | None
    since: int
    deadline: int | None
    rows: tuple[tuple[str | None, int], ...]  # the name of each, and its place in the pool


def matches_view(
    key: pa.Schema, columns: pa.Schema, runs: tuple[pa.Table, Sequence[Kept]], held: pa.Table,
    ids: Sequence[int], waiting: pa.Table, rules: Sequence[Rule], since: int, until: int,
) -> pa.Table:  # fmt: skip
    """What began in [since, until); `held` are the rows of partial matches, numbered by `ids`."""
    keys, kept = runs
    identity = [HASH, *key.names]
    both = pa.concat_tables([keys.select(identity), held.select(identity)])
    whose, _ = key_numbers(both)
    count = keys.num_rows
    place = {at: i for i, at in enumerate(zip(whose[count:].tolist(), ids, strict=True))}
    machines = {(r.name, r.since): Machine(r.name, r.automaton, _no_row) for r in rules}
    found = [
        _partial(i, machines[name, known], run, {n: place[int(whose[i]), n] for n in run[1]})
        for i, one in enumerate(kept) for name, known, run in one.runs
        if (name, known) in machines
    ]  # fmt: skip
    times = integers(waiting.column(TIME)).tolist()
    found += [
        _Seen(count + i, ROW, None, None, at, None, ((None, held.num_rows + i),))
        for i, at in enumerate(times)
    ]
    found = [one for one in found if since <= one.since < until]
    every = pa.concat_tables([keys.select(key.names), waiting.select(key.names)])
    pool = pa.concat_tables([t.select(columns.names).cast(columns) for t in (held, waiting)])
    return _table(found, key, columns, every, pool)


def waits_for(automaton: Automaton, run: Run) -> str:
    """The rows that would carry a partial match on: "b or c", "no d", "no d next"."""
    alive, place = run[0], automaton.places[run[2][-1]]
    ways = [e.target for i, e in enumerate(place.edges) if alive >> i & 1 and e.target != ACCEPT]
    names = [automaton.places[target].name for target in ways]
    if alive & place.waiting and automaton.absent is not None:
        names.append(f"no {automaton.absent}")
    if alive & place.fresh:
        alive_edges = (e for i, e in enumerate(place.edges) if alive >> i & 1)
        names += [f"no {guard.name} next" for e in alive_edges if e.accepts for guard in e.guards]
    return " or ".join(dict.fromkeys(names))


def _partial(key: int, machine: Machine, run: Run, place: Mapping[int, int]) -> _Seen:
    automaton = machine.automaton
    names = [automaton.places[p].name for p in run[2]]
    rows = tuple((name, place[n]) for name, n in zip(names, run[1], strict=True))
    if run[0] == HELD:
        return _Seen(key, MATCH, machine.name, None, run[3], None, rows)
    ends = machine.deadline(run)
    deadline = None if ends >= MAX_TIME else ends
    return _Seen(key, PARTIAL, machine.name, waits_for(automaton, run), run[3], deadline, rows)


def _table(
    found: Sequence[_Seen], key: pa.Schema, columns: pa.Schema, keys: pa.Table, pool: pa.Table
) -> pa.Table:
    hidden = pa.schema([pa.field(f"$k{i}", f.type) for i, f in enumerate(key)])
    owner = np.repeat(np.arange(len(found)), [len(one.rows) for one in found]).astype(np.int64)
    names = np.array([name for one in found for name, _ in one.rows], object)
    rows = pool.take(pa.array([at for one in found for _, at in one.rows], pa.int64()))
    mine = keys.rename_columns(hidden.names).take(pa.array([one.key for one in found], pa.int64()))
    laid = Laid(owner, names, rows, mine, [one.pattern for one in found])
    whole = whole_rows(laid, whole_schema(hidden, columns, None, named=True), columns)
    ours = {
        "held": pa.array([one.held for one in found], pa.string()),
        "pattern": whole.column("pattern"),
        "waits_for": pa.array([one.waits_for for one in found], pa.string()),
        "rows": whole.column("rows"),
        "since": _moments([one.since for one in found]),
        "deadline": _moments([one.deadline for one in found]),
    }
    taken = {f.name: f.type for f in key}
    said = [*whole.select(hidden.names).columns, *ours.values()]
    return pa.table(said, names=[*key.names, *(free(name, taken) for name in ours)])


def _moments(millis: Sequence[int | None]) -> pa.Array:
    micros = [None if ms is None else ms * 1_000 for ms in millis]
    return pa.array(micros, pa.int64()).cast(TIMESTAMP)


def _no_row(key: int, number: int) -> Any:
    raise AssertionError("a look calls no function of the user's")
