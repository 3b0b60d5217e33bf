"""What each method builds: the node, the columns after it, and when it runs as Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

import pyarrow as pa
import pytest

from headrace.expr import col, same
from headrace.ops.agg.named import count, mean
from headrace.ops.fold import RunningFold
from headrace.ops.stream.running_aggregates import RunningAggregates
from headrace.ops.window.aligned import tumbling
from headrace.ops.window.spec import PaneWindows
from headrace.plan.nodes import LATE, Python, Select, Union, Write
from headrace.schema import TIMESTAMP, schema_of


def node(stream):
    return stream._edge.node


def columns(stream):
    return dict(zip(stream.schema.names, stream.schema.types, strict=True))


@pytest.mark.parametrize(
    "spelling", [col("celsius") > 40, "celsius > 40", lambda e: e.celsius > 40]
)
def test_a_condition_is_the_same_tree_however_it_is_spelt(temperature, spelling):
    for method in (temperature.filter, temperature.where):
        made = node(method(spelling))
        assert isinstance(made, Select)
        assert same(made.where, col("celsius") > 40)
        assert made.schema == temperature.schema


@pytest.mark.parametrize(
    "spelling", [lambda e: {"f": e.celsius * 2}, lambda e: {"f": col("celsius") * 2}]
)
def test_a_traced_map_is_a_select(temperature, spelling):
    made = temperature.map(spelling)
    assert isinstance(node(made), Select)
    assert same(node(made).columns[0][1], col("celsius") * 2)
    assert columns(made) == {"f": pa.float64()}


def test_a_traced_map_takes_the_types_that_are_asked_for(temperature):
    made = temperature.map(lambda e: {"f": e.sensor}, schema={"f": float})
    assert isinstance(node(made), Select)
    assert columns(made) == {"f": pa.float64()}


def test_a_lambda_that_needs_values_runs_as_python_and_the_reason_is_kept(temperature):
    made = node(temperature.map(lambda e: {"f": 1 if e.celsius > 40 else 2}, schema={"f": int}))
    assert isinstance(made, Python)
    assert made.kind == "map"
    assert "if" in made.function.reason
    assert made.function.site.file == __file__


def test_a_filter_that_needs_values_runs_as_python(temperature):
    made = node(temperature.filter(lambda e: e.celsius > 40 and e.sensor > 1))
    assert isinstance(made, Python)
    assert made.kind == "filter"
    assert made.schema == temperature.schema


@dataclass
class Point:
    x: float
    n: int


class Pair(NamedTuple):
    x: float
    n: int


class Dict(TypedDict):
    x: float
    n: int


def gives_point(row) -> Point: ...
def gives_pair(row) -> Pair: ...
def gives_dict(row) -> Dict: ...
def gives_float(row) -> float: ...
def gives_points(row) -> list[Point]: ...
def yields_points(row) -> Iterator[Point]: ...
def gives_anything(row): ...


@pytest.mark.parametrize("fn", [gives_point, gives_pair, gives_dict])
def test_the_columns_of_a_function_are_its_return_annotation(temperature, fn):
    made = temperature.map(fn)
    assert isinstance(node(made), Python)
    assert columns(made) == {"x": pa.float64(), "n": pa.int64()}


def test_a_function_that_gives_a_plain_value_makes_one_column(temperature):
    assert columns(temperature.map(gives_float)) == {"value": pa.float64()}


@pytest.mark.parametrize("fn", [gives_points, yields_points])
def test_flat_map_takes_the_annotation_of_the_rows(temperature, fn):
    assert columns(temperature.flat_map(fn)) == {"x": pa.float64(), "n": pa.int64()}


def test_schema_says_what_a_function_without_annotation_gives(temperature):
    assert columns(temperature.map(gives_anything, schema="x double")) == {"x": pa.float64()}
    assert columns(temperature.flat_map(gives_anything, schema=Point))["n"] == pa.int64()


def test_select_takes_names_expressions_and_new_columns(temperature):
    made = temperature.select("area", col("celsius"), "sensor + 1 AS next", f="celsius * 2")
    assert made.schema.names == ["area", "celsius", "next", "f"]


def test_with_columns_replaces_in_place_and_adds_at_the_end(temperature):
    made = temperature.with_columns(celsius="cast(celsius as int)", hot="celsius > 40")
    assert made.schema.names == [*temperature.schema.names, "hot"]
    assert columns(made)["celsius"] == pa.int32()
    assert columns(made)["hot"] == pa.bool_()


def test_a_column_may_be_called_name(temperature):
    assert temperature.select(name="area").schema.names == ["name"]
    assert temperature.key_by("area").agg(unbounded=True, name=count()).schema.names[-1] == "name"


def test_drop_and_rename_keep_the_other_columns_in_order(temperature):
    assert temperature.drop("at", "sensor").schema.names == ["area", "celsius"]
    assert temperature.rename(zone="area").schema.names == ["zone", "celsius", "at", "sensor"]


def test_a_stream_keeps_event_time_through_stateless_steps(temperature):
    assert node(temperature.select("area").filter("area = 'roof'")).timed


def test_key_by_an_expression_adds_a_column(temperature):
    keyed = temperature.key_by("area", zone="upper(area)")
    assert keyed.keys == ("area", "zone")
    assert keyed.schema.names[-1] == "zone"


def test_key_by_plain_columns_adds_no_step(temperature):
    keyed = temperature.key_by("area", lambda e: e.sensor)
    assert keyed.keys == ("area", "sensor")
    assert keyed.unkeyed._edge is temperature._edge


def test_a_keyed_stream_says_where_the_other_methods_are(temperature):
    with pytest.raises(AttributeError, match="before key_by"):
        temperature.key_by("area").where("celsius > 40")


def test_a_window_gives_key_bounds_and_aggregates(temperature):
    made = temperature.key_by("area").window(tumbling("5s")).agg(c=mean("celsius"), n=count())
    assert columns(made) == {
        "area": pa.string(), "window_start": TIMESTAMP, "window_end": TIMESTAMP,
        "c": pa.float64(), "n": pa.int64(),
    }  # fmt: skip
    assert isinstance(node(made).what, PaneWindows)
    assert node(made).timed


def test_a_window_without_key_has_no_key_columns(temperature):
    made = temperature.window(tumbling("5s")).agg(n=count())
    assert made.schema.names == ["window_start", "window_end", "n"]
    assert node(made).keys == ((),)


def test_late_rows_are_as_they_went_in(temperature):
    late = temperature.key_by("area").window(tumbling("5s")).agg(n=count()).late
    assert late._edge.port == LATE
    assert late.schema == temperature.schema


def test_rolling_aggregates_are_added_to_the_row(temperature):
    made = temperature.key_by("area").agg(unbounded=True, celsius=mean("celsius"), n=count())
    assert isinstance(node(made).what, RunningAggregates)
    assert made.schema.names == [*temperature.schema.names, "n"]


def test_an_aggregate_of_an_expression_is_typed(temperature):
    made = temperature.window(tumbling("5s")).agg(c=mean(col("celsius") + 1), d=mean("sensor * 2"))
    assert columns(made)["c"] == pa.float64()
    assert columns(made)["d"] == pa.float64()


def test_reduce_gives_rows_of_the_input(temperature):
    made = temperature.key_by("area").reduce(lambda a, b: b, unbounded=True)
    assert made.schema == temperature.schema
    assert node(made).what.folding.value.names == ["celsius", "at", "sensor"]
    assert node(made).what.folding.zero is None


@pytest.mark.parametrize(
    ("zero", "schema", "expected"),
    [
        (0, None, {"value": pa.int64()}),
        (0.0, None, {"value": pa.float64()}),
        (Point(0.0, 0), None, {"x": pa.float64(), "n": pa.int64()}),
        (list, list[str], {"value": pa.list_(pa.string())}),
        (lambda: {"n": 0}, "n bigint", {"n": pa.int64()}),
    ],
)
def test_fold_gives_the_key_and_the_value(temperature, zero, schema, expected):
    made = temperature.key_by("area").fold(zero, lambda a, row: a, schema=schema, unbounded=True)
    assert isinstance(node(made).what, RunningFold)
    assert columns(made) == {"area": pa.string(), **expected}


def test_every_key_gets_a_zero_of_its_own(temperature):
    made = node(temperature.key_by("area").fold([], lambda a, r: a, schema=list[str]))
    one, two = made.what.folding.zero.fn(), made.what.folding.zero.fn()
    assert one == two == []
    assert one is not two


def test_windows_reduce_and_fold(temperature):
    windows = temperature.key_by("area").window(tumbling("5s"))
    assert windows.reduce(lambda a, b: a).schema.names == [
        "area", "window_start", "window_end", "celsius", "at", "sensor",
    ]  # fmt: skip
    assert windows.fold(0, lambda a, row: a + 1).schema.names[-1] == "value"


def test_a_union_has_the_columns_of_its_inputs(job, temperature):
    more = job.read("log:more", schema=temperature.schema, time="at", delay="1s")
    made = temperature.union(more)
    assert isinstance(node(made), Union)
    assert made.schema == temperature.schema
    assert node(made).timed


def test_each_row_goes_to_the_first_branch_that_takes_it(temperature):
    parts = temperature.split(hot="celsius > 40", cold=lambda e: e.celsius < 0)
    hot, cold = parts
    assert same(node(hot).where, col("celsius") > 40)
    assert same(node(cold).where, ~(col("celsius") > 40).eq_null(True) & (col("celsius") < 0))
    neither = ~(col("celsius") > 40).eq_null(True) & ~(col("celsius") < 0).eq_null(True)
    assert same(node(parts.other).where, neither)
    assert parts["hot"] is hot
    assert parts.other is parts.other
    with pytest.raises(AttributeError, match="hot, cold"):
        _ = parts.warm


def test_write_keeps_format_and_options(temperature):
    temperature.write("files:out", format="parquet", target_file_mb=64)
    write = temperature._draft.graph()[-1]
    assert isinstance(write, Write)
    assert write.options == {"format": "parquet", "target_file_mb": 64}


def test_map_batches_keeps_the_columns_unless_told(temperature):
    assert temperature.map_batches(lambda t: t).schema == temperature.schema
    made = temperature.map_batches(lambda t: t, schema="n bigint")
    assert made.schema == schema_of("n bigint")
    assert node(made).kind == "batches"


def test_a_stream_shows_its_name_and_columns(temperature):
    assert repr(temperature.select("area")) == "<Stream 'temperature.select' (area: string)>"


def test_names_may_be_arguments_or_lists(temperature):
    names = temperature.schema.names
    assert temperature.select(names).schema == temperature.select(*names).schema
    assert temperature.select([col(names[0])], names[1:]).schema.names == names
    assert temperature.drop(names[:1]).schema == temperature.drop(names[0]).schema
    assert temperature.key_by(names[:2]).keys == temperature.key_by(*names[:2]).keys
