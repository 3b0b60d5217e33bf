"""A file as a whole table, for lookups: Parquet, CSV or JSON lines, or a folder of Parquet files.

Lines are decoded by the declared columns from the start, by the rule and the code of a `files:`
input; but a table is whole or it is none, so a bad line is an error which names it. Without
declared columns a CSV file's are guessed from all its lines, and never change a text.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet

from headrace.errors import StepError
from headrace.sources.columns import plain
from headrace.sources.formats import EXTENSIONS, check_csv_header, check_schema, csv_header, decode
from headrace.sources.guess import guessed
from headrace.sources.lines import BLOCK, BOM, split_lines


@dataclass(frozen=True)
class TableFile:
    path: str
    declared: pa.Schema | None = None

    def load(self) -> pa.Table:
        format = self._format()
        if format not in ("csv", "json"):
            return self._parquet()
        schema = self.schema() if self.declared is None else self.declared
        check_schema(format, schema)
        return _read_lines(self.path, format, schema)

    def schema(self) -> pa.Schema:
        """The columns that the file declares, or that are guessed from its lines."""
        if self._format() == "csv":
            return _guessed(self.path)
        if self._format() == "json":
            own = pyarrow.json.read_json(self.path).schema
        else:
            own = pyarrow.parquet.read_schema(self._one())
        return pa.schema([pa.field(f.name, plain(f.type)) for f in own])

    def _format(self) -> str:
        return EXTENSIONS.get(Path(self.path).suffix, "parquet")

    def _parquet(self) -> pa.Table:
        if os.path.isdir(self.path):
            return pyarrow.parquet.read_table(self.path)
        with open(self.path, "rb") as file:  # it may be replaced: `read_table` would open it twice
            return pyarrow.parquet.ParquetFile(file).read()

    def _one(self) -> str:
        folder = Path(self.path)
        return str(min(folder.glob("**/*.parquet"))) if folder.is_dir() else self.path


def _read_lines(path: str, format: str, declared: pa.Schema | None) -> pa.Table:
    """The rows of the lines; without declared columns those of the header, all of them text."""
    with open(path, "rb") as file:  # once: it may be replaced meanwhile
        data = file.read().removeprefix(BOM)
    columns, start = None, 0
    if format == "csv":
        line, newline, _ = data.partition(b"\n")
        columns, start = csv_header(path, line.decode("utf-8", "replace"), ","), len(line + newline)
        if declared is not None and data:
            check_csv_header(path, columns, declared)
    texts = pa.schema([(name, pa.string()) for name in columns or ()])
    schema = texts if declared is None else declared
    tables = [schema.empty_table()]
    while start < len(data):
        end = data.rfind(b"\n", start, start + BLOCK) + 1 or data.find(b"\n", start) + 1
        end = len(data) if start + BLOCK >= len(data) else end or len(data)
        values, places = split_lines(data[start:end])
        table, bad, reasons = decode(format, values, schema, columns=columns)
        if bad.any():
            line_number = data.count(b"\n", 0, start + int(places[int(bad.argmax())])) + 1
            raise _bad(path, line_number, reasons[0])
        tables.append(table)
        start = end
    return pa.concat_tables(tables)


def _guessed(path: str) -> pa.Schema:
    """Numbers, times and booleans only where every value is spelt as one; the rest is text."""
    texts = _read_lines(path, "csv", None)
    return pa.schema([(name, guessed(texts.column(name))) for name in texts.column_names])


def _bad(path: str, line: int, why: str) -> StepError:
    return StepError(
        "HR-JOIN-020",
        f"line {line} of {path!r} is not a row of the table: {why}",
        "Correct the file, or declare its columns with schema= as they are.",
    )
