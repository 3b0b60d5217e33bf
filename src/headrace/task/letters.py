"""The rows of dead letters as they are stored, so that they can be sent again.

Each row is an Arrow stream of its own, with its types and hidden columns: the JSON that a letter
shows has neither. Where a row goes in again is the name of a step, and which of its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.chunk import HASH, plain_column

_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream, after its schema and its batch


@dataclass(frozen=True, slots=True)
class Reentry:
    """Where rows that failed go in again, and the rows: nothing behind it has seen them."""

    step: str
    port: int
    rows: pa.Table


def packed(rows: pa.Table) -> list[bytes]:
    """Each row as a stream of one batch: a copy, for a slice has bytes of the rows beside it."""
    schema = rows.schema
    if HASH in schema.names or any(pa.types.is_dictionary(kind) for kind in schema.types):
        names = [n for n in schema.names if n != HASH]
        columns = [plain_column(rows.column(name)) for name in names]
        fields = [schema.field(n).with_type(c.type) for n, c in zip(names, columns, strict=True)]
        rows = pa.Table.from_arrays(columns, schema=pa.schema(fields, schema.metadata))
    head = rows.schema.serialize().to_pybytes()
    return [
        head + batch.take(pa.array([at])).serialize().to_pybytes() + _END
        for batch in rows.to_batches()
        for at in range(batch.num_rows)
    ]


def unpacked(rows: Sequence[bytes]) -> list[tuple[pa.Table, list[int]]]:
    """The stored rows as tables, one for each schema, with the places of their rows in `rows`."""
    groups: dict[bytes, tuple[list[pa.Table], list[int]]] = {}
    for place, stored in enumerate(rows):
        row = pa.ipc.open_stream(stored).read_all()
        tables, places = groups.setdefault(row.schema.serialize().to_pybytes(), ([], []))
        tables.append(row)
        places.append(place)
    return [(pa.concat_tables(tables), places) for tables, places in groups.values()]
