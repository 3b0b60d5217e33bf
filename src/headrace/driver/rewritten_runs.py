"""Stored tables written again under changed columns, before a run.

Every run of a changed table is read once and written anew; nothing is overwritten, and until a
manifest names the new runs the old state is in force. Costs what is stored, once per change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.clock import MIN_TIME
from headrace.state.runs import RunCache, RunRef, RunWriter
from headrace.state.sorted_run import merge_runs
from headrace.state.spec import GONE, TableSpec
from headrace.state.store import Segment, SlotState, load

State = dict[str, Any]


def rewritten(
    state: Mapping[str, Any],
    change: Callable[[pa.Table], pa.Table],
    writer: RunWriter,
    cache: RunCache,
    *,
    living: bool = False,
) -> dict[str, Any]:
    """Each run once, changed, under the same slots.

    `living`: times change, so rows that are dead by the time they had leave first.
    """
    before, done = SlotState.from_json(dict(state)), dict[tuple[RunRef, int], RunRef | None]()

    def anew(ref: RunRef, floor: int) -> RunRef | None:
        if (ref, floor) not in done:
            rows = cache.raw(ref)
            if living:
                rows = rows.filter(pa.array(rows.column(TIME).to_numpy() >= floor))
            rows = change(rows)
            done[ref, floor] = writer.add(rows, ref.lo, ref.hi) if rows.num_rows else None
        return done[ref, floor]

    def one(segment: Segment) -> Segment:
        floor = segment.floor if living else MIN_TIME
        refs = (anew(ref, floor) for ref in segment.refs)
        there = tuple(ref for ref in refs if ref is not None)
        return replace(segment, refs=there, floor=MIN_TIME if living else segment.floor)

    return SlotState(tuple(map(one, before.segments))).to_json()


def fitted(spec: TableSpec, change: Callable[[pa.Table], pa.Table], run: pa.Table) -> pa.Table:
    """A changed run, in the columns that its table has now."""
    return change(run).select(spec.run.names).cast(spec.run)


def gathered(
    state: Mapping[str, Any],
    key: Sequence[str],
    change: Callable[[pa.Table], pa.Table],
    writer: RunWriter,
    cache: RunCache,
) -> dict[str, Any]:
    """The rows of each stretch of slots as one run, changed: several may have become one.

    `key` are the columns that identify a row, besides its time and hash.
    """
    before = SlotState.from_json(dict(state))
    slots = before.segments[-1].hi

    def one(segment: Segment) -> Segment:
        refs = tuple[RunRef, ...]()
        if segment.refs:
            spec = _as_stored(cache.raw(segment.refs[0]).schema, key)
            runs = load(spec, before, segment.lo, segment.hi, slots, cache)
            run = change(merge_runs(spec, runs, bottom=True).drop_columns([GONE]))
            refs = (writer.add(run, segment.lo, segment.hi),) if run.num_rows else ()
        return replace(segment, refs=refs, floor=MIN_TIME)

    return SlotState(tuple(map(one, before.segments))).to_json()


def _as_stored(run: pa.Schema, key: Sequence[str]) -> TableSpec:
    """A table as its runs are, whatever it should be."""
    value = [f for f in run if f.name not in (TIME, HASH, GONE, *key)]
    return TableSpec(
        "", pa.schema([run.field(n) for n in key]), pa.schema(value), TIME in run.names
    )
