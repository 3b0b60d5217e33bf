"""What the steps of a job remember, read from its folder: the state after the last epoch.

Goes by the newest manifest, so it is whole and consistent whatever is written meanwhile.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.chunk import HASH
from headrace.plan.nodes import Stateful
from headrace.runtime.operators import operator_for
from headrace.runtime.start import Start
from headrace.runtime.tables import table_key
from headrace.state.runs import cache_of
from headrace.state.slots import SlotState
from headrace.state.spec import TableSpec
from headrace.state.store import open_table


def tables_of(start: Start, step: str) -> dict[str, pa.Table]:
    """The tables of a step by name; `__t` is the time by which a table forgets its rows."""
    node = start.bundle.program.nodes[step]
    assert isinstance(node, Stateful)
    latest = start.log.latest()
    state = latest.body["state"] if latest else {}
    return {s.name: _table(start, state.get(table_key(step, s.name)), s) for s in _specs(node)}


def _specs(node: Stateful) -> tuple[TableSpec, ...]:
    return operator_for(node).tables()


def _table(start: Start, known: dict[str, object] | None, spec: TableSpec) -> pa.Table:
    held = SlotState.from_json(known) if known else SlotState.empty(start.slots)
    cache = cache_of(str(start.log.folder))
    return open_table(spec, held, 0, start.slots, start.slots, cache).scan().drop_columns([HASH])
