"""Columns that the names of folders hold: `day=2026-01-01/area=a`, as of Hive, Spark, our output.

With `partition_by=["day", "area"]` the files of a folder are those in folders of these columns,
one within the other. Each value has the type that the schema declares for its column, or is text.
A layout of files reads what they hold, and this one around it adds what their path says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from headrace.errors import InputError
from headrace.partition_paths import can_partition, column_of, is_column, value_of
from headrace.schema import ddl_type
from headrace.sources.contract import Chunk, Decoded, InputRequest
from headrace.sources.layout import Extent, FileLayout, Mark
from headrace.sources.scan import PathPattern

_PATH = b"headrace.folders"  # metadata of a raw chunk: the path of its file


def folder_columns(o: InputRequest) -> tuple[str, ...]:
    """The columns that partition_by names."""
    names = o.options.get("partition_by")
    listed = [names] if isinstance(names, str) else names
    if names is None:
        return ()
    if (
        not isinstance(listed, list | tuple)
        or not listed
        or not all(isinstance(n, str) and is_column(n) for n in listed)
        or len(set(listed)) != len(listed)
    ):
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has partition_by={names!r}",
            'Name the columns in the order of the folders: partition_by=["day", "area"].',
        )
    return tuple(listed)


def below(pattern: PathPattern, names: Sequence[str]) -> PathPattern:
    """The files in the folders of these columns."""
    if pattern.single or pattern.match:
        raise InputError(
            "HR-INPUT-013",
            f"{pattern.uri!r} has partition_by, and is not a folder",
            "Give the folder in which the folders of the first column are.",
        )
    return replace(pattern, match=str(Path(*(f"{n}=*" for n in names), "*")), suffixes=None)


def with_folder_columns(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The columns of the files and, as text, those of their folders."""
    fields = [f for f in schema if f.name not in names]
    return pa.schema([*fields, *(pa.field(n, pa.string()) for n in names)])


def of_files(uri: str, schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The columns that files must have themselves, of those that are declared."""
    fields = [f for f in schema if f.name not in names]
    for field in schema:
        if field.name in names and not can_partition(field.type):
            raise InputError(
                "HR-INPUT-006",
                f"column {field.name!r} of {uri!r} is {ddl_type(field.type)}, and is read from the "
                "names of folders",
                "Declare it as text, whole number, date or boolean, and cast it in the program.",
            )
    if not fields:
        raise InputError(
            "HR-INPUT-006",
            f"{uri!r} has no column but those of partition_by",
            "Declare at least one column that the files hold.",
        )
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class InFolders:
    """Files in folders whose names hold columns."""

    files: FileLayout
    schema: pa.Schema  # all columns
    names: tuple[str, ...]

    @property
    def raw(self) -> bool:
        return self.files.raw

    @property
    def least(self) -> int:
        return self.files.least

    def settles(self, path: str) -> bool:
        return self.files.settles(path)

    def begin(self, path: str, size: int, whole: bool) -> int | None:
        self._values(path, 0)
        return self.files.begin(path, size, whole)

    def reach(self, path: str, start: int, size: int, whole: bool) -> int:
        return self.files.reach(path, start, size, whole)

    def mark(self, path: str, end: int) -> Mark:
        return self.files.mark(path, end)

    def verify(self, path: str, extent: Extent) -> None:
        self.files.verify(path, extent)

    def weight(self, path: str, start: int) -> float:
        return self.files.weight(path, start)

    def align(self, path: str, position: int, start: int, end: int) -> int:
        return self.files.align(path, position, start, end)

    def read(self, path: str, extent: Extent, at: int) -> Iterator[Chunk]:
        for chunk, offsets in self.files.read(path, extent, at):
            if not self.raw:
                yield self._whole(chunk, path), offsets
                continue
            folder = str(Path(path).parent).encode("utf-8", "surrogateescape")
            metadata = {**(chunk.schema.metadata or {}), _PATH: folder + b"/"}
            yield chunk.replace_schema_metadata(metadata), offsets

    def decode(self, chunk: pa.Table) -> Decoded:
        rows, bad, reasons = self.files.decode(chunk)
        path = chunk.schema.metadata[_PATH].decode("utf-8", "surrogateescape")
        return self._whole(rows, path), bad, reasons

    def first_look(self, path: str, extent: Extent, column: str) -> list[pa.ChunkedArray]:
        if column in self.names:
            return [pa.chunked_array([self._values(path, 1)[column]])]
        return self.files.first_look(path, extent, column)

    def _whole(self, rows: pa.Table, path: str) -> pa.Table:
        """The rows with what their path says, in the order of the columns."""
        values = self._values(path, rows.num_rows)
        columns = {f.name: values.get(f.name) for f in self.schema}
        columns |= dict(zip(rows.column_names, rows.columns, strict=True))
        there = [f for f in self.schema if columns[f.name] is not None]
        known = {f.name: f for f in rows.schema}
        schema = pa.schema([known.get(f.name, f) for f in there])
        return pa.Table.from_arrays([columns[f.name] for f in there], schema=schema)

    def _values(self, path: str, rows: int) -> dict[str, pa.Array]:
        """The columns that the last folders of a path hold, of those that are read."""
        folders = Path(path).parts[: None if path.endswith("/") else -1][-len(self.names) :]
        values = {}
        for name, folder in zip(self.names, folders, strict=True):
            try:
                own, value = value_of(folder)
                if own != name:
                    raise ValueError(f"it is the folder of {own!r}")
                if name in self.schema.names:
                    field = self.schema.field(name)
                    values[name] = column_of(value, field.type, rows)
                    if value is None and not field.nullable:
                        raise ValueError("it stands for null, which the schema does not allow")
            except ValueError as cause:
                raise InputError(
                    "HR-INPUT-072",
                    f"folder {folder!r} of {path!r} does not hold a value of {name!r}: {cause}",
                    "Declare the column as it is in the names of folders (text takes any value), "
                    "or move the folder away.",
                ) from cause
        return values


def refuse_unnamed(pattern: PathPattern) -> None:
    """Raise InputError for a folder that has no files, but folders of values."""
    if pattern.single or pattern.match or not (found := _columns_below(pattern.root)):
        return
    names = ", ".join(f'"{name}"' for name in found)
    raise InputError(
        "HR-INPUT-073",
        f"{pattern.uri!r} has no files of its own, but folders such as "
        f"{found[0] + '=...'!r}: it is partitioned",
        f"Pass partition_by=[{names}]: the names of the folders are read as columns.",
    )


def _columns_below(folder: Path) -> list[str]:
    """The columns of which there are folders, one within the other; none if there are files."""
    names: list[str] = []
    while True:
        try:
            entries = [p for p in sorted(folder.iterdir()) if p.name[0] not in "._"]
        except OSError:
            return names
        if not entries or not all("=" in p.name and p.is_dir() for p in entries):
            return names
        folder = entries[0]
        names.append(folder.name.partition("=")[0])
