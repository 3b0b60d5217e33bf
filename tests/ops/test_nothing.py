"""The partial of no rows: what an aggregate that is added to stored state begins with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from tests.ops.aggregate_model import AGGS, ROWS, SCHEMA, check, same, table_of

from headrace.ops.agg.kinds import Aggregate
from headrace.ops.agg.named import merge, part_names, partial, result
from headrace.ops.agg.own import OwnAggregate
from headrace.ops.stream.running_aggregates import rolling


class Longest(OwnAggregate):
    """It counts nulls, too: a null is not nothing."""

    state = "struct<rows: bigint, most: bigint>"
    output = "bigint"

    def zero(self) -> Any:
        return {"rows": 0, "most": 0}

    def add(self, state: Any, value: Any) -> Any:
        return {"rows": state["rows"] + 1, "most": max(state["most"], value or 0)}

    def merge(self, a: Any, b: Any) -> Any:
        return {"rows": a["rows"] + b["rows"], "most": max(a["most"], b["most"])}

    def result(self, state: Any) -> Any:
        return state["rows"] * 1000 + state["most"]


OWN = Aggregate("Longest", "x", own=Longest("x"))
ALL = {**AGGS, "own": OWN}


def nothing(keys: list[int]) -> pa.Table:
    columns = {"k": pa.array(keys, pa.int64())}
    for name, agg in ALL.items():
        columns |= zip(part_names(name, agg), agg.nothing(SCHEMA, len(keys)), strict=True)
    return pa.table(columns)


def test_its_result_is_that_of_no_rows() -> None:
    (got,) = result(nothing([0]), ALL).to_pylist()
    check(got, [], AGGS)
    assert got["own"] == 0


@settings(max_examples=12)
@given(ROWS)
def test_it_changes_nothing_in_a_merge(rows: list[tuple[Any, ...]]) -> None:
    table = table_of(rows)
    keys = sorted({row[0] for row in rows})
    fresh = partial(table, ["k"], ALL)
    for both in ([nothing(keys), fresh], [fresh, nothing(keys)]):
        merged = result(merge(pa.concat_tables(both), ["k"], ALL), ALL).to_pylist()
        for got in merged:
            check(got, [r for r in table.to_pylist() if r["k"] == got["k"]], AGGS)
        assert sorted(r["own"] for r in merged) == sorted(
            r["own"] for r in result(fresh, ALL).to_pylist()
        )


@settings(max_examples=12)
@given(ROWS)
def test_running_aggregates_may_start_from_it(rows: list[tuple[Any, ...]]) -> None:
    table = table_of([(0, *row[1:]) for row in rows]).sort_by(
        [("__t", "ascending"), ("__s", "ascending"), ("__o", "ascending")]
    )
    if not rows:
        return
    starts = np.array([0])
    begun, _ = rolling(table, starts, ALL)
    after, _ = rolling(table, starts, ALL, nothing([0]), np.array([True]))
    for got, want in zip(after.to_pylist(), begun.to_pylist(), strict=True):
        for name in ALL:
            assert same(got[name], want[name]), name
    for n, got in enumerate(after.to_pylist(), 1):
        check(got, table.slice(0, n).to_pylist(), AGGS)
