"""approx_count_distinct: against the library, against sets, cut anywhere, and within its error."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from tests.ops.sketch_streams import STREAMS

import headrace as hr
from headrace.errors import PlanError
from headrace.hashing import hash_keys
from headrace.ops.agg import named
from headrace.ops.sketch import library
from headrace.ops.sketch.hll import HyperLogLog
from headrace.ops.stream.running_aggregates import rolling
from headrace.testing import Harness

SCHEMA = "user string, at bigint"
AGGS = {"n": hr.approx_count_distinct("v", error=0.06, bounds=True)}


def table(values: Any, group: Any = 0) -> pa.Table:
    column = pa.array(values)
    return pa.table({"g": pa.array(np.broadcast_to(group, len(column))), "v": column})


def sketch(values: Any) -> bytes:
    (row,) = named.partial(table(values), ["g"], AGGS).to_pylist()
    return bytes(row["n__hll"])


def estimate(values: Any, aggs: Any = AGGS) -> Any:
    (row,) = named.result(named.partial(table(values), ["g"], aggs), aggs).to_pylist()
    return row["n"]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 24, 25, 191, 192, 193, 250, 5_000])
def test_bytes_hold_what_the_library_holds_for_the_same_values(count: int) -> None:
    values = pa.array(np.random.default_rng(count).integers(0, 2**62, count))
    theirs = datasketches.hll_sketch(11, datasketches.HLL_8)
    for value in hash_keys([values]).view(np.int64):
        theirs.update(int(value))
    raw, ours = theirs.serialize_compact(), sketch(values) if count else b""
    if not count:
        ours = sketch(pa.array([None], pa.int64()))
    assert ours[:5] == raw[:5] and ours[6:8] == raw[6:8]  # byte 5: not in the order of arrival
    head = {2: 8, 3: 12, 10: 40}[raw[0]]
    kind = np.uint8 if raw[0] == 10 else np.uint32
    same = [np.frombuffer(one[head:], kind) for one in (ours, raw)]
    assert np.array_equal(*(np.sort(s) if raw[0] < 10 else s for s in same))
    merged = datasketches.hll_union(11)
    merged.update(datasketches.hll_sketch.deserialize(ours))
    assert merged.get_estimate() == pytest.approx(len(set(values.to_pylist())), rel=0.1)


@pytest.mark.parametrize("count", [50, 193, 3_000])
def test_partials_merge_to_the_same_bytes_however_rows_are_divided(count: int) -> None:
    draw = np.random.default_rng(count)
    for _ in range(10):
        rows = table(draw.integers(0, count, 2 * count), draw.integers(0, 3, 2 * count))
        whole = named.partial(rows, ["g"], AGGS).sort_by("g")
        part = draw.integers(0, 5, 2 * count)
        pieces = [named.partial(rows.filter(pa.array(part == p)), ["g"], AGGS) for p in range(5)]
        first = named.merge(pa.concat_tables(pieces[:3]), ["g"], AGGS)
        merged = named.merge(pa.concat_tables([*pieces[3:], first]), ["g"], AGGS).sort_by("g")
        assert merged.equals(whole)


def test_running_is_what_the_rows_so_far_give_few_or_many() -> None:
    draw = np.random.default_rng(5)
    rows = table(np.concatenate([draw.integers(0, 900, 600), draw.integers(0, 9, 300)]))
    rows = rows.append_column("__t", pa.array(np.arange(900)))
    held = None
    for low, high in ((0, 150), (150, 400), (400, 900)):
        present = None if held is None else np.array([True])
        results, held = rolling(rows[low:high], np.array([0]), AGGS, held, present)
        for place in range(low, high, 37):
            whole = named.partial(rows[: place + 1], ["g"], AGGS)
            assert results["n"][place - low].as_py() == named.result(whole, AGGS)["n"][0].as_py()
        whole = named.partial(rows[:high], ["g"], AGGS)
        assert held["n__hll"].to_pylist() == whole["n__hll"].to_pylist()


def test_equal_values_are_one_whatever_their_type() -> None:
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8()]
    assert len({sketch(pa.array([1, 2, 3], kind)) for kind in kinds}) == 1
    assert estimate([0.0, -0.0, math.nan, -math.nan, None])["value"] == 2
    assert sketch(pa.array([1.5], pa.float32())) == sketch(pa.array([1.5], pa.float64()))
    day = datetime(2024, 1, 1, tzinfo=UTC)
    units = [pa.array([day], pa.timestamp(u, "UTC")) for u in ("s", "ms", "us")]
    assert len({sketch(unit) for unit in units}) == 1
    wide = [pa.array([Decimal("1.20")], pa.decimal128(p, 2)) for p in (5, 30)]
    assert len({sketch(decimals) for decimals in wide}) == 1
    text = pa.array(["a", "b", "a", None])
    assert sketch(text) == sketch(text.dictionary_encode()) == sketch(text.cast(pa.large_string()))


@pytest.mark.parametrize("stream", STREAMS)
def test_the_error_is_within_the_bound_for_95_of_100_streams(
    stream: Callable[[np.random.Generator], Any],
) -> None:
    inside = within = 0
    for seed in range(100):
        values = stream(np.random.default_rng(seed))
        exact, found = len(np.unique(values)), estimate(values)
        inside += abs(found["value"] - exact) <= 0.06 * exact
        within += found["low"] <= exact <= found["high"]
    assert inside >= 95 and within >= 95, (inside, within)


def test_size_and_error_choose_the_same_sketch() -> None:
    assert HyperLogLog(error=0.02).lg_k == HyperLogLog().lg_k == 14
    assert hr.approx_count_distinct("v", size="16KB").sketch.lg_k == 13  # type: ignore[union-attr]
    assert hr.approx_count_distinct("v", size=16_424).sketch.lg_k == 14  # type: ignore[union-attr]
    assert str(hr.approx_count_distinct("v", error=0.1)) == "approx_count_distinct(v, error=0.1)"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"error": 0}, "HR-APPROX-002"), ({"error": "a"}, "HR-APPROX-002"),
        ({"error": 0.1, "size": 500}, "HR-APPROX-002"), ({"size": "4 apples"}, "HR-APPROX-002"),
        ({"size": 100}, "HR-APPROX-003"), ({"error": 1e-5}, "HR-APPROX-003"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused(options: dict[str, Any], code: str) -> None:
    with pytest.raises(PlanError, match=code):
        hr.approx_count_distinct("v", **options)


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise ImportError("datasketches")

    monkeypatch.setattr(library, "_library", missing)
    with pytest.raises(PlanError, match=r"(?s)HR-APPROX-001 .*headrace\[approx\]"):
        hr.approx_count_distinct("v")


def job(window: Any, error: float | None = None) -> hr.Job:
    made = hr.Job("visits")
    rows = made.read("log:visits", schema=SCHEMA, time="at", delay="1s", name="in")
    users, exact = hr.approx_count_distinct("user", error=error), hr.count_distinct("user")
    share = "approx_count_distinct(user, 0.1) / count(*) as share"
    result = rows.window(window).agg(share, users=users, exact=exact, name="w")
    result.write("log:out", name="out")
    return made


@pytest.mark.parametrize(
    "window",
    [hr.tumbling("10s"), hr.sliding("20s", every="5s"), hr.session("3s"),
     hr.cumulating("20s", every="5s"), hr.everything()],
)  # fmt: skip
@pytest.mark.parametrize("step", [7, 60])
def test_windows_of_every_kind_with_a_crash_between(window: Any, step: int) -> None:
    draw = np.random.default_rng(1)
    at = np.cumsum(draw.integers(0, 900, 60)).tolist()
    rows = [{"user": f"u{draw.integers(0, 40)}", "at": t} for t in at]
    with Harness(job(window)) as test:
        for low in range(0, 60, step):
            if low % 14 == 0:
                test.crash()
            test.send("in", rows[low : low + step])
        test.restart()
        test.end()
        found = test.output("out")
        assert found and all(row["users"] == row["exact"] for row in found)
        assert all(0 < row["share"] <= 1 for row in found)


def test_another_size_is_refused_for_stored_state() -> None:
    with Harness(job(hr.tumbling("10s"))) as test:
        test.send("in", [{"user": "a", "at": 1_000}])
        test.restart(job(hr.tumbling("10s"), error=0.02))  # the same size
        with pytest.raises(hr.StateError, match=r"HR-EVOLVE.*lg_k=14.*lg_k=12"):
            test.restart(job(hr.tumbling("10s"), error=0.04))


def test_explain_says_the_memory_of_a_key() -> None:
    assert "users = approx_count_distinct(user) (16 KB per key at most)" in str(
        job(hr.tumbling("10s")).explain()
    )


def test_of_sliding_windows_explain_says_the_memory_of_a_pane() -> None:
    plan = str(job(hr.sliding("59s", every="2s")).explain())
    assert "(16 KB per key and pane at most, 59 panes a window)" in plan
