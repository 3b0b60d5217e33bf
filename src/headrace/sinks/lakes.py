"""What outputs to lakes have in common: append or upsert, the columns, and changes by key.

An upsert leaves one row for each key: the last one. If the rows have a column `change`, as
changelogs do, "+" is a row that holds and "-" one that does not any more; the column itself is not
written. Rows of an epoch that cancel each other are left out, whatever their order: a "+" may come
before the "-" of the row that it replaces, from another task. Nothing here knows a library.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OutputError
from headrace.schema import ddl_type
from headrace.sinks.columns import holds
from headrace.sinks.contract import (
    EpochWriter,
    OutputRequest,
    Reference,
    Timelines,
    bad_option,
    check_names,
    names_of,
)
from headrace.sinks.data_files import PATH, DataFiles
from headrace.sinks.delivered import DeliveredSink, digest, within
from headrace.sinks.durable import instead_of, noted
from headrace.sinks.formats import without_dictionaries
from headrace.state.faults import point

UPSERT = "upsert"
CHANGE, ADDED, GONE = "change", "+", "-"
DELETES = "__deletes"  # a column of changed rows: the key is to be deleted
_ORDER, _SIGN = "__order", "__sign"
RETRIES = 20  # of a commit that met another
_LONGEST_NAME = 255  # bytes of a folder's name, in file systems


class LakeSink(DeliveredSink):
    """A kind of lake adds `table_schema`, and what every delivered output must have."""

    def __init__(self, o: OutputRequest) -> None:
        self._upserts = o.options.get("mode") == UPSERT
        # an upsert replaces what is there, whoever has written it
        super().__init__(
            replace(o, options={**o.options, "mode": "append"}) if self._upserts else o
        )
        self._key = names_of(o.options.get("key"))
        self._partition_by = names_of(o.options.get("partition_by"))
        self._takes_files = False  # tasks write files of the table; known when it is opened

    @property
    def _changes(self) -> bool:
        return self._upserts and CHANGE in self.schema.names

    @property
    def _columns(self) -> pa.Schema:
        """What is written of the output's columns."""
        fields = [f for f in self.schema if not (self._changes and f.name == CHANGE)]
        return without_dictionaries(pa.schema(fields))

    def table_schema(self) -> pa.Schema | None:
        """The columns of the table; None if it is not there yet."""
        raise NotImplementedError

    def partitions(self) -> list[str]:
        """The columns by which the table is partitioned, or will be."""
        return self._partition_by

    def can_partition(self, kind: pa.DataType) -> bool:
        """Whether values of a type come back as they are from a column of partitions."""
        return not (pa.types.is_floating(kind) or pa.types.is_nested(kind))

    def check_columns(self) -> None:
        """Refuse columns that cannot be keys or partitions, or that the table does not have."""
        for option, names in (("key", self._key), ("partition_by", self._partition_by)):
            for name in names:
                if name not in self._columns.names:
                    raise OutputError(
                        "HR-OUTPUT-008",
                        f"output {self._name!r} has no column {name!r}, which {option} names",
                        f"It has: {', '.join(self._columns.names)}.",
                    )
        for name in self._key:
            _check_key(self._name, self._columns.field(name))
        if self._changes:
            self._check_changes()
        there = self.table_schema()
        if there is not None:
            fit(self.what, self._columns, there)
        columns = self._columns if there is None else there
        parts = self.partitions()
        for field in (f for f in columns if f.name in parts):
            if not self.can_partition(field.type):
                raise OutputError(
                    "HR-LAKE-002",
                    f"{self.what} cannot be partitioned by {field.name!r} (output {self._name!r}): "
                    f"it is {field.type}, whose values would not be stored exactly",
                    "Partition by texts, whole numbers, booleans, dates or times.",
                )

    def _check_changes(self) -> None:
        if not pa.types.is_string(without_dictionaries(self.schema).field(CHANGE).type):
            raise OutputError(
                "HR-LAKE-002",
                f"the column {CHANGE!r} of output {self._name!r} is no text",
                'In an upsert it says "+" or "-"; rename it if it is a column of your own.',
            )
        nested = [f.name for f in self._columns if pa.types.is_nested(f.type)]
        if nested:
            raise OutputError(
                "HR-LAKE-002",
                f"column {nested[0]!r} of output {self._name!r} is "
                f"{ddl_type(self._columns.field(nested[0]).type)}, by which rows that cancel each "
                "other cannot be found",
                f"Select the fields of {nested[0]!r} as columns, or make a text of it.",
            )

    def check_folders(self, rows: pa.Table, partitions: list[str]) -> None:
        """Where partitions are folders of a file system: fail the batch if a name is too long."""
        for name in partitions:
            values = rows.column(name)
            if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
                written: Callable[[Any], str] = str
            elif pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
                written = _base64
            else:
                continue
            column = f"{quote(name, safe='')}="
            room = _LONGEST_NAME - len(column)
            may_be = values.filter(pc.greater(pc.binary_length(values), room // 5))
            for value in pc.unique(may_be).to_pylist():
                text = written(value)
                if len(quote(text, safe="")) > room:
                    raise OutputError(
                        "HR-LAKE-003",
                        f"a row of output {self._name!r} has '{text[:40]}...' in the column "
                        f"{name!r}, by which {self.what} is partitioned: no folder can have so "
                        "long a name",
                        "Leave such rows out, or give them another text; nothing of this batch is "
                        "committed.",
                    )

    def records(self, rows: pa.Table) -> pa.Table:
        there = self.table_schema()
        schema = self._columns if there is None else _ordered(there, self._columns)
        try:
            typed = rows.select(schema.names).cast(schema)
        except (pa.ArrowException, ValueError, KeyError) as cause:
            raise OutputError(
                "HR-OUTPUT-006",
                f"rows of the output do not fit {self.what}: {cause}",
                "Correct the values (coalesce, where), or write to another place; nothing of this "
                "batch is committed.",
            ) from cause
        for name in self._key:
            if typed.column(name).null_count:
                raise OutputError(
                    "HR-LAKE-003",
                    f"a row of output {self._name!r} has no {name!r}, which is in the key",
                    f'Leave such rows out (where "{name} is not null"), or give them a value; '
                    "nothing of this batch is committed.",
                )
        if not self._changes:
            return typed
        change = rows.column(CHANGE).cast(pa.string())
        known = pc.is_in(change, pa.array([ADDED, GONE]))
        if not pc.all(known, min_count=0).as_py():
            bad = change.filter(pc.invert(known))[0].as_py()
            raise OutputError(
                "HR-LAKE-003",
                f"a row of output {self._name!r} has {bad!r} in the column {CHANGE!r}",
                'In an upsert it says "+" or "-"; rename it if it is a column of your own.',
            )
        return typed.append_column(CHANGE, change)

    def files(self) -> DataFiles | None:
        """Of the table, if tasks can reach it."""
        return None

    def divided(self, rows: pa.Table) -> Iterable[pa.Table]:
        """The rows of each data file."""
        return [rows]

    def deliver_files(self, staged: list[Reference], producer: str, epoch: int) -> None:
        """As `deliver`, of rows in data files."""
        raise NotImplementedError

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        """Files of the table if they may be, else rows for the driver to write."""
        files = self.files() if self._takes_files and table.num_rows else None
        try:
            if files is None:
                return super().stage(table, epoch, unique)
            rows = self.records(table.select(self.schema.names))
            return self.signed(files.stage(self.divided(rows), epoch, unique))
        except pa.ArrowInvalid as cause:
            raise OutputError(
                "HR-LAKE-003",
                f"a row of output {self._name!r} does not fit {self.what}: {cause}",
                "Leave such rows out, or give them other values; nothing of this batch is "
                "committed.",
            ) from None

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        if not staged or PATH not in staged[0]:
            return super().publish(epoch, staged, writer)
        self._digest = digest(staged)
        point("sink.publish.read")
        writer.check()
        producer = within(noted(staged[0], "producer"), writer.timeline)
        try:
            self.deliver_files(staged, producer, epoch)
        except (FileNotFoundError, pa.ArrowInvalid) as cause:
            raise OutputError(
                "HR-OUTPUT-005",
                f"a file of epoch {epoch} in {self.what} is gone or damaged: {cause}",
                f"{instead_of(epoch)} Let nobody clean up files that no commit names yet.",
            ) from None
        point("sink.publish.appended")

    def staged_at(self, reference: Reference) -> Path | None:
        files = self.files() if PATH in reference else None
        if PATH not in reference or files is None:
            return super().staged_at(reference) if PATH not in reference else None
        hidden, settled = files.staging.at(reference), files.at(reference)
        return settled if settled.exists() and not hidden.exists() else hidden

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        super().discard(live, upto)
        files = self.files()
        if files is not None:
            files.sweep(live, upto)

    def changed(self, rows: pa.Table) -> pa.Table:
        """A row for each key that changes, with the column `__deletes`."""
        return latest_by_key(rows, self._key)

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        said = super().go_back(timelines, writer)
        if not self._upserts or "cannot be taken back" not in said:
            return said
        return (
            f"output {self._name!r}: what was delivered cannot be taken back: in {self.what} keys "
            "have the rows of epochs that were given up, until they are written again"
        )

    def refused(self, attempts: int, why: str) -> OutputError:
        return OutputError(
            "HR-LAKE-005",
            f"a commit to {self.what} met those of others {attempts} times (output "
            f"{self._name!r}): {why}",
            "Nothing is lost: start the job again. Let fewer writers change the same rows, or "
            "write less often.",
        )


def _ordered(there: pa.Schema, columns: pa.Schema) -> pa.Schema:
    """The table's columns that the output has, in the table's order and types."""
    return pa.schema([f for f in there if f.name in columns.names])


def latest_by_key(rows: pa.Table, key: list[str]) -> pa.Table:
    """Of each key the row that holds after all of them, or one that `__deletes` it."""
    if CHANGE not in rows.column_names:
        last = _last(rows, key)
        return last.append_column(DELETES, pa.repeat(pa.scalar(False), last.num_rows))
    names = [n for n in rows.column_names if n != CHANGE]
    sign = pc.if_else(pc.equal(rows.column(CHANGE), ADDED), 1, -1)
    signed = rows.drop_columns([CHANGE]).append_column(_SIGN, sign)
    signed = signed.append_column(_ORDER, _numbers(rows.num_rows))
    sums = signed.group_by(names).aggregate([(_SIGN, "sum"), (_ORDER, "max")])
    net = sums.filter(pc.not_equal(sums.column(f"{_SIGN}_sum"), 0))
    # what holds comes after what does not, and later rows after earlier ones
    net = net.append_column(DELETES, pc.less(net.column(f"{_SIGN}_sum"), 0))
    net = net.sort_by([(DELETES, "descending"), (f"{_ORDER}_max", "ascending")])
    return _last(net.select([*names, DELETES]), key)


def _last(rows: pa.Table, key: list[str]) -> pa.Table:
    """The last row of each key, in the order of rows."""
    numbered = rows.select(key).append_column(_ORDER, _numbers(rows.num_rows))
    last = numbered.group_by(key).aggregate([(_ORDER, "max")]).column(f"{_ORDER}_max")
    return rows.take(last.combine_chunks().sort())


def _numbers(count: int) -> pa.Array:
    return pa.array(np.arange(count, dtype=np.int64))


def fit(what: str, rows: pa.Schema, there: pa.Schema) -> None:
    """Raise OutputError unless the table has the output's columns, and can hold their values."""
    missing = sorted(set(there.names) - set(rows.names))
    extra = sorted(set(rows.names) - set(there.names))
    if missing or extra:
        fact = f"has no column {missing[0]!r}" if missing else f"has a column {extra[0]!r} more"
        raise OutputError(
            "HR-OUTPUT-006",
            f"the output {fact}, {what} holds: {', '.join(there.names)}",
            "Select the table's columns, or write to another table.",
        )
    for field in rows:
        kind = there.field(field.name).type
        integers = pa.types.is_integer(kind) and pa.types.is_integer(field.type)
        if not integers and not holds(bare(kind), bare(field.type)):
            raise OutputError(
                "HR-OUTPUT-006",
                f"the output's column {field.name!r} is {ddl_type(field.type)}, in {what} it is "
                f"{kind}, which does not hold every value of that",
                "Cast the column, or write to another table.",
            )


def bare(kind: pa.DataType) -> pa.DataType:
    """The type without what libraries note on the fields in it."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, bare(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(bare(kind.key_type), bare(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(bare(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _check_key(output: str, field: pa.Field) -> None:
    if pa.types.is_floating(field.type) or pa.types.is_nested(field.type):
        raise OutputError(
            "HR-LAKE-002",
            f"column {field.name!r} of output {output!r} is {ddl_type(field.type)}, which cannot "
            "be a key",
            "Use texts, whole numbers, dates or times as the key.",
        )


def check_options(o: OutputRequest) -> None:
    """Refuse a mode, a key or partitions that are none; looks at the texts only."""
    mode = o.options.get("mode")
    if mode not in (None, "append", UPSERT):
        raise bad_option(o, "mode", mode, 'Pass mode="append" or "upsert", or leave it out.')
    for option in ("key", "partition_by"):
        check_names(o, option)
    if (mode == UPSERT) != (o.options.get("key") is not None):
        fact = 'has mode="upsert" but no key' if mode == UPSERT else "has a key, but no upsert"
        raise OutputError(
            "HR-OUTPUT-008", f"{o.uri!r} {fact}", 'Write mode="upsert", key="id"; or neither.'
        )


def texts(o: OutputRequest, option: str) -> Mapping[str, str]:
    """An option that is a dict of texts."""
    values = o.options.get(option) or {}
    if not isinstance(values, Mapping) or not all(
        isinstance(v, str) for pair in values.items() for v in pair
    ):
        # values may be secrets
        raise OutputError(
            "HR-OUTPUT-008",
            f"{o.uri!r} has {option}= that is no dict of texts",
            f'Pass {option}={{"name": "value"}}.',
        )
    return dict(values)


def _base64(value: bytes) -> str:
    return b64encode(value).decode()
