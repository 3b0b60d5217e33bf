"""What an aggregate must be able to do: the synopsis contract.

A synopsis turns rows into a *partial* (a few typed columns), merges partials in any order
and grouping to the same partial, and turns a partial into the result. `combine` merges
partials that lie in one sequence, over many overlapping stretches of it at once (sliding
windows, running aggregates). Synopses hold no data: what they know is in the columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Column, Index, take
from headrace.chunk import HASH, HIDDEN, OFFSET, SOURCE, TIME
from headrace.ops.agg.groups import Finish, Grouping
from headrace.ops.agg.span import RunningSpan, Span

PLACES = (TIME, SOURCE, OFFSET, HASH)  # where a row stands


class UnsuitableType(Exception):
    """The argument's type does not suit the aggregate; the text says what would."""


@dataclass(frozen=True, slots=True)
class Order:
    """Where each row stands: event time, split, offset; a missing column counts as equal.

    The hash of its key tells rows apart that were made of one, as by explode.
    """

    time: Column
    source: Column
    offset: Column
    key: Column

    @property
    def columns(self) -> list[Column]:
        return [self.time, self.source, self.offset]


def unordered(count: int) -> Order:
    """So many rows of which none comes before another."""
    zeros = {name: np.zeros(count, HIDDEN[name].to_pandas_dtype()) for name in PLACES}
    return Order(*(pa.array(values) for values in zeros.values()))


@dataclass(frozen=True, slots=True)
class Arguments:
    """An aggregate's arguments for the rows of one table."""

    name: str  # of the aggregate
    label: str  # of its values: the same for all aggregates of one column
    count: int
    values: Column | None
    by: Column | None
    order: Order

    @property
    def column(self) -> Column:
        assert self.values is not None
        return self.values

    @property
    def by_column(self) -> Column:
        assert self.by is not None
        return self.by


class Synopsis(ABC):
    ordered = False  # the order of rows matters

    @abstractmethod
    def result_type(self, kind: pa.DataType, by: pa.DataType) -> pa.DataType:
        """The result's type for arguments of these types; raises UnsuitableType."""

    @abstractmethod
    def fields(self, kind: pa.DataType, by: pa.DataType) -> dict[str, pa.DataType]:
        """The partial's columns."""

    @abstractmethod
    def partial(self, rows: Arguments, grouping: Grouping) -> Finish:
        """Ask for what the partial of each group needs."""

    @abstractmethod
    def single(self, rows: Arguments) -> list[Column]:
        """Each row as a partial of its own."""

    def nothing(self, kind: pa.DataType, by: pa.DataType, count: int) -> list[Column]:
        """The partial of no rows, so many times; that of a null, which no aggregate counts."""
        return self.single(
            Arguments("", "", count, pa.nulls(count, kind), pa.nulls(count, by), unordered(count))
        )

    @abstractmethod
    def merge(self, label: str, columns: Sequence[Column], grouping: Grouping) -> Finish:
        """Ask for what the merged partial of each group needs."""

    @abstractmethod
    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        """The merged partial of each stretch."""

    def running(self, columns: Sequence[Column], span: RunningSpan) -> tuple[Column, list[Column]]:
        """The result after each row, and the partial of each group after its last."""
        merged = self.combine(columns, span)
        return self.result(merged), [*take(merged, span.last)]

    @abstractmethod
    def result(self, columns: Sequence[Column]) -> Column:
        """What the user sees."""


class Exploding(Synopsis):
    """A synopsis whose stretches are merged one by one, as groups."""

    def combine(self, columns: Sequence[Column], span: Span) -> list[Column]:
        bands = [self._band(columns, *band) for band in span.explode()]
        return [pa.chunked_array(parts) for parts in zip(*bands, strict=True)]

    def _band(self, columns: Sequence[Column], rows: Index, stretch: Index) -> list[Column]:
        grouping = Grouping(pa.table({"stretch": stretch}))
        finish = self.merge("", take(columns, rows), grouping)
        order = np.argsort(grouping.run()["stretch"].to_numpy())
        return take(finish(), order)
