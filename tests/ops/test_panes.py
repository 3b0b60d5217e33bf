"""Firing windows from panes: against assigning every row to its windows, one by one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.aggregate_model import AGGS, ROWS, check, same, table_of

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import PlanError, RunError
from headrace.ops.agg import named as agg
from headrace.ops.agg.named import Aggregate, partial, result
from headrace.ops.agg.span import ADD, RangeSpan, Ufunc
from headrace.ops.panes import firing as panes_module
from headrace.ops.panes import firing as window_layout
from headrace.ops.panes.firing import fire
from headrace.ops.window.aligned import Window, sliding
from headrace.schema import TIMESTAMP

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAYOUTS = {"sparse": (10**9, 0), "dense": (0, 10**9)}


@st.composite
def windows(draw: st.DrawFn) -> Window:
    size = draw(st.integers(1, 16))
    return Window(size, draw(st.integers(1, size)), draw(st.integers(-5, 5)))


def panes_of(rows: pa.Table, window: Window, aggs: dict[str, Aggregate]) -> pa.Table:
    """Live panes as the state hands them out; keys 2 and 3 share a hash."""
    keys = rows["k"].to_numpy()
    placed = rows.append_column("pane", pa.array(window.panes_of(rows["__t"].to_numpy())))
    placed = placed.append_column("__h", pa.array(np.minimum(keys, 2).astype(np.uint64)))
    made = partial(placed, ["pane", "__h", "k"], aggs)
    named = made.rename_columns(["__t", *made.column_names[1:]])
    return named.sort_by([("__t", "ascending"), ("__h", "ascending")])


def by_hand(rows: pa.Table, window: Window, before: int, after: int) -> dict[Any, Any]:
    found: dict[Any, list[Any]] = {}
    for row in rows.to_pylist():
        for interval in window.assign(row["__t"]):
            if before < interval.end <= after:
                found.setdefault((interval, row["k"]), []).append(row)
    return found


def moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=30, deadline=None)
@given(ROWS, windows(), st.integers(-40, 20), st.integers(0, 60), st.sampled_from([1, 5, 10**6]))
def test_fired_windows_are_those_made_by_hand(
    layout: str, rows: list[Any], window: Window, before: int, span: int, band: int
) -> None:
    table = table_of(rows)
    with pytest.MonkeyPatch.context() as patch:
        force(layout, patch)
        patch.setattr(panes_module, "_BAND", band)
        panes = panes_of(table, window, AGGS)
        got = fire(panes, ["k"], window, AGGS, before, before + span)

    want = by_hand(table, window, before, before + span)
    fired = got.to_pylist()
    assert len(fired) == len(want)
    for row in fired:
        interval = next(w for w, k in want if k == row["k"] and moment(w.end) == row["window_end"])
        assert row["window_start"] == moment(interval.start)
        check(row, want[interval, row["k"]], AGGS)
    order = [(r["window_end"], r["__h"]) for r in fired]
    assert order == sorted(order)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 70), st.integers(1, 40)), min_size=1), st.data())
def test_any_stretches_reduce_to_what_each_gives_alone(
    stretches: list[tuple[int, int]], data: st.DataObject
) -> None:
    low = np.array([a for a, _ in stretches])
    high = low + np.array([size for _, size in stretches])
    rows = np.array(data.draw(st.permutations(range(110))))
    values = np.arange(110) ** 3 % 1009
    span = RangeSpan(low, high, rows)

    parts = [values[rows[a:b]] for a, b in zip(low, high, strict=True)]
    assert span.reduce(ADD, [values])[0].tolist() == [p.sum() for p in parts]
    least = span.reduce(Ufunc(np.minimum, 2**40), [values])[0]
    assert least.tolist() == [p.min() for p in parts]
    place = np.concatenate([r for r, _ in span.explode()])
    assert place.tolist() == [r for a, b in zip(low, high, strict=True) for r in rows[a:b]]


TYPES = {
    "int8": [1, None, -3, 4], "uint64": [1, None, 2**40, 7], "float32": [0.5, None, -1.0, 2.0],
    "string": ["ß", None, "a", "b"], "large_string": ["ß", None, "a", "b"],
    "bool": [True, None, False, True], "binary": [b"\xff", None, b"", b"a"],
    "date32": [1, None, 3, -4], "timestamp[us]": [1, None, 3, -4], "decimal": [1, None, 3, -4],
    "list": [[1], None, [], [2, 3]],
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_window_of_panes_is_what_its_rows_give_for_every_type(
    name: str, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(layout, monkeypatch)
    kind = {"decimal": pa.decimal128(21, 2), "list": pa.list_(pa.int64())}.get(name)
    kind = kind or pa.type_for_alias(name)
    numbers = {"decimal": pa.int64(), "date32": pa.int32()}.get(name, kind)
    rows = table_of([(1, i, 0.0, "a", i) for i in range(12)])
    rows = rows.append_column("v", pa.array(TYPES[name] * 3, numbers).cast(kind))
    aggs = suitable(kind)
    window = Window(5, 2)

    got = fire(panes_of(rows, window, aggs), ["k"], window, aggs, 0, 20)

    assert got.schema.types[4:] == [a.result_type(rows.schema) for a in aggs.values()]
    for (interval, _), members in by_hand(rows, window, 0, 20).items():
        times = [m["__t"] for m in members]
        part = rows.filter(pa.array([t in times for t in range(12)]))
        want = result(partial(part, ["k"], aggs), aggs).to_pylist()[0]
        [mine] = [r for r in got.to_pylist() if r["window_end"] == moment(interval.end)]
        assert all(same(mine[n], want[n]) for n in aggs), (mine, want)


def suitable(kind: pa.DataType) -> dict[str, Aggregate]:
    every = {
        "n": agg.count("v"), "s": agg.sum("v"), "m": agg.mean("v"), "lo": agg.min("v"),
        "hi": agg.max("v"), "sd": agg.stddev("v"), "f": agg.first("v"), "l": agg.last("v"),
        "by": agg.max_by("v", "v"), "least": agg.min_by("v", "x"), "c": agg.collect("v"),
        "d": agg.count_distinct("v"),
    }  # fmt: skip
    return {n: a for n, a in every.items() if suits(a, kind)}


def suits(aggregate: Aggregate, kind: pa.DataType) -> bool:
    try:
        aggregate.result_type(pa.schema([("v", kind), ("x", pa.int64())]))
    except PlanError:
        return False
    return True


def force(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    few, sparse = LAYOUTS[layout]
    monkeypatch.setattr(window_layout, "_FEW_KEYS", few)
    monkeypatch.setattr(window_layout, "_SPARSE", sparse)


def test_the_result_has_keys_hash_bounds_and_aggregates_even_when_nothing_is_due() -> None:
    window = sliding(0.01, every=0.005)
    panes = panes_of(table_of([(1, 1, 1.0, "a", 3)]), window, AGGS)

    none = fire(panes, ["k"], window, AGGS, 500, 600)
    some = fire(panes, ["k"], window, AGGS, 0, 600)

    assert none.num_rows == 0
    assert some.num_rows == 2
    assert none.schema == some.schema
    assert some.column_names == ["k", "__h", "window_start", "window_end", *AGGS]
    assert some.schema.field("window_end").type == TIMESTAMP


def test_without_keys_there_is_a_row_for_each_window() -> None:
    window = Window(10, 5)
    rows = table_of([(0, 1, 1.0, "a", 3), (0, 2, 1.0, "b", 7)])
    aggs = {"n": agg.sum("x")}
    panes = panes_of(rows, window, aggs).drop_columns(["k"])

    got = fire(panes, [], window, aggs, MIN_TIME, MAX_TIME)

    assert got["n"].to_pylist() == [1, 3, 2]


def test_a_watermark_from_the_beginning_to_the_end_of_time_fires_what_there_is() -> None:
    window = sliding("60s", every="7s")
    rows = table_of([(1, 1, 1.0, "a", 0), (1, 2, 1.0, "b", 1_700_000_000_000)])
    aggs = {"n": agg.count(), "s": agg.sum("x")}

    got = fire(panes_of(rows, window, aggs), ["k"], window, aggs, MIN_TIME, MAX_TIME)

    assert got.num_rows == sum(len(window.assign(t)) for t in (0, 1_700_000_000_000))


def many(
    keys: int, panes: int, window: Window, chance: float, seed: int, aggs: dict[str, Aggregate]
) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Pane partials with some missing, and their values and presence by [pane, key]."""
    random = np.random.default_rng(seed)
    there = random.random((panes, keys)) < chance
    values = random.integers(-(2**40), 2**40, (panes, keys))
    pane, key = np.nonzero(there)
    rows = pa.table({
        "x": values[there], "f": values[there] / 3.0, "k": key,
        "__t": pane * window.pane_size, "__h": key.astype(np.uint64),
    })  # fmt: skip
    placed = rows.rename_columns(["x", "f", "k", "pane", "__h"])
    made = partial(placed, ["pane", "__h", "k"], aggs)
    named = made.rename_columns(["__t", *made.column_names[1:]])
    return named.sort_by([("__t", "ascending"), ("__h", "ascending")]), values, there


@pytest.mark.constants
@pytest.mark.parametrize("chance", [1.0, 0.7, 0.05])
@pytest.mark.parametrize("window", [Window(120, 10), Window(60, 40), Window(7, 1), Window(90, 90)])
def test_many_keys_and_panes_agree_with_numpy_however_sparse(window: Window, chance: float) -> None:
    aggs = {
        "n": agg.count(), "s": agg.sum("x"), "lo": agg.min("x"), "hi": agg.max("f"),
        "all": agg.collect("x"), "kinds": agg.count_distinct("x"),
    }  # fmt: skip
    panes, values, there = many(100, 60, window, chance, 7, aggs)

    got = fire(panes, ["k"], window, aggs, MIN_TIME, MAX_TIME)

    size, width = window.pane_size, window.size // window.pane_size
    ends = got["window_end"].cast(pa.int64()).to_numpy() // 1_000 // size
    expected = 0
    for end in range(1, 60 + width):
        if (end * size - window.size) % window.slide:
            continue
        part = slice(max(end - width, 0), min(end, 60))
        some = there[part].any(axis=0)
        expected += int(some.sum())
        mine = got.filter(pa.array(ends == end))
        inside, number = there[part][:, some], values[part][:, some]
        assert mine["k"].to_pylist() == np.flatnonzero(some).tolist()
        assert mine["n"].to_pylist() == inside.sum(axis=0).tolist()
        assert mine["s"].to_pylist() == np.where(inside, number, 0).sum(axis=0).tolist()
        assert mine["lo"].to_pylist() == np.where(inside, number, 2**62).min(axis=0).tolist()
        high = np.where(inside, number / 3.0, -np.inf).max(axis=0)
        assert mine["hi"].to_pylist() == high.tolist()
        lists = [number[inside[:, k], k] for k in range(inside.shape[1])]
        assert mine["all"].to_pylist() == [part.tolist() for part in lists]
        assert mine["kinds"].to_pylist() == [len(set(part.tolist())) for part in lists]
    assert got.num_rows == expected


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_nan_or_inf_touches_only_the_windows_that_hold_it(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(layout, monkeypatch)
    window = Window(4, 1)
    odd = {10: np.inf, 15: -np.inf, 20: np.nan}
    rows = table_of([(1, i, odd.get(i, 0.1), "a", i) for i in range(30)])
    aggs = {"m": agg.mean("f"), "v": agg.variance("f")}

    got = fire(panes_of(rows, window, aggs), ["k"], window, aggs, 3, 30)

    holds = [any(end - 4 <= i < end for i in odd) for end in range(4, 31)]
    assert np.isfinite(got["m"].to_numpy()).tolist() == [not h for h in holds]
    assert np.isfinite(got["v"].to_numpy()).tolist() == [not h for h in holds]
    assert set(got["m"].to_numpy()[~np.array(holds)]) <= {0.1, 0.4 / 4}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_integers_beyond_the_floats_are_exact_and_an_overflow_is_an_error(
    layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    force(layout, monkeypatch)
    window = Window(4, 1)
    aggs = {"s": agg.sum("x")}
    big = 2**61 + 1
    fits = panes_of(table_of([(1, big * (-1) ** i, 0.0, "a", i) for i in range(9)]), window, aggs)
    breaks = panes_of(table_of([(1, big, 0.0, "a", i) for i in range(9)]), window, aggs)

    got = fire(fits, ["k"], window, aggs, 2, 9)["s"].to_pylist()

    assert got == [big, 0, 0, 0, 0, 0, 0]
    with pytest.raises(RunError):
        fire(breaks, ["k"], window, aggs, 2, 9)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_decimals_slide_exactly(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    force(layout, monkeypatch)
    window, aggs = Window(3, 1), {"s": agg.sum("d"), "lo": agg.min("d")}
    rows = table_of([(1, i, 0.0, "a", i) for i in range(8)])
    cents = pa.array([None, 1, -250, 999, 3, None, None, -7], pa.int64())
    money = cents.cast(pa.decimal128(21, 2))
    rows = rows.append_column("d", money)

    got = fire(panes_of(rows, window, aggs), ["k"], window, aggs, 2, 9)

    values = money.to_pylist()
    spans = [[v for v in values[max(e - 3, 0) : e] if v is not None] for e in range(3, 10)]
    assert got["s"].to_pylist() == [sum(s) if s else None for s in spans]
    assert got["lo"].to_pylist() == [min(s) if s else None for s in spans]
