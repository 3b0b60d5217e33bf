"""Histograms of equal width count exactly: whole numbers and decimals that are no doubles, too."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import PlanError
from headrace.ops.agg import named


def counts(values: pa.Array, bins: int, low: float, high: float) -> list[int]:
    aggs = {"h": hr.histogram("v", bins, low=low, high=high)}
    rows = pa.table({"g": pa.array([0] * len(values)), "v": values})
    (found,) = named.result(named.partial(rows, ["g"], aggs), aggs)["h"].to_pylist()
    return [bucket["count"] for bucket in found]


def by_fractions(values: list[Any], bins: int, low: float, high: float) -> list[int]:
    edges = [Fraction(float(e)) for e in np.linspace(low, high, bins + 1)]
    places = [sum(e <= Fraction(v) for e in edges) for v in values]
    return [places.count(i) for i in range(bins + 2)]


@given(st.lists(st.integers(-4, 12), min_size=1), st.sampled_from([2**53, 2**60, 2**62, -(2**60)]))
def test_whole_numbers_beyond_those_that_are_doubles(steps: list[int], base: int) -> None:
    spacing = max(8, abs(base) >> 50)
    values = [base + step for step in steps] + [base + spacing * 3 + step for step in steps]
    found = counts(pa.array(values, pa.int64()), 4, base, base + 4 * spacing)
    assert found == by_fractions(values, 4, base, base + 4 * spacing)


def test_the_largest_whole_numbers_are_below_a_bound_that_they_round_to() -> None:
    values = [2**63 - 1, 2**63 - 1_000, 0, None]
    assert counts(pa.array(values, pa.int64()), 1, 0, 2**63) == [0, 3, 0]


@given(st.lists(st.decimals("-0.2", "0.6", places=30), min_size=1))
def test_decimals_beside_a_double(values: list[Decimal]) -> None:
    near = [Decimal(f"{e}{d}") for e in ("0.0", "0.1", "0.2") for d in ("9" * 29, "0" * 28 + "1")]
    near += [Decimal(e) for e in ("0.1", "0.2", "0.3")]
    every = values + near
    found = counts(pa.array(every, pa.decimal128(38, 30)), 4, 0.0, 0.4)
    assert found == by_fractions(every, 4, 0.0, 0.4)


@pytest.mark.parametrize(
    ("bins", "low", "high"),
    [(10, 1_700_000_000_000_000_000, 1_700_000_000_000_010_000), (4, 2**53 + 1, 2**54),
     (1_000, 2.0**60, 2.0**60 + 4_096)],
)  # fmt: skip
def test_bounds_that_doubles_do_not_have_are_refused(bins: int, low: float, high: float) -> None:
    with pytest.raises(PlanError, match=r"HR-APPROX-002 .*which are doubles"):
        hr.histogram("v", bins, low=low, high=high)
