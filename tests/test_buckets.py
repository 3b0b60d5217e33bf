"""Histograms in buckets, against sorted lists in plain Python."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists, one_of, sampled_from

from headrace.buckets import (
    QUANTILES,
    WIDTH,
    added,
    below,
    bucket_of,
    histogram,
    middle,
    percentiles,
    quantiles,
    shifted,
    since,
    sum_of,
)

sizes = floats(1e-300, 1e300)  # nearer to zero a number counts as zero
numbers = one_of(integers(-(2**53), 2**53), sizes, sizes.map(lambda x: -x), sampled_from([0, 1]))


def exact(values: list[float], share: float) -> float:
    return sorted(values)[max(1, ceil(share * len(values))) - 1]


def near(found: float, wanted: float) -> bool:
    return found == pytest.approx(wanted, rel=WIDTH / 2 + 1e-9, abs=1e-300)


@given(values=lists(numbers, min_size=1), share=floats(0, 1))
def test_a_quantile_is_that_of_the_sorted_numbers_within_half_a_bucket(values, share):
    values = [float(v) for v in values]
    found = quantiles(histogram(np.array(values)), [share])
    assert found is not None and near(found[0], exact(values, share))


@given(values=lists(integers(-(10**13), 10**13), max_size=50))
def test_whole_numbers_are_counted_as_numbers_with_a_fraction(values):
    whole, real = np.array(values, np.int64), np.array(values, np.float64)
    assert histogram(whole) == histogram(real)
    assert sum(histogram(whole).values()) == len(values)


@given(number=numbers)
def test_the_middle_of_a_bucket_is_in_it_and_buckets_are_in_order(number):
    bucket = bucket_of(number)
    assert bucket_of(middle(bucket)) == bucket
    assert near(middle(bucket), number)
    assert middle(bucket - 1) < middle(bucket) or bucket in (0, -1)


@given(a=lists(integers(0, 10**6)), b=lists(integers(0, 10**6)))
def test_histograms_add_up_and_what_was_before_can_be_taken_away(a, b):
    first, second = histogram(np.array(a, np.int64)), histogram(np.array(b, np.int64))
    both = added(first, second)
    assert both == dict(sorted(histogram(np.array(a + b, np.int64)).items()))
    assert since(both, first) == dict(second)


@given(values=lists(integers(-(10**9), 10**9), min_size=1), by=integers(0, 10**9))
def test_a_shifted_histogram_is_off_by_half_a_bucket_of_either_number(values, by):
    moved = shifted(histogram(np.array(values, np.int64)), by)
    for share in QUANTILES.values():
        found = quantiles(moved, [share])
        assert found is not None
        wanted = exact([float(v) for v in values], share)
        slack = WIDTH / 2 * (abs(wanted) + abs(found[0])) + 1e-6
        assert abs(found[0] - (wanted + by)) <= slack


def test_of_nothing_there_are_no_percentiles():
    assert percentiles({}) is None
    assert percentiles(histogram(np.array([], np.int64))) is None
    assert percentiles({bucket_of(8): 3}) == pytest.approx(dict.fromkeys(QUANTILES, 8.25))


@given(values=lists(numbers))
def test_counts_below_bounds_are_those_of_the_numbers_themselves(values):
    values = [float(v) for v in values]
    powers = range(-1000, 1000, 7)
    found = below(histogram(np.array(values)), powers)
    assert found == [(bound, sum(v < bound for v in values)) for bound, _ in found]
    assert [bound for bound, _ in found] == [2.0**p * (1 + WIDTH) for p in powers]


@given(values=lists(floats(0, 1e15)))
def test_the_sum_is_right_within_half_a_bucket(values):
    assert sum_of(histogram(np.array(values))) == pytest.approx(sum(values), rel=WIDTH / 2 + 1e-9)
