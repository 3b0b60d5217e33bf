"""What a join holds, as people look at it: the rows of all its inputs, and whose each is.

The key has the names that it has in the first input. A column that two inputs have is one
column; where it is of another type there, or is called like the key, its input is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from headrace.ops.join.columns import numbers
from headrace.ops.join.side import AT, GONE, Side
from headrace.ops.view import free, timestamps

SIDES = ("left", "right")


class Held(NamedTuple):
    """All rows that are held of one input; `name` is None where there is no other."""

    name: str | None
    side: Side
    rows: pa.Table


def held_view(parts: Sequence[Held], since: int, until: int, timed: bool = True) -> pa.Table:
    """The rows of [since, until): key, side, event time if they have one, and their columns."""
    first = parts[0].side
    fields = {name: field.type for name, field in zip(first.keys, first.key, strict=True)}
    shown = [_shown(part, fields, first.keys) for part in parts]
    side, time = (free(name, fields) for name in ("side", "time"))
    own = {} if parts[0].name is None else {side: pa.string()}
    own |= {time: timestamps(np.zeros(0, np.int64)).type} if timed else {}
    keys = {name: fields.pop(name) for name in first.keys}
    schema = pa.schema(list((keys | own | fields).items()))
    found = []
    for part, names in zip(parts, shown, strict=True):
        at = numbers(part.rows[AT])
        rows = part.rows.filter(pa.array((at >= since) & (at < until)))
        columns = {names[n]: rows.column(n) for n in names}
        columns |= dict(zip(first.keys, rows.select(part.side.key.names).columns, strict=True))
        columns[side] = pa.repeat(pa.scalar(part.name, pa.string()), rows.num_rows)
        columns[time] = timestamps(numbers(rows[AT]))
        made = [
            columns[f.name] if f.name in columns else pa.nulls(rows.num_rows, f.type)
            for f in schema
        ]
        found.append(pa.Table.from_arrays(made, schema.names).cast(schema))
    return pa.concat_tables(found)


def existing(tables: Iterable[pa.Table], side: Side) -> pa.Table:
    """Held rows of several tables; those that wait to delete their key are none."""
    rows = pa.concat_tables([t.select(side.held.names) for t in tables])
    if GONE not in rows.column_names:
        return rows
    return rows.filter(pa.array(~numbers(rows[GONE].fill_null(False))))


def _shown(part: Held, fields: dict[str, pa.DataType], keys: Sequence[str]) -> dict[str, str]:
    """What the columns of one input are called; adds those that are new to `fields`."""
    names = {}
    for field in part.side.value:
        if field.name.startswith("$"):
            continue
        name = field.name
        if name in keys or fields.get(name, field.type) != field.type:
            name = free(f"{name}_{part.name}", fields)
        fields[name] = field.type
        names[field.name] = name
    return names
