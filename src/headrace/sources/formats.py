"""Decoding: bytes to typed rows, a chunk at a time, bad rows set aside one by one.

`decode` never raises for what is in the data: a record that does not fit the schema is marked in
the mask, with a reason, and the others are decoded all the same. No files here.

In CSV one record is one line, with or without its end: a line break inside quotes is not supported,
and makes bad rows.
Quotes enclose a whole field, and are doubled within it; anywhere else they make the row bad. An
empty field is null; an empty quoted one is empty text.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from headrace.connect.registered_columns import registered_columns
from headrace.connect.schema_registry import SchemaRegistry
from headrace.connect.wire_formats import decode_wire
from headrace.errors import InputError, LogError
from headrace.kernel import decode_json
from headrace.kernel.text_cast import NOT_TEXT, cast_text, gather, isolate, reason
from headrace.log.kafka import referred
from headrace.schema import schema_of
from headrace.sources.columns import plain
from headrace.sources.contract import Decoded, InputRequest

MISQUOTED = "a quote that does not close, or is not around a whole field"
LONE_RETURN = "a carriage return inside the record: lines end with a line feed"


def csv_header(path: str, line: str, delimiter: str) -> list[str]:
    """The names of the columns in a file's first line."""
    line = line.rstrip("\r\n")
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error as cause:
        why = LONE_RETURN if "\r" in line else cause
        raise InputError(
            "HR-INPUT-005",
            f"the header of {path!r} cannot be read: {why}",
            "Is it a CSV file whose lines end with a line feed? Its first line names the "
            "columns; pass header=False if it is data.",
        ) from cause


def check_csv_header(path: str, header: Sequence[str], schema: pa.Schema) -> None:
    """Raise InputError if a column of the schema is missing or there twice."""
    for name in schema.names:
        if header.count(name) != 1:
            fact = f"no column {name!r}" if name not in header else f"two columns {name!r}"
            raise InputError(
                "HR-INPUT-005",
                f"{path!r} has {fact}",
                f"Its header is: {', '.join(header)}. Change the schema, or say "
                "header=False if the first line is data.",
            )


class CsvStyle(NamedTuple):
    """How a CSV file is written."""

    delimiter: str = ","
    nulls: tuple[str, ...] = ()  # texts that stand for null, besides the empty one


PLAIN = CsvStyle()


def decode_csv(
    values: pa.Array, schema: pa.Schema, columns: Sequence[str] | None, style: CsvStyle
) -> Decoded:
    names = list(columns) if columns is not None else schema.names
    values = _without_ends(values)
    reasons = _not_records(values, len(names), style.delimiter)
    good = _all_but(len(values), reasons)
    table, wrong = _split(values.take(pa.array(good)), names, style, 0)
    reasons |= {int(good[i]): why for i, why in wrong.items()}
    places = _all_but(len(values), reasons)  # of the table's rows among the values
    typed = []
    for field in schema:
        column = _array(table.column(field.name))
        cast, failed = cast_text(column, field.type)
        for i in failed:
            why = reason(field.name, column[i].as_py(), field.type)
            reasons.setdefault(int(places[i]), why)
        typed.append(cast)
    bad = np.zeros(len(values), np.bool_)
    bad[list(reasons)] = True
    return gather(typed, schema, bad[places]), bad, [reasons[i] for i in sorted(reasons)]


def _without_ends(values: pa.Array) -> pa.Array:
    """Records of topics may end as a line does; lines of files come without their ends."""
    ended = pc.ends_with(values, b"\n")
    if not pc.any(ended, min_count=0).as_py():
        return values
    return pc.replace_substring_regex(values, r"\r?\n\z", "")


def _not_records(values: pa.Array, width: int, delimiter: str) -> dict[int, str]:
    """What must not reach the parser: it would run on into the next record, or be read as nulls."""
    _, not_text = isolate(values, pa.string(), lambda v: v.cast(pa.string()))
    breaks = np.flatnonzero(pc.match_substring(values, b"\n").fill_null(False).to_numpy(False))
    blank = pc.is_in(values, pa.array([b"", b"\r"] if width > 1 else [], values.type))
    none = np.flatnonzero(pc.or_(blank, pc.is_null(values)).to_numpy(False))
    reasons = dict.fromkeys(_misquoted(values, delimiter), MISQUOTED)
    reasons |= {int(i): "a line break in a record" for i in breaks}
    reasons |= dict.fromkeys(not_text, NOT_TEXT)
    return reasons | {int(i): "an empty record" for i in none}


def _misquoted(values: pa.Array, delimiter: str) -> list[int]:
    """The records with a misplaced quote; most have no quotes."""
    with_quotes = pc.match_substring(values, b'"').fill_null(False)
    places = np.flatnonzero(with_quotes.to_numpy(False))
    field = rf'("([^"]|"")*"|[^"\x{{{ord(delimiter):x}}}]*)'
    record = rf"(?s)\A{field}(\x{{{ord(delimiter):x}}}{field})*\z"
    good = pc.match_substring_regex(values.take(pa.array(places)), record)
    return [int(i) for i in places[~good.to_numpy(False)]]


def _all_but(count: int, places: Iterable[int]) -> npt.NDArray[np.int64]:
    keep = np.ones(count, np.bool_)
    keep[list(places)] = False
    return np.flatnonzero(keep)


def _split(
    values: pa.Array, names: list[str], style: CsvStyle, base: int
) -> tuple[pa.Table, dict[int, str]]:
    """The records' fields as binary columns; why a record does not have the right fields."""
    wrong: dict[int, str] = {}

    def refuse(row: pacsv.InvalidRow) -> str:
        wrong[base + row.number - 2] = (  # counted from 1, and the first is skipped
            f"{row.actual_columns} fields, expected {row.expected_columns}"
        )
        return "skip"

    if not len(values):
        return pa.table({n: pa.array([], pa.binary()) for n in names}), {}
    try:
        table = _read(values, names, style, refuse)
        if table.num_rows + len(wrong) == len(values):  # else one record ran into the next
            return table, wrong
        why = MISQUOTED
    except (pa.ArrowException, ValueError) as cause:
        why = str(cause)
    if len(values) == 1:
        why = LONE_RETURN if b"\r" in values[0].as_py() else why
        return _split(values[:0], names, style, base)[0], {base: why}
    half = len(values) // 2
    left, a = _split(values[:half], names, style, base)
    right, b = _split(values[half:], names, style, base + half)
    return pa.concat_tables([left, right]), a | b


def _read(
    values: pa.Array, names: list[str], style: CsvStyle, refuse: Callable[[Any], str]
) -> pa.Table:
    lines = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    text = b"\n" + pc.binary_join(lines, b"\n")[0].as_py() + b"\n"
    return pacsv.read_csv(
        pa.BufferReader(text),
        pacsv.ReadOptions(
            column_names=names,
            use_threads=False,
            block_size=len(text) + 1,
            skip_rows=1,  # an empty one, so that a byte order mark is part of a field
        ),
        pacsv.ParseOptions(
            delimiter=style.delimiter, ignore_empty_lines=False, invalid_row_handler=refuse
        ),
        pacsv.ConvertOptions(
            column_types={n: pa.binary() for n in names},
            null_values=["", *style.nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


# All formats.


FORMATS = ("json", "csv", "text", "bytes")
IN_FILES = (*FORMATS, "parquet", "avro")
REGISTERED = ("avro", "protobuf", "json")  # of records that name their schema, with registry=
REGISTRY_OPTIONS = ("registry", "registry_auth", "validate", "subject", "message")
EXTENSIONS = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet",
    ".txt": "text", ".log": "text", ".avro": "avro",
}  # fmt: skip


def decode(
    format: str,
    raw: pa.Array | pa.ChunkedArray,
    schema: pa.Schema,
    *,
    columns: Sequence[str] | None = None,
    style: CsvStyle = PLAIN,
    registry: SchemaRegistry | None = None,
) -> Decoded:
    """The good rows as a table, a mask of the bad ones over `raw`, a reason for each bad one.

    `columns` is the order of the columns in CSV records, if it is not the schema's. With a
    `registry` each record names its schema, in the Confluent wire format.
    """
    values = raw.combine_chunks() if isinstance(raw, pa.ChunkedArray) else raw
    if not len(values):
        return schema.empty_table(), np.zeros(0, np.bool_), []
    if registry is not None:
        plain = partial(_json, schema=schema)
        try:
            return decode_wire(format, values, schema, registry, plain)
        except LogError as cause:  # the registry does not answer
            raise InputError(cause.code, cause.message, cause.hint) from cause
    if format == "json":
        return _json(values, schema)
    if format == "csv":
        return _without_nulls(decode_csv(values, schema, columns, style))
    if format in ("text", "bytes"):
        return _one_column(values, schema)
    raise unknown_format(format)


def default_schema(format: str) -> pa.Schema | None:
    """The schema of a format that brings its own."""
    kinds = {"text": pa.string(), "bytes": pa.binary()}
    return pa.schema([("value", kinds[format])]) if format in kinds else None


def check_null(o: InputRequest) -> None:
    """Refuse an option null= that is no text."""
    null = o.options.get("null", ())
    texts = [null] if isinstance(null, str) else null
    if not isinstance(texts, list | tuple) or not all(isinstance(t, str) for t in texts):
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has null={null!r}",
            'Give the text that stands for null in CSV files, null="NA", or a list of such texts.',
        )


def registry_of(o: InputRequest, format: str) -> SchemaRegistry | None:
    """The registry that registry= names, checked; None if none is named."""
    place, auth = o.options.get("registry"), o.options.get("registry_auth")
    validate = o.options.get("validate")
    if place is None and auth is None and validate is None:
        return None
    if format not in REGISTERED or not isinstance(place, str):
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has registry={place!r} and format={format!r}",
            'Write registry="http://host:8081" and format="avro", "protobuf" or "json".',
        )
    if validate is not None and (type(validate) is not bool or format != "json"):
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has validate={validate!r} and format={format!r}",
            'Write validate=False to read format="json" without checking it by its schemas.',
        )
    try:
        registry = SchemaRegistry(
            place, referred("registry_auth", auth, repr(o.uri)), validate is not False
        )
        registry.check()
    except LogError as cause:
        raise InputError(cause.code, cause.message, cause.hint) from cause
    return registry


def needed_schema(o: InputRequest, format: str) -> pa.Schema:
    """The declared schema, or the one that the format brings."""
    schema = o.schema if o.schema is not None else default_schema(format)
    if schema is None and format in ("avro", "protobuf"):
        registry = registry_of(o, format)
        schema = None if registry is None else _registered(o, format, registry)
    if schema is None:
        raise InputError(
            "HR-INPUT-012",
            f"{o.uri!r} has no schema",
            'Pass schema="area string, celsius double", or give a dataclass.',
        )
    return schema


def _registered(o: InputRequest, format: str, registry: SchemaRegistry) -> pa.Schema:
    """The columns of the newest schema of the subject."""
    for option in ("subject", "message"):
        if not isinstance(o.options.get(option), str | None):
            fact = f"{o.uri!r} has {option}={o.options[option]!r}"
            raise InputError("HR-INPUT-013", fact, "Give a text.")
    subject = o.options.get("subject") or f"{o.rest.rpartition('/')[2]}-value"
    try:
        found = registry.latest(subject)
    except LogError as cause:
        raise InputError(cause.code, cause.message, cause.hint) from cause
    if found is None:
        raise InputError(
            "HR-KAFKA-056",
            f"{o.uri!r} has no schema, and subject {subject!r} none in the registry "
            f"{registry.place}",
            'Pass schema="area string, celsius double", or name another subject=.',
        )
    try:
        columns = registered_columns(format, found[1], o.options.get("message"))
    except ValueError as cause:
        raise InputError(
            "HR-KAFKA-057",
            f"{o.uri!r}: schema {found[0]} of subject {subject!r} does not give columns: {cause}",
            "Declare the columns that are wanted: schema=...",
        ) from cause
    return schema_of(pa.schema([f.with_type(plain(f.type)) for f in columns]))


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


def unknown_format(format: str, known: Sequence[str] = FORMATS) -> InputError:
    """`known` are the formats of such an input; "avro" and "protobuf" may lack their registry."""
    registry = (
        'Records of Avro and Protobuf need registry="http://host:8081". '
        if format in REGISTERED and format not in known
        else ""
    )
    hint = f"{registry}Known: {', '.join(known)}."
    return InputError("HR-INPUT-004", f"unknown format {format!r}", hint)


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
    """Set aside rows without a value that the schema requires."""
    table = decoded[0]
    missing: dict[int, str] = {}
    for field in table.schema:
        if not field.nullable and table[field.name].null_count:
            for i in np.flatnonzero(table[field.name].is_null().to_numpy()):
                missing.setdefault(int(i), f"column {field.name!r} has no value")
    return _set_aside(decoded, missing)


def _set_aside(decoded: Decoded, reasons: Mapping[int, str]) -> Decoded:
    """Set aside further bad rows, by their position in the table."""
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
