"""An Iceberg table as an output: an epoch is a commit, recorded in the table's properties.

A commit adds rows and sets the property of its producer, both or neither. It holds only on the
snapshot that was looked at: if somebody else was first, one looks again. Each commit makes a
snapshot, even if it changes no row, so two of one epoch cannot pass each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from headrace.connect.iceberg import (
    Content,
    IcebergConflict,
    IcebergFailure,
    IcebergPlace,
    check_ids,
    columns_of,
    local_path,
    part,
)
from headrace.errors import OutputError
from headrace.sinks.columns import packed
from headrace.sinks.contract import (
    Description,
    OutputKind,
    OutputRequest,
    Reached,
    Reference,
    Sink,
    Timelines,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.iceberg_files import LOCATION, IcebergFiles, takes_files
from headrace.sinks.lakes import CHANGE, DELETES, RETRIES, LakeSink, check_options, texts
from headrace.state.faults import point

_OPTIONS = ("mode", "key", "partition_by", "properties", "catalog")
_PRODUCER = "headrace.producer."  # of table properties; at rest


class IcebergSink(LakeSink):
    because = "an epoch is one commit of the table, which holds its number"

    def __init__(self, o: OutputRequest) -> None:
        super().__init__(o)
        self._place = IcebergPlace(o.rest, o.options.get("catalog", "default"))
        self._properties = texts(o, "properties")
        self._there: pa.Schema | None = None
        self._files: IcebergFiles | None = None

    @property
    def what(self) -> str:
        return f"Iceberg table {self._place.name!r}"

    def describe(self) -> Description:
        options: dict[str, Any] = {"table": self._place.name, "catalog": self._place.shown}
        if self._upserts or self._appends:
            options["mode"] = "upsert" if self._upserts else "append"
        for option, value in (
            ("partition_by", self._partition_by),
            ("properties", dict(self._properties)),
        ):
            options |= {option: value} if value else {}
        return {
            "kind": "iceberg",
            "place": self._place.label,
            "format": None,
            "key": self._key or None,
            "options": options,
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        self.check_columns()
        with self._as_output():
            table = self._place.table()
        if table is not None:
            parts = [f.name for f in table.spec().fields if str(f.transform) == "identity"]
            if self._partition_by and parts != self._partition_by:
                raise OutputError(
                    "HR-LAKE-004",
                    f"{self.what} is partitioned by {', '.join(parts) or 'nothing'}, not by "
                    f"{', '.join(self._partition_by)} (output {self._name!r})",
                    "Leave partition_by out, or write to another table.",
                )
            self.check_owner()

    def open(self) -> None:
        with self._as_output():
            self._place.create(self._columns, self._partition_by, self._properties)
        self._there = self._files = None
        self.check_columns()
        with self._as_output():
            table = self._place.table()
        self._takes_files = self.files() is not None and takes_files(table)

    def table_schema(self) -> pa.Schema | None:
        if self._there is None:
            with self._as_output():
                table = self._place.table()
                if table is not None:
                    self._there = columns_of(table)
        return self._there

    def files(self) -> IcebergFiles | None:
        if self._files is None and not self._upserts:
            with self._as_output():
                table = self._place.table()
            local = None if table is None else local_path(table.location())
            if local is not None:
                self._files = IcebergFiles(table.location(), local, self._identity, self._id)
        return self._files

    def partitions(self) -> list[str]:
        with self._as_output():
            table = self._place.table()
            if table is None:
                return self._partition_by
            fields = [f for f in table.spec().fields if str(f.transform) == "identity"]
            return [str(table.schema().find_column_name(f.source_id)) for f in fields]

    def records(self, rows: pa.Table) -> pa.Table:
        typed = super().records(rows)
        if partitions := self.partitions():
            with self._as_output():
                table = self._place.table()
            if table is None or local_path(table.location()) is not None:
                self.check_folders(typed, partitions)
        return typed

    def producers(self) -> Mapping[str, int]:
        with self._as_output():
            table = self._place.table()
        return {} if table is None else {p: e for p, (e, _) in _recorded(table).items()}

    def reached(self, epoch: int) -> bool:
        held = self.held()
        return held is not None and held.number >= epoch

    def beyond(self, timelines: Timelines) -> Reached:
        return timelines.beyond(self.held_of(self.producers()).all)

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        columns = pa.schema(f for f in rows.schema if f.name != CHANGE or not self._changes)
        rows, gone = self._changes_of(rows)
        self._deliver(producer, epoch, lambda table: self._checked(table, columns, rows), gone)

    def _checked(self, table: Any, columns: pa.Schema, rows: pa.Table) -> pa.Table:
        """The rows, if the table has their columns, and those that it had when it was opened."""
        there, own = columns_of(table), self.table_schema() or pa.schema([])
        check_ids(columns, there)
        check_ids(pa.schema(f for f in own if f.name in columns.names), there)
        return rows

    def deliver_files(self, staged: list[Reference], producer: str, epoch: int) -> None:
        files = self._files_of(staged)
        content = self._deliver(producer, epoch, lambda table: files.content(table, staged))
        if content is not None:
            files.clear(staged, isinstance(content, list))

    def _files_of(self, staged: list[Reference]) -> IcebergFiles:
        """As of where the table was when the files were staged; or is, if they have moved along."""
        now = self.files()
        location = staged[0].get(LOCATION)  # none if an earlier version has staged them
        local = None if location is None else local_path(str(location))
        if local is None:
            if now is None:
                with self._as_output():
                    raise IcebergFailure("it is no longer where its staged files are")
            return now
        then = IcebergFiles(str(location), local, self._identity, self._id)
        return now if now is not None and not then.has(staged) and now.has(staged) else then

    def _deliver(
        self,
        producer: str,
        epoch: int,
        content: Callable[[Any], Content],
        gone: pa.Table | None = None,
    ) -> Content | None:
        """Commit an epoch, unless it is recorded; again if another commit was first."""
        for _ in range(RETRIES):
            with self._as_output():
                table = self._place.table()
                if table is None:
                    raise IcebergFailure("it is gone")
                known, noted = _recorded(table).get(producer, (-1, ""))
                if known == epoch and noted != self._digest:
                    raise self.conflict(epoch)
                if known >= epoch:
                    return None
                try:
                    made = content(table)
                    self._commit(table, made, gone, producer, epoch)
                    return made
                except IcebergConflict as cause:
                    why = str(cause)
        raise self.refused(RETRIES, why)

    def _changes_of(self, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        if not self._upserts:
            return rows, None
        changed = self.changed(rows)
        held = changed.filter(pa.compute.invert(changed.column(DELETES)))
        return held.drop_columns([DELETES]), changed.select(self._key)

    def _commit(
        self, table: Any, content: Content, gone: pa.Table | None, producer: str, epoch: int
    ) -> None:
        snapshot = table.current_snapshot()
        before = None if snapshot is None else snapshot.snapshot_id
        point("sink.lake.looked")
        self._place.commit(
            table,
            content,
            gone,
            {f"{_PRODUCER}{producer}": f"{epoch}:{self._digest}"},
            {"headrace.producer": producer, "headrace.epoch": str(epoch)},
        )
        point("sink.lake.committed")
        with self._place.failures():
            self._place.sync(table, before)

    @contextmanager
    def _as_output(self) -> Iterator[None]:
        try:
            yield
        except (IcebergFailure, IcebergConflict) as cause:
            raise OutputError(
                "HR-LAKE-001",
                f"{self.what} cannot be used (output {self._name!r}): {cause}",
                "Check the catalog, the table and permissions; then start the job again.",
            ) from None


def _recorded(table: Any) -> dict[str, tuple[int, str]]:
    """By producer: the last epoch, and what tells its rows from others."""
    found = {}
    for name, value in table.properties.items():
        if name.startswith(_PRODUCER):
            epoch, _, digest = str(value).partition(":")
            found[name.removeprefix(_PRODUCER)] = (int(epoch), digest)
    return found


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, _OPTIONS)
    check_options(o)
    texts(o, "properties")
    if not isinstance(o.options.get("catalog", "default"), str):
        texts(o, "catalog")
    namespace, _, table = o.rest.rpartition(".")
    if not namespace or not table:
        raise OutputError(
            "HR-OUTPUT-001",
            f"{o.uri!r} names no table",
            'Give namespace and table: "iceberg:sales.orders".',
        )
    if (o.options.get("properties") or {}).keys() & {_PRODUCER}:
        raise bad_option(o, "properties", _PRODUCER, "That name is used by outputs.")
    part()


def _open(o: OutputRequest) -> Sink:
    return IcebergSink(o)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    """Secrets are not stored: what is missing comes from the environment."""
    options = {k: v for k, v in about["options"].items() if k != "table"}
    return about["options"]["table"], options | ({"key": about["key"]} if about["key"] else {})


ICEBERG = OutputKind(_check, _open, _reopen)
