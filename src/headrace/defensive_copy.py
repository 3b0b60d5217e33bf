"""Defensive copies of rows that user code may go on changing.

A function may return its state as a row, `return self.stats`, or within one, and change it at
the next call. Rows become columns only after many calls, so such a row is copied on return.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.rows import values_of


@dataclass(frozen=True, slots=True)
class RowCopier:
    """Rows of the types `plain` stay what they are; others are copied by `take`."""

    plain: Any
    take: Callable[[Any], Any]

    def all(self, rows: Any) -> list[Any]:
        plain, take = self.plain, self.take
        return [row if isinstance(row, plain) else take(row) for row in rows]


_UNCHANGING = (tuple, str, bytes, int, float, date, Decimal, type(None))
NO_COPY = RowCopier(object, lambda row: row)  # no value can be changed in place


def row_copier(schema: pa.Schema) -> RowCopier:
    """For rows of these columns."""
    names = tuple(schema.names)
    copies = {i: _copier(f.type) for i, f in enumerate(schema) if pa.types.is_nested(f.type)}

    def take(row: Any) -> Any:
        values = list(values_of(row, names))
        for place, copied in copies.items():
            if place < len(values):  # a row of too few is refused later
                values[place] = copied(values[place])
        return tuple(values)

    return RowCopier(() if copies else _UNCHANGING, take)


def value_copier(kind: pa.DataType) -> RowCopier:
    """For single values that become a column."""
    nested = pa.types.is_nested(kind)
    return RowCopier((), _copier(kind)) if nested else NO_COPY


def _copier(kind: pa.DataType) -> Callable[[Any], Any]:
    """A copy of a list of numbers takes a thirtieth of a deep one."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    return copy.deepcopy if any(map(pa.types.is_nested, inner)) else copy.copy
