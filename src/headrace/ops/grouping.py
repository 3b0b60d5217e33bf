"""Rows by key: in the order an operator asked for, with a small number for each key.

Keys are told apart by value, not only by hash: where two keys of a chunk share a hash, the
slower exact path is taken. Nothing here keeps state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.hashing import plain_floats

ORDER = (TIME, SOURCE, OFFSET)


@dataclass(frozen=True, slots=True)
class Grouped:
    rows: pa.Table
    codes: np.ndarray  # for each row the number of its key, in order of first appearance
    keys: pa.Table  # one row per key: __h (and __t where it is part of the identity) and keys


def in_order(rows: pa.Table) -> pa.Table:
    """Rows by event time, then origin, then offset; as they are where already so."""
    names = [n for n in ORDER if n in rows.column_names]
    columns = [rows.column(n).to_numpy() for n in names]
    if not columns or rows.num_rows < 2 or _sorted(columns):
        return rows
    return rows.take(pa.array(np.lexsort(columns[::-1])))


def _sorted(columns: Sequence[np.ndarray]) -> bool:
    """Whether the columns rise lexicographically."""
    undecided = np.ones(len(columns[0]) - 1, dtype=bool)
    for column in columns:
        if (undecided & (column[1:] < column[:-1])).any():
            return False
        undecided &= column[1:] == column[:-1]
    return True


def group(rows: pa.Table, identity: Sequence[str]) -> Grouped:
    """Number the distinct values of `identity` (which includes __h) among the rows."""
    columns = [rows.column(n) for n in identity]
    codes = _codes(columns[0])
    for column in columns[1:]:
        if column.type == pa.null():
            continue
        finer = _codes(column)
        codes = _codes(pa.array(codes * (int(finer.max(initial=0)) + 1) + finer))
    _, first = np.unique(codes, return_index=True)
    return Grouped(rows, codes, rows.select(list(identity)).take(pa.array(first)))


def _codes(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = plain_floats(column)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64, copy=False)


def by_key(rows: pa.Table, keys: Sequence[str]) -> tuple[Grouped, np.ndarray]:
    """Rows of each key together, each key's rows in order, and where each key starts."""
    found = group(in_order(rows), [HASH, *keys])
    order = np.argsort(found.codes, kind="stable")
    codes = found.codes[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    return Grouped(found.rows.take(pa.array(order)), codes, found.keys), starts
