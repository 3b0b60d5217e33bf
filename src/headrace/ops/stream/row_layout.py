"""Whole rows in state: under neutral names, with what says when and where they came from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, integers
from headrace.chunk import OFFSET, SOURCE, TIME, plain_type
from headrace.ops.keys import KeyColumns

_PLACE = {"t": TIME, "s": SOURCE, "o": OFFSET}
TIES = tuple(_PLACE)


class RowLayout:
    """How rows of `input` are stored in a table whose identity begins with their key."""

    def __init__(self, keys: KeyColumns, input: pa.Schema) -> None:
        self._keys, self._all = keys, input.names
        self._names = {f"v{i}": f.name for i, f in enumerate(input) if f.name not in keys.columns}
        values = [(v, plain_type(input.field(n).type)) for v, n in self._names.items()]
        self.value = pa.schema([*values, *((p, pa.int64()) for p in _PLACE)])
        self._column = {n: v for v, n in self._names.items()}
        self._column |= dict(zip(keys.columns, keys.schema.names, strict=True))

    def column(self, name: str) -> str:
        """What the user's column is called here."""
        return self._column[name]

    def of(self, rows: pa.Table) -> pa.Table:
        """Rows as they are stored, hash and key included."""
        found = self._keys.of(rows)
        for field in self.value:
            if field.name in _PLACE:
                column: object = pa.array(_place(rows, _PLACE[field.name]))
            else:
                column = rows.column(self._names[field.name]).cast(field.type)
            found = found.append_column(field, column)
        return found

    def rows(self, stored: pa.Table, names: Sequence[str]) -> pa.Table:
        """The user's columns again."""
        return pa.table([stored.column(self._column[n]) for n in names], list(names))

    def whole(self, stored: pa.Table) -> pa.Table:
        """All of the user's columns again."""
        return self.rows(stored, self._all)


def _place(rows: pa.Table, name: str) -> Index:
    if name not in rows.column_names:
        return np.zeros(rows.num_rows, np.int64)
    return integers(rows.column(name))


def output_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows as they leave: the user's columns, and those that say when and where from."""
    hidden = [n for n in (TIME, SOURCE, OFFSET) if n in rows.column_names]
    return rows.select([*names, *hidden])
