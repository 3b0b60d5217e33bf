"""What is remembered of every key, whatever its windows are: a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.ops.agg_groups import Column, Index, integers
from headrace.ops.row_delta import reference_type
from headrace.ops.row_ends import Ends
from headrace.ops.row_specs import Delta, RowWindow

SINCE, NUMBER, ROWS, FROM = "__since", "__number", "__rows", "__from"


def book_fields(spec: RowWindow, input: pa.Schema) -> list[pa.Field]:
    """The columns in which a table keeps books."""
    fields = [pa.field(name, pa.int64()) for name in (SINCE, NUMBER, ROWS)]
    if isinstance(spec, Delta):
        fields.append(pa.field(FROM, reference_type(input.field(spec.column).type)))
    return fields


@dataclass(frozen=True, slots=True)
class Book:
    """A number for each of some keys; zero for a key that is new."""

    since: Index  # rows since its last window ended
    number: Index  # windows that have ended
    rows: Index  # rows so far
    reference: Column | None  # what a delta is measured from

    @classmethod
    def of(cls, held: pa.Table) -> Book:
        since, number, rows = (integers(held[name]) for name in (SINCE, NUMBER, ROWS))
        return cls(since, number, rows, held[FROM] if FROM in held.column_names else None)

    def after(self, ends: Ends, sizes: Index) -> Book:
        """When so many rows of each key have come, and these windows have ended."""
        return Book(ends.since, self.number + ends.count, self.rows + sizes, ends.reference)

    def grown(self, sizes: Index) -> Book:
        """When so many rows of each key have come, and wait."""
        return Book(self.since, self.number, self.rows + sizes, self.reference)

    def ended(self) -> Book:
        """When the input has: every window is over, and nothing is measured from."""
        nothing = None if self.reference is None else pa.nulls(len(self.since), self.reference.type)
        return Book(np.zeros_like(self.since), self.number + 1, self.rows, nothing)

    def columns(self) -> Mapping[str, Column]:
        numbers = {SINCE: self.since, NUMBER: self.number, ROWS: self.rows}
        columns: dict[str, Column] = {name: pa.array(values) for name, values in numbers.items()}
        return columns if self.reference is None else columns | {FROM: self.reference}
