"""Sums of doubles: the exact sum, rounded once, for any order and any split of the rows."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.ops.agg import exact
from headrace.ops.agg import named as agg
from headrace.ops.agg.span import RangeSpan, RunningSpan
from headrace.testing import drive

AGGS = {"s": agg.sum("x"), "m": agg.mean("x")}
powers = st.builds(math.ldexp, st.sampled_from([1.0, -1.0, 1 + 2**-52]), st.integers(-1_074, 1_023))
finite = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.floats(-100, 100), powers,
    st.sampled_from([0.1, 1e16, -1e16, 1.0, -1.0, 5e-324, 1.7976931348623157e308]),
)  # fmt: skip
numbers = st.lists(finite, min_size=1, max_size=40)


def wanted(values: list[float]) -> float:
    """The exact sum, rounded once; inf where it is beyond the largest double."""
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def table(values: Any, group: Any = 0) -> pa.Table:
    groups = np.full(len(values), group) if np.isscalar(group) else group
    return pa.table({"g": groups, "x": pa.array(values, pa.float64())})


def one(partials: pa.Table) -> dict[str, Any]:
    (row,) = agg.result(partials, AGGS).to_pylist()
    return row  # type: ignore[no-any-return]


@given(values=numbers, seed=st.integers(0, 2**32))
@example(values=[1e16, *[1.0] * 1_000, -1e16], seed=1)
@example(values=[1.7976931348623157e308, 1.7976931348623157e308, -1.7976931348623157e308], seed=1)
@example(values=[2.0**53, 1.0, 2.0**-1_074], seed=1)
@example(values=[0.0, -5e-324], seed=0)
def test_any_order_and_any_split_give_the_same_bits(values: list[float], seed: int) -> None:
    random = np.random.default_rng(seed)
    cuts = np.sort(random.integers(0, len(values) + 1, 3))
    parts = [p for p in np.split(random.permutation(values), cuts) if len(p)]
    merged = agg.partial(table(parts[0]), ["g"], AGGS)
    for part in parts[1:]:
        more = agg.partial(table(part), ["g"], AGGS)
        merged = agg.merge(pa.concat_tables([more, merged]), ["g"], AGGS)
    want = wanted(values)
    assert bits(one(merged)["s"]) == bits(want + 0.0)
    assert bits(one(merged)["m"]) == bits((want + 0.0) / len(values))


@given(values=numbers, width=st.integers(1, 9))
def test_windows_that_overlap_and_running_sums_are_exact(values: list[float], width: int) -> None:
    rows = agg.singles(table(values), AGGS)
    column, every = rows["s__sum"], np.arange(len(values))
    low, high = every, np.minimum(every + width, len(values))
    windows = exact.rounded(exact.combined(column, None, RangeSpan(low, high, every)))
    assert windows.tolist() == [wanted(values[a:b]) for a, b in zip(low, high, strict=True)]
    running = exact.rounded(exact.combined(column, None, RunningSpan(np.array([0]), len(values))))
    assert running.tolist() == [wanted(values[: i + 1]) for i in every]


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([math.inf, 1.0], math.inf), ([1e308, -math.inf], -math.inf),
        ([math.inf, -math.inf, 1.0], math.nan), ([math.nan, 1.0], math.nan),
        ([-0.0, -0.0], 0.0), ([None, 2.0], 2.0), ([None, None], None),
        ([1.7976931348623157e308, 1e292], math.inf), ([5e-324] * 3, 1.5e-323),
    ],
)  # fmt: skip
def test_what_is_not_finite_not_there_or_zero(values: list[Any], want: float | None) -> None:
    whole = agg.partial(table(values), ["g"], AGGS)
    parts = pa.concat_tables([agg.partial(table([v]), ["g"], AGGS) for v in values])
    for partials in (whole, agg.merge(parts, ["g"], AGGS)):
        found = one(partials)["s"]
        assert found == want or (want is not None and math.isnan(want) and math.isnan(found))
        assert want != 0 or math.copysign(1, found) == 1


def test_more_rows_than_add_up_exactly_as_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "_BLOCK", 1 << 14)  # two rows at a time take a minute
    count = (1 << 21) + 7
    values = np.full(count, math.nextafter(2.0**31, 0))
    values[::2] = -(2.0**-22)
    found = one(agg.partial(table(values), ["g"], AGGS))["s"]
    halves = [(count // 2, values[1]), (count - count // 2, values[0])]
    assert found == float(sum(Fraction(float(v)) * n for n, v in halves))


def _measured(random: np.random.Generator, rows: int) -> Any:
    return random.integers(-800, 8_000, rows) / 8


def _any_digits(random: np.random.Generator, rows: int) -> Any:
    return random.random(rows) * 100 - 10


def _any_size(random: np.random.Generator, rows: int) -> Any:
    return np.ldexp(random.random(rows) - 0.5, random.integers(-1_074, 1_024, rows))


def _that_cancel(random: np.random.Generator, rows: int) -> Any:
    large = np.ldexp(random.random(rows), random.integers(-30, 90, rows))
    large[1::2] = -large[: rows // 2 * 2 : 2]
    return np.where(random.random(rows) < 0.1, random.random(rows), large)


def _near_the_largest(random: np.random.Generator, rows: int) -> Any:
    signs = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    return signs * np.where(random.random(rows) < 0.7, 1.7976931348623157e308, 5e-324)


def _halfway(random: np.random.Generator, rows: int) -> Any:
    """Sums that lie between two doubles but for a number far below."""
    return random.choice([2.0**53, 1.0, -1.0, 2.0**-60, -(2.0**-60), 2.0**-200], rows)


@pytest.mark.parametrize(
    "values", [_measured, _any_digits, _any_size, _that_cancel, _near_the_largest, _halfway]
)
def test_many_groups_in_many_parts_are_exact(values: Any) -> None:
    random = np.random.default_rng(7)
    x, group = values(random, 2_000), random.integers(0, 300, 2_000)
    cuts = np.sort(random.integers(0, 2_000, 7))
    parts = [
        agg.partial(table(p, g), ["g"], AGGS)
        for p, g in zip(np.split(x, cuts), np.split(group, cuts), strict=True)
    ]
    rows = agg.merge(pa.concat_tables(parts[:4]), ["g"], AGGS)
    rows = agg.merge(pa.concat_tables([rows, *parts[4:]]), ["g"], AGGS)
    found = {row["g"]: row["s"] for row in agg.result(rows, AGGS).to_pylist()}
    want = {int(g): wanted(x[group == g].tolist()) for g in np.unique(group)}
    assert found == want


@pytest.mark.parametrize("values", [_measured, _any_digits, _any_size])
def test_a_partial_stays_small_however_often_it_is_merged(values: Any) -> None:
    random = np.random.default_rng(3)
    merged = agg.partial(table(values(random, 100)), ["g"], AGGS)
    for _ in range(30):
        more = agg.partial(table(values(random, 100)), ["g"], AGGS)
        merged = agg.merge(pa.concat_tables([merged, more]), ["g"], AGGS)
    assert len(merged["s__sum"][0]) <= {_measured: 1, _any_digits: 2}.get(values, 60)


def test_what_was_split_once_is_merged_and_windowed_without_splitting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Splitting is most of what exact sums cost: rows are split, their partials are not."""
    monkeypatch.setattr(exact, "_ROOM", 1 << 12)
    random = np.random.default_rng(5)
    x, group = _any_digits(random, 4_000), random.integers(0, 400, 4_000)
    halves = [agg.partial(table(x[h::2], group[h::2]), ["g"], AGGS) for h in (0, 1)]
    monkeypatch.setattr(exact, "_digits", None)
    merged = agg.merge(pa.concat_tables(halves), ["g"], AGGS).sort_by("g")
    every = np.arange(merged.num_rows)
    low, high = every, np.minimum(every + 12, merged.num_rows)
    windows = exact.rounded(exact.combined(merged["s__sum"], None, RangeSpan(low, high, every)))
    sums = [x[(group >= a) & (group < b)].tolist() for a, b in zip(low, high, strict=True)]
    assert windows.tolist() == [wanted(each) for each in sums]


@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30))
def test_the_mean_of_integers_is_that_of_their_exact_sum(values: list[int]) -> None:
    """Whole numbers below 2**31, of any size as doubles."""
    short = [v >> 32 for v in values]
    rows = pa.table({"g": np.zeros(len(short), np.int64), "x": pa.array(short, pa.int64())})
    parts = [agg.partial(rows.slice(i, 1), ["g"], {"m": AGGS["m"]}) for i in range(len(short))]
    for partials in (agg.partial(rows, ["g"], {"m": AGGS["m"]}), pa.concat_tables(parts)):
        merged = agg.merge(partials, ["g"], {"m": AGGS["m"]})
        (row,) = agg.result(merged, {"m": AGGS["m"]}).to_pylist()
        assert row["m"] == sum(short) / len(short)
    terms = exact.of_integers(np.array(values))
    assert exact.rounded(exact.encoded(terms)).tolist() == [float(v) for v in values]


@pytest.mark.parametrize("batch", [100, 300, 5_000])
@pytest.mark.parametrize("window", [hr.tumbling("1h"), hr.sliding("1h", every="20m")], ids=str)
def test_a_job_adds_up_exactly_however_rows_are_cut(tmp_path: Any, batch: int, window: Any) -> None:
    values = [1e16, *[1.0] * 1_000, -1e16]
    rows = [{"k": "a", "x": x, "at": i} for i, x in enumerate(values)]
    job = hr.Job("exact")
    stream = job.read(hr.rows(rows), time="at", delay="1s")
    sums = stream.key_by("k").window(window).agg(s=hr.sum("x"), m=hr.mean("x"))
    sums.write("collect:", name="out")
    found = drive(job, tmp_path, max_batch=batch, tasks=2).output("out").to_pylist()
    assert {(row["s"], row["m"]) for row in found} == {(1_000.0, 1_000 / 1_002)}
