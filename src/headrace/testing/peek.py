"""What the steps of a job remember, table by table, as the operators keep it."""

from __future__ import annotations

import pyarrow as pa

from headrace.chunk import HASH
from headrace.driver.start import Start
from headrace.inspect.snapshot import snapshot
from headrace.plan.nodes import Stateful


def tables_of(start: Start, step: str) -> dict[str, pa.Table]:
    """The tables of a step by name; `__t` is the time by which a table forgets its rows."""
    node = start.bundle.program.nodes[step]
    assert isinstance(node, Stateful)
    found = snapshot(start.log, node, start.slots).tables
    return {name: table.scan().drop_columns([HASH]) for name, table in found.items()}
