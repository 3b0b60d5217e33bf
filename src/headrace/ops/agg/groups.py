"""Grouping: the rows of a table by group, in one Arrow pass.

Aggregates first *ask* (a column and an Arrow function), then `run` answers all of them
with a single `group_by`, then each takes its *answer*. Answers are aligned with the keys
that `run` gives; groups come in no order to rely on (Arrow's hash table permutes new ones),
rows within a group in the order of the table. Nothing here knows what an aggregate is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.ops.agg.cells import Cells, cells_of

Column: TypeAlias = "pa.Array | pa.ChunkedArray"
Finish: TypeAlias = "Callable[[], list[Column]]"
Index = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_COUNT_ALL = "rows:count_all"


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
        taken = answers.columns[: self._keys.num_columns]
        return pa.table(taken, self._keys.column_names)

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
        given = table.group_by("k", use_threads=False).aggregate(asks)
        order = pa.array(np.argsort(given["k"].to_numpy()))
        for ticket, column in zip(rest, given.columns[1:], strict=True):
            self._answers[ticket] = pa.chunked_array([flat(column.take(order))])

    def answer(self, ticket: str) -> pa.ChunkedArray:
        return self._answers[ticket]

    def rows_of(self, ticket: str) -> tuple[Index, Index]:
        """Row numbers group by group (in table order within one), and where each starts."""
        lists = flat(self._answers[ticket])
        sizes = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        return lists.flatten().to_numpy(), np.cumsum(sizes) - sizes


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


def floats(column: Column) -> npt.NDArray[np.float64]:
    """The values as float64, NaN for null."""
    values: npt.NDArray[np.float64] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values


def integers(column: Column, missing: int = 0) -> Index:
    """The values as int64, `missing` for null."""
    filled = column.fill_null(missing) if column.null_count else column
    return np.asarray(filled.to_numpy(zero_copy_only=False), np.int64)


def valid(column: Column) -> Mask:
    """True where a value is present."""
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    mask: Mask = column.is_valid().to_numpy(zero_copy_only=False)
    return mask


def array(values: npt.NDArray[np.generic], kind: pa.DataType, present: object = None) -> pa.Array:
    """An Arrow array of `kind`, null where `present` (a mask) is false."""
    mask = None if present is None else ~np.asarray(present, np.bool_)
    return pa.array(values, kind, mask=mask)


def flat(column: Column) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    joined = column.combine_chunks()
    if isinstance(joined, pa.ChunkedArray):
        return pa.concat_arrays(joined.chunks) if joined.num_chunks else pa.array([], column.type)
    return joined


def take(columns: Sequence[Column], rows: Index, present: object = None) -> list[Column]:
    """The given rows of each column, null where `present` (a mask) is false."""
    index = array(rows, pa.int64(), present)
    return [flat(flat(c).take(index)) for c in columns]
