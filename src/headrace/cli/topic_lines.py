"""Lines of text to records of a topic and back, for the console.

A typed topic speaks JSON, one object per line; a byte topic speaks text, one record per line.
A line that cannot be read is an error with its number; the lines before it are appended, and
nothing of it is.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa

from headrace.errors import LogError
from headrace.log import Log, TopicInfo

_READ = 1 << 16
Line = tuple[int, bytes]  # its number, from 1, and what it says


class LineAppender:
    """Appends lines to a topic, as many at a time as there are."""

    def __init__(self, log: Log, topic: TopicInfo, key: str | None, partition: int | None) -> None:
        self.log, self.topic, self.key, self.partition = log, topic, key, partition
        self.appended = 0
        if key is not None and topic.schema is not None and key not in topic.schema.names:
            raise LogError(
                "HR-LOG-006",
                f"topic '{topic.name}' has no column '{key}' to be the key",
                f"Its columns: {', '.join(topic.schema.names)}.",
            )

    def run(self, stream: BinaryIO) -> int:
        """Append every line of the stream, each batch as it comes; the number of records."""
        for lines in batches(stream):
            self._append_lines(lines)
        return self.appended

    def _append_lines(self, lines: list[Line]) -> None:
        records: list[tuple[int, Any]] = []
        try:
            for number, line in lines:
                if line.strip() or self.topic.schema is None:
                    records.append((number, self._record(number, line)))
        finally:  # what comes before a line that cannot be read is appended
            self._append(records)

    def _record(self, number: int, line: bytes) -> Any:
        if self.topic.schema is None and self.key is None:
            return line
        try:
            record = json.loads(line)
        except ValueError as error:
            raise self._refused(number, f"is not JSON ({error})") from error
        if not isinstance(record, dict):
            raise self._refused(number, f"is not a JSON object but {line[:40].decode()!r}")
        if self.topic.schema is None and self.key not in record:
            raise self._refused(number, f"has no field {self.key!r} to be its key")
        return record

    def _append(self, records: list[tuple[int, Any]]) -> None:
        try:
            self._send([record for _, record in records])
        except LogError as error:
            if error.code != "HR-LOG-006":
                raise
            for number, record in records:  # once more, one by one, to find the line
                try:
                    self._send([record])
                except LogError as cause:
                    raise self._refused(number, f"does not fit: {cause.message}") from cause

    def _send(self, records: list[Any]) -> None:
        if not records:
            return
        key: Any = self.key
        if self.topic.schema is None and key is not None:
            key = [_text(record[key]) for record in records]
        self.log.append(self.topic.name, records, key=key, partition=self.partition)
        self.appended += len(records)

    def _refused(self, number: int, fact: str) -> LogError:
        shape = ", ".join(f'"{name}": ...' for name in self.topic.columns.names[:3])
        example = f"{{{shape}}}" if self.topic.schema is not None else '{"field": ...}'
        return LogError(
            "HR-LOG-006",
            f"line {number} {fact}",
            f"Nothing of line {number} was appended; correct it, and go on from there. "
            f"Each line is one JSON object: {example}.",
        )


def batches(stream: BinaryIO) -> Iterator[list[Line]]:
    """The lines of a stream, as many at a time as can be had without waiting."""
    read = getattr(stream, "read1", stream.read)
    rest, number = b"", 0
    while chunk := read(_READ):
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield [(number + i, line.removesuffix(b"\r")) for i, line in enumerate(lines, 1)]
        number += len(lines)
    if rest:
        yield [(number + 1, rest.removesuffix(b"\r"))]


def lines_of(table: pa.Table, typed: bool, keys: bool) -> Iterator[str]:
    """Records as a person, or the producer, reads them."""
    if typed:
        for row in table.to_pylist():
            yield json.dumps(row, default=_plain, ensure_ascii=False)
        return
    for row in table.to_pylist():
        value = _text(row["value"])
        yield f"{_text(row['key'])}\t{value}" if keys else value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return "" if value is None else str(value)


def _plain(value: Any) -> str:
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    return _text(value)
