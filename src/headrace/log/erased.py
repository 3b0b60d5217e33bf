"""Which records of a segment are erased: a file beside it.

    <topic>/<place>.erased   by partition, the spans of offsets that are erased

Offsets stay what they were: a block says by its magic that records of it are erased, and has
nothing but zeros in their place. The file is written before the segment is, so it may list records
that are still there, never the other way round. A release that does not know of it reads such a
block as damaged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from headrace.errors import LogError
from headrace.log.sealed import load_sealed, store_sealed
from headrace.log.topic import Topic

FORMAT = 1

Span = tuple[int, int]  # of offsets, [start, end)


def erased_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.erased"


def erased(topic: Topic, base: int, partition: int) -> list[Span]:
    """What is erased of a partition in a segment that has erased records."""
    path = erased_path(topic.path, base)
    content = load_sealed(path, FORMAT, _damaged)
    if content is None or content.get("topic") != topic.id:
        raise _damaged(path)
    return [(start, end) for start, end in content["spans"].get(str(partition), ())]


def all_erased(topic: Topic, base: int) -> dict[int, np.ndarray]:
    """By partition: the offsets that are noted, whether they are overwritten yet or not."""
    content = load_sealed(erased_path(topic.path, base), FORMAT, _damaged) or {}
    return {
        int(partition): np.concatenate([np.arange(a, b) for a, b in spans])
        for partition, spans in content.get("spans", {}).items()
    }


def is_erased(topic: Topic) -> bool:
    """Whether anything of the topic was ever erased, or was about to be."""
    return any(topic.path.glob("*.erased"))


def store_erased(topic: Topic, base: int, offsets: Mapping[int, np.ndarray]) -> None:
    """Note that these are erased, besides those that were before."""
    noted = all_erased(topic, base)
    for partition, numbers in offsets.items():
        noted[partition] = np.union1d(noted.get(partition, numbers), numbers)
    spans = {str(partition): _spans(numbers) for partition, numbers in noted.items()}
    store_sealed(erased_path(topic.path, base), FORMAT, {"topic": topic.id, "spans": spans})


def _spans(numbers: np.ndarray) -> list[list[int]]:
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [[int(run[0]), int(run[-1]) + 1] for run in runs if len(run)]


def stretches(first: int, table: pa.Table, gone: Sequence[Span]) -> Iterator[tuple[int, pa.Table]]:
    """The records, the first of which has offset `first`, without those that are gone."""
    stays = np.ones(table.num_rows, np.bool_)
    for start, end in gone:
        stays[max(start - first, 0) : max(end - first, 0)] = False
    rows = np.flatnonzero(stays)
    for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1):
        if len(run):
            yield first + int(run[0]), table.slice(int(run[0]), len(run))


def _damaged(path: Path) -> LogError:
    return LogError(
        "HR-LOG-011",
        f"the file '{path}', which says what is erased of a segment, is damaged or missing",
        "Restore it from a copy: without it the records of that segment cannot be read.",
    )
