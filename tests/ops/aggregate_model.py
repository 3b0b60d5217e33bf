"""Aggregates in plain Python, a row at a time: what the vectorised ones must agree with."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headrace.hashing import hash_keys
from headrace.ops.agg import named as agg
from headrace.ops.sketch.functions import (
    approx_count_distinct,
    approx_quantile,
    approx_quantiles,
    approx_top_k,
    count_min,
    histogram,
    sample,
    theta,
)
from headrace.ops.sketch.histogram import EqualWidth

NUMBERS = st.none() | st.integers(-5, 5) | st.integers(-(10**12), 10**12)
FLOATS = st.none() | st.sampled_from(
    [0.0, -0.0, 1.5, -2.25, 1e9, 1e-9, math.nan, math.inf, -math.inf]
)
TEXTS = st.none() | st.sampled_from(["", "a", "b", "ä", "日本", "zz", "é"])

SCHEMA = pa.schema([
    ("k", pa.int64()), ("x", pa.int64()), ("f", pa.float64()), ("s", pa.string()),
    ("__t", pa.int64()), ("__s", pa.int32()), ("__o", pa.int64()),
])  # fmt: skip

ROWS = st.lists(
    st.tuples(st.integers(0, 3), NUMBERS, FLOATS, TEXTS, st.integers(-20, 20)), max_size=40
)

AGGS = {
    "rows": agg.count(), "n": agg.count("x"), "total": agg.sum("x"), "ftotal": agg.sum("f"),
    "avg": agg.mean("x"), "favg": agg.mean("f"), "low": agg.min("f"), "high": agg.max("f"),
    "least": agg.min("s"), "most": agg.max("x"), "dev": agg.stddev("x"), "var": agg.variance("f"),
    "head": agg.first("s"), "tail": agg.last("f"), "cheap": agg.min_by("s", "f"),
    "dear": agg.max_by("x", "s"), "oldest": agg.min_by("f", "x"), "all": agg.collect("s"),
    "kinds": agg.count_distinct("f"), "names": agg.count_distinct("s"),
    "middle": agg.median("x"), "p90": agg.percentile("f", 0.9), "lowest": agg.percentile("x", 0),
    "about": approx_count_distinct("f"), "names about": approx_count_distinct("s", size=168),
    "p50 about": approx_quantile("f", 0.5), "p90 about": approx_quantile("x", 0.9),
    "list about": approx_quantiles("x", [0, 0.3, 1]), "deep": histogram("x", 2),
    "wide": histogram("f", 2, low=0, high=2),
    "top": approx_top_k("s", 2), "top f": approx_top_k("f", 3), "any": sample("x", 50),
    "set": theta("s"), "set of f": theta("f", error=0.3),
    "points": count_min("s", ["a", "nobody", "日本"]), "at 0": count_min("f", [0.0, 1.5]),
}  # fmt: skip


def table_of(rows: list[tuple[Any, ...]], split: int = 2) -> pa.Table:
    """Rows with a unique (time, split, offset); the split goes round."""
    full = [(*row, i % split, i * 7 % 101) for i, row in enumerate(rows)]
    columns = list(zip(*full, strict=True)) or [[] for _ in SCHEMA]
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def expected(rows: list[dict[str, Any]], aggregate: agg.Aggregate) -> Any:
    """The aggregate of the rows, as SQL would have it with NaN the largest number."""
    kind, column, by = aggregate.kind, aggregate.column, aggregate.by
    rows = sorted(rows, key=lambda r: (r["__t"], r["__s"], r["__o"]))
    if kind == "count" and column is None:
        return len(rows)
    if by is not None:
        known = [r for r in rows if r[by] is not None]
        if not known:
            return None
        best = (min if kind == "min_by" else max)(known, key=lambda r: _place(r[by]))
        return best[column]
    values = [r[column] for r in rows if r[column] is not None]
    if aggregate.share is not None:
        return _percentile(sorted(values, key=_place), aggregate.share)
    if kind == "sample":  # of all rows: as many as there are
        return Anyhow(values)
    if kind == "count_min":
        return [sum(_place(v) == _place(one) for v in values) for one in aggregate.sketch.values]
    if kind == "theta":
        return _library_sketch(values)
    if kind == "approx_top_k":
        return _top(values, aggregate.sketch.k)
    if kind in ("approx_quantile", "approx_quantiles", "histogram"):
        return _about(sorted(values, key=_place), aggregate.sketch)
    return _of(values, kind)


def _percentile(values: list[Any], share: float) -> float | None:
    """As Spark defines it: between the two values next to the place, in proportion."""
    if not values:
        return None
    place = share * (len(values) - 1)
    low, high = values[math.floor(place)], values[math.ceil(place)]
    if place == math.floor(place) or low == high:
        return float(low)
    return float((math.ceil(place) - place) * low + (place - math.floor(place)) * high)


class Anyhow(list[Any]):
    """Values in any order."""


def _library_sketch(values: list[Any]) -> bytes:
    made = datasketches.update_theta_sketch()
    for one in hash_keys([pa.array(values)]).view(np.int64).tolist() if values else ():
        made.update(one)
    return bytes(made.compact().serialize())


def _top(values: list[Any], k: int) -> list[dict[str, Any]]:
    counts: dict[Any, list[Any]] = {}
    for value in values:
        counts.setdefault(_place(value), []).append(value)
    ranked = sorted(counts.items(), key=lambda e: (-len(e[1]), e[0]))
    return [{"value": same_ones[0], "count": len(same_ones)} for _, same_ones in ranked[:k]]


def _about(values: list[Any], sketch: Any) -> Any:
    """Of so few values that sketches are exact: a value of the stream, the first at its rank."""
    if isinstance(sketch, EqualWidth):
        edges = [-math.inf, *sketch.edges.tolist(), math.inf]
        place = [min((math.inf if v != v else v), 1e300) for v in values]
        return [
            {"low": None if a == -math.inf else a, "high": None if b == math.inf else b,
             "count": sum(a <= max(v, -1e300) < b for v in place)}
            for a, b in pairwise(edges)
        ]  # fmt: skip
    if not values:
        return None
    found = [float(values[max(math.ceil(s * len(values)) - 1, 0)]) for s in sketch.shares]
    if sketch.shape != "buckets":
        return found if sketch.shape == "list" else found[0]
    ends = [round(s * len(values)) for s in sketch.shares]
    return [
        {"low": found[i], "high": found[i + 1], "count": ends[i + 1] - ends[i]}
        for i in range(len(found) - 1)
    ]


def _of(values: list[Any], kind: str) -> Any:
    if kind == "approx_count_distinct":  # of so few values that it is exact
        kind = "count_distinct"
    if kind in ("count", "count_distinct", "collect"):
        return {
            "count": len(values), "collect": values,
            "count_distinct": len({_place(v) for v in values}),
        }[kind]  # fmt: skip
    if not values:
        return None
    if kind in ("first", "last"):
        return values[0 if kind == "first" else -1]
    if kind in ("min", "max"):
        return (min if kind == "min" else max)(values, key=_place)
    if kind in ("variance", "stddev"):
        return _spread(values, kind)
    with np.errstate(all="ignore"):
        exact = isinstance(values[0], int)
        total = sum(values) if exact else float(np.sum(np.array(values)))
        return total if kind == "sum" else total / len(values)


def _spread(values: list[Any], kind: str) -> float | None:
    if len(values) < 2:
        return None
    if not all(math.isfinite(v) for v in values):
        return math.nan
    variance = float(statistics.variance([float(v) for v in values]))
    return variance if kind == "variance" else math.sqrt(variance)


def _place(value: Any) -> Any:
    """A key by which NaN is the largest float, and -0.0 equals 0.0."""
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value + 0.0)
    return value.encode() if isinstance(value, str) else value


def same(got: Any, want: Any) -> bool:
    """Equal, floats up to rounding."""
    if isinstance(want, Anyhow):
        return sorted(got) == sorted(want)
    if isinstance(got, list) and isinstance(want, list):
        return len(got) == len(want) and all(map(same, got, want))
    if isinstance(got, dict) and isinstance(want, dict):
        return got.keys() == want.keys() and all(same(got[n], want[n]) for n in got)
    if isinstance(got, float) and isinstance(want, float | int):
        if math.isnan(got) or math.isnan(want):
            return math.isnan(got) and math.isnan(want)
        return math.isclose(got, want, rel_tol=1e-9, abs_tol=1e-6)
    return type(got) is type(want) and got == want


def check(got: dict[str, Any], rows: list[dict[str, Any]], aggs: dict[str, agg.Aggregate]) -> None:
    for name, aggregate in aggs.items():
        want = expected(rows, aggregate)
        assert same(got[name], want), f"{name} = {aggregate}: {got[name]!r}, expected {want!r}"
