"""Groups as numbered cells: what makes sums and counts per group a single NumPy pass.

Each key column becomes small numbers (a column that is dictionary encoded has them already),
and a group is the cell where they meet. Integers, times and hashes are numbered in order, so
cells in order are groups in the order of those columns. Only for keys that are equal when
their values are: floats are left to Arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Index = npt.NDArray[np.int64]

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
        pt.is_integer(kind) or pt.is_string(kind) or pt.is_binary(kind) or pt.is_boolean(kind)
        or pt.is_timestamp(kind) or pt.is_date(kind)
    )  # fmt: skip


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
    there = np.flatnonzero(seen).astype(wide.dtype) + wide.dtype.type(low)
    return place, pa.array(there).cast(array.type)


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
    found: list[pa.Array] = []
    for (_, values), size in zip(reversed(coded), reversed(sizes), strict=True):
        cells, codes = np.divmod(cells, size)
        index = pa.array(codes.astype(np.int32))
        if pt.is_string(values.type) or pt.is_binary(values.type):
            found.append(_text(index, values))
        else:
            found.append(values.take(index))
    return found[::-1]


def _text(index: pa.Array, values: pa.Array) -> pa.DictionaryArray:
    if values.null_count:  # a null among the words: Arrow cannot put such dictionaries together
        return pc.dictionary_encode(values.take(index))
    return pa.DictionaryArray.from_arrays(index, values)
