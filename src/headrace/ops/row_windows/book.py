"""What is remembered of every key, whatever its windows are: a few numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.ops.agg.groups import Column, Index, integers
from headrace.ops.row_windows.delta import reference_type
from headrace.ops.row_windows.ends import Ends
from headrace.ops.window.by_rows import DeltaWindow, RowWindow

SINCE, NUMBER, FIRST, NEXT, FROM = "__since", "__number", "__first", "__next", "__from"


def book_fields(spec: RowWindow, input: pa.Schema, kept: bool) -> list[pa.Field]:
    """The columns in which a table keeps books; `kept`: of keys whose rows are kept."""
    names = [SINCE, NUMBER, *([FIRST, NEXT] if kept else [])]
    fields = [pa.field(name, pa.int64()) for name in names]
    if isinstance(spec, DeltaWindow):
        fields.append(pa.field(FROM, reference_type(input.field(spec.column).type)))
    return fields


@dataclass(frozen=True, slots=True)
class KeyCounters:
    """Numbers for each of some keys; zero for a key that is new."""

    since: Index  # rows since its last window ended
    number: Index  # windows that have ended
    first: Index  # its first parcel of kept rows
    next: Index  # its parcel to come
    reference: Column | None  # what a delta is measured from

    @classmethod
    def of(cls, held: pa.Table) -> KeyCounters:
        names, nothing = held.column_names, np.zeros(held.num_rows, np.int64)
        since, number, first, next = (
            integers(held[name]) if name in names else nothing
            for name in (SINCE, NUMBER, FIRST, NEXT)
        )
        return cls(since, number, first, next, held[FROM] if FROM in names else None)

    def after(self, ends: Ends) -> KeyCounters:
        """When these windows have ended and a parcel has been added."""
        number, reference = self.number + ends.count, ends.reference
        return KeyCounters(ends.since, number, self.first, self.next + 1, reference)

    def ended(self) -> KeyCounters:
        """When the input has: every window is over, and nothing is measured from."""
        nothing = None if self.reference is None else pa.nulls(len(self.since), self.reference.type)
        since, number = np.zeros_like(self.since), self.number + 1
        return KeyCounters(since, number, self.first, self.next + 1, nothing)

    def keeping(self, first: Index) -> KeyCounters:
        """With nothing kept before these parcels."""
        return replace(self, first=first)

    def only(self, which: Index) -> KeyCounters:
        """The same for these keys."""
        since, number, first, next = (
            values[which] for values in (self.since, self.number, self.first, self.next)
        )
        return KeyCounters(since, number, first, next, None)

    def columns(self) -> dict[str, Column]:
        numbers = {SINCE: self.since, NUMBER: self.number, FIRST: self.first, NEXT: self.next}
        columns: dict[str, Column] = {name: pa.array(values) for name, values in numbers.items()}
        return columns if self.reference is None else columns | {FROM: self.reference}
