"""sample and approx_top_k: uniform, the same again, merged as a whole, within their bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.ops.sketch_streams import STREAMS

import headrace as hr
from headrace.errors import PlanError
from headrace.ops.agg import named
from headrace.ops.stream.running_aggregates import rolling
from headrace.testing import Harness


def table(values: Any, group: Any = 0, first: int = 0, **more: Any) -> pa.Table:
    count = len(values)
    columns = {"g": np.broadcast_to(group, count), "v": values, **more}
    order = {"__t": np.arange(count) // 3, "__o": first + np.arange(count)}
    return pa.table({name: pa.array(c) for name, c in (columns | order).items()})


def drawn(rows: pa.Table, aggs: Any) -> list[list[Any]]:
    found = named.result(named.partial(rows, ["g"], aggs), aggs).sort_by("g")
    return found["s"].to_pylist()


def chi_square(counts: Any, expected: Any) -> float:
    return float((((counts - expected) ** 2) / expected).sum())


@pytest.mark.parametrize("first", [0, 10**12])
def test_every_row_has_the_same_chance(first: int) -> None:
    """5 of 20 rows in 4,000 groups; 43.8 is what chance exceeds once in a thousand times."""
    trials, rows = 4_000, 20
    group = np.repeat(np.arange(trials), rows)
    values = np.tile(np.arange(rows), trials)
    found = drawn(table(values, group, first), {"s": hr.sample("v", 5)})
    assert all(len(set(s)) == 5 for s in found)
    counts = np.bincount(np.concatenate(found), minlength=rows)
    assert chi_square(counts, trials * 5 / rows) * (rows - 1) / (rows - 5) < 43.8
    first_drawn = np.bincount([s[0] for s in found], minlength=rows)
    assert chi_square(first_drawn, trials / rows) < 43.8


def test_weights_are_chances() -> None:
    """The first of a sample is drawn with chances in proportion to the weights."""
    trials, weights = 4_000, np.array([1.0, 2.0, 3.0, 4.0, 0.0])
    group, values = np.repeat(np.arange(trials), 5), np.tile(np.arange(5), trials)
    rows = table(values, group, w=np.tile(weights, trials))
    found = drawn(rows, {"s": hr.sample("v", 2, weight="w")})
    counts = np.bincount([s[0] for s in found], minlength=5)
    assert counts[4] == 0 and chi_square(counts[:4], trials * weights[:4] / 10) < 16.3


def test_a_sample_of_partials_is_that_of_all_rows() -> None:
    draw = np.random.default_rng(1)
    aggs = {"s": hr.sample("v", 7), "t": hr.sample("v", 3, seed=1)}
    for _ in range(10):
        rows = table(draw.integers(0, 10**9, 500), draw.integers(0, 4, 500))
        part = draw.integers(0, 6, 500)
        pieces = [named.partial(rows.filter(pa.array(part == p)), ["g"], aggs) for p in range(6)]
        shuffled = pa.concat_tables(pieces[i] for i in draw.permutation(6))
        merged = named.merge(shuffled, ["g"], aggs)
        whole = named.partial(rows, ["g"], aggs)
        assert merged.sort_by("g").equals(whole.sort_by("g"))
        assert drawn(rows, {"s": aggs["s"]}) != drawn(rows, {"s": aggs["t"]})


def test_rows_that_explode_made_of_one_are_drawn_one_by_one() -> None:
    trials, each = 3_000, 4
    job = hr.Job("j")
    lists = [{"k": i, "x": list(range(each)), "at": i} for i in range(trials)]
    read = job.read(hr.rows(lists), time="at", delay="1s")
    one = read.explode("x").key_by("k").window(hr.everything()).agg(s=hr.sample("x", 1))
    found = one.head(trials, quiet=True)["s"].to_pylist()
    counts = np.bincount(np.concatenate(found), minlength=each)
    assert len(found) == trials and chi_square(counts, trials / each) < 16.3


def test_of_rows_made_of_one_any_may_be_sampled() -> None:
    def read() -> Any:
        rows = [{"x": [*range(5)], "at": 60_000 * i} for i in range(1_000)]
        return hr.Job("made").read(hr.rows(rows), time="at", in_order=True).explode("x")

    def counts(stream: Any) -> Any:
        return np.bincount(stream.head(6_000, quiet=True)["x"].to_numpy(), minlength=5)

    one, half = counts(read().sample(1, per="1m")), counts(read().sample(0.5))
    assert one.sum() == 1_000 and chi_square(one, 200) < 18.5
    whole = [len(set(g)) for g in _by_record(read().sample(0.5))]
    assert 400 < half.min() <= half.max() < 600 and Counter(whole)[5] < 100


def _by_record(stream: Any) -> list[list[int]]:
    found: dict[Any, list[int]] = {}
    for row in stream.head(6_000, quiet=True).to_pylist():
        found.setdefault(row["at"], []).append(row["x"])
    return list(found.values())


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, None, "x"])
def test_a_seed_that_is_none_is_refused(seed: Any) -> None:
    read = hr.Job("seeds").read(hr.rows([{"at": 1}]), time="at", in_order=True)
    for make in (lambda: read.sample(0.5, seed=seed), lambda: read.sample(2, "1m", seed=seed)):
        with pytest.raises(PlanError, match="HR-STREAM-005"):
            make().head(1, quiet=True)


def test_two_steps_draw_independently_and_one_step_the_same_again() -> None:
    def read(job: str) -> Any:
        rows = [{"k": 0, "v": i, "at": i} for i in range(1_000)]
        return hr.Job(job).read(hr.rows(rows), time="at", in_order=True)

    def of(stream: Any, column: str = "v") -> list[Any]:
        return stream.head(2_000, quiet=True)[column].to_pylist()

    rows = read("steps")
    half, other = rows.sample(0.5), rows.sample(0.5, name="other")
    halves, others, quarter = set(of(half)), set(of(other)), set(of(half.sample(0.5)))
    assert 200 < len(quarter) < 300 and quarter < halves
    assert 200 < len(halves & others) < 300
    assert set(of(read("steps").sample(0.5))) == halves
    assert 200 < len(set(of(read("elsewhere").sample(0.5))) & halves) < 300
    drawn = {"a": hr.sample("v", 100), "b": hr.sample("v", 100)}
    one = rows.key_by("k").window(hr.everything()).agg(**drawn, name="one")
    two = rows.key_by("k").window(hr.everything()).agg(**drawn, name="two")
    assert of(one, "a") == of(one, "b") and len(of(one, "a")[0]) == 100
    assert len(set(of(one, "a")[0]) & set(of(two, "a")[0])) < 20


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("pieces", [1, 6])
def test_counts_are_within_the_error_on_every_stream(
    stream: Callable[[np.random.Generator], Any], pieces: int
) -> None:
    aggs = {"s": hr.approx_top_k("v", 50, error=0.02, bounds=True)}
    for seed in range(100):
        values = stream(np.random.default_rng(seed))
        exact = Counter(values.tolist())
        parts = [named.partial(table(p), ["g"], aggs) for p in np.array_split(values, pieces)]
        merged = named.merge(pa.concat_tables(parts), ["g"], aggs)
        (found,) = named.result(merged, aggs)["s"].to_pylist()
        assert len(merged["s__n"][0].as_py()) <= 50
        for one in found:
            assert one["low"] <= exact[one["value"]] <= one["high"] == one["count"]
            assert one["high"] - one["low"] <= 0.02 * len(values)
        often = {v for v, n in exact.items() if n > 0.02 * len(values)}
        assert often <= {one["value"] for one in found}


@pytest.mark.parametrize("stream", STREAMS)
def test_point_counts_are_never_too_low_and_seldom_too_high(
    stream: Callable[[np.random.Generator], Any],
) -> None:
    """Of 100 streams, in 95 and more are 95 of 100 values within the error, and their bounds."""
    inside = 0
    for seed in range(100):
        values = stream(np.random.default_rng(seed))
        exact, some = Counter(values.tolist()), np.unique(values)[:40].tolist()
        aggs = {"s": hr.count_min("v", some, error=0.005, bounds=True)}
        merged = named.partial(table(values), ["g"], aggs)
        if seed < 10:
            parts = [named.partial(table(p), ["g"], aggs) for p in np.array_split(values, 4)]
            assert named.merge(pa.concat_tables(parts), ["g"], aggs).equals(merged)
        (found,) = named.result(merged, aggs)["s"].to_pylist()
        pairs = list(zip(found, some, strict=True))
        assert all(n["value"] == n["high"] >= exact[v] for n, v in pairs)
        assert all(n["value"] - n["low"] <= 0.005 * len(values) for n, _ in pairs)
        inside += sum(n["low"] <= exact[v] for n, v in pairs) >= 0.95 * len(pairs)
    assert inside >= 95


def test_point_counts_running_have_the_bounds_of_the_rows_so_far() -> None:
    values = np.random.default_rng(4).integers(0, 60, 300)
    rows = table(values)
    aggs = {"s": hr.count_min("v", [3, 7], size=360, bounds=True)}
    results, _ = rolling(rows, np.array([0]), aggs, None, None)
    for place in range(0, 300, 23):
        whole = named.result(named.partial(rows[: place + 1], ["g"], aggs), aggs)
        assert results["s"][place].as_py() == whole["s"][0].as_py()


def test_a_sample_merged_of_uneven_partials_stays_uniform() -> None:
    """2 of 12 rows, of which 9 are in one partial; 31.3 is exceeded once in a thousand times."""
    trials, rows = 5_000, 12
    group, values = np.repeat(np.arange(trials), rows), np.tile(np.arange(rows), trials)
    whole, aggs = table(values, group), {"s": hr.sample("v", 2)}
    parts = [whole.filter(pa.array(m)) for m in (values < 9, values == 9, values > 9)]
    merged = named.merge(
        pa.concat_tables(named.partial(p, ["g"], aggs) for p in parts), ["g"], aggs
    )
    found = named.result(merged, aggs)["s"].to_pylist()
    counts = np.bincount(np.concatenate(found), minlength=rows)
    assert chi_square(counts, trials * 2 / rows) * (rows - 1) / (rows - 2) < 31.3


def test_size_in_bytes_and_what_explain_says() -> None:
    assert hr.approx_top_k("v", 5, size="1KB").sketch.counters == 64  # type: ignore[union-attr]
    assert hr.count_min("v", [1], size="36KB").sketch.buckets == 1_024  # type: ignore[union-attr]
    made = hr.Job("j")
    rows = made.read(hr.rows([{"v": 1, "at": 1}]), time="at", delay="1s")
    rows.window(hr.everything()).agg(
        t=hr.approx_top_k("v", 3), s=hr.sample("v", 8), c=hr.count_min("v", [1], size=360),
        h=hr.histogram("v", 4, low=0, high=8),
    ).write("collect:")  # fmt: skip
    plan = str(made.explain())
    for room in ("15.6 KB per key at most, of values of 8 bytes", "128 bytes per key at most, of",
                 "(360 bytes per key at most)", "(48 bytes per key at most)"):  # fmt: skip
        assert room in plan


@pytest.mark.parametrize(("kind", "values"), [("string", [1]), ("double", [1]), ("bigint", ["a"])])
def test_values_of_another_type_are_refused(kind: str, values: list[Any]) -> None:
    made = hr.Job("j")
    read = made.read("log:a", schema=f"v {kind}, at bigint", time="at", delay="1s")
    read.window(hr.everything()).agg(n=hr.count_min("v", values)).write("log:out")
    with pytest.raises(PlanError, match="HR-AGG-001"):
        made.check()


def job(window: Any, **top: Any) -> hr.Job:
    made = hr.Job("pages")
    rows = made.read("log:a", schema="page string, at bigint", time="at", delay="1s", name="in")
    result = rows.window(window).agg(
        "approx_top_k(page, 2) as text", top=hr.approx_top_k("page", 2, **top),
        some=hr.sample("page", 3), all=hr.collect("page"), name="w",
    )  # fmt: skip
    result.write("log:out", name="out")
    return made


@pytest.mark.parametrize(
    "window", [hr.sliding("20s", every="5s"), hr.session("3s"), hr.cumulating("20s", every="5s")]
)
def test_windows_give_the_same_whatever_the_batches_and_a_crash(window: Any) -> None:
    draw = np.random.default_rng(1)
    at = np.cumsum(draw.integers(0, 900, 60)).tolist()
    rows = [{"page": f"p{draw.integers(0, 9)}", "at": t} for t in at]
    outputs = []
    for step in (60, 9):
        with Harness(job(window)) as test:
            for low in range(0, 60, step):
                if low:
                    test.crash()
                test.send("in", rows[low : low + step])
            test.end()
            outputs.append(sorted(test.output("out"), key=lambda r: r["window_start"]))
    assert [str(sorted(r.items())) for r in outputs[0]] == [
        str(sorted(r.items())) for r in outputs[1]
    ]
    for row in outputs[0]:
        ranked = sorted(Counter(row["all"]).items(), key=lambda e: (-e[1], e[0]))[:2]
        assert [(t["value"], t["count"]) for t in row["top"]] == ranked
        assert row["text"] == row["top"] and not Counter(row["some"]) - Counter(row["all"])
        assert len(row["some"]) == min(3, len(row["all"]))


def test_fewer_counters_are_refused_for_stored_state() -> None:
    with Harness(job(hr.tumbling("10s"))) as test:
        test.send("in", [{"page": "a", "at": 1_000}])
        with pytest.raises(hr.StateError, match=r"counters=1000.*counters=50"):
            test.restart(job(hr.tumbling("10s"), counters=50))


WEIGHTS = [(None, "x"), ("x", None), ("x", "y"), ("v", "x"), (None, "v"), ("v", None)]


@pytest.mark.parametrize(("before", "now"), WEIGHTS)
@pytest.mark.parametrize("windowed", [True, False])
def test_another_weight_is_refused_for_stored_state(before: Any, now: Any, windowed: bool) -> None:
    def weighted(weight: Any) -> hr.Job:
        made = hr.Job("weighted")
        schema = "k string, v bigint, x bigint, y bigint, at bigint"
        rows = made.read("log:a", schema=schema, time="at", delay="1s", name="in").key_by("k")
        some: Any = rows.window(hr.tumbling("10s")) if windowed else rows
        more: Any = {} if windowed else {"unbounded": True}
        some.agg(s=hr.sample("v", 2, weight=weight), name="w", **more).write("log:out", name="out")
        return made

    with Harness(weighted(before)) as test:
        test.send("in", [{"k": "a", "v": 1, "x": 1, "y": 1, "at": 1_000}])
        test.restart(weighted(before))
        with pytest.raises(hr.StateError, match="the order of the aggregate 's'") as refused:
            test.restart(weighted(now))
        assert refused.value.code == "HR-EVOLVE-001"


@pytest.mark.parametrize(
    "make",
    [
        lambda: hr.sample("v", 0), lambda: hr.sample("v", 2.5), lambda: hr.sample("v", 2, seed=-1),
        lambda: hr.approx_top_k("v", 0), lambda: hr.approx_top_k("v", 5, counters=3),
        lambda: hr.approx_top_k("v", 5, counters=30, error=0.1), lambda: hr.count_min("v", []),
        lambda: hr.approx_top_k("v", 5, counters=30, size=900),
        lambda: hr.approx_top_k("v", 5, error=0.1, size=900),
        lambda: hr.approx_top_k("v", 5, size=32), lambda: hr.count_min("v", [1], size="x"),
        lambda: hr.count_min("v", [1], size=900, error=0.1),
        lambda: hr.histogram("v", 3, low=0, high=9, error=0.1),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(PlanError, match="HR-APPROX-002"):
        make()


PRECISE: dict[str, Callable[..., Any]] = {
    "distinct": lambda **how: hr.approx_count_distinct("v", **how),
    "quantile": lambda **how: hr.approx_quantile("v", 0.5, **how),
    "histogram": lambda **how: hr.histogram("v", 3, **how),
    "top": lambda **how: hr.approx_top_k("v", 1, **how),
    "count_min": lambda **how: hr.count_min("v", [1], **how),
    "theta": lambda **how: hr.theta("v", **how),
}


@pytest.mark.parametrize("make", PRECISE.values(), ids=PRECISE)
def test_a_precision_that_cannot_be_had_is_refused_and_what_fits_is_taken(make: Any) -> None:
    for how in ({"error": 1e-9}, {"error": 5e-324}, {"size": 1}):
        with pytest.raises(PlanError, match="HR-APPROX-003"):
            make(**how)
    largest = make(size=1 << 40).sketch.memory()
    assert largest == make(size=1 << 35).sketch.memory() < 1 << 35


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**200])
def test_a_value_that_no_column_can_have_is_refused(value: int) -> None:
    made = hr.Job("j")
    rows = made.read(hr.rows([{"v": 1, "at": 1}]), time="at", delay="1s")
    rows.window(hr.everything()).agg(c=hr.count_min("v", [value])).write("collect:")
    with pytest.raises(PlanError, match="HR-AGG-001"):
        made.check()


def test_intervals_of_equal_width_have_their_counts_as_bounds() -> None:
    aggs = {"s": hr.histogram("v", 2, low=0, high=4, bounds=True)}
    rows = table(np.array([-1.0, 0, 1, 3, 4, np.nan]))
    counts = [[b["count"], b["least"], b["most"]] for b in drawn(rows, aggs)[0]]
    assert counts == [[1] * 3, [2] * 3, [1] * 3, [2] * 3]
    running, _ = rolling(rows, np.array([0]), aggs)
    assert running["s"][-1].as_py() == drawn(rows, aggs)[0]


@pytest.mark.parametrize("weight", [np.inf, 5e-324, 1e-310, 1e308])
def test_the_largest_and_the_smallest_weights_are_drawn_uniformly(weight: float) -> None:
    trials, each = 2_000, 4
    group, values = np.repeat(np.arange(trials), each), np.tile(np.arange(each), trials)
    rows = table(values, group, w=np.full(trials * each, weight))
    found = drawn(rows, {"s": hr.sample("v", 1, weight="w")})
    assert [len(s) for s in found] == [1] * trials
    counts = np.bincount(np.concatenate(found), minlength=each)
    assert weight < 1e-300 or chi_square(counts, trials / each) < 16.3


def test_an_infinite_weight_goes_before_every_other() -> None:
    rows = table(np.arange(6), w=np.array([1e290, np.inf, 1.0, np.inf, np.nan, 5e-324]))
    (found,) = drawn(rows, {"s": hr.sample("v", 6, weight="w")})
    assert {*found[:2]} == {1, 3} and found[2:] == [0, 2, 5]


def running_job(share: float, asked: float, bounds: bool) -> hr.Job:
    made = hr.Job("running")
    rows = made.read("log:a", schema="u string, ms double, at bigint", time="at", delay="1s",
                     name="in")  # fmt: skip
    result = rows.key_by("u").agg(
        d=hr.approx_count_distinct("ms"), q=hr.approx_quantile("ms", share),
        t=hr.approx_top_k("ms", 1, bounds=bounds), s=hr.sample("ms", 9),
        c=hr.count_min("ms", [asked]), unbounded=True, name="w",
    )  # fmt: skip
    result.write("log:out", name="out")
    return made


def test_running_over_a_crash_and_what_may_change_for_stored_state() -> None:
    with Harness(running_job(0.5, 1.0, bounds=False)) as test:
        test.send("in", [{"u": "a", "ms": 1.0, "at": 1}, {"u": "a", "ms": 2.0, "at": 2}])
        test.crash()
        test.send("in", [{"u": "a", "ms": 1.0, "at": 3}, {"u": "b", "ms": 7.0, "at": 3}])
        test.restart(running_job(1.0, 2.0, bounds=True))
        test.send("in", [{"u": "a", "ms": 1.0, "at": 4}])
        found = [r for r in test.output("out") if r["u"] == "a"]
    assert [(r["d"], r["q"], r["c"][0], len(r["s"])) for r in found] == [
        (1, 1.0, 1, 1), (2, 1.0, 1, 2), (2, 1.0, 2, 3), (2, 2.0, 1, 4),
    ]  # fmt: skip
    assert found[-1]["t"] == [{"value": 1.0, "count": 3, "low": 3, "high": 3}]


def test_a_range_that_no_double_has_is_refused() -> None:
    with pytest.raises(hr.PlanError, match=r"HR-APPROX-002.*further apart"):
        hr.histogram("v", 4, low=-1e308, high=1e308)
    hr.histogram("v", 4, low=0, high=1e308)
