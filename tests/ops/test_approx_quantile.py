"""approx_quantile, approx_quantiles, histogram: the format, the error, cuts, windows, refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from tests.ops.sketch_streams import STREAMS

import headrace as hr
from headrace.errors import PlanError
from headrace.ops.agg import named
from headrace.ops.stream.running_aggregates import rolling
from headrace.testing import Harness

SHARES = (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0)
ERROR = 0.03
AGGS = {
    "q": hr.approx_quantiles("v", SHARES, error=ERROR, bounds=True),
    "h": hr.histogram("v", 4, error=ERROR, bounds=True),
}


def table(values: Any, group: Any = 0) -> pa.Table:
    column = pa.array(values)
    return pa.table({"g": pa.array(np.broadcast_to(group, len(column))), "v": column})


def in_pieces(values: Any, pieces: int) -> pa.Table:
    """The partial of all values, merged from that of each piece."""
    parts = [named.partial(table(p), ["g"], AGGS) for p in np.array_split(values, pieces)]
    merged = parts[0]
    for part in parts[1:]:
        merged = named.merge(pa.concat_tables([merged, part]), ["g"], AGGS)
    return merged


def off(values: Any, found: float, share: float) -> float:
    """How far the rank of `found`, which may be a stretch of equal values, is from the share."""
    below, upto = (np.searchsorted(np.sort(values), found, side=s) for s in ("left", "right"))
    return float(max(below / len(values) - share, share - upto / len(values), 0))


@pytest.mark.parametrize("count", [1, 2, 87, 88, 89, 150, 3_000, 40_000])
def test_the_library_reads_the_bytes_and_writes_the_same(count: int) -> None:
    values = np.random.default_rng(count).normal(size=count)
    raw = in_pieces(values, 3 if count > 3 else 1)["q__kll"][0].as_py()
    theirs = datasketches.kll_doubles_sketch.deserialize(raw)
    assert theirs.serialize() == raw
    assert (theirs.n, theirs.get_min_value(), theirs.get_max_value()) == (
        count, values.min(), values.max(),
    )  # fmt: skip
    mine = named.result(in_pieces(values, 3 if count > 3 else 1), AGGS)["q"][0].as_py()
    assert [q["value"] for q in mine[1:-1]] == theirs.get_quantiles(list(SHARES[1:-1]), True)


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("pieces", [1, 9])
def test_ranks_are_within_the_error_for_95_of_100_streams(
    stream: Callable[[np.random.Generator], Any], pieces: int
) -> None:
    inside = held = covered = counted = 0
    for seed in range(100):
        values = stream(np.random.default_rng(seed)).astype(np.float64)
        (row,) = named.result(in_pieces(values, pieces), AGGS).to_pylist()
        found = row["q"]
        counted += all(counts_hold(values, bucket) for bucket in row["h"])
        pairs = list(zip(found, SHARES, strict=True))
        inside += all(off(values, q["value"], share) <= ERROR for q, share in pairs)
        held += all(q["low"] <= q["value"] <= q["high"] for q, _ in pairs)
        ranks = [max(math.ceil(share * len(values)) - 1, 0) for share in SHARES]
        exact = np.sort(values)[ranks].tolist()
        covered += all(q["low"] <= v <= q["high"] for q, v in zip(found, exact, strict=True))
    assert inside >= 95 and held == 100 and covered >= 95, (inside, held, covered)
    assert counted >= 95, counted


def counts_hold(values: Any, bucket: dict[str, Any]) -> bool:
    low, high = bucket["low"], bucket["high"]
    closed = np.sum((low <= values) & (values <= high))
    between = np.sum((low < values) & (values < high))
    assert bucket["least"] <= bucket["count"] <= bucket["most"] <= len(values)
    return bool(bucket["least"] <= closed and between <= bucket["most"])


def test_the_same_rows_give_the_same_bytes_in_any_order() -> None:
    draw = np.random.default_rng(2)
    values = draw.normal(size=5_000)
    assert in_pieces(values, 1).equals(in_pieces(draw.permutation(values), 1))
    assert in_pieces(values, 7).equals(in_pieces(values, 7))


def test_groups_do_not_touch_each_other() -> None:
    draw = np.random.default_rng(3)
    sizes = draw.integers(1, 900, 40)
    group = draw.permutation(np.repeat(np.arange(40), sizes))
    rows = table(draw.normal(size=len(group)), group)
    together = named.partial(rows, ["g"], AGGS).sort_by("g")
    alone = [named.partial(rows.filter(pa.array(group == g)), ["g"], AGGS) for g in range(40)]
    assert together.equals(pa.concat_tables(alone).combine_chunks())


def test_running_is_within_the_error_after_every_row() -> None:
    draw = np.random.default_rng(4)
    values = draw.normal(size=2_000)
    rows, held = table(values).append_column("__t", pa.array(np.arange(2_000))), None
    for low, high in ((0, 300), (300, 1_300), (1_300, 2_000)):
        present = None if held is None else np.array([True])
        results, held = rolling(rows[low:high], np.array([0]), AGGS, held, present)
        for place in range(low, high, 61):
            for found, share in zip(results["q"][place - low].as_py(), SHARES, strict=True):
                assert off(values[: place + 1], found["value"], share) <= ERROR
            buckets = results["h"][place - low].as_py()
            assert sum(b["count"] for b in buckets) == place + 1


@pytest.mark.parametrize("count", [10, 100, 150])
def test_of_few_values_each_share_is_exact(count: int) -> None:
    """7 of 100 values are 0.07 of them, though 0.07 * 100 is more than 7 in doubles."""
    shares = [place / count for place in range(count + 1)]
    aggs = {"q": hr.approx_quantiles("v", shares), "h": hr.histogram("v", count)}
    rows = table(np.arange(1.0, count + 1)).append_column("__t", pa.array(np.arange(count)))
    exact = [1.0, *np.arange(1.0, count + 1)]
    (row,) = named.result(named.partial(rows, ["g"], aggs), aggs).to_pylist()
    running, _ = rolling(rows, np.array([0]), aggs, None, None)
    for quantiles, buckets in ((row["q"], row["h"]), [running[n][-1].as_py() for n in "qh"]):
        assert quantiles == exact
        assert [(b["low"], b["high"]) for b in buckets] == [*itertools.pairwise(exact)]


def test_null_nan_infinity_and_the_sign_of_zero() -> None:
    aggs = {"q": hr.approx_quantiles("v", [0, 0.5, 1]), "m": hr.approx_quantile("v", 0.5)}

    def of(values: list[Any]) -> Any:
        rows = table(pa.array(values, pa.float64()))
        (row,) = named.result(named.partial(rows, ["g"], aggs), aggs).to_pylist()
        return row["q"], row["m"]

    assert of([None, None]) == (None, None)
    assert of([None, 4.0]) == ([4.0, 4.0, 4.0], 4.0)
    low, middle, high = of([math.nan, 1.0, 2.0])[0]
    assert (low, middle) == (1.0, 2.0) and math.isnan(high)
    assert all(math.isnan(v) for v in of([math.nan])[0])
    assert of([-math.inf, 0.0, math.inf])[0] == [-math.inf, 0.0, math.inf]
    assert str(of([-0.0])[1]) == "0.0"


def job(window: Any, k: float | None = None) -> hr.Job:
    made = hr.Job("latencies")
    rows = made.read("log:a", schema="ms bigint, at bigint", time="at", delay="1s", name="in")
    result = rows.window(window).agg(
        "approx_quantile(ms, 0.5, 0.02) - min(ms) as above",
        "histogram(ms, 3, 0, 30) as wide",
        p=hr.approx_quantile("ms", 0.5, error=k), all=hr.collect("ms"), name="w",
    )  # fmt: skip
    result.write("log:out", name="out")
    return made


@pytest.mark.parametrize(
    "window", [hr.sliding("20s", every="5s"), hr.session("3s"), hr.cumulating("20s", every="5s")]
)
def test_windows_with_a_crash_between(window: Any) -> None:
    draw = np.random.default_rng(1)
    at = np.cumsum(draw.integers(0, 900, 60)).tolist()
    rows = [{"ms": int(draw.integers(0, 40)), "at": t} for t in at]
    with Harness(job(window)) as test:
        for low in range(0, 60, 9):
            if low % 2:
                test.crash()
            test.send("in", rows[low : low + 9])
        test.end()
        found = test.output("out")
    assert found
    for row in found:
        values = sorted(row["all"])
        middle = values[math.ceil(len(values) / 2) - 1]
        assert (row["p"], row["above"]) == (middle, middle - values[0])
        counts = [b["count"] for b in row["wide"]]
        inside = [sum(lo <= v < lo + 10 for v in values) for lo in (0, 10, 20)]
        assert counts == [0, *inside, sum(v >= 30 for v in values)]


def test_another_error_is_refused_for_stored_state() -> None:
    with Harness(job(hr.tumbling("10s"))) as test:
        test.send("in", [{"ms": 1, "at": 1_000}])
        with pytest.raises(hr.StateError, match="HR-EVOLVE"):
            test.restart(job(hr.tumbling("10s"), k=0.05))


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: hr.approx_quantile("v", 1.5), "HR-AGG-016"),
        (lambda: hr.approx_quantiles("v", []), "HR-AGG-016"),
        (lambda: hr.approx_quantiles("v", 0.5), "HR-AGG-016"),  # type: ignore[arg-type]
        (lambda: hr.approx_quantile("v", 0.5, error=1e-9), "HR-APPROX-003"),
        (lambda: hr.approx_quantile("v", 0.5, size=20), "HR-APPROX-003"),
        (lambda: hr.histogram("v", 0), "HR-APPROX-002"),
        (lambda: hr.histogram("v", 4, low=1), "HR-APPROX-002"),
        (lambda: hr.histogram("v", 4, low=2, high=2), "HR-APPROX-002"),
        (lambda: hr.histogram("v", 4, low=0, high=2, error=0.1), "HR-APPROX-002"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Any], code: str) -> None:
    with pytest.raises(PlanError, match=code):
        make()


@pytest.mark.parametrize("as_text", [True, False])
def test_numbers_below_zero_can_be_written_in_text_and_in_expressions(as_text: bool) -> None:
    called = hr.histogram("v", 2, low=-1.5, high=-0.5)
    size = "size(histogram(v, 2, -1.5, -0.5))" if as_text else called.size()
    made = hr.Job("j")
    rows = made.read("log:a", schema="v int, at bigint", time="at", delay="1s", name="in")
    rows = rows.window(hr.tumbling("1s"))
    rows.agg(x="histogram(v, 2, -1.5, -0.5)", y=called, size=size).write("collect:", name="out")
    with Harness(made) as test:
        test.send("in", [{"v": -1, "at": 1}, {"v": -2, "at": 1}])
        test.end()
        (row,) = test.output("out")
    assert row["x"] == row["y"] and [b["count"] for b in row["x"]] == [1, 0, 1, 0]
    assert row["size"] == 4


@pytest.mark.parametrize("text", ["percentile(v, -0.5)", "approx_quantile(v, -0.5)"])
def test_a_share_below_zero_is_refused_in_text(text: str) -> None:
    made = hr.Job("j")
    made.read(hr.rows([{"v": 1}])).window(hr.everything()).agg(x=text).write("collect:")
    with pytest.raises(PlanError, match="HR-AGG-016"):
        made.check()


@pytest.mark.parametrize("text", ["approx_quantiles(v, 0.5)", "approx_quantile(v, w)"])
def test_text_takes_numbers_only(text: str) -> None:
    made = hr.Job("j")
    made.read(hr.rows([{"v": 1, "w": 2}])).window(hr.everything()).agg(x=text).write("collect:")
    with pytest.raises(PlanError, match="HR-AGG-012"):
        made.check()
