"""CSV and text as output files: what our own input, and others, read back equal.

A line is a row, also for readers that split at every line break. So a text with a line break has
no place in either, and is refused when it is written. In CSV null is an empty field, and empty
text is ""; a file of one column could not have an empty field, for that would be an empty line.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterator
from typing import IO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from headrace.errors import OutputError
from headrace.kernel.text_cast import cast_text
from headrace.sinks.formats import csv_texts, joined

STYLE = b"headrace.csv"  # metadata of columns that are written in another style than the default
_MARK = "\ufeff"  # at the beginning of a file, readers take it for a mark of the encoding
_BETWEEN = frozenset("!#$%&()*,/:;<=>?@[]^`{|}~ \t'\\_")


class CsvFormat(NamedTuple):
    """How CSV files are written."""

    delimiter: str = ","
    header: bool = True

    def on(self, schema: pa.Schema) -> pa.Schema:
        """The columns, with this style as their metadata; as they are if it is the default."""
        if self == CsvFormat():
            return schema
        text = json.dumps(self._asdict())
        return schema.with_metadata({**(schema.metadata or {}), STYLE: text})

    def mark(self, table: pa.Table) -> pa.Table:
        """The same rows, whose columns have this style as their metadata."""
        return table.replace_schema_metadata(self.on(table.schema).metadata)

    @staticmethod
    def of(schema: pa.Schema) -> CsvFormat:
        text = (schema.metadata or {}).get(STYLE)
        return CsvFormat(**json.loads(text)) if text else CsvFormat()


def is_delimiter(value: object) -> bool:
    """Whether a character cannot be part of a number, a time, a quote or a line end."""
    return isinstance(value, str) and value in _BETWEEN and len(value) == 1


class CsvWriter:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        _check_columns(schema)
        self._file, self._style = file, CsvFormat.of(schema)
        if self._style.header:
            file.write(_header(schema, self._style))

    def write_table(self, table: pa.Table) -> None:
        for name in table.column_names:
            _refuse_breaks(name, table.column(name), "CSV")
        if table.num_columns == 1 and table.column(0).null_count:
            raise _impossible(
                table.column_names[0], "null, and a CSV file of one column cannot hold it"
            )
        self._file.write(joined(csv_texts(table, self._style.delimiter, "\n")))

    def close(self) -> None:
        return None


def parse_csv(data: bytes, schema: pa.Schema) -> pa.Table:
    table = _fields(data, schema, CsvFormat.of(schema))
    columns = []
    for field in schema:
        kind = pa.string() if _is_text(field.type) else field.type
        column, bad = cast_text(_whole(table.column(field.name)), kind)
        if bad:
            raise ValueError(f"row {bad[0] + 1}: {field.name!r} is not {field.type}")
        columns.append(column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema.remove_metadata())


def join_csv(file: IO[bytes], sources: Iterator[IO[bytes]], schema: pa.Schema) -> None:
    """One header, then the lines of all."""
    style = CsvFormat.of(schema)
    for i, source in enumerate(sources):
        if style.header and i:
            source.read(len(_header(schema, style)))
        shutil.copyfileobj(source, file)


class TextWriter:
    """One column of text, a line for each row."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        if len(schema) != 1 or not _is_text(schema.field(0).type):
            raise ValueError('format="text" writes one column, of text')
        self._file = file

    def write_table(self, table: pa.Table) -> None:
        name, column = table.column_names[0], _plain(table.column(0))
        if column.null_count:
            raise _impossible(name, "null, and a line of text cannot say that it is null")
        _refuse_breaks(name, column, "text")
        if pc.any(pc.ends_with(column, "\r")).as_py():
            raise _impossible(name, "a text that ends with a carriage return, as lines do")
        if pc.any(pc.starts_with(column, _MARK)).as_py():
            raise _impossible(name, "a text that begins with a byte order mark")
        texts = _whole(column).cast(pa.large_string())
        end = pa.scalar("\n", pa.large_string())
        nothing = pa.scalar("", pa.large_string())
        self._file.write(joined(pc.binary_join_element_wise(texts, end, nothing)))

    def close(self) -> None:
        return None


def parse_text(data: bytes, schema: pa.Schema) -> pa.Table:
    lines = data.split(b"\n")
    if lines.pop():
        raise ValueError("its last line has no end")
    try:
        column = pa.array(lines, pa.binary()).cast(schema.field(0).type)
    except pa.ArrowException as cause:
        raise ValueError(str(cause)) from cause
    return pa.Table.from_arrays([column], schema=schema)


def _check_columns(schema: pa.Schema) -> None:
    """Raise ValueError for a column that could not be read again."""
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise ValueError(f"column {field.name!r} is {kind}, which CSV cannot hold")
        if not any(test(kind) for test in _HELD):
            raise ValueError(f"column {field.name!r} is {kind}, and CSV has no {kind}")
        if "\n" in field.name or "\r" in field.name:
            raise ValueError(f"the name of column {field.name!r} has a line break")
    if schema.names[:1] and schema.names[0].startswith(_MARK):
        raise ValueError(f"the name {schema.names[0]!r} begins with a byte order mark")


_HELD = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating,
    pa.types.is_decimal, pa.types.is_string, pa.types.is_large_string, pa.types.is_date,
    pa.types.is_timestamp,
)  # fmt: skip


def _header(schema: pa.Schema, style: CsvFormat) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=style.delimiter, lineterminator="\n").writerow(schema.names)
    return text.getvalue().encode()


def _fields(data: bytes, schema: pa.Schema, style: CsvFormat) -> pa.Table:
    if style.header:
        head = _header(schema, style)
        if not data.startswith(head):
            raise ValueError("its header is another")
        data = data[len(head) :]
    if not data:
        return pa.table({f.name: pa.array([], pa.binary()) for f in schema})
    try:
        return pacsv.read_csv(
            pa.BufferReader(b"\n" + data),
            pacsv.ReadOptions(
                column_names=schema.names,
                block_size=len(data) + 2,
                skip_rows=1,  # an empty one, so that a byte order mark is part of a field
            ),
            pacsv.ParseOptions(
                delimiter=style.delimiter, ignore_empty_lines=False, newlines_in_values=True
            ),
            pacsv.ConvertOptions(
                column_types={n: pa.binary() for n in schema.names},
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowException as cause:
        raise ValueError(str(cause)) from cause


def _refuse_breaks(name: str, column: pa.ChunkedArray, format: str) -> None:
    column = _plain(column)
    if _is_text(column.type) and pc.any(pc.match_substring(column, "\n")).as_py():
        raise _impossible(name, f"a text with a line break, which a line of {format} cannot hold")


def _impossible(name: str, what: str) -> OutputError:
    return OutputError(
        "HR-OUTPUT-070",
        f"column {name!r} has {what}",
        "Replace such values in the program, for instance by select or where, or choose "
        'format="json" or "parquet".',
    )


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    return column.cast(kind.value_type) if pa.types.is_dictionary(kind) else column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(whole.chunks)
