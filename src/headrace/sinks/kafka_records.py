"""Rows as the records of a Kafka topic: key, value, headers, partition, time.

Columns in, columns out: what a record cannot hold (too many bytes, a partition that the topic has
not) is an OutputError in the task, so that no such row is ever committed. No broker here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import OutputError, did_you_mean
from headrace.log.kafka_produce import HEADER, OVERHEAD
from headrace.schema import ddl_type
from headrace.sinks.formats import check_json, csv_values, json_values, without_dictionaries
from headrace.sinks.registered_values import NumberedSchema

FORMATS = ("json", "csv", "text", "bytes", "avro", "protobuf")
_ONE = ("text", "bytes")  # formats of one column


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns become which part of a record."""

    uri: str
    format: str = "json"
    key: str | None = None
    value: tuple[str, ...] = ()  # () is all columns, or the only one that is nothing else
    headers: tuple[tuple[str, str], ...] = ()  # name and column
    partition: int | str | None = None
    timestamp: str | None = None
    partitions: int | None = None  # that the topic has
    max_bytes: int | None = None  # of a record of the topic
    numbered: NumberedSchema | None = None  # of the value, if there is a schema registry

    def within(self, partitions: int, max_bytes: int) -> Layout:
        """The same for a topic that is known."""
        return replace(self, partitions=partitions, max_bytes=max_bytes)

    def check(self, schema: pa.Schema) -> None:
        """Raise OutputError if rows of these columns cannot become records."""
        plain = without_dictionaries(schema)
        single = {"key": self.key, "partition": self.partition, "timestamp": self.timestamp}
        named = [(option, column) for option, column in single.items() if isinstance(column, str)]
        named += [("headers", column) for _, column in self.headers]
        named += [("value", column) for column in self.value]
        for option, column in named:
            if column not in schema.names:
                raise OutputError(
                    "HR-OUTPUT-008",
                    f"{self.uri!r} has {option}={column!r}, and its rows have no such column",
                    f"{did_you_mean(column, schema.names)}They have: {', '.join(schema.names)}.",
                )
        self._check_types(plain)
        self._check_value(plain)

    def _check_types(self, schema: pa.Schema) -> None:
        for option, column in [("key", self.key), *(("headers", c) for _, c in self.headers)]:
            if column is not None and pa.types.is_nested(schema.field(column).type):
                raise self._wrong_type(schema, option, column, "text, bytes, a number or a time")
        kind = schema.field(self.partition).type if isinstance(self.partition, str) else pa.int64()
        if not pa.types.is_integer(kind):
            raise self._wrong_type(schema, "partition", str(self.partition), "a whole number")
        time = schema.field(self.timestamp).type if self.timestamp is not None else pa.int64()
        if not (pa.types.is_integer(time) or pa.types.is_timestamp(time)):
            words = "a timestamp, or milliseconds as a whole number"
            raise self._wrong_type(schema, "timestamp", str(self.timestamp), words)

    def _check_value(self, schema: pa.Schema) -> None:
        columns = self.value_columns(schema)
        if self.format in _ONE:
            kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
                     pa.types.is_large_binary)  # fmt: skip
            if len(columns) != 1:
                raise OutputError(
                    "HR-KAFKA-033",
                    f"{self.uri!r} has format={self.format!r}, which holds one column, and "
                    f"{len(columns)} are left: {', '.join(columns)}",
                    'Name it, value="body", or choose format="json".',
                )
            if not any(test(schema.field(columns[0]).type) for test in kinds):
                raise self._wrong_type(schema, "value", columns[0], "text or bytes")
            return
        for field in (schema.field(name) for name in columns):
            csv = pa.types.is_nested(field.type) or pa.types.is_binary(field.type)
            if self.format == "csv" and csv:
                raise self._wrong_type(schema, "value", field.name, "something that CSV can hold")
        if self.format in ("avro", "protobuf"):
            return  # their schemas say what they can hold
        try:
            check_json(pa.schema([schema.field(name) for name in columns]))
        except ValueError as cause:
            raise OutputError(
                "HR-OUTPUT-006",
                f"{self.uri!r}: {cause}",
                "Cast the column, or leave it out with value=.",
            ) from cause

    def _wrong_type(self, schema: pa.Schema, option: str, column: str, wanted: str) -> OutputError:
        return OutputError(
            "HR-KAFKA-033",
            f"{self.uri!r} has {option}={column!r}, which is {ddl_type(schema.field(column).type)}",
            f"It must be {wanted}: cast the column, or name another one.",
        )

    def value_columns(self, schema: pa.Schema) -> list[str]:
        """The columns of the value."""
        if self.value:
            return list(self.value)
        if self.format not in _ONE or len(schema) == 1:
            return list(schema.names)
        used = {self.key, self.partition, self.timestamp, *(c for _, c in self.headers)}
        return [name for name in schema.names if name not in used]

    def records(self, rows: pa.Table) -> pa.Table:
        """The rows as columns "key", "value" and those that are wanted besides."""
        rows = rows.cast(without_dictionaries(rows.schema))
        value = rows.select(self.value_columns(rows.schema))
        columns = {"value": self._value(value)}
        if self.key is not None:
            columns["key"] = _bytes(rows.column(self.key))
        if self.partition is not None:
            columns["partition"] = self._partition(rows)
        if self.timestamp is not None:
            columns["timestamp"] = self._times(rows.column(self.timestamp))
        for name, column in self.headers:
            columns[f"{HEADER}{name}"] = _bytes(rows.column(column))
        records = pa.table(columns)
        self._check_sizes(records)
        return records

    def _value(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        if self.numbered is not None:
            return self.numbered.values(rows)
        if self.format == "json":
            return json_values(rows)
        return csv_values(rows) if self.format == "csv" else _bytes(rows.column(0))

    def _partition(self, rows: pa.Table) -> pa.Array | pa.ChunkedArray:
        """The partition of each row; -1 where the key decides."""
        if isinstance(self.partition, int):
            return pa.repeat(pa.scalar(self.partition, pa.int32()), rows.num_rows)
        chosen = rows.column(str(self.partition))
        bounds = pc.min_max(chosen).as_py()
        least, most = bounds["min"], bounds["max"]
        last = (self.partitions or 1 << 31) - 1
        if least is not None and (least < 0 or most > last):
            raise OutputError(
                "HR-KAFKA-035",
                f"{self.uri!r}: a row has partition {least if least < 0 else most} in column "
                f"{self.partition!r}, and the topic has 0 to {last}",
                "Correct the value, or leave it null where the key is to decide; nothing of this "
                "batch is committed. A topic that has got more partitions meanwhile is looked at "
                "when the job is started.",
            )
        return pc.fill_null(chosen.cast(pa.int32()), -1)

    def _times(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """Milliseconds; 0 where the time of writing is to be used."""
        kind = column.type
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("ms", kind.tz), safe=False)
        times = column.cast(pa.int64())
        least = pc.min(times).as_py()
        if least is not None and least <= 0:
            raise OutputError(
                "HR-KAFKA-035",
                f"{self.uri!r}: a row has the time {least} ms in column {self.timestamp!r}, and "
                "the time of a Kafka record begins in 1970",
                "Correct the value, or leave it null for the time of writing; nothing of this "
                "batch is committed.",
            )
        return pc.fill_null(times, 0)

    def check_partition(self, partitions: int | None) -> None:
        """Raise OutputError if the topic has no such partition as all rows go to."""
        if isinstance(self.partition, int) and self.partition >= (partitions or 1):
            raise OutputError(
                "HR-KAFKA-035",
                f"{self.uri!r} has partition={self.partition}, and the topic has 0 to "
                f"{(partitions or 1) - 1}",
                "Name one that it has.",
            )

    def _check_sizes(self, records: pa.Table) -> None:
        if self.max_bytes is None:
            return
        size = pa.array([0] * records.num_rows, pa.int64())
        for name in (n for n in records.column_names if n in ("key", "value") or HEADER in n):
            length = pc.fill_null(pc.binary_length(records.column(name)), 0).cast(pa.int64())
            size = pc.add(size, pc.add(length, len(name.encode())))
        most = pc.max(size).as_py()
        if most is not None and most + OVERHEAD > self.max_bytes:
            raise OutputError(
                "HR-KAFKA-034",
                f"{self.uri!r}: a record has {most} bytes, and the topic takes {self.max_bytes} "
                f"(max.message.bytes), {OVERHEAD} of them for the record's own use",
                "Write less of it (value=, substring), or let the topic take larger records and "
                "start the job again; nothing of this batch is committed.",
            )


def _bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Bytes as they are, everything else as its text."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())


def layout_of(uri: str, options: Mapping[str, Any]) -> Layout:
    """The layout that options ask for; OutputError if one of them is wrong, whatever the rows."""
    format = options.get("format") or "json"
    if format not in FORMATS:
        raise _bad(uri, "format", format, f"Known: {', '.join(FORMATS)}.")
    for name in ("key", "timestamp"):
        if not isinstance(options.get(name), str | None):
            raise _bad(uri, name, options[name], "Give the name of a column.")
    partition = options.get("partition")
    whole = type(partition) is int and partition >= 0
    if partition is not None and not isinstance(partition, str) and not whole:
        raise _bad(uri, "partition", partition, "Give the name of a column, or a partition.")
    return Layout(
        uri,
        format,
        options.get("key"),
        _columns(uri, "value", options.get("value")),
        _headers(uri, options.get("headers")),
        partition,
        options.get("timestamp"),
    )


def _columns(uri: str, option: str, names: Any) -> tuple[str, ...]:
    listed = [names] if isinstance(names, str) else [] if names is None else names
    if not isinstance(listed, list | tuple) or not all(isinstance(n, str) for n in listed):
        raise _bad(uri, option, names, "Give the name of a column, or a list of them.")
    return tuple(listed)


def _headers(uri: str, headers: Any) -> tuple[tuple[str, str], ...]:
    if isinstance(headers, Mapping):
        pairs = list(headers.items())
        if not all(isinstance(n, str) and isinstance(c, str) for n, c in pairs):
            raise _bad(uri, "headers", headers, 'Give headers={"trace": "column"}.')
        return tuple(pairs)
    return tuple((name, name) for name in _columns(uri, "headers", headers))


def _bad(uri: str, option: str, value: object, hint: str) -> OutputError:
    return OutputError("HR-OUTPUT-008", f"{uri!r} has {option}={value!r}", hint)
