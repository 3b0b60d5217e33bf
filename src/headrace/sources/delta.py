"""A Delta Lake table as an input, by its log.

A commit adds files, and may remove some. Files that are added without a change of data (OPTIMIZE)
are passed over. With `changes`, what a commit removes are retracted rows: by its change data files
if it has any, else by the files themselves. The order of files is that of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.connect.delta import DeltaFailure, DeltaPlace, normal
from headrace.errors import InputError
from headrace.sources.columns import fit, plain
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

_TYPE = "_change_type"  # a column of change data files
_GONE = pa.array(["delete", "update_preimage"])
_MAPPING = "delta.columnMapping.mode"


class DeltaSource(LakeSource):
    def __init__(self, o: InputRequest, place: DeltaPlace, table: Any) -> None:
        self._place, self._id = place, table.metadata().id
        self._partitions = columns_of(table)  # types of what the log has as texts
        super().__init__(o, read_schema(o, self.what, self._partitions))

    @property
    def what(self) -> str:
        return f"Delta table {self._place.uri!r}"

    def identity(self) -> dict[str, str]:
        return {"kind": "delta", "place": self._place.uri, "thing": str(self._id)}

    def check_table(self) -> None:
        with self._as_input():
            table = self._place.table()
            metadata = table.metadata()
        if metadata.id != self._id:
            raise self.made_again()
        self._fit(table)

    def _fit(self, table: Any, before: int | None = None) -> pa.Schema:
        """The columns that the table has in this version; an error if they do not fit.

        Those that were added later may be missing, they are null: the table has them now, and
        had not got them in the version `before`."""
        if table.metadata().configuration.get(_MAPPING, "none") != "none":
            raise self.unreadable("maps its columns to other names (delta.columnMapping.mode)")
        there = columns_of(table)
        fields = [f for f in self.schema if not (self._changes and f.name == CHANGE)]
        missing = {f.name for f in fields} - set(there.names)
        if missing and before is not None:
            later = missing & set(columns_of(self._place.table()).names)
            if before >= 0:
                later -= set(columns_of(self._place.table(before)).names)
            fields = [f for f in fields if f.name not in later]
        fit(self.what, there, pa.schema(fields))
        return there

    def newest(self, known: int | None) -> int:
        """Commits are cleaned up from the oldest on: if that of `known` is there, the next one
        is there, or has not been made yet."""
        with self._as_input():
            if known is None or self._place.stamp(known) is None:
                known = int(self._place.table().version())
            while self._place.stamp(known + 1) is not None:
                known += 1
        return known

    def load(self, number: int) -> LakeStep:
        version = number // 2
        with self._as_input():
            if number == snapshot_of(version):
                return LakeStep(number, tuple(self._snapshot(version)))
            actions = self._place.commit(version)
        if actions is None:
            raise self.expired(f"the commit of version {version}")
        if any(a.get("metaData") for a in actions):
            with self._as_input():
                self._partitions = self._fit(self._place.table(version), version - 1)
        return LakeStep(number, tuple(self._commit(version, actions)))

    def _snapshot(self, version: int) -> Iterator[LakeFile]:
        try:
            table = self._place.table(version)
        except DeltaFailure as cause:
            raise self.expired(f"version {version} ({cause})") from None
        self._fit(table, -1)
        if pa.table(table.deletion_vectors()).num_rows:
            raise self.unreadable("has deletion vectors")
        change = ADDED if self._changes else None
        files = pa.table(table.get_add_actions()).to_pylist()
        for file in sorted(files, key=lambda f: str(f["path"])):
            values = tuple((file.get("partition") or {}).items())
            path = unquote(file["path"])
            yield LakeFile(path, self._rows(path, file["num_records"]), change, values)

    def _commit(self, version: int, actions: list[dict[str, Any]]) -> Iterator[LakeFile]:
        changed = {
            kind: [a[kind] for a in actions if a.get(kind) and a[kind].get("dataChange", True)]
            for kind in ("remove", "add")
        }
        if any(f.get("deletionVector") for files in changed.values() for f in files):
            raise self.unreadable(f"has deletion vectors, as of version {version}")
        if changed["remove"] and not self._changes:
            raise self.rewritten(version, "removes or rewrites data")
        data = [a["cdc"] for a in actions if a.get("cdc")]
        read = data if self._changes and data else changed["remove"] + changed["add"]
        if any(f.get("partitionValues") is None for f in read):  # which is optional
            with self._as_input():
                tables = [self._place.table(v) for v in (version, version - 1) if v >= 0]
            if any(t.metadata().partition_columns for t in tables):
                raise self.unreadable(f"does not state partitions of files of version {version}")
        if self._changes and data:
            yield from (self._piece(f, None) for f in data)
            return
        yield from (self._piece(f, GONE) for f in changed["remove"])
        yield from (self._piece(f, ADDED if self._changes else None) for f in changed["add"])

    def _piece(self, file: dict[str, Any], change: str | None) -> LakeFile:
        path, stats = unquote(file["path"]), json.loads(file.get("stats") or "{}")
        kinds = {f.name: f.type for f in self._partitions}
        values = {k: _value(v, kinds[k]) for k, v in (file.get("partitionValues") or {}).items()}
        return LakeFile(
            path, self._rows(path, stats.get("numRecords")), change, tuple(values.items())
        )

    def _rows(self, path: str, stated: int | None) -> int:
        if stated is not None:
            return int(stated)
        with self._opened(path) as file:
            return int(file.metadata.num_rows)

    def tables(self, piece: LakeFile, start: int, end: int) -> Iterator[pa.Table]:
        with self._opened(piece.path) as file:
            inside = file.schema_arrow.names
            wanted = [n for n in self.schema.names if n in inside]
            says = self._changes and piece.change is None
            read = [*wanted, _TYPE] if says else wanted
            for rows in parquet_rows(file, read, start, end):
                yield self._whole(rows, piece, says)

    def _whole(self, batch: pa.RecordBatch, piece: LakeFile, says: bool) -> pa.Table:
        """The columns of the schema: those of the file, of the partition, and null ones."""
        columns, constant = {}, dict(piece.values)
        for field in self.schema:
            if self._changes and field.name == CHANGE:
                if says:
                    gone = pc.is_in(batch.column(_TYPE).cast(pa.string()), _GONE)
                    columns[CHANGE] = pc.if_else(gone, GONE, ADDED)
                else:
                    columns[CHANGE] = pa.repeat(piece.change, batch.num_rows)
            elif field.name in batch.schema.names:
                columns[field.name] = batch.column(field.name)
            elif constant.get(field.name) is not None:
                columns[field.name] = pa.repeat(pa.scalar(constant[field.name]), batch.num_rows)
            else:
                columns[field.name] = pa.nulls(batch.num_rows, field.type)
        return pa.table(columns)

    @contextmanager
    def _opened(self, path: str) -> Iterator[pq.ParquetFile]:
        local = self._place.local
        try:
            source = None if local is None else str(local / path)
            with pq.ParquetFile(
                source or self._place.filesystem.open_input_file(path), memory_map=bool(source)
            ) as file:
                yield file
        except FileNotFoundError:
            raise self.expired(f"the file {path!r}") from None
        except (pa.ArrowException, OSError, ValueError) as cause:
            raise InputError(
                "HR-LAKE-013",
                f"{path!r} of {self.what} cannot be read: {cause}",
                "The table was damaged: restore it, or repair its log.",
            ) from cause

    @contextmanager
    def _as_input(self) -> Iterator[None]:
        with failures(self.what):
            yield


@contextmanager
def failures(what: str) -> Iterator[None]:
    try:
        yield
    except DeltaFailure as cause:
        raise InputError(
            "HR-LAKE-010",
            f"{what} cannot be read: {cause}",
            "Check the place, its permissions and storage_options=; then start the job again.",
        ) from None


def columns_of(table: Any) -> pa.Schema:
    schema = pa.schema(table.schema().to_arrow())
    return pa.schema([pa.field(f.name, plain(f.type), f.nullable) for f in schema])


def _value(text: str | None, kind: pa.DataType) -> Any:
    """A partition's value, which the log has as text."""
    if text is None or text == "":
        return None
    if pa.types.is_timestamp(kind):
        text = text.replace("T", " ").removesuffix("Z")
        naive = pa.array([text]).cast(pa.timestamp("us"))
        return pc.assume_timezone(naive, "UTC")[0].as_py() if kind.tz else naive[0].as_py()
    if pa.types.is_string(kind):
        return text
    return pa.array([text]).cast(kind)[0].as_py()


def check_delta(o: InputRequest) -> None:
    refuse_unknown(o, ("version", "start", "changes", "storage_options"))
    check_input_options(o)


def open_delta(o: InputRequest) -> Source:
    check_delta(o)
    storage = o.options.get("storage_options") or {}
    place = DeltaPlace(normal(o.rest), dict(storage))
    what = f"Delta table {place.uri!r}"
    with failures(what):
        if not place.exists():
            raise InputError(
                "HR-LAKE-010", f"there is no {what}", "Create it first, or correct the path."
            )
        table = place.table(o.options.get("version") if o.schema is None else None)
    return DeltaSource(o, place, table)
