"""The door to Delta Lake: tables by the library, and their log as the protocol defines it.

What the library offers no call for is read from the table's log: which files a commit added and
removed, and which producers (`txn`, the protocol's application transactions) have written. Table
and log are looked at and changed here; nothing is known of inputs, outputs or epochs.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from headrace import files
from headrace.connect.extras import needed

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.[0-9a-zA-Z-]+)*\.(parquet|json)")
_COMMIT = re.compile(r"(\d{20})\.json")
_LOG = "_delta_log"
_SYNCS = 8  # files that are synced at a time
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


class DeltaConflict(Exception):
    """Somebody else's commit came first, and the two do not go together."""


class DeltaFailure(Exception):
    """What the library, or the storage, says; without secrets."""


def library() -> Any:
    return needed("deltalake", "delta", "Delta Lake")


def normal(uri: str) -> str:
    """A place that stays the same when the working folder changes."""
    if uri.startswith("file://"):
        uri = unquote(uri.removeprefix("file://"))
    return uri if _SCHEME.match(uri) else os.path.abspath(os.path.expanduser(uri))


@dataclass
class DeltaPlace:
    """Where a table is, or may be."""

    uri: str  # as of `normal`
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)  # with secrets

    @property
    def local(self) -> Path | None:
        return None if _SCHEME.match(self.uri) else Path(self.uri)

    @contextmanager
    def failures(self) -> Iterator[None]:
        """What the library raises, as one of the two errors above."""
        exceptions = library().exceptions
        try:
            yield
        except exceptions.CommitFailedError as cause:
            raise DeltaConflict(self._clean(cause)) from None
        except (exceptions.DeltaError, OSError, pa.ArrowException, ValueError) as cause:
            raise DeltaFailure(self._clean(cause)) from None

    def _clean(self, cause: Exception) -> str:
        text = " ".join(str(cause).split())
        for value in self.storage.values():
            text = text.replace(value, "***") if len(value) > 3 else text
        return text[:500]

    # the table, by the library

    def exists(self) -> bool:
        with self.failures():
            return bool(library().DeltaTable.is_deltatable(self.uri, dict(self.storage) or None))

    def table(self, version: int | None = None) -> Any:
        with self.failures():
            return library().DeltaTable(
                self.uri, version=version, storage_options=dict(self.storage) or None
            )

    def create(
        self, schema: pa.Schema, partition_by: list[str], properties: Mapping[str, str]
    ) -> None:
        """Make the table, unless it is there."""
        with self.failures():
            library().DeltaTable.create(
                self.uri,
                schema,
                mode="ignore",
                partition_by=partition_by,
                configuration=dict(properties),
                storage_options=dict(self.storage) or None,
            )

    def commit_properties(self, producer: str, epoch: int, note: Mapping[str, Any]) -> Any:
        found = library()
        return found.CommitProperties(
            custom_metadata={
                "headrace": json.dumps({"producer": producer, "epoch": epoch, **note})
            },
            app_transactions=[found.Transaction(producer, epoch)],
        )

    def append(self, table: Any, rows: pa.Table, properties: Any) -> None:
        with self.failures():
            whole = rows.combine_chunks()
            library().write_deltalake(table, whole, mode="append", commit_properties=properties)

    def add_files(self, table: Any, facts: list[dict[str, Any]], properties: Any) -> None:
        """Files that are in the table's folder become a part of it."""
        make = needed("deltalake.transaction", "delta", "Delta Lake").AddAction
        with self.failures():
            table.create_write_transaction(
                [make(**f) for f in facts], "append", table.schema(), commit_properties=properties
            )

    def merge(
        self, table: Any, rows: pa.Table, key: list[str], deletes: str, properties: Any
    ) -> None:
        """Rows replace those of the same key, or delete them where the column `deletes` is true."""
        on = " AND ".join(f"t.{quoted(k)} = s.{quoted(k)}" for k in key)
        gone, here = f"s.{quoted(deletes)}", f"NOT s.{quoted(deletes)}"
        with self.failures():
            merger = table.merge(
                rows, on, source_alias="s", target_alias="t", commit_properties=properties
            )
            merger = merger.when_matched_delete(gone)
            merger = merger.when_matched_update_all(here, except_cols=[deletes])
            merger.when_not_matched_insert_all(here, except_cols=[deletes]).execute()

    def nothing(self, table: Any, properties: Any) -> None:
        """A commit that changes no rows, for its properties."""
        with self.failures():
            table.create_write_transaction(
                [], "append", table.schema(), commit_properties=properties
            )

    def newest(self, table: Any) -> None:
        """Bring a table that was opened before up to date."""
        with self.failures():
            table.update_incremental()

    # its log, as files

    @property
    def filesystem(self) -> pafs.FileSystem:
        """Paths in it are relative to the table."""
        if self.local is not None:
            return pafs.SubTreeFileSystem(str(self.local), pafs.LocalFileSystem())
        handler = needed("deltalake.fs", "delta", "Delta Lake").DeltaStorageHandler
        return pafs.PyFileSystem(handler(self.uri, dict(self.storage) or None))

    def stamp(self, version: int) -> tuple[int, int] | None:
        """What tells a commit from another of the same version; None if it is not there."""
        with self.failures():
            info = self.filesystem.get_file_info(_commit(version))
        if info.type == pafs.FileType.NotFound:
            return None
        return info.size, info.mtime_ns or 0

    def commit(self, version: int) -> list[dict[str, Any]] | None:
        """The actions of a commit; None if there is none, or its file was cleaned up."""
        try:
            with self.failures():
                if self.stamp(version) is None:
                    return None
                with self.filesystem.open_input_stream(_commit(version)) as file:
                    content = file.read()
        except DeltaFailure:
            if self.stamp(version) is None:
                return None
            raise
        return [json.loads(line) for line in content.splitlines() if line.strip()]

    def oldest_commit(self) -> int | None:
        """The oldest commit whose file is still there."""
        numbers = [int(m[1]) for name in self._log_names() if (m := _COMMIT.fullmatch(name))]
        return min(numbers, default=None)

    def producers(self, version: int) -> dict[str, int]:
        """All application transactions of the table as of `version`."""
        names = sorted(self._log_names())
        checkpoints = [(int(m[1]), n) for n in names if (m := _CHECKPOINT.fullmatch(n))]
        base = max((v for v, _ in checkpoints if v <= version), default=-1)
        found: dict[str, int] = {}
        for number, name in checkpoints:
            if number == base:
                found.update(self._checkpoint(name))
        for number in range(base + 1, version + 1):
            actions = self.commit(number)
            if actions is None:
                raise DeltaFailure(f"the file of commit {number} in {_LOG} is missing")
            found.update(producers_in(actions))
        return found

    def _checkpoint(self, name: str) -> dict[str, int]:
        with self.failures(), self.filesystem.open_input_file(f"{_LOG}/{name}") as file:
            if name.endswith(".json"):
                lines = file.read().splitlines()
                return producers_in([json.loads(line) for line in lines if line.strip()])
            parquet = pq.ParquetFile(file)
            if "txn" not in parquet.schema_arrow.names:
                return {}
            rows = parquet.read(["txn"]).column("txn").drop_null().to_pylist()
        return {r["appId"]: r["version"] for r in rows}

    def _log_names(self) -> list[str]:
        with self.failures():
            found = self.filesystem.get_file_info(pafs.FileSelector(_LOG, allow_not_found=True))
        return [os.path.basename(info.path) for info in found]

    def sync(self, first: int, last: int) -> None:
        """Make commits and the files they added durable: the library leaves that to the system."""
        if self.local is None:
            return
        paths = []
        for version in range(first, last + 1):
            paths.append(self.local / _commit(version))
            for action in self.commit(version) or ():
                added = action.get("add") or action.get("cdc")
                if added is not None and not _SCHEME.match(added["path"]):
                    paths.append(self.local / unquote(added["path"]))
        folders = {self.local, self.local / _LOG, *(path.parent for path in paths)}
        with ThreadPoolExecutor(_SYNCS) as threads:  # a disk syncs many at a time
            list(threads.map(_sync_file, paths))
            list(threads.map(files.sync_folder, folders))


def _sync_file(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # somebody's OPTIMIZE and VACUUM, meanwhile
    try:
        files.sync(handle)
    finally:
        os.close(handle)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def producers_in(actions: list[dict[str, Any]]) -> dict[str, int]:
    """The application transactions of a commit."""
    return {a["txn"]["appId"]: a["txn"]["version"] for a in actions if a.get("txn")}


def note_of(actions: list[dict[str, Any]]) -> dict[str, Any]:
    """What `commit_properties` has put into a commit; empty if it is somebody else's."""
    for action in actions:
        text = (action.get("commitInfo") or {}).get("headrace")
        if isinstance(text, str):
            found: dict[str, Any] = json.loads(text)
            return found
    return {}


def _commit(version: int) -> str:
    return f"{_LOG}/{version:020d}.json"
