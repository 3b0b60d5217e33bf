"""Stored tables written again under changed columns, before a run.

Every run of a changed table is read once and written anew; nothing is overwritten, and until a
manifest names the new runs the old state is in force. Costs what is stored, once per change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headrace.state.runs import RunCache, RunRef, RunWriter
from headrace.state.spec import TableSpec
from headrace.state.store import SlotState

State = dict[str, Any]


def rewritten(
    state: Mapping[str, Any],
    spec: TableSpec,
    change: Callable[[pa.Table], pa.Table],
    writer: RunWriter,
    cache: RunCache,
) -> dict[str, Any]:
    """Each run once, changed, under the same slots."""
    before, rewritten = SlotState.from_json(dict(state)), dict[RunRef, RunRef | None]()
    for ref in (r for s in before.segments for r in s.refs):
        if ref not in rewritten:
            rows = change(cache.raw(ref)).select(spec.run.names).cast(spec.run)
            rewritten[ref] = writer.add(rows, ref.lo, ref.hi) if rows.num_rows else None
    segments = (
        replace(s, refs=tuple(m for r in s.refs if (m := rewritten[r]) is not None))
        for s in before.segments
    )
    return SlotState(tuple(segments)).to_json()
