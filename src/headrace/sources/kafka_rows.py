"""Records of Kafka as rows: columns of the value, and columns of the record itself.

The key, the headers, the partition, the offset and the timestamp of a record fill the columns that
the program names for them; all other columns are decoded from the value. A record that does not
fit is bad, with a reason, like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.column_types import cast_exactly
from headrace.errors import InputError, did_you_mean
from headrace.kernel.text_cast import cast_text, gather, isolate, reason
from headrace.log.kafka_fetch import KafkaRecords, Wanted
from headrace.schema import TIMESTAMP, ddl_type
from headrace.sources.contract import RAW, Decoded

KEY, HEADERS, PARTITION, OFFSET, STAMP = "key", "headers", "partition", "offset", "timestamp"
LOST = "__lost"  # a column of a chunk: why there is no record; null where there is one
TOMBSTONE = "the record has no value: it is a tombstone"
_HEADER_LIST = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
DEFAULTS = {
    KEY: pa.binary(),
    HEADERS: pa.map_(pa.string(), pa.binary()),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    STAMP: TIMESTAMP,
}


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Which column each part of a record fills; the others are of its value."""

    schema: pa.Schema
    named: Mapping[str, str]  # part: column

    @property
    def value(self) -> pa.Schema:
        parts = set(self.named.values())
        return pa.schema([f for f in self.schema if f.name not in parts])

    @property
    def wanted(self) -> Wanted:
        return Wanted(KEY in self.named, HEADERS in self.named, STAMP in self.named)

    def chunk(self, records: KafkaRecords, partition: int) -> pa.Table:
        """The records as they travel to `decode`."""
        columns = {RAW: records.values}
        parts: dict[str, Callable[[], pa.Array]] = {
            KEY: lambda: records.keys,
            HEADERS: lambda: records.headers,
            STAMP: lambda: records.timestamps,
            OFFSET: lambda: pa.array(records.offsets),
            PARTITION: lambda: pa.array(np.full(len(records), partition, np.int32)),
        }
        columns |= {f"__{part}": parts[part]() for part in self.named}
        return pa.table(columns)

    def lost(self, why: str) -> pa.Table:
        """A chunk with one bad row, for records that are gone."""
        return pa.table({RAW: pa.nulls(1, pa.binary()), LOST: pa.array([why])})

    def decode(self, chunk: pa.Table, values: Callable[[pa.Array], Decoded]) -> Decoded:
        """Good rows, a mask of the bad ones, reasons; `values` decodes what is not null."""
        if LOST in chunk.column_names:
            lost = chunk.column(LOST).to_pylist()
            return self.schema.empty_table(), np.ones(len(lost), np.bool_), lost
        raw = chunk.column(RAW).combine_chunks()
        table, bad, reasons = self._values(raw, values)
        if not self.named:
            return table, bad, reasons
        why = dict(zip(np.flatnonzero(bad).tolist(), reasons, strict=True))
        good, columns = np.flatnonzero(~bad), {}
        for part, name in self.named.items():
            column = chunk.column(f"__{part}").combine_chunks().take(pa.array(good))
            columns[name], wrong = _part(part, column, self.schema.field(name))
            for i, problem in wrong.items():
                why.setdefault(int(good[i]), problem)
        mask = np.zeros(len(raw), np.bool_)
        mask[list(why)] = True
        arrays = [
            columns[f.name] if f.name in columns else table.column(f.name) for f in self.schema
        ]
        whole = gather(arrays, self.schema, mask[good])
        return whole, mask, [why[i] for i in sorted(why)]

    def _values(self, raw: pa.Array, values: Callable[[pa.Array], Decoded]) -> Decoded:
        """The columns of the value; a record without one is a row of nulls if its key is read."""
        schema = self.value
        if not len(schema):  # one column, so that the table has a length
            none = np.zeros(len(raw), np.bool_)
            return pa.table({RAW: raw}), none, []
        if not raw.null_count:
            return values(raw)
        none = raw.is_null().to_numpy(zero_copy_only=False)
        places = np.concatenate([np.flatnonzero(~none), np.flatnonzero(none)])
        table, wrong, reasons = values(raw.drop_null())
        why = dict(zip(places[: len(wrong)][wrong].tolist(), reasons, strict=True))
        missing = next((f"column {f.name!r} has no value" for f in schema if not f.nullable), None)
        problem = TOMBSTONE if KEY not in self.named else missing and f"{TOMBSTONE}, and {missing}"
        if problem:
            why |= dict.fromkeys(np.flatnonzero(none).tolist(), problem)
        elif KEY in self.named:
            empty = [pa.nulls(int(none.sum()), f.type) for f in schema]
            rows = pa.concat_tables([table, pa.Table.from_arrays(empty, schema=schema)])
            kept = np.concatenate([places[: len(wrong)][~wrong], places[len(wrong) :]])
            table = rows.take(pa.array(np.argsort(kept)))
        bad = np.zeros(len(raw), np.bool_)
        bad[list(why)] = True
        return table, bad, [why[i] for i in sorted(why)]


def _part(part: str, column: pa.Array, field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """A part of the records in its column's type, and why some do not fit."""
    kind, problems = field.type, dict[int, str]()
    if part == KEY:
        cast, failed = cast_text(column, kind)
        problems = {i: reason(field.name, column[i].as_py(), kind) for i in failed}
    elif part == HEADERS:
        cast, problems = _headers(column, field)
    else:
        if part == STAMP and pa.types.is_timestamp(kind):
            moment = pa.timestamp("ms", kind.tz)
            cast, failed = isolate(column, kind, lambda some: some.cast(moment).cast(kind))
        else:
            cast, failed = isolate(column, kind, lambda some: cast_exactly(some, kind))
        shown = ddl_type(kind)
        problems = {i: f"column {field.name!r}: {column[i]} is not {shown}" for i in failed}
    if not field.nullable and cast.null_count:
        for i in np.flatnonzero(cast.is_null().to_numpy(zero_copy_only=False)):
            problems.setdefault(int(i), f"column {field.name!r} has no value")
    return cast, problems


def _headers(column: pa.Array, field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    kind = field.type
    nulls = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False)).tolist()
    unnamed = dict.fromkeys(nulls, f"column {field.name!r}: the name of a header is not UTF-8")
    if not pa.types.is_map(kind):
        pairs = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        listed = pa.ListArray.from_arrays(column.offsets, pairs)
        cast, failed = isolate(listed, kind, lambda some: _alone(some, listed).cast(kind))
        return cast, unnamed | {i: _not_text(field) for i in failed}
    cast, failed = isolate(column, kind, lambda some: _alone(some, column).cast(kind))
    problems = unnamed | {i: _not_text(field) for i in failed}
    for i in _repeated(column):
        text = f"column {field.name!r}: a header occurs twice, which a map cannot hold"
        problems.setdefault(i, text)
    return cast, problems


def _alone(some: pa.Array, whole: pa.Array) -> pa.Array:
    """A part of nested values with children of its own: a cast also looks at those outside."""
    return some if len(some) == len(whole) else some.take(pa.array(np.arange(len(some))))


def _repeated(column: pa.Array) -> list[int]:
    """The records with several headers of one name."""
    counts = np.diff(column.offsets.to_numpy())
    if not len(column.keys) or counts.max(initial=0) < 2:
        return []
    rows = pa.array(np.repeat(np.arange(len(column)), counts))
    names = column.keys.slice(column.offsets[0].as_py(), len(rows))
    each = pa.table({"row": rows, "name": names}).group_by(["row", "name"])
    seen = each.aggregate([([], "count_all")])
    twice = seen.filter(pc.greater(seen.column("count_all"), 1)).column("row")
    return sorted(set(twice.to_pylist()))


def _not_text(field: pa.Field) -> str:
    return f"column {field.name!r}: a header is not {ddl_type(field.type)}"


def check_columns(uri: str, columns: RecordColumns) -> None:
    """Refuse a part whose column is missing, is named twice, or has a type it cannot fill."""
    names = list(columns.named.values())
    for part, name in columns.named.items():
        if not isinstance(name, str) or columns.schema.get_field_index(name) < 0:
            raise InputError(
                "HR-KAFKA-007",
                f"{uri!r} has {part}={name!r}, which is no column of the schema",
                f"{did_you_mean(str(name), columns.schema.names)}Declare it: "
                f'schema="{name} {ddl_type(DEFAULTS[part])}, ...".',
            )
        if names.count(name) > 1:
            raise InputError(
                "HR-KAFKA-007",
                f"{uri!r} fills the column {name!r} with two parts of a record",
                "Give each part a column of its own.",
            )
        kind = columns.schema.field(name).type
        if not _fits(part, kind):
            raise InputError(
                "HR-KAFKA-007",
                f"the {part} of a record cannot fill the column {name!r}, which is "
                f"{ddl_type(kind)}",
                f"Declare it as {_possible(part)}.",
            )


def _fits(part: str, kind: pa.DataType) -> bool:
    match part:
        case "key":
            return not pa.types.is_nested(kind)
        case "headers":
            texts = (pa.string(), pa.binary())
            if pa.types.is_map(kind):
                return bool(kind.key_type == pa.string() and kind.item_type in texts)
            if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
                return False
            fields = {f.name: f.type for f in kind.value_type}
            return list(fields) == ["key", "value"] and fields["value"] in texts
        case "timestamp":
            return bool(pa.types.is_timestamp(kind) or pa.types.is_int64(kind))
    return bool(pa.types.is_integer(kind))


def _possible(part: str) -> str:
    return {
        KEY: "string, binary, or a number or time that is written as text",
        HEADERS: "map<string, binary>, map<string, string> or "
        "array<struct<key: string, value: binary>>",
        STAMP: "timestamp, or bigint for milliseconds since 1970",
    }.get(part, "int or bigint")
