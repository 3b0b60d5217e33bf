"""What the small operators share: keys under neutral names, and rows as they leave.

A key lies in state as k0, k1, ...: a column of the user's can then be called as it likes.
Nothing here keeps anything.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME, plain_column, plain_type
from headrace.hashing import hash_keys


class Keys:
    """The key of an operator: its columns in the rows, and as state calls them."""

    def __init__(self, columns: Sequence[str], input: pa.Schema) -> None:
        self.columns = list(columns)
        kinds = [plain_type(input.field(c).type) for c in columns]
        self.schema = pa.schema([(f"k{i}", kind) for i, kind in enumerate(kinds)])

    @property
    def identity(self) -> list[str]:
        return [HASH, *self.schema.names]

    def of(self, rows: pa.Table) -> pa.Table:
        """The hash and the key of each row."""
        found = [plain_column(rows.column(c)) for c in self.columns]
        return pa.table([rows.column(HASH), *found], self.identity)

    def hashed(self, rows: pa.Table) -> pa.Table:
        """The rows with the hash of their key."""
        hashes = hash_keys([rows.column(c) for c in self.columns], rows.num_rows)
        return rows.append_column(HASH, pa.array(hashes))


def given_on(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows as they leave: the user's columns, and those that say when and where from."""
    hidden = [n for n in (TIME, SOURCE, OFFSET) if n in rows.column_names]
    return rows.select([*names, *hidden])
