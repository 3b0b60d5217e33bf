"""Variance and standard deviation: to which digit they are right, however rows are cut and ordered.

The guide says: an error of at most 1e-14 (1 + |mean| / stddev) of the value. Oracle: fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.ops.agg import named as agg
from headrace.ops.agg.span import RangeSpan, RunningSpan
from headrace.testing import drive

AGGS = {"v": agg.variance("x"), "d": agg.stddev("x")}
sizes = st.one_of(st.floats(-100, 100), st.floats(-1e9, 1e9), st.sampled_from([0.1, 1e6, -3.0]))
numbers = st.lists(sizes, min_size=2, max_size=60)


def check(found: dict[str, Any], values: list[float]) -> None:
    exact = [Fraction(v) for v in values]
    mean = sum(exact) / len(exact)
    true = float(sum((v - mean) ** 2 for v in exact) / (len(exact) - 1))
    size = abs(float(mean))
    bound = 1e-14 * (true + size * math.sqrt(true)) + (1e-15 * size) ** 2 + 1e-300
    assert abs(found["v"] - true) <= bound
    assert found["d"] == math.sqrt(found["v"])


def table(values: Any) -> pa.Table:
    return pa.table({"g": np.zeros(len(values), np.int64), "x": pa.array(values, pa.float64())})


def results(values: Any, random: np.random.Generator) -> list[dict[str, Any]]:
    """Whole, in parts at once, in parts one after the other, row by row, and as stretches."""
    cuts = np.sort(random.integers(0, len(values) + 1, 4))
    shuffled = random.permutation(values)
    parts = [agg.partial(table(p), ["g"], AGGS) for p in np.split(shuffled, cuts) if len(p)]
    chain = parts[0]
    for part in parts[1:]:
        chain = agg.merge(pa.concat_tables([chain, part]), ["g"], AGGS)
    rows = agg.singles(table(shuffled), AGGS)
    alone = rows.add_column(0, "g", pa.array(np.zeros(len(values), np.int64)))
    merged = [agg.merge(p, ["g"], AGGS) for p in (pa.concat_tables(parts), alone)]
    found = [agg.result(p, AGGS).to_pylist()[0] for p in (parts[0], chain, *merged)]
    every = np.arange(len(values))
    for span in (RangeSpan(every[:1], every[-1:] + 1, every), RunningSpan(every[:1], len(values))):
        made = {n: a.synopsis.combine(agg.columns_of(rows, n, a), span) for n, a in AGGS.items()}
        column = {n: AGGS[n].synopsis.result(c).to_pylist()[-1] for n, c in made.items()}
        found.append(column)
    return found[len(parts) > 1 :]


@given(values=numbers, seed=st.integers(0, 2**32))
@example(values=[0.1] * 10, seed=1)
@example(values=[1e9, 1e9 + 1e-6, 1e9], seed=1)
def test_any_cut_and_order_is_right_to_the_digit_that_is_said(
    values: list[float], seed: int
) -> None:
    for found in results(values, np.random.default_rng(seed)):
        check(found, values)


@pytest.mark.parametrize("ratio", [0, 1, 1e3, 1e6, 1e9])
def test_many_rows_are_right_to_the_digit_that_is_said(ratio: float) -> None:
    random = np.random.default_rng(5)
    values = random.standard_normal(3_000) + ratio
    for found in results(values, random):
        check(found, values.tolist())


@pytest.mark.parametrize("batch", [7, 100, 5_000])
@pytest.mark.parametrize("window", [hr.tumbling("1h"), hr.sliding("1h", every="20m")], ids=str)
def test_a_job_is_right_to_the_digit_that_is_said(tmp_path: Any, batch: int, window: Any) -> None:
    values = (np.random.default_rng(2).standard_normal(500) + 1e4).tolist()
    rows = [{"k": "a", "x": x, "at": i} for i, x in enumerate(values)]
    job = hr.Job("moments")
    stream = job.read(hr.rows(rows), time="at", delay="1s")
    made = stream.key_by("k").window(window).agg(v=hr.variance("x"), d=hr.stddev("x"))
    made.write("collect:", name="out")
    found = drive(job, tmp_path, max_batch=batch, tasks=2).output("out").to_pylist()
    assert found
    for row in found:
        check(row, values)
