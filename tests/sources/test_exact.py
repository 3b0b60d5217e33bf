"""Typed files: a value that its declared type cannot hold makes the row bad."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headrace as hr
from headrace.column_types import cast_exactly
from headrace.testing import drive

NOON, NIGHT = dt.datetime(2013, 1, 1, 12), dt.datetime(2013, 1, 1)
DAY = NIGHT.date()


def read(folder: Path, schema: str | None, *files: pa.Array) -> tuple[list[Any], int]:
    """The values of column `a`, and how many rows are dead letters."""
    (folder / "in").mkdir()
    for i, values in enumerate(files):
        pq.write_table(pa.table({"a": values}), folder / "in" / f"{i}.parquet")
    job = hr.Job("typed")
    job.read(f"files:{folder}/in", schema=schema, name="in").write("collect:", name="out")
    driven = drive(job, folder / "job")
    dead = driven.manifest.counts["in"]["dead"]
    return [r["a"] for r in driven.output("out").to_pylist()], dead


@pytest.mark.parametrize(
    ("schema", "values", "kept"),
    [
        ("a date", pa.array([NOON, NIGHT, None]), [DAY, None]),
        ("a date", pa.array([NOON, NIGHT], pa.timestamp("ns", "Europe/Berlin")), [DAY]),
        ("a float", pa.array([1e300, 1.5, float("inf"), -1e39]), [1.5, float("inf")]),
        ("a decimal(6,2)", pa.array([1.255, 1.25, 0.1]), [Decimal("1.25"), Decimal("0.10")]),
        ("a array<date>", pa.array([[NIGHT, NOON], [NIGHT], []]), [[DAY], []]),
        ("a struct<x float>", pa.array([{"x": 1e300}, None, {"x": 1.5}]), [None, {"x": 1.5}]),
        ("a int", pa.array([1.5, 2.0, 1e10]), [2]),
    ],
)
def test_a_value_that_does_not_fit_is_a_dead_letter(schema, values, kept, tmp_path):
    assert read(tmp_path, schema, values) == (kept, len(values) - len(kept))


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ([{"x": 1, "y": 2}], [{"x": 10}], "'a.y'"),
        ([[{"x": 1, "y": 2}]], [[{"x": 10}]], "'a.y'"),
        ([{"x": {"y": 1}}], [{"x": {"z": 1}}], "'a.x.y'"),
    ],
)
def test_a_field_that_a_file_has_not_is_a_missing_column(first, second, name, tmp_path):
    with pytest.raises(hr.InputError, match=name) as caught:
        read(tmp_path, None, pa.array(first), pa.array(second))
    assert caught.value.code == "HR-INPUT-005"


def test_a_map_is_compared_too():
    kind = pa.map_(pa.string(), pa.float32())
    good = pa.array([[("k", 1.5)], None, []], pa.map_(pa.string(), pa.float64()))
    assert cast_exactly(good, kind).to_pylist() == good.to_pylist()
    with pytest.raises(ValueError, match="double"):
        cast_exactly(pa.array([[("k", 1e300)]], pa.map_(pa.string(), pa.float64())), kind)


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_time_beyond_all_microseconds_does_not_wrap_into_another(unit):
    far = pa.array([2**62, 0, None], pa.int64()).cast(pa.timestamp(unit))
    with pytest.raises(ValueError, match="out of bounds"):
        cast_exactly(far, pa.timestamp("us", "UTC"))
    fine = pa.array([1_999, -1], pa.int64()).cast(pa.timestamp("ns"))
    cut = cast_exactly(fine, pa.timestamp("us"))
    assert cut.cast(pa.int64()).to_pylist() == [1, 0]
