"""Columns of CSV files that nobody declared: their names from the header, their types from values.

A type other than text is guessed only where every value is spelt as one: "007" stays text, and so
do whole numbers of more digits than a bigint has. Of an input the first lines of its first file
are looked at, and what was guessed at the first start stays: another guess at a later start is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import InputError
from headrace.kernel.text_cast import cast_text
from headrace.schema import TIMESTAMP, ddl_of
from headrace.sources import formats
from headrace.sources.contract import write_durably
from headrace.sources.formats import CsvStyle
from headrace.sources.lines import BOM, null_texts, split_lines
from headrace.sources.packed import head_of
from headrace.sources.scan import PathPattern

SAMPLE = 1 << 20  # bytes of a file that are looked at
_GUESSES = (  # the types that a column of a CSV file may have, and how all its values look then
    (pa.int64(), r"^(0|-?[1-9][0-9]{0,17})$"),
    (pa.float64(), r"^-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?$"),
    (pa.bool_(), r"^(true|false|True|False|TRUE|FALSE)$"),
    (pa.date32(), r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    (TIMESTAMP, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?Z?$"),
)


def guessed(column: pa.ChunkedArray) -> pa.DataType:
    """Number, time or boolean only where every text of the column is spelt as one; else text."""
    for kind, pattern in _GUESSES if column.null_count < len(column) else ():
        if pc.all(pc.match_substring_regex(column, pattern)).as_py() and _can_cast(column, kind):
            return kind
    return pa.string()


def _can_cast(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether the values are valid: 2024-02-31 only looks like a date."""
    return not any(cast_text(c.cast(pa.binary()), kind)[1] for c in column.chunks)


def guessed_columns(pattern: PathPattern, uri: str, options: Mapping[str, Any]) -> pa.Schema:
    """The columns of the first file that has rows; InputError if there is none."""
    if not options.get("header", True):
        raise _none(uri, "its files have no header to take the names from")
    pattern.check()
    for file in pattern.scan():
        data = head_of(file.path, SAMPLE).removeprefix(BOM)
        style = CsvStyle(str(options.get("delimiter", ",")), null_texts(options.get("null", ())))
        schema = _of_sample(file.path, data, style)
        if schema is not None:
            return schema
    raise _none(
        uri, "there is no file with rows to take the columns from (is its delimiter a comma?)"
    )


def _of_sample(path: str, data: bytes, style: CsvStyle) -> pa.Schema | None:
    line, newline, rest = data.partition(b"\n")
    body = rest[: rest.rfind(b"\n") + 1] or rest  # without a line that is not whole
    if not newline or not body.strip():
        return None
    names = formats.csv_header(path, line.decode("utf-8", "replace"), style.delimiter)
    texts = pa.schema([(name, pa.string()) for name in names])
    formats.check_csv_header(path, names, texts)
    values, _ = split_lines(body)
    table, _, _ = formats.decode("csv", values, texts, columns=names, style=style)
    if not table.num_rows:
        return None
    return pa.schema([(name, guessed(table.column(name))) for name in names])


def _none(uri: str, why: str) -> InputError:
    return InputError(
        "HR-INPUT-012",
        f"{uri!r} has no schema, and {why}",
        'Pass schema="area string, celsius double", or give a dataclass.',
    )


class GuessedColumns:
    """What was guessed, in the job's folder: the types of an input do not change by themselves."""

    def __init__(self, home: Path | None, uri: str, schema: pa.Schema) -> None:
        self._path = None if home is None else home / "columns"
        self._uri, self._text = uri, ddl_of(schema)

    def check(self, position: int) -> None:
        """Refuse columns that are other than those of the first start, or are not known."""
        before = self._stored()
        if before is None and position and self._path is not None:
            raise InputError(
                "HR-INPUT-019",
                f"rows of {self._uri!r} were read with columns that are not known any more: they "
                "were declared, or the file in the job's folder is missing",
                f'Declare them: schema="{self._text}".',
            )
        if before is not None and before != self._text:
            raise InputError(
                "HR-INPUT-019",
                f"the columns of {self._uri!r} were guessed as {before} when it was first read, "
                f"and its files say {self._text} now",
                f'Declare them: schema="{before}"; a row that does not fit is a dead letter.',
            )

    def store(self) -> None:
        if self._path is not None and self._stored() is None:
            write_durably(self._path, self._text.encode())

    def _stored(self) -> str | None:
        try:
            return None if self._path is None else self._path.read_text("utf-8", "replace")
        except FileNotFoundError:
            return None
