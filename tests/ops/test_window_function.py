"""Functions over the rows of windows: each window gets its own rows, in order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.ops.window.function import FoldRows, WindowedRows
from headrace.ops.window.process import ProcessRows

ROW = pa.schema([("k", pa.string()), ("v", pa.int64())])
SIZES = [
    [1],
    [4_000, 1],
    [3_999, 1, 1],
    [10_000, 2, 1, 9_000],
    [7] * 2_000,
]  # rows are made 4,000 at a time, of whole windows


def laid(sizes):
    count = sum(sizes)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    rows = pa.table({"k": pa.array(owner).cast(pa.string()), "v": np.arange(count)})
    starts = np.cumsum(sizes) - sizes
    keys = pa.table({"k": pa.array(np.arange(len(sizes))).cast(pa.string())})
    each = np.zeros(len(sizes), np.int64)
    late = ["on time"] * len(sizes)
    return WindowedRows(rows, starts, keys, each, each + 1, each, late, [True] * len(sizes))


def expected(sizes):
    """Of each window: its number, its rows and the sum of their numbers."""
    ends = np.cumsum(sizes).tolist()
    spans = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return [(str(i), len(span), sum(span)) for i, span in enumerate(spans)]


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{len(sizes)} windows")
def test_a_function_gets_the_rows_of_its_window_however_many_there_are(sizes):
    def about(key, window, rows):
        assert {row.k for row in rows} == {key}
        assert [row.v for row in rows] == sorted(row.v for row in rows)
        return key, len(rows), sum(row.v for row in rows)

    schema = pa.schema([("k", pa.string()), ("n", pa.int64()), ("total", pa.int64())])
    given = ProcessRows(about, ["k"], ROW, schema).over(laid(sizes))

    assert not given.faults
    assert given.windows.tolist() == list(range(len(sizes)))
    assert [tuple(row.values()) for row in given.values.to_pylist()] == expected(sizes)


@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: f"{len(sizes)} windows")
def test_a_fold_goes_over_the_rows_of_its_window_however_many_there_are(sizes):
    def total(value, row):
        return (value[0] + row.v,)

    fold = FoldRows(total, lambda: (0,), ROW, pa.schema([("total", pa.int64())]))
    given = fold.over(laid(sizes))

    assert given.values.column("total").to_pylist() == [total for *_, total in expected(sizes)]


def test_only_the_window_on_which_a_function_fails_is_set_aside():
    def sizes_of(key, window, rows):
        if key == "1":
            raise ValueError("no")
        return (len(rows),)

    schema = pa.schema([("n", pa.int64())])
    given = ProcessRows(sizes_of, ["k"], ROW, schema).over(laid([5_000, 3, 4_500]))

    assert given.windows.tolist() == [0, 2]
    assert given.values.column("n").to_pylist() == [5_000, 4_500]
    assert [(fault.row["v"].to_pylist(), str(fault.error)) for fault in given.faults] == [
        ([5_000], "no")
    ]
