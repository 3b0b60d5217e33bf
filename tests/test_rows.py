import dataclasses
import datetime as dt
import gc
import keyword
from collections import OrderedDict
from decimal import Decimal
from typing import NamedTuple

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings

from headrace.rows import (
    array_of,
    collector_paused,
    fitted,
    row_class,
    rows_of,
    table_of,
    values_of,
)
from headrace.schema import schema_of


@dataclasses.dataclass(frozen=True)
class Place:
    x: int
    y: str


class Named(NamedTuple):
    y: str
    x: int


XY = schema_of("x bigint, y string")


def as_dicts(table):
    """Rows through a user's eyes, under the columns' own names."""
    return [dict(zip(table.column_names, row, strict=True)) for row in rows_of(table)]


# --- rows for user functions

COLUMNS = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "boolean": st.booleans(),
    "string": st.text(),
    "binary": st.binary(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
    "decimal(10,2)": st.decimals(-1000, 1000, places=2),
    "array<bigint>": st.lists(st.integers(0, 9), max_size=3),
    "map<string, bigint>": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
    "struct<x bigint, y string>": st.fixed_dictionaries({"x": st.integers(0, 9), "y": st.text()}),
    "array<map<string, date>>": st.lists(st.dictionaries(st.just("d"), st.dates()), max_size=2),
}


@st.composite
def rows_with_schema(draw):
    kinds = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4))
    schema = schema_of({f"v{i}": kind for i, kind in enumerate(kinds)})
    row = st.tuples(*(st.none() | COLUMNS[kind] for kind in kinds))
    return schema, draw(st.lists(row, max_size=5))


@settings(max_examples=60)
@given(case=rows_with_schema(), cut=st.integers(0, 5))
def test_rows_come_back_from_a_table_as_they_went_in_however_it_is_chunked(case, cut):
    schema, rows = case
    table = table_of(rows, schema)
    assert table.schema == schema
    chunked = pa.concat_tables([table.slice(0, cut), table.slice(cut)])
    assert rows_of(chunked) == rows
    assert table_of(rows_of(chunked), schema).equals(table)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Vienna"])
@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_times_are_the_same_moments_as_arrow_gives_in_every_unit(unit, zone):
    moments = pa.array([-62135596800, -1, 0, None, 253402300799 - 86400], pa.int64())
    column = moments.cast(pa.timestamp("s")).cast(pa.timestamp(unit)).cast(pa.int64())
    table = pa.table({"at": column.cast(pa.timestamp(unit, zone))}).slice(1)
    assert [row.at for row in rows_of(table)] == table.column("at").to_pylist()


@pytest.mark.parametrize("far", [2**50, 2**62, -(2**62)])
@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.date32()])
def test_a_time_that_python_does_not_have_is_refused(kind, far):
    ticks = pa.array([far], pa.int64())
    if kind == pa.date32():
        ticks = pa.array([2**30 if far > 0 else -(2**30)], pa.int32())
    with pytest.raises(ValueError, match="years 1 to 9999"):
        rows_of(pa.table({"at": ticks.cast(kind)}))


def test_a_row_is_a_tuple_with_the_columns_as_fields():
    (row,) = rows_of(pa.table({"area": ["hall"], "celsius": [20.5]}))
    assert (row.area, row.celsius) == row == ("hall", 20.5)
    assert row._replace(celsius=1.0) == ("hall", 1.0)
    assert repr(row) == "Row(area='hall', celsius=20.5)"


def test_a_column_whose_name_is_no_python_name_is_called_by_its_position():
    names = ("a b", "class", "_id", "c0", "count", "a b", "c2")
    assert row_class(names)._fields == ("c0x", "c1", "c2x", "c0", "count", "c5", "c2")


NAMES = st.text(max_size=4) | st.sampled_from(["c0", "c1", "c0x", "a", "\u00aa", "class", "_a"])


@given(names=st.lists(NAMES, max_size=6))
def test_every_column_has_a_field_of_its_own_and_good_names_stay(names):
    fields = row_class(tuple(names))._fields
    assert len(set(fields)) == len(names)
    for i, name in enumerate(names):
        good = name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
        assert not good or name.startswith("_") or fields[names.index(name)] == name
        assert fields[i] == name or fields[i].startswith(f"c{i}")


# --- rows from user functions


@pytest.mark.parametrize(
    "row",
    [(1, "a"), {"y": "a", "x": 1, "z": 9}, OrderedDict(y="a", x=1), Place(1, "a"), Named("a", 1),
     row_class(("x", "y"))(1, "a"), row_class(("z", "y", "x"))(None, "a", 1)],
)  # fmt: skip
def test_every_kind_of_row_gives_its_values_in_the_order_of_the_columns(row):
    assert tuple(values_of(row, ["x", "y"])) == (1, "a")
    assert table_of([row, (2, "b")], XY).to_pylist() == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]


@pytest.mark.parametrize("value", ["text", 5, None, [1, 2], b"x"])
def test_a_plain_value_is_a_row_of_one_column(value):
    assert tuple(values_of(value, ["value"])) == (value,)


@pytest.mark.parametrize("row", [Named("a", 1), Place(1, "a"), {"y": "a", "x": 1}])
def test_one_column_can_be_taken_out_of_a_record(row):
    assert tuple(values_of(row, ["y"])) == ("a",)


def test_a_key_that_is_no_column_is_refused_where_a_column_has_no_key():
    with pytest.raises(ValueError, match="a row has 'xx', which is not a column, and no 'x'"):
        table_of([{"xx": 1, "y": "a"}], XY)
    assert table_of([{"y": "a"}], XY).to_pylist() == [{"x": None, "y": "a"}]


def test_a_row_can_be_given_back_changed_though_its_columns_have_odd_names():
    schema = schema_of("`a b` bigint, `class` string")
    (row,) = rows_of(table_of([(1, "x")], schema))
    assert table_of([row._replace(c0=2)], schema).to_pylist() == [{"a b": 2, "class": "x"}]
    assert tuple(values_of(row, ["class"])) == ("x",)


def test_a_dictionary_without_a_key_has_a_null_there():
    assert table_of([{"x": 1}], XY).to_pylist() == [{"x": 1, "y": None}]


def test_no_rows_are_an_empty_table_of_the_schema():
    assert table_of([], XY).equals(XY.empty_table())
    assert table_of(iter(()), XY).schema == XY


def test_records_and_sets_inside_a_value_become_structs_and_lists():
    schema = schema_of(
        "p struct<x bigint, y string>, q array<struct<x bigint, y string>>, s array<int>"
    )
    row = (Place(1, "a"), [Place(2, "b"), {"x": 3}, None, Named("d", 4)], frozenset({7}))
    assert table_of([row], schema).to_pylist() == [
        {
            "p": {"x": 1, "y": "a"},
            "q": [{"x": 2, "y": "b"}, {"x": 3, "y": None}, None, {"x": 4, "y": "d"}],
            "s": [7],
        }
    ]


@pytest.mark.parametrize("whole", [2.0, np.float32(2), np.int16(2), 2])
def test_a_float_without_a_fraction_is_a_whole_number(whole):
    assert table_of([(whole,), (None,)], schema_of("n int")).column("n").to_pylist() == [2, None]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bigint", 1.5),
        ("bigint", np.float32(1.5)),
        ("bigint", float("nan")),
        ("bigint", 2**63),
        ("bigint", True),
        ("bigint", "1"),
        ("int", 2**31),
        ("tinyint", 300.0),
        ("string", 1),
        ("string", "\ud800"),
        ("string", b"\xff"),
        ("boolean", 1),
        ("double", "1"),
        ("decimal(4,2)", Decimal("100.5")),
        ("decimal(4,2)", 1.5),
        ("struct<x bigint>", 5),
        ("array<bigint>", 5),
        ("bigint not null", None),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_refused_by_the_column_s_name(kind, value):
    with pytest.raises(ValueError, match="column 'n'"):
        table_of([(value,)], schema_of(f"n {kind}"))


@pytest.mark.parametrize(
    ("rows", "fact"),
    [
        ([(1, "a"), (2,)], "a row has 1 values, expected 2: x, y"),
        ([(1, "a", 3)], "a row has 3 values"),
        ([5], "a row has 1 values"),
        ([Named("a", 1), row_class(("x",))(1)], "a Row has no field 'y'"),
    ],
)
def test_a_row_with_other_columns_is_refused(rows, fact):
    with pytest.raises(ValueError, match=fact):
        table_of(rows, XY)


def test_a_record_without_a_column_s_field_is_refused():
    with pytest.raises(ValueError, match="a Place has no field 'z'"):
        table_of([Place(1, "a")], schema_of("x bigint, z string"))


# --- quick ways that must not be seen


@pytest.mark.parametrize("index", ["int8", "int32"])
def test_a_column_kept_as_a_dictionary_gives_its_values(index):
    plain = pa.array(["b", None, "a", "b"])
    kept = plain.dictionary_encode().cast(pa.dictionary(getattr(pa, index)(), pa.string()))
    assert [r.x for r in rows_of(pa.table({"x": kept}))] == plain.to_pylist()


def test_replace_changes_what_it_is_told_and_nothing_else():
    (row,) = rows_of(pa.table({"a": [1], "b": ["x"]}))
    assert row._replace(b="y") == (1, "y") and row == (1, "x")
    assert type(row._replace(a=2)) is type(row)
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
        row._replace(c=1)


def test_times_that_were_handed_on_keep_their_column_and_changed_ones_do_not():
    table = pa.table({"at": pa.array([0, 1_500, None], pa.timestamp("us", "UTC")), "n": [1, 2, 3]})
    rows = rows_of(table)
    same = table_of([r._replace(n=9) for r in rows], table.schema, (rows, table))
    assert same.column("at").equals(table.column("at")) and same["n"].to_pylist() == [9, 9, 9]
    turned = table_of(rows[::-1], table.schema, (rows, table))
    assert turned["at"].to_pylist() == table["at"].to_pylist()[::-1]
    fewer = table_of(rows[1:], table.schema, (rows, table))
    assert fewer["at"].to_pylist() == table["at"].to_pylist()[1:]
    required = pa.schema([pa.field("at", table.schema[0].type, nullable=False), table.schema[1]])
    with pytest.raises(ValueError, match="has no value"):
        table_of(rows, required, (rows, table))


def test_the_collector_runs_again_after_a_pause_even_if_the_work_fails():
    with pytest.raises(KeyError), collector_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()


NOON = dt.datetime(2023, 11, 14, 12, tzinfo=dt.UTC)
MILLIS = int(NOON.timestamp() * 1_000)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize(
    "given", [[MILLIS, None], [np.int64(MILLIS), None], np.array([MILLIS, -1_000]), (MILLIS,)]
)
def test_whole_numbers_for_times_are_milliseconds_whatever_the_unit(unit, zone, given):
    made = array_of(given, pa.timestamp(unit, zone))
    assert made.type == pa.timestamp(unit, zone)
    assert made[0].as_py().replace(tzinfo=dt.UTC) == NOON
    schema = pa.schema([("at", pa.timestamp(unit, zone))])
    assert (
        fitted(pa.table({"at": pa.array([*given], pa.int64())}), schema).column("at")[0] == made[0]
    )
    assert table_of([{"at": v} for v in given], schema).column("at")[0] == made[0]


def test_a_truth_is_no_time():
    with pytest.raises(ValueError, match="column 'at'"):
        table_of([{"at": True}], schema_of("at timestamp"))
