"""The formats of output files: Parquet, JSON lines, CSV, text, Avro; Arrow inside the job's folder.

A table may become several files, each about as large as asked. Joining files goes batch by
batch, so memory does not grow with their number. Durability is `durable.py`'s business. How a file
is written beyond its format's name (the delimiter of CSV) is metadata of the columns that are
stored with it, so it is read as it was written whatever the program says by now.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import OutputError
from headrace.sinks import avro_files, line_files
from headrace.sinks.formats import check_json, json_lines, parse_json, without_dictionaries

STEP_ROWS = 131_072  # most rows between two checks of the size of the file
LEAST_STEP = 1 << 14  # bytes
STEPS = 8  # so many at once where a file may be large

Batches = Callable[[Path, pa.Schema], Iterator[pa.Table]]


@dataclass(frozen=True, slots=True)
class Format:
    suffix: str
    writer: Callable[[Any, pa.Schema], Any]  # has write_table and close; ValueError: not possible
    batches: Batches
    join: Callable[[IO[bytes], Sequence[Path], pa.Schema], None]  # files of the same columns
    schema: Callable[[Path], pa.Schema | None] = lambda path: None  # None: the file does not say


class _JsonWriter:
    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        check_json(schema)
        self._file = file

    def write_table(self, table: pa.Table) -> None:
        self._file.write(json_lines(table))

    def close(self) -> None:
        return None


class _ArrowWriter:
    """Writes plain columns: an Arrow file has one dictionary for a column, our rows several."""

    def __init__(self, file: IO[bytes], schema: pa.Schema) -> None:
        self._schema = without_dictionaries(schema)
        self._writer = pa.ipc.new_file(file, self._schema)

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(table.cast(self._schema))

    def close(self) -> None:
        self._writer.close()


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


def _as_written(batches: Batches) -> Batches:
    """The same; a ValueError says that the file holds something else."""

    def checked(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
        try:
            yield from batches(path, schema)
        except ValueError as cause:
            raise OutputError(
                "HR-OUTPUT-007",
                f"{str(path)!r} holds something else than was written, {cause}",
                "Restore the file from a backup; only the job itself may change output files.",
            ) from cause

    return checked


def _parse_json(data: bytes, schema: pa.Schema) -> pa.Table:
    return parse_json(pa.array(data.splitlines(), pa.binary()), schema)


def _join_bytes(file: IO[bytes], sources: Iterator[IO[bytes]], schema: pa.Schema) -> None:
    for source in sources:
        shutil.copyfileobj(source, file)


def _join_rows(
    file: IO[bytes],
    paths: Sequence[Path],
    schema: pa.Schema,
    *,
    writer: Callable[[Any, pa.Schema], Any],
    batches: Batches,
    own: Callable[[Path], pa.Schema],
) -> None:
    with closing(writer(file, own(paths[0]))) as opened:
        for table in _gathered(t for path in paths for t in batches(path, schema)):
            opened.write_table(table)


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are worth a row group each."""
    pending: list[pa.Table] = []
    for table in tables:
        pending.append(table)
        if sum(t.num_rows for t in pending) >= STEP_ROWS:
            yield pa.concat_tables(pending).combine_chunks()
            pending = []
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def _typed(
    suffix: str,
    writer: Callable[[Any, pa.Schema], Any],
    batches: Batches,
    schema: Callable[[Path], pa.Schema],
) -> Format:
    """A format whose files hold their columns."""
    join = partial(_join_rows, writer=writer, batches=batches, own=schema)
    return Format(suffix, writer, batches, join, schema)


class _PackedWriter:
    """Writes lines to a file that is compressed."""

    def __init__(
        self,
        file: IO[bytes],
        schema: pa.Schema,
        writer: Callable[[Any, pa.Schema], Any],
        codec: str,
    ) -> None:
        self._packed = pa.CompressedOutputStream(file, codec)
        self._lines = writer(self._packed, schema)

    def write_table(self, table: pa.Table) -> None:
        self._lines.write_table(table)

    def close(self) -> None:
        self._lines.close()
        self._packed.close()


def _lines(
    suffix: str,
    writer: Callable[[Any, pa.Schema], Any],
    parse: Callable[[bytes, pa.Schema], pa.Table],
    join: Callable[[IO[bytes], Iterator[IO[bytes]], pa.Schema], None],
    codec: str | None = None,
) -> Format:
    """A format of lines, plain or compressed."""

    def opened(paths: Sequence[Path]) -> Iterator[IO[bytes]]:
        for path in paths:
            with path.open("rb") if codec is None else pa.input_stream(path, codec) as file:
                yield file

    def batches(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
        try:
            (data,) = (file.read() for file in opened([path]))
        except OSError as cause:
            if cause.errno is not None:
                raise
            raise ValueError(str(cause)) from cause  # what the file holds cannot be unpacked
        yield parse(data, schema)

    def join_files(file: IO[bytes], paths: Sequence[Path], schema: pa.Schema) -> None:
        with nullcontext(file) if codec is None else pa.CompressedOutputStream(file, codec) as out:
            join(out, opened(paths), schema)

    if codec is None:
        return Format(suffix, writer, _as_written(batches), join_files)
    packed = partial(_PackedWriter, writer=writer, codec=codec)
    return Format(suffix + PACKED[codec], packed, _as_written(batches), join_files)


PACKED = {"gzip": ".gz", "zstd": ".zst"}  # how files of lines may be compressed
_LINES = {
    "json": (".json", _JsonWriter, _parse_json, _join_bytes),
    "csv": (".csv", line_files.CsvWriter, line_files.parse_csv, line_files.join_csv),
    "text": (".txt", line_files.TextWriter, line_files.parse_text, _join_bytes),
}
FORMATS = {
    "parquet": _typed(".parquet", _parquet_writer, _parquet_batches, pq.read_schema),
    "avro": Format(
        ".avro", avro_files.AvroWriter, _as_written(avro_files.avro_batches), avro_files.join_avro
    ),
    "arrow": _typed(".arrow", _ArrowWriter, _arrow_batches, _arrow_schema),
    **{name: _lines(*about) for name, about in _LINES.items()},
    **{name + PACKED[c]: _lines(*about, c) for name, about in _LINES.items() for c in PACKED},
}
WRITTEN = ("parquet", "json", "csv", "text", "avro")  # those of a files: output


def format_named(name: str) -> Format:
    if name not in FORMATS:
        raise OutputError(
            "HR-OUTPUT-008", f"unknown format {name!r}", f"Known: {', '.join(FORMATS)}."
        )
    return FORMATS[name]


def format_of(file: str) -> Format:
    """The format of an output file, by its name."""
    format = next((f for f in FORMATS.values() if file.endswith(f.suffix)), None)
    if format is None:
        raise OutputError(
            "HR-OUTPUT-007",
            f"{file!r} is not the name of an output file",
            "Restore the output's folder from a backup.",
        )
    return format


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


def steps(table: pa.Table, format: Format, limit: int) -> list[pa.Table]:
    """The table in pieces that are small compared to a file of `limit` bytes.

    A piece is a row group in Parquet. Large ones take half the time and less space: each has its
    dictionaries, so they are as large as the limit allows.
    """
    fitting = max(limit // 4, LEAST_STEP) * table.num_rows // max(1, table.nbytes)
    most = STEP_ROWS * (STEPS if format.suffix == ".parquet" else 1)
    rows = max(1, min(fitting, most))
    return [table.slice(i, rows) for i in range(0, table.num_rows, rows)]
