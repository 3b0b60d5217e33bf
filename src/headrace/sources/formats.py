"""Decoding: bytes to typed rows, a chunk at a time, the bad rows set aside one by one.

`decode` never raises for what is in the data: a record that does not fit the schema is named
in the mask, with a reason, and the others are decoded all the same. No files here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from headrace.errors import InputError
from headrace.kernel import decode_json
from headrace.kernel.text_cast import NOT_TEXT, cast_text, gather
from headrace.sources import delimited
from headrace.sources.contract import Decoded

FORMATS = ("json", "csv", "text", "bytes", "parquet")
EXTENSIONS = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet",
    ".txt": "text", ".log": "text",
}  # fmt: skip


def decode(
    format: str,
    raw: pa.Array | pa.ChunkedArray,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    delimiter: str = ",",
) -> Decoded:
    """The good rows as a table, a mask of the bad ones over `raw`, a reason for each bad one.

    `columns` is the order of the columns in CSV records, if it is not the schema's.
    """
    values = raw.combine_chunks() if isinstance(raw, pa.ChunkedArray) else raw
    if not len(values):
        return schema.empty_table(), np.zeros(0, np.bool_), []
    if format == "json":
        return _json(values, schema)
    if format == "csv":
        return _without_nulls(delimited.decode_csv(values, schema, columns, delimiter))
    if format in ("text", "bytes"):
        return _one_column(values, schema)
    raise unknown_format(format)


def default_schema(format: str) -> pa.Schema | None:
    """The schema of a format that brings its own."""
    kinds = {"text": pa.string(), "bytes": pa.binary()}
    return pa.schema([("value", kinds[format])]) if format in kinds else None


def check_schema(format: str, schema: pa.Schema) -> None:
    """Raise InputError if records of this format cannot have this schema."""
    if format in ("text", "bytes"):
        kind = schema.field(0).type
        if len(schema) != 1 or not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            raise InputError(
                "HR-INPUT-006",
                f"format {format!r} gives one column of text or bytes, the schema has "
                f"{len(schema)}",
                'Declare "value string", or choose format="json" or "csv".',
            )
    nested = [f.name for f in schema if pa.types.is_nested(f.type)]
    if format == "csv" and nested:
        raise InputError(
            "HR-INPUT-006",
            f"column {nested[0]!r} is {schema.field(nested[0]).type}, which CSV cannot hold",
            "Declare it as string and take it apart in the program.",
        )


def unknown_format(format: str) -> InputError:
    return InputError("HR-INPUT-004", f"unknown format {format!r}", f"Known: {', '.join(FORMATS)}.")


def _one_column(values: pa.Array, schema: pa.Schema) -> Decoded:
    kind = schema.field(0).type
    column, bad = cast_text(values, kind)
    mask = np.zeros(len(values), np.bool_)
    mask[list(bad)] = True
    return gather([column], schema, mask), mask, [NOT_TEXT] * len(bad)


def _json(values: pa.Array, schema: pa.Schema) -> Decoded:
    table, bad, reasons = decode_json(values, schema)
    decoded = gather(table.columns, schema, bad), bad, reasons
    return _set_aside(decoded, _not_objects(values, decoded))


def _not_objects(values: pa.Array, decoded: Decoded) -> dict[int, str]:
    """Good rows without any value whose document is a list or a bare word, not an object."""
    table, bad, _ = decoded
    if not table.num_rows or not all(c.null_count for c in table.columns):
        return {}
    empty = np.logical_and.reduce([c.is_null().to_numpy() for c in table.columns])
    places = np.flatnonzero(~bad)
    return {
        int(i): "not a JSON object"
        for i in np.flatnonzero(empty)
        if not bytes(values[int(places[i])].as_buffer()).lstrip().startswith(b"{")
    }


def _without_nulls(decoded: Decoded) -> Decoded:
    """Set rows aside that have no value where the schema demands one."""
    table = decoded[0]
    missing: dict[int, str] = {}
    for field in table.schema:
        if not field.nullable and table[field.name].null_count:
            for i in np.flatnonzero(table[field.name].is_null().to_numpy()):
                missing.setdefault(int(i), f"column {field.name!r} has no value")
    return _set_aside(decoded, missing)


def _set_aside(decoded: Decoded, reasons: Mapping[int, str]) -> Decoded:
    """More bad rows, given by their place in the table."""
    if not reasons:
        return decoded
    table, bad, errors = decoded
    keep = np.ones(table.num_rows, np.bool_)
    keep[list(reasons)] = False
    places = np.flatnonzero(~bad)  # of the table's rows in the chunk
    every = dict(zip(np.flatnonzero(bad).tolist(), errors, strict=True))
    every.update({int(places[i]): reason for i, reason in reasons.items()})
    mask = bad.copy()
    mask[list(every)] = True
    return table.filter(pa.array(keep)), mask, [every[i] for i in sorted(every)]
