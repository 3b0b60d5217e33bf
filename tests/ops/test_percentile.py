"""Percentiles against DuckDB and plain Python: types, places, running over many rows."""

from __future__ import annotations

import bisect
import random
import statistics
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.ops.agg import named
from headrace.ops.stream.running_aggregates import rolling
from headrace.testing import drive

SHARES = (0.0, 0.05, 0.25, 1 / 3, 0.5, 0.9, 0.95, 0.999, 1.0)
AGGS = {f"p{i}": hr.percentile("v", share) for i, share in enumerate(SHARES)}


def of(values: list[Any], kind: pa.DataType) -> list[float | None]:
    rows = pa.table({"g": pa.array([0] * len(values)), "v": pa.array(values, kind)})
    (row,) = named.result(named.partial(rows, ["g"], AGGS), AGGS).to_pylist()
    return [row[name] for name in AGGS]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()])
def test_it_is_what_duckdb_computes(kind: pa.DataType) -> None:
    draw = random.Random(7)
    for count in (1, 2, 3, 10, 101):
        values = [draw.randrange(100) for _ in range(count)]
        numbers = pa.table({"v": pa.array(values, kind).cast(pa.float64())})
        duckdb.register("numbers", numbers)
        shares = ", ".join(f"quantile_cont(v, {s!r})" for s in SHARES)
        assert of(values, kind) == pytest.approx(
            duckdb.sql(f"select {shares} from numbers").fetchall()[0], rel=1e-14
        )


def test_decimals_and_large_integers_are_doubles_in_the_end() -> None:
    assert of([Decimal("1.10"), Decimal("2.20")], pa.decimal128(9, 2))[4] == pytest.approx(1.65)
    assert of([2**62, 2**62 + 2], pa.int64())[4] == float(2**62)


def test_null_nan_and_the_sign_of_zero() -> None:
    assert of([None, None], pa.int64()) == [None] * len(SHARES)
    assert of([None, 4], pa.int64()) == [4.0] * len(SHARES)
    values = of([float("nan"), 1.0, 2.0], pa.float64())
    assert values[0] == 1.0 and values[4] == 2.0 and values[-1] != values[-1]
    assert str(of([-0.0], pa.float64())[0]) == "0.0"


def test_running_over_many_rows_and_from_what_is_stored() -> None:
    draw = random.Random(3)
    keys = sorted(draw.choice("abc") for _ in range(3_000))
    values = [draw.choice([None, draw.randrange(40), draw.randrange(10**9)]) for _ in keys]
    aggs = {"m": hr.median("v"), "p": hr.percentile("v", 0.9)}
    table = pa.table({"v": pa.array(values, pa.int64())})
    starts = np.array([keys.index(k) for k in "abc"])
    halves: list[pa.Table] = []
    stored = None
    for half in (0, 1):  # every other row of each key, so that the second half starts from a state
        rows = np.arange(half, len(keys), 2)
        begins = np.searchsorted(rows, starts)
        running, stored = rolling(table.take(rows), begins, aggs, stored)
        halves.append(running)
    for half in (0, 1):
        found, seen = halves[half].to_pylist(), dict[str, list[int]]()
        for key in "abc" if half else ():
            seen[key] = sorted(
                v for k, v in zip(keys[::2], values[::2], strict=True) if k == key and v is not None
            )
        for place, row in enumerate(range(half, len(keys), 2)):
            mine = seen.setdefault(keys[row], [])
            if (value := values[row]) is not None:
                bisect.insort(mine, value)
            assert found[place]["m"] == (statistics.median(mine) if mine else None)
            if len(mine) > 1:
                tenths = statistics.quantiles(mine, n=10, method="inclusive")
                assert found[place]["p"] == pytest.approx(tenths[8])


def test_as_text_and_in_a_program(tmp_path: Path) -> None:
    job = hr.Job("delays")
    rows = job.read(hr.rows([{"t": i, "ms": i * 10} for i in range(11)]), time="t", delay="1s")
    rows.window(hr.everything()).agg(
        "percentile(ms, 0.95) - median(ms) as tail", half=hr.median("ms"), p=hr.percentile("ms", 1)
    ).write("collect:", name="out")
    (found,) = drive(job, tmp_path).output("out").to_pylist()
    assert (found["tail"], found["half"], found["p"]) == (45.0, 50.0, 100.0)


@pytest.mark.parametrize("share", [-0.1, 1.5, 95, "0.5", None, True])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(PlanError, match="HR-AGG-016"):
        hr.percentile("v", share)


@pytest.mark.parametrize("text", ["percentile(v, 95)", "percentile(v, v)", "percentile(v, 'a')"])
def test_so_it_is_in_text(text: str) -> None:
    job = hr.Job("j")
    job.read(hr.rows([{"v": 1}])).window(hr.everything()).agg(x=text).write("collect:")
    with pytest.raises(PlanError, match="HR-AGG-016"):
        job.check()


def test_text_has_no_percentile() -> None:
    job = hr.Job("j")
    job.read(hr.rows([{"v": "a"}])).window(hr.everything()).agg(x=hr.median("v")).write("collect:")
    with pytest.raises(PlanError, match="HR-AGG-001"):
        job.check()


@pytest.mark.parametrize("kind", ["decimal(12,3)", "decimal(18,6)", "decimal(38,10)"])
def test_decimals_become_the_nearest_doubles(kind):
    texts = [f"{n}.{n % 1000:03}" for n in range(0, 3_000, 37)] + ["630.320", "-0.7"]
    rows = [{"v": Decimal(text), "at": i * 1_000} for i, text in enumerate(texts)]
    read = hr.Job("one").read(hr.rows(rows, schema=f"v {kind}, at bigint"), time="at", delay="1s")
    each = read.window(hr.tumbling("1s")).agg(
        median=hr.median("v"), mean=hr.mean("v"), least=hr.percentile("v", 0)
    )
    found = each.head(len(texts), quiet=True)
    for column in ("median", "mean", "least"):
        assert sorted(found.column(column).to_pylist()) == sorted(map(float, texts))
