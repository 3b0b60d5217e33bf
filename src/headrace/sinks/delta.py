"""A Delta Lake table as an output: an epoch is a commit, with its producer and number in it.

The commit holds the protocol's application transaction: the producer as its id, the epoch as its
version. The library refuses a commit if another of the same id came first, so an epoch is in the
table once, whoever else writes there. Commits that others make meanwhile are followed by the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connect.delta import (
    DeltaConflict,
    DeltaFailure,
    DeltaPlace,
    library,
    normal,
    note_of,
    producers_in,
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
    refuse_unknown,
)
from headrace.sinks.delta_files import DeltaFiles, by_partition, takes_files
from headrace.sinks.durable import check_writable
from headrace.sinks.lakes import DELETES, RETRIES, LakeSink, check_options, texts
from headrace.state.faults import point

T = TypeVar("T")

_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")  # texts that the library stores as null in partitions
_OPTIONS = ("mode", "key", "partition_by", "properties", "storage_options")


class DeltaSink(LakeSink):
    because = "an epoch is one commit of the table, which holds its number"

    def __init__(self, o: OutputRequest) -> None:
        super().__init__(o)
        self._place = DeltaPlace(normal(o.rest), texts(o, "storage_options"))
        self._properties = texts(o, "properties")
        self._there: pa.Schema | None = None
        self._parts = self._partition_by  # those of the table, once it is there
        local = None if self._upserts else self._place.local
        self._files = None if local is None else DeltaFiles(local, self._identity, self._id)
        self._forget()

    def _forget(self) -> None:
        self._table: Any = None  # as of the last look
        self._seen: dict[str, int] = {}  # its producers, up to version `_upto`
        self._upto = -1
        self._stamp: tuple[int, int] | None = None  # of commit `_upto`

    def __getstate__(self) -> dict[str, Any]:
        gone: dict[str, Any] = {"_table": None, "_seen": {}, "_upto": -1, "_stamp": None}
        return self.__dict__ | gone

    @property
    def what(self) -> str:
        return f"Delta table {self._place.uri!r}"

    def describe(self) -> Description:
        options: dict[str, Any] = {"partition_by": self._partition_by or None}
        if self._upserts or self._appends:
            options["mode"] = "upsert" if self._upserts else "append"
        if self._properties:
            options["properties"] = dict(self._properties)
        return {
            "kind": "delta",
            "place": self._place.uri,
            "format": None,
            "key": self._key or None,
            "options": {k: v for k, v in options.items() if v is not None},
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        if self._place.local is not None:
            check_writable(self._place.local)
        self.check_columns()
        if self.table_schema() is not None:
            self._check_table()
            self.check_owner()

    def open(self) -> None:
        with self._as_output():
            self._place.create(self._columns, self._partition_by, self._properties)
        self._forget()
        self._there = None
        self.check_columns()
        self._look()
        with self._as_output():
            self._takes_files = takes_files(self._table)

    def table_schema(self) -> pa.Schema | None:
        if self._there is None:
            with self._as_output():
                if self._place.exists():
                    table = self._place.table()
                    self._parts = list(table.metadata().partition_columns)
                    self._there = pa.schema(table.schema().to_arrow())
        return self._there

    def partitions(self) -> list[str]:
        self.table_schema()
        return self._parts

    def can_partition(self, kind: pa.DataType) -> bool:
        """Decimals and binary are written into the log as texts that are not their values."""
        whole = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or _is_text(kind)
        return whole or pa.types.is_date(kind) or pa.types.is_timestamp(kind)

    def records(self, rows: pa.Table) -> pa.Table:
        typed, partitions = super().records(rows), self.partitions()
        if self._place.local is not None:
            self.check_folders(typed, partitions)
        for name in partitions:
            texts = typed.column(name)
            if _is_text(texts.type):
                bad = texts.filter(pc.is_in(texts, pa.array(_NULLS, texts.type)))
                if len(bad):
                    raise OutputError(
                        "HR-LAKE-003",
                        f"a row of output {self._name!r} has {bad[0].as_py()!r} in the column "
                        f"{name!r}, by which {self.what} is partitioned: it would be null there",
                        "Leave such rows out, or give them another text; nothing of this batch is "
                        "committed.",
                    )
        return typed

    def _check_table(self) -> None:
        """Refuse what could fail an epoch that is committed already."""
        with self._as_output():
            table = self._place.table()
            metadata, fields = table.metadata(), table.schema().fields
        settings = metadata.configuration
        rules = [k for k in settings if k.startswith("delta.constraints.")]
        rules += [
            f"{rule} of {f.name}"
            for f in fields
            for rule in ("delta.invariants", "delta.generationExpression")
            if rule in (f.metadata or {})
        ]
        if rules:
            raise self._refuse(f"has a rule for its rows, {rules[0]!r}", "Drop the rule")
        if "delta.setTransactionRetentionDuration" in settings:
            raise self._refuse(
                "forgets who has written to it (delta.setTransactionRetentionDuration), so rows "
                "could be in it twice",
                "Unset that property",
            )
        if self._upserts and settings.get("delta.appendOnly") == "true":
            raise self._refuse("takes no changes (delta.appendOnly)", 'Write without "upsert"')
        parts = list(metadata.partition_columns)
        if self._partition_by and parts != self._partition_by:
            raise self._refuse(
                f"is partitioned by {', '.join(parts) or 'nothing'}, not by "
                f"{', '.join(self._partition_by)}",
                "Leave partition_by out",
            )

    def _refuse(self, fact: str, hint: str) -> OutputError:
        return OutputError(
            "HR-LAKE-004",
            f"{self.what} {fact} (output {self._name!r})",
            f"{hint}, or write to another table: what is committed must be deliverable.",
        )

    # who has written there

    def producers(self) -> Mapping[str, int]:
        with self._as_output():
            if not self._place.exists():
                self._forget()
                return {}
            self._forget()
            self._look()
            return dict(self._seen)

    def _look(self) -> bool:
        """Follow the log to its end; whether there was anything new."""
        with self._as_output():
            if self._table is None:
                self._table = self._place.table()
                self._upto = self._table.version()
                self._seen = self._place.producers(self._upto)
            before, version = self._upto, self._upto
            while (actions := self._place.commit(version + 1)) is not None:
                self._seen.update(producers_in(actions))
                version += 1
            self._upto = version
            if self._table.version() < version:
                self._place.newest(self._table)
            self._stamp = self._place.stamp(version)
        return version > before

    def reached(self, epoch: int) -> bool:
        """Producers are looked up only if the table is not the one that was looked at last."""
        with self._as_output():
            same = self._stamp is not None and self._place.stamp(self._upto) == self._stamp
        if same:
            return True
        held = self.held()
        return held is not None and held.number >= epoch

    def beyond(self, timelines: Timelines) -> Reached:
        """Producers are looked up only if somebody has written since the last call."""
        if not self._look():
            return {}
        return timelines.beyond(self.held_of(self._seen).all)

    def _check_recorded(self, producer: str, epoch: int, wanted: str) -> None:
        """Raise if the commit of the epoch, as far as the log still has it, held other rows."""
        version = self._upto
        while version >= 0 and (actions := self._place.commit(version)) is not None:
            note = note_of(actions)
            if note.get("producer") == producer and note["epoch"] <= epoch:
                if note["epoch"] == epoch and note["rows"] != wanted:
                    raise self.conflict(epoch)
                return
            version -= 1

    # an epoch

    def files(self) -> DeltaFiles | None:
        return self._files

    def divided(self, rows: pa.Table) -> Iterator[pa.Table]:
        return by_partition(rows, self.partitions())

    def deliver_files(self, staged: list[Reference], producer: str, epoch: int) -> None:
        assert self._files is not None
        by_name = self._deliver(producer, epoch, lambda note: self._add(staged, note))
        if by_name is not None:
            self._files.clear(staged, by_name)

    def _add(self, staged: list[Reference], note: Any) -> bool:
        """Whether the commit names the files."""
        assert self._files is not None
        self._files.check(staged)
        parts = self._table.metadata().partition_columns
        columns = pa.schema(self._table.schema().to_arrow())
        other = self._files.other(staged, columns)
        if other is not None:
            raise DeltaFailure(f"its column {other!r} was dropped or replaced since it was read")
        if takes_files(self._table) and self._files.partitioned(staged, parts):
            self._files.settle(staged)
            point("sink.lake.settled")
            self._place.add_files(self._table, list(self._files.facts(staged)), note)
            return True
        # it has got rules since, or is divided in another way
        self._place.append(self._table, self._files.rows(staged, columns), note)
        return False

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        if self._upserts:
            changes = self.changed(rows)
            self._deliver(producer, epoch, lambda note: self._merge(changes, note))
        else:
            self._deliver(producer, epoch, lambda note: self._place.append(self._table, rows, note))

    def _merge(self, changes: pa.Table, note: Any) -> None:
        before = self._table.version()
        if changes.num_rows:
            self._place.merge(self._table, changes, self._key, DELETES, note)
        if self._table.version() == before:  # nothing was to be changed
            self._place.nothing(self._table, note)

    def _deliver(self, producer: str, epoch: int, write: Callable[[Any], T]) -> T | None:
        """Commit an epoch, unless it is recorded; again if another commit was first."""
        for _ in range(RETRIES):
            self._look()
            with self._as_output():
                if self._seen.get(producer, -1) >= epoch:
                    self._check_recorded(producer, epoch, self._digest)
                    return None
                before = self._upto
                note = self._place.commit_properties(producer, epoch, {"rows": self._digest})
                point("sink.lake.looked")
                try:
                    done = write(note)
                except DeltaConflict as cause:
                    why = str(cause)
                    continue
                point("sink.lake.committed")
                self._look()
                self._place.sync(before + 1, self._upto)
                return done
        raise self.refused(RETRIES, why)

    @contextmanager
    def _as_output(self) -> Iterator[None]:
        try:
            yield
        except DeltaFailure as cause:
            raise OutputError(
                "HR-LAKE-001",
                f"{self.what} cannot be used (output {self._name!r}): {cause}",
                "Check the place, its permissions and storage_options=; then start the job again.",
            ) from None


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, _OPTIONS)
    check_options(o)
    for option in ("properties", "storage_options"):
        texts(o, option)
    if not o.rest:
        raise OutputError(
            "HR-OUTPUT-001", f"{o.uri!r} names no table", 'Give its folder: "delta:lake/orders".'
        )
    library()


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    """Secrets are not stored: storage is opened by what the environment says."""
    return about["place"], {**about["options"], **({"key": about["key"]} if about["key"] else {})}


def _open(o: OutputRequest) -> Sink:
    return DeltaSink(o)


DELTA = OutputKind(_check, _open, _reopen)
