"""The key of a row: its columns under neutral names, as users see it, and as a small id.

A key is stored as k0, k1, ... or, next to columns of the user, as $k0, $k1, ...: so a column can
have any name, and several inputs share the names of their keys. Nothing here is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, flat, valid
from headrace.chunk import HASH, OFFSET, SOURCE, TIME, plain_column, plain_type
from headrace.hashing import hash_keys, plain_floats
from headrace.ops.agg.groups import Grouping
from headrace.ops.agg.order import group_numbers, inverse, rises, run_starts
from headrace.rows import rows_of

PLAIN_KEY, HIDDEN_KEY = "k", "$k"


def key_names(count: int, prefix: str = PLAIN_KEY) -> list[str]:
    """What the columns of a key are called in state."""
    return [f"{prefix}{i}" for i in range(count)]


def key_schema(keys: Sequence[str], input: pa.Schema, prefix: str = PLAIN_KEY) -> pa.Schema:
    """The key as tables have it, whatever the input calls its columns."""
    names = key_names(len(keys), prefix)
    return pa.schema([(name, input.field(k).type) for name, k in zip(names, keys, strict=True)])


def key_values(keys: pa.Table, names: Sequence[str]) -> list[Any]:
    """Keys as user code sees them: a value, or a tuple where there are several columns."""
    if not names:
        return [()] * keys.num_rows
    rows = rows_of(keys.select(list(names)))
    return [row[0] for row in rows] if len(names) == 1 else list(map(tuple, rows))


class KeyColumns:
    """The key of an operator: its columns in the rows, and as state calls them."""

    def __init__(self, columns: Sequence[str], input: pa.Schema) -> None:
        self.columns = list(columns)
        plain = pa.schema([(c, plain_type(input.field(c).type)) for c in columns])
        self.schema = key_schema(columns, plain)

    @property
    def identity(self) -> list[str]:
        return [HASH, *self.schema.names]

    def of(self, rows: pa.Table) -> pa.Table:
        """The hash and the key of each row."""
        columns = [plain_column(rows.column(c)) for c in self.columns]
        return pa.table([rows.column(HASH), *columns], self.identity)

    def hashed(self, rows: pa.Table) -> pa.Table:
        """The rows with the hash of their key."""
        hashes = hash_keys([rows.column(c) for c in self.columns], rows.num_rows)
        return rows.append_column(HASH, pa.array(hashes))


# Rows grouped by key: in the order that operators see them, with an id for each key.
#
# Keys are compared by value, not only by hash.


ORDER = (TIME, SOURCE, OFFSET)


@dataclass(frozen=True, slots=True)
class KeyGroups:
    rows: pa.Table
    codes: np.ndarray  # for each row the number of its key, in order of first appearance
    keys: pa.Table  # one row per key: __h (and __t where it is part of the identity) and keys


def in_order(rows: pa.Table) -> pa.Table:
    """Rows by event time, then origin, then offset; as they are where already so."""
    names = [n for n in ORDER if n in rows.column_names]
    columns = [rows.column(n).to_numpy() for n in names]
    if not columns or rows.num_rows < 2 or rises(columns):
        return rows
    return rows.take(pa.array(np.lexsort(columns[::-1])))


def key_groups(rows: pa.Table, identity: Sequence[str]) -> KeyGroups:
    """Number the distinct values of `identity` (which includes __h) among the rows."""
    columns = [rows.column(n) for n in identity]
    codes = _codes(columns[0])
    for column in columns[1:]:
        if column.type == pa.null():
            continue
        finer = _codes(column)
        codes = _codes(pa.array(codes * (int(finer.max(initial=0)) + 1) + finer))
    _, first = np.unique(codes, return_index=True)
    return KeyGroups(rows, codes, rows.select(list(identity)).take(pa.array(first)))


def _codes(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_floating(column.type):
        column = plain_floats(column)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64, copy=False)


def rows_by_key(rows: pa.Table, keys: Sequence[str]) -> tuple[KeyGroups, np.ndarray]:
    """Rows of each key together, each key's rows in order, and where each key starts."""
    groups = key_groups(in_order(rows), [HASH, *keys])
    order = np.argsort(groups.codes, kind="stable")
    codes = groups.codes[order]
    return KeyGroups(groups.rows.take(pa.array(order)), codes, groups.keys), run_starts(codes)


# Keys as numbers: 0, 1, 2, ... in the order of their hash, exact under collisions.
#
# Rows are told apart by hash and then compared with the first row of their number; only where
# two keys do share a hash are all key columns hashed again, by Arrow.


def key_numbers(identity: pa.Table) -> tuple[Index, Index]:
    """The number of each row's key, and each key's first row; `identity` has "__h" and keys."""
    codes, hashes = _encoded(identity[HASH])
    number = inverse(np.argsort(hashes))[codes]
    first = np.empty(len(hashes), np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # the last to be written is the first
    keys = identity.drop_columns([HASH]).columns
    if all(_same(column, first[number]) for column in keys):
        return number, first
    return _exact(identity)


def _encoded(hashes: Column) -> tuple[Index, npt.NDArray[np.uint64]]:
    encoded = pc.dictionary_encode(flat(hashes))
    return encoded.indices.to_numpy(), encoded.dictionary.to_numpy()


def _same(column: Column, other: Index) -> bool:
    """Whether each value equals the one in the other row; NaN does not."""
    values = flat(column)
    others = values.take(pa.array(other))
    if values.null_count and (valid(values) != valid(others)).any():
        return False
    return pc.all(pc.equal(values, others), min_count=0).as_py() is not False


def _exact(identity: pa.Table) -> tuple[Index, Index]:
    grouping = Grouping(identity)
    ticket = grouping.ask_rows()
    order = np.argsort(grouping.run()[HASH].to_numpy(), kind="stable")
    rows, starts = grouping.rows_of(ticket)
    number = np.empty(len(rows), np.int64)
    number[rows] = inverse(order)[group_numbers(starts, len(rows))]
    return number, rows[starts[order]]
