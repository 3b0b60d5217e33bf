"""Avro as output files: object container files, which `connect/avro_files.py` reads and writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO

import pyarrow as pa

from headrace.connect.avro_files import ContainerWriter, container, join_blocks
from headrace.errors import OutputError

CODEC = "deflate"


class AvroWriter:
    def __init__(self, file: IO[bytes], schema: pa.Schema, codec: str = CODEC) -> None:
        self._writer = ContainerWriter(file, schema, codec)

    def write_table(self, table: pa.Table) -> None:
        try:
            self._writer.write_table(table)
        except (ValueError, TypeError, pa.ArrowException) as cause:
            raise OutputError(
                "HR-OUTPUT-070",
                f"a row cannot be written as Avro: {cause}",
                'Replace such values in the program, or choose format="parquet".',
            ) from cause

    def close(self) -> None:
        self._writer.close()


def avro_batches(path: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    file = container(str(path))
    missing = [name for name in schema.names if name not in file.fields()]
    if missing:
        raise ValueError(f"it has no column {missing[0]!r}")
    for _, table in file.read(0, file.count, schema.names):
        try:
            yield table.cast(schema.remove_metadata())
        except pa.ArrowException as cause:
            raise ValueError(str(cause)) from cause


def all_columns(path: Path) -> Iterator[pa.Table]:
    """The rows with every column that the file has, whoever has written it."""
    file = container(str(path))
    yield from (table for _, table in file.read(0, file.count, list(file.fields())))


def join_avro(file: IO[bytes], paths: Sequence[Path], schema: pa.Schema) -> None:
    """Block by block; row by row only if the files differ in how they are written."""
    files = [container(str(path)) for path in paths]
    if all((f.avro, f.codec) == (files[0].avro, files[0].codec) for f in files):
        return join_blocks(file, files)
    with closing(AvroWriter(file, schema, files[-1].codec)) as writer:
        for path in paths:
            for table in avro_batches(path, schema):
                writer.write_table(table)
