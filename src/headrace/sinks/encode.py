"""Tables to files and back: Parquet, JSON lines, Arrow.

A table may become several files, each about as large as asked. Joining files goes batch by
batch, so memory does not grow with their number. Durability is `durable.py`'s business.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.chunk import plain_type
from headrace.errors import OutputError
from headrace.sinks.json_lines import check_json, json_lines, parse_json

STEP_ROWS = 131_072  # rows between two looks at how large the file has become


@dataclass(frozen=True, slots=True)
class Format:
    suffix: str
    writer: Callable[[Any, pa.Schema], Any]  # has write_table and close
    batches: Callable[[Path, pa.Schema], Iterator[pa.Table]]
    schema: Callable[[Path], pa.Schema | None]  # None: the file does not say


class _JsonWriter:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        check_json(schema)
        self._file = file

    def write_table(self, table: pa.Table) -> None:
        self._file.write(json_lines(table))

    def close(self) -> None:
        return None


class _ArrowWriter:
    """A file of Arrow's has one dictionary for a column, our rows several: it gets plain ones."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._schema = without_dictionaries(schema)
        self._writer = pa.ipc.new_file(file, self._schema)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        self._writer.close()


def without_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The same columns, plain."""
    return pa.schema([_plain(f) for f in schema])


def _plain(field: pa.Field) -> pa.Field:
    kind = plain_type(field.type)
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_plain(kind.value_field)))
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_plain(f) for f in kind]))
    return field.with_type(kind)


def _parquet_writer(file: IO[bytes], schema: pa.Schema) -> Any:
    return pq.ParquetWriter(file, schema, compression="zstd")


def _parquet_batches(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(STEP_ROWS):
            yield pa.Table.from_batches([batch])


def _arrow_batches(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    file = pa.ipc.open_file(pa.memory_map(str(path)))  # not copied: pages come as they are read
    for i in range(file.num_record_batches):
        yield pa.Table.from_batches([file.get_batch(i)])


def _arrow_schema(path: Path) -> pa.Schema:
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_file(source).schema


def _json_batches(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    lines = pa.array(path.read_bytes().splitlines(), pa.binary())
    try:
        yield parse_json(lines, schema)
    except ValueError as cause:
        raise OutputError(
            "HR-OUTPUT-007",
            f"{str(path)!r} holds something else than was written, {cause}",
            "Restore the file from a backup; only the job itself may change output files.",
        ) from cause


FORMATS = {
    "parquet": Format(".parquet", _parquet_writer, _parquet_batches, pq.read_schema),
    "json": Format(".json", _JsonWriter, _json_batches, lambda path: None),
    "arrow": Format(".arrow", _ArrowWriter, _arrow_batches, _arrow_schema),
}


def format_named(name: str) -> Format:
    if name not in FORMATS:
        raise OutputError(
            "HR-OUTPUT-008", f"unknown format {name!r}", f"Known: {', '.join(FORMATS)}."
        )
    return FORMATS[name]


def fill(file: IO[bytes], format: Format, tables: Sequence[pa.Table], limit: int) -> int:
    """Write tables until the file has `limit` bytes; how many were written."""
    written = 0
    with closing(format.writer(file, tables[0].schema)) as writer:
        for table in tables:
            writer.write_table(table)
            written += 1
            if file.tell() >= limit:
                break
    return written


def steps(table: pa.Table) -> list[pa.Table]:
    """The table in pieces that are small against a file."""
    return [table.slice(i, STEP_ROWS) for i in range(0, table.num_rows, STEP_ROWS)]


def join(file: IO[bytes], format: Format, paths: Sequence[Path]) -> None:
    """Write the rows of `paths`, which all have the same columns, as one file."""
    schema = format.schema(paths[0])
    if schema is None:  # lines: the bytes one after the other
        for path in paths:
            with path.open("rb") as source:
                shutil.copyfileobj(source, file)
        return
    with closing(format.writer(file, schema)) as writer:
        for table in _gathered(t for path in paths for t in format.batches(path, schema)):
            writer.write_table(table)


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are worth a row group each."""
    held: list[pa.Table] = []
    for table in tables:
        held.append(table)
        if sum(t.num_rows for t in held) >= STEP_ROWS:
            yield pa.concat_tables(held).combine_chunks()
            held = []
    if held:
        yield pa.concat_tables(held).combine_chunks()


def format_of(file: str) -> Format:
    """The format of an output file, which its name says."""
    found = next((f for f in FORMATS.values() if file.endswith(f.suffix)), None)
    if found is None:
        raise OutputError(
            "HR-OUTPUT-007",
            f"{file!r} is not the name of an output file",
            "Restore the output's folder from a backup.",
        )
    return found
