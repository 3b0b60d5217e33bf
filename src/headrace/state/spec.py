"""What an operator declares of a table: its key, its values, and whether it is timed.

A spec is a value; it knows the columns of lookups, of rows written and of runs stored, and casts
tables to them. It holds no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.errors import StateError

GONE = "__gone"


@dataclass(frozen=True, slots=True)
class TableSpec:
    """What an operator declares: identity is ([time,] key), the rest is value.

    With `once`, any number of rows may have one identity; they are scanned and matched, never
    looked up one by one.

    identity: [__t], __h, key          what is looked up
    rows:     [__t], __h, key, value   what is put and scanned
    run:      those and __gone         what is stored
    """

    name: str
    key: pa.Schema
    value: pa.Schema
    timed: bool = False
    once: bool = False  # nothing is overwritten or deleted: rows need no comparing
    everywhere: bool = False  # every slot has a copy of all rows: one of them is all there is
    by_part: bool = False  # the lower half of a hash is of a part of the key's state, not its own
    optional: bool = False  # it is at rest only once it has had rows
    identity: pa.Schema = field(init=False, repr=False, compare=False)
    rows: pa.Schema = field(init=False, repr=False, compare=False)
    run: pa.Schema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        time = [pa.field(TIME, pa.int64())] if self.timed else []
        identity = [*time, pa.field(HASH, pa.uint64()), *self.key]
        rows = [*identity, *self.value]
        object.__setattr__(self, "identity", _plain(identity))
        object.__setattr__(self, "rows", _plain(rows))
        object.__setattr__(self, "run", _plain([*rows, pa.field(GONE, pa.bool_())]))
        self._check(self.run.names)

    def _check(self, names: Sequence[str]) -> None:
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise StateError(
                "HR-STATE-008",
                f"table {self.name!r} has two columns named {', '.join(map(repr, twice))}",
                "Rename a key or value column of the table.",
            )


def _plain(fields: Sequence[pa.Field]) -> pa.Schema:
    """Nullable and without metadata: a tombstone has no values."""
    return pa.schema([pa.field(f.name, f.type) for f in fields])


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of `schema`, in its order and types, each in one piece."""
    rows = rows.select(schema.names)
    return (rows if rows.schema.equals(schema) else rows.cast(schema)).combine_chunks()
