"""The door to Apache Iceberg: catalogs, tables and their snapshots, by the library.

The library would repeat a commit that met another by itself, on whatever is there then. Here it
does not: who commits must look first whether the other commit was its own. Nothing is known of
inputs, outputs or epochs.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from headrace import files
from headrace.connect.extras import needed

_RETRIES = "commit.retry.num-retries"
_PLAIN = ("name", "type", "warehouse")  # properties of a catalog that are no secrets
_SHOWN = (*_PLAIN, "uri")  # unless a secret may be within
_MERGE = "commit.manifest-merge.enabled"
_METRICS = "write.metadata.metrics."
_KEYS = 1000  # keys of several columns in one condition: it is a tree of that many branches


# what a commit adds: rows, or Parquet files by their locations
Content: TypeAlias = pa.Table | list[str]


class IcebergConflict(Exception):
    """Somebody else's commit came first."""


class IcebergFailure(Exception):
    """What the library, the catalog or the storage says; without secrets."""


def part(module: str = "pyiceberg") -> Any:
    return needed(module, "iceberg", "Iceberg")


@dataclass
class IcebergPlace:
    """A table of a catalog, which may not be there yet."""

    name: str  # namespace.table
    catalog: str | Mapping[str, str] = field(repr=False)  # its name, or properties with secrets
    _opened: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    @property
    def shown(self) -> str | dict[str, str]:
        """The catalog without secrets: enough to open it, if they come from the environment."""
        if isinstance(self.catalog, str):
            return self.catalog
        named = {k: v for k, v in self.catalog.items() if k in _SHOWN and v}
        return {k: v for k, v in named.items() if "@" not in v and "?" not in v}

    @property
    def label(self) -> str:
        shown = self.shown
        root = shown if isinstance(shown, str) else shown.get("uri") or shown.get("warehouse", "")
        return f"{root}/{self.name}"

    @contextmanager
    def failures(self) -> Iterator[None]:
        """What the library raises, as one of the two errors above."""
        errors = part("pyiceberg.exceptions")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except (errors.CommitFailedException, errors.CommitStateUnknownException) as cause:
            raise IcebergConflict(self._clean(cause)) from None
        except (IcebergConflict, IcebergFailure):
            raise
        except Exception as cause:  # of catalogs of any kind, with the libraries they need
            if type(cause).__module__.startswith("headrace"):
                raise
            raise IcebergFailure(self._clean(cause)) from None

    def _clean(self, cause: Exception) -> str:
        text = " ".join(f"{type(cause).__name__}: {cause}".split())
        values = [] if isinstance(self.catalog, str) else list(self.catalog.items())
        for key, value in values:
            if len(value) > 3 and (key not in _PLAIN or "@" in value or "?" in value):
                text = text.replace(value, "***")
        return text[:500]

    def _catalog(self) -> Any:
        if self._opened is None:
            load = part("pyiceberg.catalog").load_catalog
            if isinstance(self.catalog, str):
                self._opened = load(self.catalog)
            else:
                rest = {k: v for k, v in self.catalog.items() if k != "name"}
                self._opened = load(self.catalog.get("name", "default"), **rest)
        return self._opened

    def table(self) -> Any:
        """The table as it is now; None if it is not there."""
        missing = part("pyiceberg.exceptions")
        with self.failures():
            try:
                table = self._catalog().load_table(self.name)
            except (missing.NoSuchTableError, missing.NoSuchNamespaceError):
                return None
        return table

    def create(
        self, schema: pa.Schema, partition_by: list[str], properties: Mapping[str, str]
    ) -> None:
        """Make the table, unless it is there."""
        exists = part("pyiceberg.exceptions").TableAlreadyExistsError
        with self.failures():
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
            if catalog.table_exists(self.name):
                return
            try:
                with (
                    catalog.create_table_transaction(
                        self.name, schema=schema, properties=dict(properties)
                    ) as making,
                    making.update_spec() as spec,
                ):
                    for column in partition_by:
                        spec.add_identity(column)
            except exists:
                return

    def commit(
        self,
        table: Any,
        content: Content,
        gone: pa.Table | None,
        properties: Mapping[str, str],
        note: Mapping[str, str],
    ) -> None:
        """One commit: delete the rows with the keys `gone`, add the content, set properties."""
        with self.failures():
            own = {**table.metadata.properties, _RETRIES: "0"}
            try:
                self._commit(table, own, content, gone, properties, note)
            except (ValueError, OverflowError):  # of a value of which the library finds no bound
                self._commit(table, _without_bounds(own), content, gone, properties, note)

    def _commit(
        self,
        table: Any,
        settings: Mapping[str, str],  # of this handle, not of the table
        content: Content,
        gone: pa.Table | None,
        properties: Mapping[str, str],
        note: Mapping[str, str],
    ) -> None:
        table.metadata = table.metadata.model_copy(update={"properties": dict(settings)})
        with table.transaction() as change:
            for condition in [] if gone is None else _conditions(gone):
                change.delete(condition, snapshot_properties=dict(note))
            if isinstance(content, list):
                _add_files(table, change, content, dict(note))
            else:
                change.append(content, snapshot_properties=dict(note))
            change.set_properties(dict(properties))

    def sync(self, table: Any, before: int | None) -> None:
        """Make local files of snapshots after `before` durable, and the table's metadata."""
        paths = [table.metadata_location]
        snapshot = table.current_snapshot()
        while snapshot is not None and snapshot.snapshot_id != before:
            paths.append(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                if manifest.added_snapshot_id == snapshot.snapshot_id:
                    paths.append(manifest.manifest_path)
                    entries = manifest.fetch_manifest_entry(table.io)
                    paths += [e.data_file.file_path for e in entries]
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
        for path in {p for text in paths if (p := local_path(text)) is not None}:
            _sync_file(path)


def _conditions(keys: pa.Table) -> Iterator[Any]:
    """Conditions that hold for exactly the rows with these keys."""
    make = part("pyiceberg.expressions")
    if keys.num_columns == 1 and keys.num_rows:
        yield make.In(keys.column_names[0], keys.column(0).to_pylist())
    elif keys.num_rows:
        match = part("pyiceberg.table.upsert_util").create_match_filter
        for start in range(0, keys.num_rows, _KEYS):
            yield match(keys.slice(start, _KEYS), keys.column_names)


def _add_files(table: Any, change: Any, locations: list[str], note: dict[str, str]) -> None:
    """Add files whose columns have the table's ids; the library's own way takes only others."""
    parquet, made = part("pyiceberg.io.pyarrow"), part("pyiceberg.manifest")
    columns, record = table.schema(), part("pyiceberg.typedef").Record
    stats = parquet.compute_statistics_plan(columns, table.properties)
    counts = parquet.compute_statistics_plan(columns, _without_bounds(table.properties))
    paths = parquet.parquet_path_to_id_mapping(columns)
    merges = str(table.properties.get(_MERGE, "false")).lower() == "true"
    adding = change.update_snapshot(snapshot_properties=note)
    with adding.merge_append() if merges else adding.fast_append() as added:
        for location in locations:
            path = local_path(location)
            assert path is not None
            metadata, described = pq.read_metadata(path), stats
            describe = parquet.data_file_statistics_from_parquet_metadata
            try:
                about = describe(metadata, described, paths).to_serialized_dict()
            except (ValueError, OverflowError):  # of a value that the library cannot cut or convert
                about = describe(metadata, counts, paths).to_serialized_dict()
            for column in _without_some_bounds(metadata, paths):
                about["lower_bounds"].pop(column, None)
                about["upper_bounds"].pop(column, None)
            added.append_data_file(
                made.DataFile.from_args(
                    content=made.DataFileContent.DATA,
                    file_path=location,
                    file_format=made.FileFormat.PARQUET,
                    partition=record(),
                    file_size_in_bytes=path.stat().st_size,
                    sort_order_id=None,
                    spec_id=table.spec().spec_id,
                    equality_ids=None,
                    key_metadata=None,
                    **about,
                )
            )


def _without_some_bounds(metadata: pq.FileMetaData, paths: Mapping[str, int]) -> set[int]:
    """Columns of which a row group has values, and does not say between what: they are too long.

    The library takes the bounds of the other groups for those of the file.
    """
    found = set()
    for number in range(metadata.num_row_groups if metadata.num_row_groups > 1 else 0):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            column = group.column(place)
            told = column.statistics
            if told is None or (told.num_values and not told.has_min_max):
                found.add(paths[column.path_in_schema])
    return found


def _without_bounds(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a table, but that only values and nulls are counted."""
    others = {k: v for k, v in properties.items() if not k.startswith(_METRICS)}
    return {**others, f"{_METRICS}default": "counts"}


def plain_names(table: Any) -> bool:
    """Whether columns are called in files as in the table."""
    columns = table.schema()
    return bool(part("pyiceberg.schema").sanitize_column_names(columns) == columns)


def check_ids(rows: pa.Schema, there: pa.Schema) -> None:
    """Raise unless each column of the rows is the table's of that name.

    The library writes by the ids of columns: under one that the table has no more, or calls
    otherwise, values would be lost, or be those of another column.
    """
    known = _ids(there)
    for name, id in _ids(rows).items():
        if name not in known or id not in (None, known[name]):
            raise IcebergFailure(
                f"its column {name!r} was dropped, renamed or replaced since rows were written"
            )


def _ids(columns: Iterable[pa.Field], within: str = "") -> dict[str, bytes | None]:
    """By name, with the names of what a column is within; None where there is none."""
    found = {}
    for column in columns:
        name = f"{within}{column.name}"
        found[name] = (column.metadata or {}).get(b"PARQUET:field_id")
        inner = [column.type.field(i) for i in range(column.type.num_fields)]
        found |= _ids(inner, f"{name}.")
    return found


def columns_of(table: Any) -> pa.Schema:
    """The table's columns; each field has its id in its metadata."""
    return pa.schema(table.schema().as_arrow())


def local_path(uri: str) -> Path | None:
    """Where a file is; nothing is decoded: "%" is a character of its name, as for the library."""
    parts = urlsplit(uri)
    if parts.scheme == "file":  # "file://a/b" is a place of its own for every library
        return Path(parts.path) if parts.netloc in ("", "localhost") else None
    return None if parts.scheme else Path(uri)


def _sync_file(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # somebody has expired it meanwhile
    try:
        files.sync(handle)
    finally:
        os.close(handle)
    files.sync_folder(path.parent)
