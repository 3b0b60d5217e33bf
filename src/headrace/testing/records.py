"""Rows as a test writes them, as the table that the input would have given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import pyarrow as pa

from headrace.errors import InputError
from headrace.rows import table_of


def records(input: str, rows: Iterable[object], schema: pa.Schema) -> pa.Table:
    """The rows under the input's schema; what does not fit is refused."""
    try:
        if isinstance(rows, pa.Table):
            return rows.select(schema.names).cast(schema)
        listed = list(rows)
        for row in listed:
            _refuse_unknown(row, schema)
        return table_of(listed, schema)
    except (pa.ArrowException, ValueError, TypeError, AttributeError, KeyError) as cause:
        raise InputError(
            f"rows sent to {input!r} do not fit it: {cause}", code="HR-TEST-006",
            hint=f"It has the columns {', '.join(f'{f.name} {f.type}' for f in schema)}.",
        ) from cause  # fmt: skip


def _refuse_unknown(row: object, schema: pa.Schema) -> None:
    """A slip in a column's name would else be a null."""
    if not isinstance(row, Mapping):
        return
    for name in row:
        if name not in schema.names:
            close = difflib.get_close_matches(str(name), schema.names, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"there is no column {name!r}{meant}")
