"""What the tests of sources share: reading as an engine would, and refusals."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import InputError
from headrace.sources import Source


def again(value: Any) -> Any:
    """The value after a journey to a task."""
    return pickle.loads(cloudpickle.dumps(value))


def epochs(source: Source, split: str, start: Any, rows: int) -> Iterator[tuple[Any, Any]]:
    """From `start` to the latest, about `rows` records at a time."""
    while (end := source.latest(split)) != start:
        stop = source.clamp(split, start, end, rows)
        assert start < stop <= end
        yield start, stop
        start = json.loads(json.dumps(stop))


def chunks(source: Source, split: str, start: Any, end: Any, pieces: int = 3) -> list[Any]:
    ranges = source.cut(split, start, end, pieces)
    assert len(ranges) <= pieces
    assert [r.start for r in ranges] + [end] == [start] + [r.end for r in ranges]
    task = again(source)
    return [chunk for r in ranges for chunk in task.read(again(r))]


def read_split(
    source: Source, split: str, start: Any = None, rows: int = 1000, pieces: int = 3
) -> tuple[list[dict[str, Any]], list[int]]:
    """All rows of a split and their offsets, read epoch by epoch."""
    found, offsets = [], [np.zeros(0, np.int64)]
    start = source.start(split) if start is None else start
    for a, b in epochs(source, split, start, rows):
        for table, positions in chunks(source, split, a, b, pieces):
            assert len(positions) == table.num_rows and positions.dtype == np.int64
            offsets.append(positions)
            found += typed(source, table).to_pylist()
    every = np.concatenate(offsets)
    assert (np.diff(every) > 0).all()
    return found, every.tolist()


def read_all(source: Source, rows: int = 1000, pieces: int = 3) -> list[dict[str, Any]]:
    return [r for s in source.splits() for r in read_split(source, s, None, rows, pieces)[0]]


def typed(source: Source, chunk: pa.Table) -> pa.Table:
    if not source.raw:
        assert chunk.schema.equals(source.schema)
        return chunk
    assert chunk.column_names == ["__raw"]
    table, bad, errors = source.decode(chunk)
    assert not bad.any(), errors
    assert table.schema.equals(source.schema)
    return table


def refusal(call: Callable[..., object], *args: Any, **kwargs: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        call(*args, **kwargs)
    assert caught.value.hint
    return caught.value
