"""Rows kept apart from user code that goes on changing what they were made of.

A function may give its state as a row, `return self.stats`, or within one, and change it at
the next. Rows become columns only after many calls, so such a row is copied when it is given.
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
class Apart:
    """Rows of the types `plain` stay what they are; others are copied by `take`."""

    plain: Any
    take: Callable[[Any], Any]

    def all(self, rows: Any) -> list[Any]:
        plain, take = self.plain, self.take
        return [row if isinstance(row, plain) else take(row) for row in rows]


_UNCHANGING = (tuple, str, bytes, int, float, date, Decimal, type(None))
AS_THEY_ARE = Apart(object, lambda row: row)  # nothing that is kept can be changed in place


def apart(schema: pa.Schema) -> Apart:
    """For rows of these columns."""
    names = tuple(schema.names)
    copies = {i: _copier(f.type) for i, f in enumerate(schema) if pa.types.is_nested(f.type)}

    def take(row: Any) -> Any:
        values = list(values_of(row, names))
        for place, copied in copies.items():
            if place < len(values):  # a row of too few is refused later
                values[place] = copied(values[place])
        return tuple(values)

    return Apart(() if copies else _UNCHANGING, take)


def apart_value(kind: pa.DataType) -> Apart:
    """For single values that become a column."""
    nested = pa.types.is_nested(kind)
    return Apart((), _copier(kind)) if nested else AS_THEY_ARE


def _copier(kind: pa.DataType) -> Callable[[Any], Any]:
    """A copy of a list of numbers takes a thirtieth of a deep one."""
    inner = [kind.field(i).type for i in range(kind.num_fields)]
    if pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    return copy.deepcopy if any(map(pa.types.is_nested, inner)) else copy.copy
