"""Rows by bucket of time and hash: what is found is what a search through all rows finds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.state.sorted_run import ALL_HASHES, SortedRun, sorted_run
from headrace.state.table import KeyedTable, TableSpec

SPEC = TableSpec("t", pa.schema([("k", pa.int64())]), pa.schema([("v", pa.int64())]),
                 timed=True, once=True)  # fmt: skip
HASHES = [0, 1, 2, 2**63, ALL_HASHES - 2, ALL_HASHES - 1]
ROWS = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from(HASHES)), max_size=12)


def as_rows(drawn: list[tuple[int, int]], first: int) -> pa.Table:
    count = len(drawn)
    return pa.table({
        "__t": pa.array([t for t, _ in drawn], pa.int64()),
        "__h": pa.array([h for _, h in drawn], pa.uint64()),
        "k": pa.array([0] * count, pa.int64()), "v": pa.array(range(first, first + count)),
        "__gone": pa.array([False] * count),
    })  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    runs=st.lists(ROWS, min_size=1, max_size=4),
    asked=ROWS,
    floor=st.integers(-4, 4),
    lo=st.sampled_from([0, 2, 2**63]),
    hi=st.sampled_from([ALL_HASHES, ALL_HASHES - 1]),
)
def test_rows_are_found_by_time_and_hash(
    runs: list[Any], asked: list[Any], floor: int, lo: int, hi: int
) -> None:
    made, every, first = list[SortedRun](), list[tuple[int, int, int]](), 0
    for drawn in runs:
        rows = as_rows(drawn, first)
        made.append(sorted_run(SPEC, rows).part(lo, hi, floor))
        every += [(t, h, first + i) for i, (t, h) in enumerate(drawn)]
        first += len(drawn)
    wanted = sorted(set(asked))
    found = KeyedTable(SPEC, made, floor).match_at(
        np.array([t for t, _ in wanted], np.int64), np.array([h for _, h in wanted], np.uint64)
    )
    there = [v for t, h, v in every if (t, h) in wanted and t >= floor and lo <= h < hi]
    assert sorted(found["v"].to_pylist()) == there


@given(drawn=ROWS, more=ROWS)
def test_rows_written_once_are_all_there(drawn: list[Any], more: list[Any]) -> None:
    table = KeyedTable(SPEC)
    table.put(as_rows(drawn, 0))
    table.put(as_rows(more, len(drawn)))
    assert sorted(table.scan()["v"].to_pylist()) == list(range(len(drawn) + len(more)))
