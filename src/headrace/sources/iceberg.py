"""An Iceberg table as an input, by the snapshots of its main branch.

A version is a sequence number. A snapshot that appends adds rows; one that replaces files
(compaction) changes none, and is passed over. With `changes`, files that a snapshot removes are
retracted rows. Columns are found by their ids, so they may be renamed in the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connect.iceberg import (
    IcebergConflict,
    IcebergFailure,
    IcebergPlace,
    columns_of,
    local_path,
    part,
)
from headrace.errors import InputError
from headrace.sources.columns import fit, missing_column, plain
from headrace.sources.contract import InputRequest, Source, refuse_unknown
from headrace.sources.lakes import (
    ADDED,
    CHANGE,
    GONE,
    LakeFile,
    LakeSource,
    LakeStep,
    check_input_options,
    parquet_rows,
    read_schema,
    snapshot_of,
)

_ID = b"PARQUET:field_id"


class IcebergSource(LakeSource):
    def __init__(self, o: InputRequest, place: IcebergPlace, table: Any) -> None:
        self._place, self._id = place, str(table.metadata.table_uuid)
        self._ids = columns_of(table)
        self._files = dict(table.io.properties)  # how its files are opened, with secrets
        self._location = table.metadata.location
        self._last: Any = None  # the snapshot that was the newest at the last look
        super().__init__(o, read_schema(o, self.what, plain_columns(self._ids)))

    @property
    def what(self) -> str:
        return f"Iceberg table {self._place.name!r}"

    def identity(self) -> dict[str, str]:
        return {"kind": "iceberg", "place": self._place.label, "thing": self._id}

    def _table(self) -> Any:
        with self._as_input():
            table = self._place.table()
            if table is None:
                raise IcebergFailure("it is gone")
        if str(table.metadata.table_uuid) != self._id:
            raise self.made_again()
        if table.format_version != 2:
            raise self.unreadable(f"has format version {table.format_version}, not 2")
        return table

    def check_table(self) -> None:
        fields = [f for f in self.schema if not (self._changes and f.name == CHANGE)]
        fit(self.what, plain_columns(columns_of(self._table())), pa.schema(fields))

    def newest(self, known: int | None) -> int:
        table = self._table()
        snapshot = table.current_snapshot()
        if snapshot is None:
            return 0 if known is None else known
        if self._last is not None and self._last.snapshot_id != snapshot.snapshot_id:
            self._check_follows(table, self._last)
        self._last = snapshot
        return max(int(snapshot.sequence_number), known or 0)

    def _check_follows(self, table: Any, last: Any) -> None:
        """Raise unless the main branch has grown from a snapshot, as far as it is there."""
        line = list(_line(table))
        if last.snapshot_id in (s.snapshot_id for s in line):
            return
        if line[-1].sequence_number < last.sequence_number:
            raise self.rewritten(last.sequence_number, "was rolled back")
        if line[-1].parent_snapshot_id != last.snapshot_id:
            raise self.expired(f"what followed version {last.sequence_number}")

    def check_history(self, version: int) -> None:
        """A sequence number is used once: a snapshot of the main branch must have it still."""
        for snapshot in _line(self._table()):
            if snapshot.sequence_number == version:
                return
            if snapshot.sequence_number < version:
                raise self.rewritten(version, "was rolled back")

    def load(self, number: int) -> LakeStep:
        version, table = number // 2, self._table()
        snapshot = self._snapshot_at(table, version)
        if snapshot is None and number == snapshot_of(version) and version:
            if version == self._options.get("version"):
                raise self.expired(f"the snapshot of version {version}")
            raise self.rewritten(version, "was rolled back")
        if snapshot is None:
            return LakeStep(number, ())
        self._check_ids(columns_of(table))
        with self._as_input():
            if number == snapshot_of(version):
                return LakeStep(number, tuple(self._snapshot(table, snapshot)))
            return LakeStep(number, tuple(self._commit(table, snapshot)))

    def _check_ids(self, there: pa.Schema) -> None:
        """Raise if a column that is read was dropped; another of its name is not the same."""
        by_id = {f.metadata[_ID]: f for f in there}
        for field in self._ids:
            if field.name not in self.schema.names:
                continue
            now = by_id.get(field.metadata[_ID])
            if now is None:
                others = [f.name for f in there if f.name != field.name]
                raise missing_column(self.what, field.name, others)
            if not _same_ids(field.type, now.type):
                raise self.unreadable(f"has dropped or renamed a field in column {field.name!r}")

    def _snapshot_at(self, table: Any, version: int) -> Any:
        """The snapshot of a version on the main branch; None if that version was no commit."""
        for snapshot in _line(table):
            if snapshot.sequence_number == version:
                return snapshot
            if snapshot.sequence_number < version:
                return None
        if version == 0:
            return None
        # the oldest snapshot that is there is younger, whatever its parent was
        raise self.expired(f"the snapshot of version {version}")

    def _snapshot(self, table: Any, snapshot: Any) -> Iterator[LakeFile]:
        change, found = (ADDED if self._changes else None), []
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files():
            if task.delete_files:
                raise self.unreadable("has delete files (merge on read)")
            found.append(task.file)
        for file in sorted(found, key=lambda f: str(f.file_path)):
            yield self._file(file, change)

    def _commit(self, table: Any, snapshot: Any) -> Iterator[LakeFile]:
        operation = snapshot.summary.operation.value if snapshot.summary else "append"
        if operation == "replace":
            return
        if operation != "append" and not self._changes:
            raise self.rewritten(snapshot.sequence_number, "removes or rewrites data")
        entries = list[Any]()
        for manifest in snapshot.manifests(table.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            if manifest.content.name != "DATA":
                raise self.unreadable("has delete files (merge on read)")
            entries += manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        for status, change in (("DELETED", GONE), ("ADDED", ADDED)):
            for entry in entries:
                own = entry.snapshot_id in (None, snapshot.snapshot_id)
                if own and entry.status.name == status:
                    yield self._file(entry.data_file, change if self._changes else None)

    def _file(self, file: Any, change: str | None) -> LakeFile:
        if file.file_format.value.upper() != "PARQUET":
            raise self.unreadable(f"has files in the format {file.file_format.value}")
        return LakeFile(str(file.file_path), int(file.record_count), change)

    def tables(self, piece: LakeFile, start: int, end: int) -> Iterator[pa.Table]:
        with self._opened(piece.path) as file:
            names = self._names(file.schema_arrow)
            wanted = [n for n in self.schema.names if n in names]
            for batch in parquet_rows(file, [names[n] for n in wanted], start, end):
                columns = {n: batch.column(names[n]) for n in wanted}
                for field in self.schema:
                    if self._changes and field.name == CHANGE:
                        columns[CHANGE] = pa.repeat(piece.change, batch.num_rows)
                    elif field.name not in columns:
                        columns[field.name] = pa.nulls(batch.num_rows, field.type)
                yield pa.table({n: columns[n] for n in self.schema.names})

    def _names(self, inside: pa.Schema) -> Mapping[str, str]:
        """By column of the table: what it is called in a file."""
        if not any(_ID in (f.metadata or {}) for f in inside):
            raise self.unreadable("has files without the ids of columns (add_files)")
        by_id = {f.metadata[_ID]: f for f in inside if _ID in (f.metadata or {})}
        found = {}
        for field in self._ids:
            there = by_id.get(field.metadata[_ID])
            if there is not None:
                if not _same_ids(there.type, field.type):
                    raise self.unreadable(f"has renamed a field in column {field.name!r}")
                found[field.name] = there.name
        return found

    @contextmanager
    def _opened(self, path: str) -> Iterator[pq.ParquetFile]:
        local = local_path(path)
        try:
            if local is None:
                io = part("pyiceberg.io").load_file_io(self._files, self._location)
                source: Any = io.new_input(path).open(seekable=True)
            else:
                source = str(local)
            with pq.ParquetFile(source, memory_map=local is not None) as file:
                yield file
        except FileNotFoundError:
            raise self.expired(f"the file {path!r}") from None
        except (pa.ArrowException, OSError, ValueError) as cause:
            raise InputError(
                "HR-LAKE-013",
                f"{path!r} of {self.what} cannot be read: {cause}",
                "The table was damaged: restore it, or repair its metadata.",
            ) from cause

    @contextmanager
    def _as_input(self) -> Iterator[None]:
        with failures(self._place, self.what):
            yield


@contextmanager
def failures(place: IcebergPlace, what: str) -> Iterator[None]:
    try:
        with place.failures():
            yield
    except (IcebergFailure, IcebergConflict) as cause:
        raise InputError(
            "HR-LAKE-010",
            f"{what} cannot be read: {cause}",
            "Check the catalog, the table and permissions; then start the job again.",
        ) from None


def _line(table: Any) -> Iterator[Any]:
    """The snapshots of the main branch, the newest first, as far as they are there."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def _same_ids(inside: pa.DataType, there: pa.DataType) -> bool:
    """Whether fields within a column that have one name are the same field."""
    if pa.types.is_struct(inside) and pa.types.is_struct(there):
        ids = {f.name: f for f in there}
        return all(
            f.name in ids
            and (f.metadata or {}).get(_ID) == (ids[f.name].metadata or {}).get(_ID)
            and _same_ids(f.type, ids[f.name].type)
            for f in inside
        )
    if pa.types.is_map(inside) and pa.types.is_map(there):
        return _same_ids(inside.item_type, there.item_type)
    if hasattr(inside, "value_type") and hasattr(there, "value_type"):
        return _same_ids(inside.value_type, there.value_type)
    return not pa.types.is_nested(inside)


def plain_columns(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, plain(f.type), f.nullable) for f in schema])


def check_iceberg(o: InputRequest) -> None:
    refuse_unknown(o, ("version", "start", "changes", "catalog"))
    check_input_options(o)
    catalog = o.options.get("catalog", "default")
    valid = isinstance(catalog, str) or (
        isinstance(catalog, Mapping) and all(isinstance(v, str) for v in catalog.values())
    )
    if not valid:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has catalog= that is no name and no dict of texts",
            'Pass catalog={"type": "sql", "uri": ...}, or the name of one that is configured.',
        )


def open_iceberg(o: InputRequest) -> Source:
    check_iceberg(o)
    catalog = o.options.get("catalog", "default")
    place = IcebergPlace(o.rest, catalog if isinstance(catalog, str) else dict(catalog))
    what = f"Iceberg table {place.name!r}"
    with failures(place, what):
        table = place.table()
    if table is None:
        raise InputError(
            "HR-LAKE-010", f"there is no {what}", "Create it first, or correct the name."
        )
    return IcebergSource(o, place, table)
