"""Grouping: the rows of a table by group, in one Arrow pass.

Aggregates first *ask* (a column and an Arrow function), then `run` answers all of them
with a single `group_by`, then each takes its *answer*. Answers are aligned with the keys
that `run` gives; groups come in no order to rely on (Arrow's hash table permutes new ones),
rows within a group in the order of the table. Nothing here knows what an aggregate is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Column, Index, flat

Finish: TypeAlias = "Callable[[], list[Column]]"

_COUNT_ALL = "rows:count_all"
_BY_CELL = "groups"  # known without asking


class Grouping:
    def __init__(self, keys: pa.Table) -> None:
        self.rows = keys.num_rows
        self._keys = keys
        self._values: dict[str, Column] = {}
        self._asks: dict[str, tuple[str | list[str], str]] = {}
        self._answers: dict[str, pa.ChunkedArray] = {}
        self.shared: dict[str, Any] = {}  # what several aggregates of one column have worked out

    def ask(self, label: str, values: Column, function: str) -> str:
        """A ticket for `function` of `values` per group; `label` says which values they are."""
        if function == "count" and values.null_count == 0:
            return self.ask_count()
        self._values[label] = values
        ticket = f"{label}:{function}"
        self._asks[ticket] = (label, function)
        return ticket

    def ask_count(self) -> str:
        """A ticket for the number of rows per group."""
        self._asks[_COUNT_ALL] = ([], "count_all")
        return _COUNT_ALL

    def ask_rows(self) -> str:
        """A ticket for `rows_of`: the numbers of each group's rows."""
        return self.ask("rows", pa.array(np.arange(self.rows)), "list")

    def ask_groups(self) -> str:
        """A ticket for `groups_of`: the number of each row's group."""
        return _BY_CELL if self._cells is not None else self.ask_rows()

    count = 0  # of groups, once run

    @cached_property
    def _cells(self) -> Cells | None:
        return cells_of(self._keys)

    @cached_property
    def _sizes(self) -> Index:
        """The rows of each cell."""
        return np.empty(0, np.int64) if self._cells is None else self._cells.counts()

    @property
    def largest(self) -> int:
        """Rows in the largest group, at most."""
        return self.rows if self._cells is None else int(self._sizes.max(initial=0))

    def run(self) -> pa.Table:
        """Answer everything that was asked; the key columns, one row per group."""
        if self._cells is not None:
            return self._by_cell(self._cells)
        keys = self._keys if self._keys.num_columns else _one_group(self.rows)
        names = [f"k{i}" for i in range(keys.num_columns)]
        labels = {label: f"v{i}" for i, label in enumerate(self._values)}
        table = pa.table([*keys.columns, *self._values.values()], [*names, *labels.values()])
        asks = [(labels[c] if isinstance(c, str) else c, f) for c, f in self._asks.values()]
        answers = table.group_by(names, use_threads=False).aggregate(asks)
        first = len(names)
        self._answers = dict(zip(self._asks, answers.columns[first:], strict=True))
        self.count = answers.num_rows
        columns = answers.columns[: self._keys.num_columns]
        return pa.table(columns, self._keys.column_names)

    def _by_cell(self, cells: Cells) -> pa.Table:
        """Counts and sums of floats in one pass each; the rest by Arrow, over the cells."""
        rest = {}
        for ticket, (label, function) in self._asks.items():
            if function == "count_all":
                self._answers[ticket] = pa.array(self._sizes)
            elif function == "sum" and _summable(self._values[str(label)]):
                values = flat(self._values[str(label)])
                sums = cells.sums(values.to_numpy())
                exact = pa.types.is_integer(values.type)
                self._answers[ticket] = pa.array(sums.astype(np.int64) if exact else sums)
            else:
                rest[ticket] = (str(label), function)
        if rest:
            self._by_arrow(cells, rest)
        self.count = len(cells.present)
        return pa.table(cells.keys, self._keys.column_names)

    def _by_arrow(self, cells: Cells, rest: dict[str, tuple[str, Any]]) -> None:
        labels = {label: self._values[label] for label, _ in rest.values()}
        names = {label: f"v{i}" for i, label in enumerate(labels)}
        table = pa.table([pa.array(cells.cell), *labels.values()], ["k", *names.values()])
        asks = [(names[label], function) for label, function in rest.values()]
        answers = table.group_by("k", use_threads=False).aggregate(asks)
        order = pa.array(np.argsort(answers["k"].to_numpy()))
        for ticket, column in zip(rest, answers.columns[1:], strict=True):
            self._answers[ticket] = pa.chunked_array([flat(column.take(order))])

    def answer(self, ticket: str) -> pa.ChunkedArray:
        return self._answers[ticket]

    def rows_of(self, ticket: str) -> tuple[Index, Index]:
        """Row numbers group by group (in table order within one), and where each starts."""
        lists = flat(self._answers[ticket])
        sizes = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        return lists.flatten().to_numpy(), np.cumsum(sizes) - sizes

    def groups_of(self, ticket: str) -> Index:
        """The number of each row's group, in the order of the keys that `run` gives."""
        group = np.empty(self.rows, np.int64)
        if ticket == _BY_CELL and self._cells is not None:
            number = np.empty(self._cells.size, np.int64)
            number[self._cells.present] = np.arange(len(self._cells.present))
            return number[self._cells.cell]
        rows, starts = self.rows_of(ticket)
        group[rows] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(rows)))
        return group


def _summable(values: Column) -> bool:
    """Whether adding up doubles gives what Arrow gives: of integers, only if all sums are exact."""
    if values.null_count or not len(values):
        return False
    if pa.types.is_integer(values.type):
        bounds = pc.min_max(values).as_py()
        return bool(max(-bounds["min"], bounds["max"]) * len(values) < 2**53)
    return bool(pa.types.is_float64(values.type))


def _one_group(rows: int) -> pa.Table:
    return pa.table({"all": pa.array(np.zeros(rows, np.int8))})


# Groups as numbered cells: what makes sums and counts per group a single NumPy pass.
#
# Each key column becomes small numbers (a column that is dictionary encoded has them already),
# and a group is the cell where they meet. Integers, times and hashes are numbered in order, so
# cells in order are groups in the order of those columns. Only for keys that are equal when
# their values are: floats are left to Arrow.


_BLANK = 4  # cells per row beyond which most are blank: then the cells are numbered, too
_FEW = 1 << 16  # cells that are never too many


@dataclass(frozen=True, slots=True)
class Cells:
    """The cell of each row, and what the cells that are not blank stand for."""

    cell: Index
    size: int
    present: Index  # cells that some row is in, in order
    keys: list[pa.Array]  # of those

    def counts(self) -> Index:
        return np.bincount(self.cell, minlength=self.size)[self.present]

    def sums(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        totals = np.asarray(np.bincount(self.cell, values, minlength=self.size), np.float64)
        return totals[self.present]


def cells_of(keys: pa.Table) -> Cells | None:
    """Number the groups of `keys`; None for columns that only Arrow can tell apart."""
    if not keys.num_columns or not all(_exact(f.type) for f in keys.schema):
        return None
    coded = [_coded(column) for column in keys.columns]
    sizes = [len(values) for _, values in coded]
    if prod(sizes) >= 2**62:
        return None
    cell = coded[0][0].astype(np.int64)
    for (codes, _), size in zip(coded[1:], sizes[1:], strict=True):
        cell *= size
        cell += codes
    size = prod(sizes)
    if size <= max(_BLANK * keys.num_rows, _FEW):
        seen = np.zeros(size, np.bool_)
        seen[cell] = True
        present = np.flatnonzero(seen)
        return Cells(cell, size, present, _values(present, coded, sizes))
    cell, cells = _in_order(pc.dictionary_encode(pa.array(cell)))
    present = np.arange(len(cells))
    return Cells(cell, len(cells), present, _values(cells.to_numpy(), coded, sizes))


def _exact(kind: pa.DataType) -> bool:
    if pt.is_dictionary(kind):
        return _exact(kind.value_type)
    return bool(
        pt.is_integer(kind)
        or pt.is_string(kind)
        or pt.is_binary(kind)
        or pt.is_boolean(kind)
        or pt.is_timestamp(kind)
        or pt.is_date(kind)
    )


Coded = tuple[Index, pa.Array]


def _coded(column: pa.ChunkedArray) -> Coded:
    """A number for each row, and the values that the numbers stand for."""
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    counted = _counted(array)
    if counted is not None:
        return counted
    if not pt.is_dictionary(array.type):
        array = pc.dictionary_encode(array, null_encoding="encode")
    elif array.null_count or pc.count_distinct(array.dictionary, mode="all").as_py() < len(
        array.dictionary
    ):
        array = pc.dictionary_encode(array.dictionary_decode(), null_encoding="encode")
    return _in_order(array)


def _counted(array: pa.Array) -> Coded | None:
    """Whole numbers that lie close together, numbered in order without hashing."""
    if not pt.is_integer(array.type) or array.null_count or not len(array):
        return None
    numbers = array.to_numpy()
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= max(_BLANK * len(numbers), _FEW):
        return None
    wide = numbers if numbers.dtype == np.uint64 else numbers.astype(np.int64)
    place = (wide - wide.dtype.type(low)).astype(np.int64)
    seen = np.zeros(high - low + 1, np.bool_)
    seen[place] = True
    if not seen.all():
        place = (np.cumsum(seen) - 1)[place]
    values = np.flatnonzero(seen).astype(wide.dtype) + wide.dtype.type(low)
    return place, pa.array(values).cast(array.type)


def _in_order(array: pa.DictionaryArray) -> Coded:
    codes, values = array.indices.to_numpy(), array.dictionary
    if values.null_count or not (pt.is_integer(values.type) or pt.is_temporal(values.type)):
        return codes, values
    if pt.is_temporal(values.type):
        numbers = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_numpy()
    else:
        numbers = values.to_numpy()
    if (numbers[1:] > numbers[:-1]).all():
        return codes, values
    order = np.argsort(numbers)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[codes], values.take(pa.array(order))


def _values(cells: Index, coded: list[Coded], sizes: list[int]) -> list[pa.Array]:
    """The keys of the given cells; text stays dictionary encoded."""
    columns: list[pa.Array] = []
    for (_, values), size in zip(reversed(coded), reversed(sizes), strict=True):
        cells, codes = np.divmod(cells, size)
        index = pa.array(codes.astype(np.int32))
        if pt.is_string(values.type) or pt.is_binary(values.type):
            columns.append(_text(index, values))
        else:
            columns.append(values.take(index))
    return columns[::-1]


def _text(index: pa.Array, values: pa.Array) -> pa.DictionaryArray:
    if values.null_count:  # a null among the words: Arrow cannot put such dictionaries together
        return pc.dictionary_encode(values.take(index))
    return pa.DictionaryArray.from_arrays(index, values)
