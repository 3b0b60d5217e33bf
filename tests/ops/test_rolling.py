"""Running aggregates: after each row, and over epochs, against plain Python."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.aggregate_model import AGGS, ROWS, SCHEMA, check, table_of

from headrace.errors import RunError
from headrace.ops.agg import named as agg
from headrace.ops.stream.running_aggregates import rolling


def sorted_rows(table: pa.Table) -> tuple[pa.Table, np.ndarray]:
    """Rows key by key in order, and where each key starts."""
    rows = table.sort_by([(c, "ascending") for c in ("k", "__t", "__s", "__o")])
    keys = rows["k"].to_numpy()
    return rows, np.flatnonzero(np.diff(keys, prepend=-1))


def in_epochs(table: pa.Table, epoch: np.ndarray) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(row, its running results) for all rows, with partials kept by key between epochs."""
    state: dict[int, dict[str, Any]] = {}
    schema = pa.schema([f for n, a in AGGS.items() for f in a.partial_fields(n, SCHEMA)])
    seen = []
    for number in range(4):
        rows, starts = sorted_rows(table.filter(pa.array(epoch == number)))
        if not rows.num_rows:
            continue
        keys = rows["k"].take(pa.array(starts)).to_pylist()
        blank = dict.fromkeys(schema.names)
        held = pa.Table.from_pylist([state.get(k, blank) for k in keys], schema)
        known = np.array([k in state for k in keys])
        running, after = rolling(rows, starts, AGGS, held, known)
        assert after.schema == schema
        assert running.schema.types == [a.result_type(SCHEMA) for a in AGGS.values()]
        state.update(zip(keys, after.to_pylist(), strict=True))
        seen += zip(rows.to_pylist(), running.to_pylist(), strict=True)
    return seen


@settings(max_examples=25, deadline=None)
@given(ROWS, st.integers(0, 2**32))
def test_running_results_are_those_of_the_rows_so_far_whatever_the_epochs(
    rows: list[Any], seed: int
) -> None:
    table = table_of(rows)
    epoch = np.random.default_rng(seed).integers(0, 4, len(rows))

    so_far: dict[int, list[dict[str, Any]]] = {}
    for row, running in in_epochs(table, epoch):
        so_far.setdefault(row["k"], []).append(row)
        check(running, so_far[row["k"]], AGGS)


def test_a_float_sum_is_the_same_to_the_last_bit_whatever_the_epochs() -> None:
    random = np.random.default_rng(3)
    values = random.normal(0, 1e6, 900)
    sizes = np.array([600, 100, 100, 50, 30, 20])
    starts = np.cumsum(sizes) - sizes
    aggs = {"s": agg.sum("x")}

    whole, _ = rolling(pa.table({"x": values}), starts, aggs)
    cut = sizes // 2
    first = np.concatenate([np.arange(s, s + c) for s, c in zip(starts, cut, strict=True)])
    rest = np.setdiff1d(np.arange(900), first)
    _, state = rolling(pa.table({"x": values[first]}), np.cumsum(cut) - cut, aggs)
    left = sizes - cut
    later, _ = rolling(pa.table({"x": values[rest]}), np.cumsum(left) - left, aggs, state)

    want = np.array([
        math.fsum(part[: i + 1]) for part in np.split(values, starts[1:]) for i in range(len(part))
    ])  # fmt: skip
    assert whole["s"].to_numpy().tolist() == want.tolist()
    assert later["s"].to_numpy().tolist() == want[rest].tolist()


def test_one_long_group_and_many_short_ones_agree_with_numpy() -> None:
    random = np.random.default_rng(5)
    sizes = np.concatenate([[20_000], random.integers(1, 9, 3_000)])
    random.shuffle(sizes)
    starts = np.cumsum(sizes) - sizes
    values = random.integers(-100, 100, int(sizes.sum()))
    aggs = {"n": agg.count(), "hi": agg.max("x"), "v": agg.variance("x"), "l": agg.last("x")}

    running, after = rolling(pa.table({"x": values}), starts, aggs)

    parts = np.split(values, starts[1:])
    assert running["n"].to_numpy().tolist() == [i for s in sizes for i in range(1, s + 1)]
    highest = np.concatenate([np.maximum.accumulate(p) for p in parts])
    assert running["hi"].to_numpy().tolist() == highest.tolist()
    assert running["l"].to_numpy().tolist() == values.tolist()
    spread = running["v"].to_numpy(zero_copy_only=False)[starts + sizes - 1]
    with np.errstate(all="ignore"):
        want = [np.var(p, ddof=1) if len(p) > 1 else np.nan for p in parts]
    np.testing.assert_allclose(spread, want)
    assert after["n__n"].to_pylist() == sizes.tolist()


def test_a_row_older_than_what_is_held_does_not_become_the_last() -> None:
    aggs = {"f": agg.first("x"), "l": agg.last("x"), "c": agg.collect("x")}
    starts = np.array([0])

    _, state = rolling(pa.table({"x": ["b"], "__t": [5]}), starts, aggs)
    running, _ = rolling(pa.table({"x": ["a", "c"], "__t": [3, 9]}), starts, aggs, state)

    assert running.to_pylist() == [
        {"f": "a", "l": "b", "c": ["a", "b"]}, {"f": "a", "l": "c", "c": ["a", "b", "c"]},
    ]  # fmt: skip


def test_a_running_sum_beyond_64_bits_is_an_error() -> None:
    rows = pa.table({"x": [2**62, 2**62]})

    with pytest.raises(RunError):
        rolling(rows, np.array([0]), {"s": agg.sum("x")})
    running, _ = rolling(rows, np.array([0, 1]), {"s": agg.sum("x")})

    assert running["s"].to_pylist() == [2**62, 2**62]
