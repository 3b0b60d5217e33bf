"""Decoding: a column of JSON documents to typed columns.

Invariant: what a document decodes to depends on that document alone, never on its neighbours
in the chunk; a value that does not fit its field makes the document bad, never null and never
another value. DuckDB parses all documents in one pass; only rows with something odd about
them (a null, a huge integer) are looked at again.

The reading: a missing field is null; extra fields are ignored; of a repeated key the first
counts. An integer may be written 5, 5.0 or "5", but not 5.5; a number may be a text that
spells one; true and false count as 1 and 0. A timestamp is ISO text (UTC unless it says
otherwise) or integer milliseconds since 1970. A string field takes any value, as JSON text.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types as pt

from headrace import kernel_door as door
from headrace.expr_types import DUCKDB, computed, text_literal, type_name
from headrace.kernel_json_check import reason_of
from headrace.schema import TIMESTAMP

Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
_EXACT = 2**53  # beyond it a double no longer holds every integer
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999, in us


def decode_json(
    raw: pa.Array | pa.ChunkedArray, schema: pa.Schema
) -> tuple[pa.Table, Mask, list[str]]:
    """(rows of `schema`, one per document; which documents are bad; why, for each bad one).

    A bad document's row holds nulls; leave it out by the mask.
    """
    texts, broken = _texts(raw)
    columns, odd = _parse(texts, broken, schema)
    bad, reasons = _judge(raw, texts, odd | broken, schema)
    table = pa.Table.from_arrays(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))
    return table, bad, reasons
