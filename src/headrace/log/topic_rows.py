"""Reading a topic that is open: which offsets it has, and the columns that are asked for.

The offsets of a compacted topic have gaps, so it is read only with them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.log import compaction
from headrace.log.arguments import check_offset
from headrace.log.contract import APPEND_TIME, OFFSET
from headrace.log.head import Head
from headrace.log.open_topics import OpenTopic
from headrace.log.partitioning import check_partition
from headrace.log.reader import out_of_range


def read_rows(
    opened: OpenTopic,
    head: Head,
    partition: int,
    start: int,
    end: int | None,
    max_rows: int | None,
    times: bool,
    offsets: bool,
) -> Iterator[tuple[int, pa.Table]]:
    """Records [start, end) in chunks; see `EmbeddedLog.read`."""
    check_partition(opened.topic, partition)
    latest = head.ends[partition]
    end = latest if end is None else end
    check_offset(start)
    check_offset(end)
    earliest = 0 if opened.topic.compacted else head.earliest[partition]
    if not earliest <= start <= latest:
        raise out_of_range(opened.topic, partition, start, head)
    if not start <= end <= latest:
        raise out_of_range(opened.topic, partition, end, head)
    if max_rows is not None:
        end = min(end, start + max_rows)
    if opened.topic.compacted:
        if not offsets:
            raise _gaps(opened.topic.name)
        file = compaction.newest(opened.topic)
        compaction.check_there(opened.topic, head.earliest[partition], file, partition)
        return _sparse(opened, partition, start, end, times)
    tables = opened.reader.read(partition, start, end, times)
    return _numbered(tables) if offsets else tables


def first_at(opened: OpenTopic, partition: int, ms: int) -> int:
    """The first offset appended at or after `ms`; the latest if there is none."""
    check_partition(opened.topic, partition)
    if opened.topic.compacted:
        found = compaction.offset_for_time(opened.topic, partition, ms)
        if found is not None:
            return found
    return opened.reader.offset_for_time(partition, ms)


def _gaps(topic: str) -> LogError:
    return LogError(
        "HR-LOG-032",
        f"topic '{topic}' is compacted: there are gaps between its offsets",
        "Read it with offsets=True, which adds the offset of each record, or with hr.Consumer.",
    )


def _numbered(tables: Iterator[tuple[int, pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
    for first, table in tables:
        numbers = np.arange(first, first + table.num_rows, dtype=np.int64)
        yield first, table.append_column(OFFSET, pa.array(numbers))


def _sparse(
    opened: OpenTopic, partition: int, start: int, end: int, times: bool
) -> Iterator[tuple[int, pa.Table]]:
    for numbers, moments, records in compaction.read(
        opened.topic, opened.reader, partition, start, end
    ):
        table = pa.Table.from_batches([records])
        if times:
            table = table.append_column(APPEND_TIME, pa.array(moments))
        yield int(numbers[0]), table.append_column(OFFSET, pa.array(numbers))
