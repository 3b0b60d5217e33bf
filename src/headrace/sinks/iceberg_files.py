"""Files of an Iceberg table that tasks have written: whether a commit may name them as they are.

Each column of such a file has the id of the table's column, as everywhere in Iceberg. If the table
has got other columns, partitions or settings since, the library writes the rows once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connect.iceberg import check_ids, columns_of, local_path, plain_names
from headrace.sinks.contract import Reference
from headrace.sinks.data_files import PATH, DataFiles
from headrace.sinks.file_formats import format_named
from headrace.sinks.ownership import Identity
from headrace.state.faults import point

LOCATION = "table"  # of a reference: where the table was
_FOLDER = "data"  # of a table, where the library writes them
_WRITING, _ABOUT = "write.", "write.metadata."  # settings: how files are written; what lies beside


def takes_files(table: Any) -> bool:
    """Whether files may be added to the table as they are."""
    settings = [k for k in table.properties if k.startswith(_WRITING)]
    return (
        local_path(table.location()) is not None
        and table.format_version <= 2
        and table.spec().is_unpartitioned()
        and all(k.startswith(_ABOUT) for k in settings)
        and plain_names(table)
    )


class IcebergFiles(DataFiles):
    compression = "zstd"

    def __init__(self, location: str, place: Path, identity: Identity, output: str) -> None:
        super().__init__(place, place / _FOLDER, identity, output)
        self._location = location

    def _write(self, rows: pa.Table, path: Path) -> Reference:
        return {**super()._write(rows, path), LOCATION: self._location}

    def has(self, staged: Sequence[Reference]) -> bool:
        """Whether there is a file for each, staged or settled."""
        return all(self.where(r).exists() for r in staged)

    def content(self, table: Any, staged: Sequence[Reference]) -> pa.Table | list[str]:
        """The files by name, settled, if they are such as the table's own; else their rows."""
        self.check(staged)
        paths = [self.where(r) for r in staged]
        columns = _as_in_files(columns_of(table))
        found = [pq.read_schema(path) for path in paths]
        for schema in found:
            check_ids(schema, columns)
        as_ours = all(schema.equals(columns, check_metadata=True) for schema in found)
        if as_ours and table.location() == self._location and takes_files(table):
            self.settle(staged)
            point("sink.lake.settled")
            for reference in staged:  # raises if somebody has removed it meanwhile
                pq.read_metadata(self.at(reference))
            return [f"{self._location}/{_FOLDER}/{r[PATH]}" for r in staged]
        parquet = format_named("parquet")
        return pa.concat_tables(t for p in paths for t in parquet.batches(p, pa.schema([])))


def _as_in_files(columns: pa.Schema) -> pa.Schema:
    """The columns as they are read from a file; their ids are in their metadata."""
    file = pa.BufferOutputStream()
    pq.write_table(columns.empty_table(), file)
    return pq.read_schema(pa.BufferReader(file.getvalue()))
