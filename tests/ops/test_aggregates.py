"""Aggregates: against plain Python and DuckDB, however rows are split and partials merged."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import datasketches
import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.aggregate_model import AGGS, ROWS, SCHEMA, check, same, table_of

from headrace.errors import PlanError, RunError
from headrace.ops.agg import named as agg
from headrace.ops.agg.named import Aggregate, merge, partial, result

SEEDS = st.integers(0, 2**32)


def groups(table: pa.Table) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        found.setdefault(row["k"], []).append(row)
    return found


def by_key(table: pa.Table) -> dict[Any, dict[str, Any]]:
    rows = table.to_pylist()
    assert len({r["k"] for r in rows}) == len(rows)
    return {row["k"]: row for row in rows}


def of(values: list[Any], kind: pa.DataType, aggregate: Aggregate, **more: pa.Array) -> Any:
    """The aggregate of one column x, as one group."""
    table = pa.table({"x": pa.array(values, kind), **more})
    return result(partial(table, [], {"a": aggregate}), {"a": aggregate})["a"][0].as_py()


@settings(max_examples=40, deadline=None)
@given(ROWS)
def test_every_aggregate_agrees_with_plain_python(rows: list[Any]) -> None:
    table = table_of(rows)

    got = by_key(result(partial(table, ["k"], AGGS), AGGS))

    want = groups(table)
    assert got.keys() == want.keys()
    for key, members in want.items():
        check(got[key], members, AGGS)


@settings(max_examples=40, deadline=None)
@given(ROWS, SEEDS)
def test_partials_of_any_split_merge_in_any_order_to_the_same(rows: list[Any], seed: int) -> None:
    random = np.random.default_rng(seed)
    table = table_of(rows)
    piece = random.integers(0, 4, len(rows))
    parts = [partial(table.filter(pa.array(piece == i)), ["k"], AGGS) for i in range(4)]
    random.shuffle(parts)

    some = merge(pa.concat_tables(parts[:2]), ["k"], AGGS)
    got = by_key(result(merge(pa.concat_tables([*parts[2:], some]), ["k"], AGGS), AGGS))

    want = groups(table)
    assert got.keys() == want.keys()
    for key, members in want.items():
        check(got[key], members, AGGS)


@settings(max_examples=12, deadline=None)
@given(SEEDS, st.integers(1, 300))
def test_numbers_agree_with_duckdb(seed: int, count: int) -> None:
    random = np.random.default_rng(seed)
    missing = random.random(count) < 0.2
    table = pa.table({
        "k": random.integers(0, 5, count),
        "x": pa.array(random.integers(-1000, 1000, count), mask=missing),
        "f": pa.array(random.normal(1e6, 1.0, count), mask=random.random(count) < 0.1),
    })  # fmt: skip
    aggs = {
        "n": agg.count("x"), "s": agg.sum("x"), "m": agg.mean("f"), "lo": agg.min("f"),
        "hi": agg.max("x"), "sd": agg.stddev("f"), "v": agg.variance("x"),
        "d": agg.count_distinct("x"),
    }  # fmt: skip

    got = by_key(result(partial(table, ["k"], aggs), aggs))

    columns = ["k", *aggs]
    with duckdb.connect() as oracle:
        answer = (
            oracle.register("rows", table)
            .execute(
                "select k, count(x), sum(x)::bigint, avg(f), min(f), max(x), stddev_samp(f), "
                "var_samp(x), count(distinct x) from rows group by k"
            )
            .fetchall()
        )
    assert len(got) == len(answer)
    for row in answer:
        want = dict(zip(columns, row, strict=True))
        assert all(same(got[want["k"]][name], want[name]) for name in aggs), (got[want["k"]], want)


def test_partial_and_result_have_the_types_they_announce() -> None:
    table = table_of([(1, 2, 3.0, "a", 4), (1, None, None, None, 5)])
    made = partial(table, ["k"], AGGS)

    fields = [f for n, a in AGGS.items() for f in a.partial_fields(n, SCHEMA)]
    assert made.schema == pa.schema([SCHEMA.field("k"), *fields])
    assert partial(table.slice(0, 0), ["k"], AGGS).schema == made.schema
    assert merge(made, ["k"], AGGS).schema == made.schema
    assert result(made, AGGS).schema.types[1:] == [a.result_type(SCHEMA) for a in AGGS.values()]


NO_VALUES = datasketches.update_theta_sketch().compact().serialize()


def test_no_rows_give_no_groups_and_nulls_alone_give_null() -> None:
    empty = table_of([])
    assert result(merge(partial(empty, ["k"], AGGS), ["k"], AGGS), AGGS).num_rows == 0

    [row] = result(partial(table_of([(1, None, None, None, 0)]), ["k"], AGGS), AGGS).to_pylist()
    zero: dict[str, Any] = {"rows": 1, "n": 0, "all": [], "kinds": 0, "names": 0}
    zero |= {"about": 0, "names about": 0, "top": [], "top f": [], "any": [], "wide": row["wide"]}
    zero |= {"points": [0, 0, 0], "at 0": [0, 0], "set": NO_VALUES, "set of f": NO_VALUES}
    assert [bucket["count"] for bucket in row["wide"]] == [0, 0, 0, 0]
    assert row == {"k": 1, **{n: zero.get(n) for n in AGGS}}


def test_groups_by_several_columns_with_nulls_and_without_any() -> None:
    table = pa.table({"a": ["x", None, "x", None], "b": [1, 1, 1, None], "v": [1, 2, 3, 4]})
    aggs = {"s": agg.sum("v")}

    assert result(partial(table, ["a", "b"], aggs), aggs).to_pylist() == [
        {"a": "x", "b": 1, "s": 4}, {"a": None, "b": 1, "s": 2}, {"a": None, "b": None, "s": 4},
    ]  # fmt: skip
    assert result(partial(table, [], aggs), aggs).to_pylist() == [{"s": 10}]


def test_chunked_dictionary_and_sliced_columns_are_as_good_as_plain_ones() -> None:
    table = table_of([(i % 2, i, float(i), "aé"[i % 2], i) for i in range(12)])
    odd = pa.concat_tables([table.slice(3, 4), table.slice(7, 5), table.slice(0, 3)])
    coded = odd.set_column(3, "s", odd["s"].dictionary_encode())

    assert result(partial(coded, ["k"], AGGS), AGGS).sort_by("k") == (
        result(partial(table, ["k"], AGGS), AGGS).sort_by("k")
    )


def test_an_integer_sum_beyond_64_bits_is_an_error_and_not_a_wrap() -> None:
    big = 2**62
    with pytest.raises(RunError) as refusal:
        of([big, big], pa.int64(), agg.sum("x"))
    assert refusal.value.code == "HR-AGG-009"
    assert "a = sum(x)" in refusal.value.message

    with pytest.raises(RunError):
        of([2**63], pa.uint64(), agg.sum("x"))
    assert of([big, big - 1], pa.int64(), agg.sum("x")) == 2**63 - 1
    assert of([-big, -big], pa.int64(), agg.sum("x")) == -(2**63)
    assert of([big, big, -big, -1], pa.int64(), agg.sum("x")) == big - 1
    assert math.isclose(of([big, big], pa.int64(), agg.mean("x")), big)


def test_an_overflow_while_merging_is_an_error_too() -> None:
    table = pa.table({"x": pa.array([2**62])})
    aggs = {"a": agg.sum("x")}
    part = partial(table, [], aggs)

    with pytest.raises(RunError):
        merge(pa.concat_tables([part, part]), [], aggs)


def test_decimals_add_up_exactly_and_refuse_more_than_38_digits() -> None:
    kind = pa.decimal128(20, 2)
    assert of([Decimal("0.10"), None, Decimal("0.20")], kind, agg.sum("x")) == Decimal("0.30")
    assert of([Decimal("1.10"), Decimal("-3.20")], kind, agg.min("x")) == Decimal("-3.20")
    assert of([Decimal("1.00"), Decimal("2.00")], kind, agg.mean("x")) == 1.5

    wide, nines, minus = pa.decimal128(38, 0), Decimal("9" * 38), Decimal("-" + "9" * 38)
    assert of([nines, minus, nines], wide, agg.sum("x")) == nines
    with pytest.raises(RunError):
        of([nines, nines], wide, agg.sum("x"))


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32(), pa.time64("us")])
def test_times_have_least_greatest_and_first_but_no_sum(kind: pa.DataType) -> None:
    values = pa.array([5, None, 3, 9], pa.int64() if kind.bit_width == 64 else pa.int32())
    stamps = values.cast(kind).to_pylist()

    assert of(stamps, kind, agg.min("x")) == stamps[2]
    assert of(stamps, kind, agg.max("x")) == stamps[3]
    assert of(stamps, kind, agg.last("x")) == stamps[3]
    assert of(stamps, kind, agg.max_by("x", "x")) == stamps[3]
    assert of(stamps, kind, agg.count_distinct("x")) == 3
    with pytest.raises(PlanError):
        agg.sum("x").result_type(pa.schema([("x", kind)]))


def test_booleans_and_bytes_have_an_order_too() -> None:
    assert of([True, None, False], pa.bool_(), agg.min("x")) is False
    assert of([True, None, False], pa.bool_(), agg.max_by("x", "x")) is True
    assert of([b"b", b"\xff", b"a"], pa.binary(), agg.max("x")) == b"\xff"
    assert of([True, True, None], pa.bool_(), agg.count_distinct("x")) == 1


def test_nested_values_can_be_picked_and_collected() -> None:
    kind = pa.list_(pa.int64())
    by = pa.array([2, 1])

    assert of([[1], [2, 3]], kind, agg.min_by("x", "y"), y=by) == [2, 3]
    assert of([[1], None], kind, agg.collect("x")) == [[1]]
    with pytest.raises(PlanError):
        agg.count_distinct("x").result_type(pa.schema([("x", kind)]))


def test_among_equals_min_by_and_max_by_take_the_first_row() -> None:
    table = table_of([(1, 1, 7.0, "late", 9), (1, 2, 7.0, "early", 3), (1, 3, None, "no", 1)])
    aggs = {"lo": agg.min_by("s", "f"), "hi": agg.max_by("s", "f")}

    assert result(partial(table, ["k"], aggs), aggs).to_pylist() == [
        {"k": 1, "lo": "early", "hi": "early"}
    ]


def test_order_is_by_time_and_where_there_is_none_that_of_the_table() -> None:
    table = pa.table({"x": ["a", "b", "c"], "__t": [3, 1, 2]})
    aggs = {"f": agg.first("x"), "l": agg.last("x"), "c": agg.collect("x")}

    timed = result(partial(table, [], aggs), aggs).to_pylist()
    plain = result(partial(table.select(["x"]), [], aggs), aggs).to_pylist()

    assert timed == [{"f": "b", "l": "a", "c": ["b", "c", "a"]}]
    assert plain == [{"f": "a", "l": "c", "c": ["a", "b", "c"]}]


def test_the_order_holds_for_offsets_as_wide_as_a_hash() -> None:
    wide = np.array([2**63 - 1, -(2**63), 0], np.int64)
    table = pa.table({"x": ["a", "b", "c"], "y": [1.5, 1.5, 1.5], "__t": [5, 5, 5], "__o": wide})
    aggs = {"f": agg.first("x"), "l": agg.last("x"), "m": agg.min_by("x", "y"),
            "c": agg.collect("x")}  # fmt: skip

    assert result(partial(table, [], aggs), aggs).to_pylist() == [
        {"f": "b", "l": "a", "m": "b", "c": ["b", "c", "a"]}
    ]


def test_a_large_mean_does_not_eat_the_variance() -> None:
    table = pa.table({"x": np.array([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16])})
    aggs = {"v": agg.variance("x")}
    parts = [partial(table.slice(i, 1), [], aggs) for i in range(4)]

    whole = result(partial(table, [], aggs), aggs)["v"][0].as_py()
    merged = result(merge(pa.concat_tables(parts), [], aggs), aggs)["v"][0].as_py()

    assert math.isclose(whole, 30.0) and math.isclose(merged, 30.0)


@pytest.mark.parametrize(
    ("aggregate", "code"),
    [
        (agg.sum("s"), "HR-AGG-001"),
        (agg.mean("s"), "HR-AGG-001"),
        (agg.stddev("s"), "HR-AGG-001"),
        (agg.max("list"), "HR-AGG-001"),
        (agg.min_by("s", "list"), "HR-AGG-001"),
        (agg.sum("nowhere"), "HR-AGG-002"),
        (agg.max_by("s", "nowhere"), "HR-AGG-002"),
    ],
)
def test_an_argument_that_does_not_suit_is_refused(aggregate: Aggregate, code: str) -> None:
    schema = pa.schema([("s", pa.string()), ("list", pa.list_(pa.int64()))])

    with pytest.raises(PlanError) as refusal:
        aggregate.result_type(schema)

    assert refusal.value.code == code
    assert refusal.value.hint


def test_a_literal_is_not_a_column() -> None:
    with pytest.raises(PlanError) as refusal:
        agg.sum(3)  # type: ignore[arg-type]

    assert refusal.value.code == "HR-AGG-003"
    assert refusal.value.site and refusal.value.site.file == __file__


def test_an_aggregate_reads_as_it_is_written() -> None:
    assert str(agg.min_by("x", "y")) == "min_by(x, y)"
    assert str(agg.count()) == "count()"
    assert agg.sum("x") == agg.sum("x") != agg.sum("y")
    assert [a.ordered for a in (agg.sum("x"), agg.first("x"), agg.collect("x"))] == [
        False, True, True,
    ]  # fmt: skip
