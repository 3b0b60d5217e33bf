"""Which partition: arithmetic that holds for ever, and loses nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis.strategies import integers, lists

from headrace.log.partitioning import by_key, in_turn, split


@given(chosen=lists(integers(0, 7), min_size=1, max_size=50))
def test_split_keeps_every_record_and_the_order_within_a_partition(chosen):
    table = pa.table({"n": range(len(chosen))})
    parts = split(table, np.array(chosen))
    assert {p: t["n"].to_pylist() for p, t in parts.items()} == {
        p: [n for n, c in enumerate(chosen) if c == p] for p in sorted(set(chosen))
    }


@given(rows=integers(0, 50), first=integers(0, 10**9), partitions=integers(1, 9))
def test_records_in_turn_differ_by_one_at_most(rows, first, partitions):
    counts = np.bincount(in_turn(rows, first, partitions), minlength=partitions)
    assert counts.sum() == rows
    assert counts.max() - counts.min() <= 1


def test_keys_go_where_they_have_always_gone():
    """A change here would tear the records of a key apart in every topic there is."""
    assert by_key(pa.array([*"abcdefgh", None]), 4).tolist() == [2, 0, 3, 1, 2, 2, 1, 1, 1]
    assert by_key(pa.array(range(8)), 4).tolist() == [3, 2, 2, 0, 1, 1, 2, 1]
    assert by_key(pa.array([b"a", b"b"]), 4).tolist() == [2, 0]


@given(keys=lists(integers(-(2**31), 2**31 - 1), min_size=1), partitions=integers(1, 64))
def test_a_key_goes_to_a_partition_that_exists_whatever_its_width(keys, partitions):
    wide, narrow = pa.array(keys, pa.int64()), pa.array(keys, pa.int32())
    chosen = by_key(wide, partitions)
    assert (chosen >= 0).all() and (chosen < partitions).all()
    assert (chosen == by_key(narrow, partitions)).all()
