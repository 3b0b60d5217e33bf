"""Which partition each record goes to: by key, in turn, or as a function says.

The same records with the same key, or the same producer and sequence, always go to the same
partitions. Order among records of a partition is kept. Pure: no files here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.hashing import hash_keys
from headrace.log.arguments import is_whole
from headrace.log.contract import Partitioner
from headrace.log.topic import Topic


@dataclass(frozen=True, slots=True)
class OwnPartitions:
    """The partition that each record was sent to; -1: it has none, and goes as its key says."""

    numbers: np.ndarray

    def over(self, topic: Topic, chosen: np.ndarray) -> np.ndarray:
        for number in np.unique(self.numbers[self.numbers >= 0]).tolist():
            check_partition(topic, number)
        return np.where(self.numbers < 0, chosen, self.numbers)


def route(
    topic: Topic,
    table: pa.Table,
    key: str | Sequence[Any] | None,
    partition: int | None,
    partitioner: Partitioner | OwnPartitions | None,
    turn: int,
) -> dict[int, pa.Table]:
    """The records of each partition. `turn` is where dealing them out in turn begins."""
    if partition is not None:
        return {check_partition(topic, partition): table}
    if isinstance(partitioner, OwnPartitions):
        return split(table, partitioner.over(topic, _chosen(topic, table, key, turn)))
    if partitioner is not None:
        return split(table, by_function(partitioner, table, topic.partitions))
    chosen = _chosen(topic, table, key, turn)
    return {0: table} if topic.partitions == 1 else split(table, chosen)


def _chosen(
    topic: Topic, table: pa.Table, key: str | Sequence[Any] | None, turn: int
) -> np.ndarray:
    """By the keys; a record without one of its own goes as if it had been appended alone."""
    keys, n = _keys(topic, table, key), topic.partitions
    if keys is None or n == 1:
        return in_turn(table.num_rows, turn, n)
    chosen = by_key(keys, n)
    own = topic.schema is None or not (key is None or isinstance(key, str))
    if own and keys.null_count:
        without = keys.is_null().to_numpy(zero_copy_only=False)
        if topic.key is None:
            chosen[without] = in_turn(int(without.sum()), turn, n)
        else:
            chosen[without] = by_key(table[topic.key], n)[without]
    return chosen


def route_rows(
    topic: Topic, rows: list[Any], partition: int | None, turn: int
) -> dict[int, list[Any]] | None:
    """The same for rows without keys of their own; None if their values have to be looked at."""
    if partition is not None:
        return {check_partition(topic, partition): rows}
    n = topic.partitions
    if n == 1:
        return {0: rows}
    if topic.schema is not None and topic.key is not None:
        return None
    return {(turn + i) % n: rows[i::n] for i in range(min(n, len(rows)))}


def keys_of(topic: str, key: Any) -> Any:
    """What was passed as `key`: the name of a column, one value per record, or nothing."""
    if key is None or isinstance(key, str | pa.Array | pa.ChunkedArray):
        return key
    if isinstance(key, bytes | bytearray | memoryview | Mapping) or not isinstance(key, Iterable):
        raise LogError(
            "HR-LOG-006",
            f"topic '{topic}' cannot choose partitions by key {key!r}",
            "Give the name of a column, or a list with one key for each record.",
        )
    return list(key)


def _keys(topic: Topic, table: pa.Table, key: str | Sequence[Any] | None) -> Any:
    """The column of keys, or None when nothing says how to choose."""
    if key is None and topic.schema is None:
        keys = table["key"]
        return None if keys.null_count == len(keys) else keys
    name = topic.key if key is None else key
    if name is None:
        return None
    if not isinstance(name, str):
        return _one_each(topic, table, name)
    if name not in table.column_names:
        raise LogError(
            "HR-LOG-006",
            f"topic '{topic.name}' has no column '{name}' to choose the partition by",
            f"Its columns: {', '.join(table.column_names)}.",
        )
    return table[name]


def _one_each(topic: Topic, table: pa.Table, keys: Sequence[Any]) -> Any:
    if len(keys) != table.num_rows:
        raise LogError(
            "HR-LOG-006",
            f"topic '{topic.name}' gets {table.num_rows} records with {len(keys)} keys",
            "Give one key for each.",
        )
    if topic.schema is None:
        return table["key"]
    try:
        return pa.array(keys)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise LogError(
            "HR-LOG-006",
            f"topic '{topic.name}' gets keys that are not of one type",
            "Give keys of one type: all text, or all numbers.",
        ) from error


def check_partition(topic: Topic, partition: int) -> int:
    if not is_whole(partition) or not 0 <= partition < topic.partitions:
        raise LogError(
            "HR-LOG-005",
            f"topic '{topic.name}' has no partition {partition!r}",
            f"It has partitions 0 to {topic.partitions - 1}.",
        )
    return partition


def check_number(topic: str, partition: Any) -> None:
    """As far as it can be told without the topic."""
    if not is_whole(partition) or not 0 <= partition < 1 << 31:
        raise LogError(
            "HR-LOG-005",
            f"topic '{topic}' has no partition {partition!r}",
            "Partitions are numbered from 0.",
        )


def by_key(keys: pa.ChunkedArray | pa.Array, partitions: int) -> np.ndarray:
    """Equal keys, wherever and whenever, go to equal partitions."""
    hashes = hash_keys([keys])
    return ((hashes >> np.uint64(32)) * np.uint64(partitions) >> np.uint64(32)).astype(np.int64)


def in_turn(rows: int, first: int, partitions: int) -> np.ndarray:
    return (np.arange(rows, dtype=np.int64) + first) % partitions


def by_function(partitioner: Partitioner, table: pa.Table, partitions: int) -> np.ndarray:
    """What the user's function says, checked."""
    if not callable(partitioner):
        raise _wrong(f"is {partitioner!r}, which cannot be called")
    try:
        answer: Any = partitioner(table, partitions)
    except Exception as error:
        raise _wrong(f"raised {type(error).__name__}: {error}") from error
    try:
        if isinstance(answer, pa.Array | pa.ChunkedArray):
            answer = answer.to_numpy(zero_copy_only=False)
        chosen = np.asarray(answer)
    except (ValueError, TypeError, pa.ArrowException) as error:
        raise _wrong(f"gave {type(answer).__name__} for {table.num_rows} records") from error
    if chosen.shape != (table.num_rows,) or chosen.dtype.kind not in "iu":
        raise _wrong(f"gave {chosen.dtype} of shape {chosen.shape} for {table.num_rows} records")
    outside = chosen[(chosen < 0) | (chosen >= partitions)]
    if len(outside):
        raise _wrong(f"chose partition {outside[0]} of a topic with {partitions}")
    return chosen.astype(np.int64)


def split(table: pa.Table, chosen: np.ndarray) -> dict[int, pa.Table]:
    """The records of each partition, in their order."""
    counts = np.bincount(chosen)
    used: Sequence[int] = np.flatnonzero(counts).tolist()
    if len(used) == 1:
        return {used[0]: table}
    order = np.argsort(chosen.astype(np.uint16), kind="stable")  # so small: a radix sort
    sorted_table = table.take(pa.array(order))
    ends = np.cumsum(counts)
    return {p: sorted_table.slice(ends[p] - counts[p], counts[p]) for p in used}


def _wrong(fact: str) -> LogError:
    return LogError(
        "HR-LOG-012",
        f"the partitioner {fact}",
        "It takes (table, partitions) and gives one whole number from 0 to "
        "partitions - 1 for each record.",
    )
