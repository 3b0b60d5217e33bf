"""Specs of row windows: what they refuse, and what they are called."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.ops.agg import named as agg
from headrace.ops.row_windows.operator import RowWindowOperator
from headrace.ops.window.by_rows import (
    CountWindow,
    DeltaWindow,
    LastRows,
    LastTime,
    UntilWindow,
    check,
)

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64()), ("s", pa.string()), ("b", pa.bool_())])
REFUSED = {
    10: lambda: CountWindow(0), 11: lambda: CountWindow(5, 0), 12: lambda: CountWindow(5, 6),
    13: lambda: DeltaWindow("x", -1), 14: lambda: DeltaWindow("x", 1, "last"),
    15: lambda: LastRows(-3, 1_000), 16: lambda: LastRows(3, 0),
    17: lambda: LastTime(0, 5), 18: lambda: LastTime(1_000, 0),
    19: lambda: check(DeltaWindow("s", 1), SCHEMA), 20: lambda: check(UntilWindow("x"), SCHEMA),
    22: lambda: check(UntilWindow("gone"), SCHEMA),
}  # fmt: skip


@pytest.mark.parametrize("number", REFUSED)
def test_a_wrong_window_is_refused_where_it_is_written(number: int) -> None:
    with pytest.raises(PlanError) as refusal:
        REFUSED[number]()
    assert refusal.value.code == f"HR-WINDOW-{number:03}"
    assert refusal.value.hint and refusal.value.site


@pytest.mark.parametrize("size", [True, 2.5, "3", None])
def test_only_whole_numbers_count_rows(size: Any) -> None:
    with pytest.raises(PlanError):
        CountWindow(size)


@pytest.mark.parametrize("threshold", [True, "1", float("nan"), float("inf"), None])
def test_only_a_finite_number_is_a_threshold(threshold: Any) -> None:
    with pytest.raises(PlanError):
        DeltaWindow("x", threshold)


@pytest.mark.parametrize("spec", [LastRows(3, 1_000), LastTime(1_000, 3)])
def test_windows_that_go_by_time_refuse_rows_without(spec: Any) -> None:
    operator = RowWindowOperator(spec, {"n": agg.count()}, ["k"], SCHEMA, SCHEMA)
    with pytest.raises(PlanError) as refusal:
        operator.prepare(0, pa.table({"k": ["a"]}))
    assert refusal.value.code == "HR-WINDOW-021"


def test_specs_say_what_they_are() -> None:
    specs = [
        CountWindow(100), CountWindow(100, 10), DeltaWindow("x", 5, "previous"),
        UntilWindow("done", inside=False), LastRows(100, 10_000), LastTime(10_000, 100),
    ]  # fmt: skip
    assert [str(s) for s in specs] == [
        "100 rows", "100 rows every 10", "until x moves by more than 5 since previous",
        "until before done", "last 100 rows every 10s", "last 10s every 100 rows",
    ]  # fmt: skip
