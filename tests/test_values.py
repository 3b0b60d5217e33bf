"""What a user's value becomes in a column depends on itself and on the column's type alone."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.rows import fitted, table_of
from headrace.schema import schema_of
from headrace.testing import Harness, drive
from headrace.values import array_of, as_type

UTC = dt.UTC
EAST = dt.timezone(dt.timedelta(hours=2))
NEW_YEAR = dt.datetime(2020, 1, 1, tzinfo=UTC)
MILLIS = 1_577_836_800_000  # the same

POOL: list[Any] = [
    None, True, 5, -1, 2**53 + 1, 2**63, 2**70, 1.0, 1.5, float("inf"), Decimal(5), Decimal("1.50"),
    Decimal("1.505"), "5", "2020-01-01", b"x", bytearray(b"x"), np.int64(5), np.int32(5),
    np.uint8(5), np.uint64(2**63), np.float64(1.5), np.float32(1.5), np.float64(5), np.bool_(True),
    np.str_("x"),
    dt.datetime(2020, 1, 1), NEW_YEAR, dt.datetime(2020, 1, 1, 5, tzinfo=EAST), dt.date(2020, 1, 1),
    dt.timedelta(seconds=1), dt.time(1), np.datetime64("2020-01-01"), np.datetime64("NaT"),
    np.datetime64("2020-01-01T00:00:00.123456789"), np.datetime64("200000-01-01"),
    np.timedelta64(1, "s"), pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01T05:00+02:00"),
    pd.NaT, pd.NA, [1], {"a": 1}, MILLIS,
]  # fmt: skip
KINDS = [
    "bigint", "int", "smallint", "double", "float", "decimal(10,2)", "string", "binary", "boolean",
    "timestamp", "date",
]  # fmt: skip
NESTED = {
    "{}": lambda v: v,
    "array<{}>": lambda v: [v],
    "struct<a:{}>": lambda v: {"a": v},
    "map<string,{}>": lambda v: {"a": v},
    "array<struct<a:{}>>": lambda v: [{"a": v}],
}


def made(values: list[Any], kind: str) -> list[Any] | None:
    """What a column of this type holds of the values; None if it refuses them."""
    try:
        table = table_of([(v,) for v in values], schema_of(f"c {kind}"))
    except ValueError:
        return None
    return table.column("c").to_pylist()


@settings(max_examples=600)
@given(
    kind=st.sampled_from(KINDS),
    shape=st.sampled_from(list(NESTED)),
    values=st.lists(st.sampled_from(POOL), min_size=1, max_size=5),
)
def test_what_is_taken_alone_is_taken_among_others_as_the_same(kind, shape, values):
    wrapped, nested = [NESTED[shape](v) for v in values], shape.format(kind)
    alone = [made([v], nested) for v in wrapped]

    together = made(wrapped, nested)

    refused = any(a is None for a in alone)
    assert together == (None if refused else [v for a in alone if a for v in a])


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("timestamp", MILLIS, NEW_YEAR),
        ("timestamp", np.int64(MILLIS), NEW_YEAR),
        ("timestamp", NEW_YEAR, NEW_YEAR),
        ("timestamp", dt.datetime(2020, 1, 1), NEW_YEAR),
        ("timestamp", dt.datetime(2020, 1, 1, 2, tzinfo=EAST), NEW_YEAR),
        ("timestamp", dt.date(2020, 1, 1), NEW_YEAR),
        ("timestamp", np.datetime64("2020-01-01"), NEW_YEAR),
        ("timestamp", pd.Timestamp("2020-01-01"), NEW_YEAR),
        ("timestamp", pd.NaT, None),
        ("date", dt.date(2020, 1, 1), dt.date(2020, 1, 1)),
        ("date", dt.datetime(2020, 1, 1), dt.date(2020, 1, 1)),
        ("date", np.datetime64("2020-01-01"), dt.date(2020, 1, 1)),
        ("date", pd.NaT, None),
        ("bigint", 5.0, 5),
        ("bigint", Decimal(5), 5),
        ("decimal(10,2)", np.int64(5), Decimal(5)),
        ("boolean", np.bool_(True), True),
        ("string", np.str_("x"), "x"),
    ],
)
def test_a_value_is_what_it_says(shape, kind, value, expected):
    wrap = NESTED[shape]
    found = made([wrap(value)], shape.format(kind))
    assert found == [list(wrap(expected).items()) if "map" in shape else wrap(expected)]


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp", True),
        ("timestamp", 1.0),
        ("timestamp", Decimal(1)),
        ("timestamp", "2020-01-01"),
        ("timestamp", 2**53),
        ("timestamp", np.datetime64("200000-01-01")),
        ("date", 5),
        ("date", dt.datetime(2020, 1, 1, 5)),
        ("date", np.datetime64("2020-01-01T05:00")),
        ("bigint", True),
        ("bigint", np.bool_(True)),
        ("double", True),
        ("decimal(10,2)", True),
        ("bigint", 1.5),
        ("bigint", Decimal("1.5")),
        ("bigint", "5"),
        ("double", 2**53 + 1),
        ("decimal(10,2)", Decimal("1.505")),
        ("decimal(10,2)", 1.5),
        ("boolean", 1),
    ],
)
def test_a_value_is_never_bent(shape, kind, value):
    assert made([NESTED[shape](value)], shape.format(kind)) is None


class Point(NamedTuple):
    at: Any


@dataclass
class Spot:
    at: Any


def test_records_of_several_kinds_in_a_struct_column():
    records = [{"at": MILLIS}, Point(NEW_YEAR), Spot(dt.date(2020, 1, 1)), None, {}]

    found = array_of(records, pa.struct([("at", pa.timestamp("us", "UTC"))])).to_pylist()

    assert found == [{"at": NEW_YEAR}] * 3 + [None, {"at": None}]


DAY = dt.date(2020, 1, 1)
MIXED = [
    MILLIS,
    NEW_YEAR,
    dt.datetime(2020, 1, 1),
    dt.date(2020, 1, 1),
    np.datetime64("2020-01-01"),
]


def _at(i: int) -> Any:
    return MIXED[i]


class Emits(hr.KeyedProcess):
    output = "i bigint, at timestamp"
    last = hr.value("timestamp")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.last = _at(row.i)
        ctx.timer(1_000)
        return (row.i, _at(row.i))

    def on_timer(self, time: int, ctx: Any) -> Any:
        return None


def _numbers(job: hr.Job) -> Any:
    rows = [{"k": "a", "i": i, "at": i} for i in range(len(MIXED))]
    return job.read(hr.rows(rows, "k string, i bigint, at timestamp"), time="at", delay="1s")


def _flat(row: Any) -> Any:
    yield {"i": row.i, "at": _at(row.i)}


OUT = "i bigint, at timestamp"
PATHS = {
    "rows": lambda job: job.read(hr.rows([{"i": i, "at": _at(i)} for i in range(5)], OUT)),
    "generate": lambda job: job.read(
        hr.generate(None, lambda i: {"i": i, "at": _at(i)}, total=5, schema=OUT)
    ),
    "map": lambda job: _numbers(job).map(lambda r: {"i": r.i, "at": _at(r.i)}, schema=OUT),
    "flat_map": lambda job: _numbers(job).flat_map(_flat, schema=OUT),
    "process": lambda job: _numbers(job).key_by("k").process(Emits(), unbounded=True),
}


@pytest.mark.parametrize("path", PATHS)
def test_times_of_several_kinds_are_the_same_on_every_path(tmp_path, path):
    job = hr.Job("mixed")
    PATHS[path](job).write("collect:", name="out")

    out = drive(job, tmp_path).output("out").sort_by("i").to_pylist()

    assert out == [{"i": i, "at": NEW_YEAR} for i in range(len(MIXED))]


def test_times_of_several_kinds_in_a_topic(tmp_path: Path):
    log = hr.EmbeddedLog(str(tmp_path))
    log.create("t", schema=OUT)

    log.append("t", [{"i": i, "at": at} for i, at in enumerate([*MIXED, "2020-01-01T00:00:00Z"])])

    (rows,) = [table for _, table in log.read("t", 0, 0)]
    assert rows.column("at").to_pylist() == [NEW_YEAR] * (len(MIXED) + 1)


@pytest.mark.parametrize("given", [pa.array([MILLIS]), pa.array([DAY]), pa.array([NEW_YEAR])])
def test_columns_of_tables_follow_the_same_rule(given):
    kind = pa.timestamp("us", "UTC")
    assert as_type(given, kind).to_pylist() == [NEW_YEAR]
    lists = pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), given)
    assert as_type(lists, pa.list_(kind)).to_pylist() == [[NEW_YEAR]]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (pa.array([True]), pa.int64()),
        (pa.array([1.0]), pa.timestamp("us", "UTC")),
        (pa.array([1.5]), pa.int64()),
        (pa.array(["x"]), pa.decimal128(38, 2)),
        (pa.array(["9" * 39]), pa.decimal128(38, 2)),
        (pa.array(["9" * 300]), pa.decimal128(10, 2)),
    ],
)
def test_columns_of_tables_are_never_bent(given, kind):
    with pytest.raises(ValueError):
        as_type(given, kind)


@pytest.mark.parametrize("values", [[1e300], [1.5, 1e300], [1, 1e300], [-1e39, None]])
def test_a_number_too_large_for_a_float_is_not_infinity(values):
    with pytest.raises(ValueError, match="is no float"):
        array_of(values, pa.float32())
    assert array_of([math.inf, 1.5], pa.float32()).to_pylist() == [math.inf, 1.5]


COLUMNS = [
    pa.array([5]), pa.array([5], pa.uint64()), pa.array([2**63], pa.uint64()), pa.array([300]),
    pa.array([2**53 + 1]), pa.array([5.0]), pa.array([1.5]), pa.array([1e300]),
    pa.array([math.inf]), pa.array([Decimal("5.00")]), pa.array([Decimal("1.50")]),
    pa.array([Decimal("1.505")]),
    pa.array(["5"]), pa.array(["x"]), pa.array(["2020-01-01"]), pa.array(["true"]),
    pa.array(["5"], pa.large_string()), pa.array(["5"]).dictionary_encode(), pa.array([b"x"]),
    pa.array([True]), pa.array([DAY]), pa.array([NEW_YEAR]), pa.array([dt.datetime(2020, 1, 1, 5)]),
    pa.array([MILLIS], pa.timestamp("ms", "+02:00")),
    pa.array([MILLIS * 10**6], pa.timestamp("ns")),
    pa.array([MILLIS // 1_000 - 7_200], pa.timestamp("s", "+02:00")),
    pa.array([dt.timedelta(seconds=1)]), pa.array([dt.time(1)]), pa.array([None]),
    pa.array([[5]]), pa.array([[5]], pa.large_list(pa.int64())), pa.array([["5"]]),
    pa.array([{"a": 5}]), pa.array([{"a": 5, "b": 6}]), pa.array([{"b": 6}]),
    pa.array([[("a", 5)]], pa.map_(pa.string(), pa.int64())),
]  # fmt: skip


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize(
    "kind", [*KINDS, "array<bigint>", "struct<a:bigint>", "map<string,bigint>"]
)
def test_a_column_of_a_table_is_judged_as_its_rows_are(shape, kind):
    schema = schema_of(f"c {shape.format(kind)}")
    for column in COLUMNS:
        if {str(column.type)[:3], kind[:3]} == {"map", "str"} and kind != "string":
            continue  # as rows both are dicts; as columns a struct is no map
        value = column.to_pylist()[0]
        given = wrapped(column, shape)
        try:
            table = fitted(pa.table({"c": given}), schema).column("c").to_pylist()
        except (ValueError, pa.ArrowException):
            table = None
        assert table == made([NESTED[shape](value)], shape.format(kind)), (given.type, schema)


def wrapped(column: pa.Array, shape: str) -> pa.Array:
    """The column inside of lists, structs or maps."""
    one = pa.array([0, 1], pa.int32())
    struct = pa.StructArray.from_arrays([column], ["a"])
    return {
        "{}": lambda: column,
        "array<{}>": lambda: pa.ListArray.from_arrays(one, column),
        "struct<a:{}>": lambda: struct,
        "map<string,{}>": lambda: pa.MapArray.from_arrays(one, pa.array(["a"]), column),
        "array<struct<a:{}>>": lambda: pa.ListArray.from_arrays(one, struct),
    }[shape]()


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize(
    "far",
    [
        pa.array([10**18], pa.timestamp("us", "UTC")),
        pa.array([-(10**18)], pa.timestamp("us", "UTC")),
        pa.array([10**13], pa.timestamp("s")),
        pa.array([10**16]),
    ],
)
def test_far_times_of_tables_are_refused_as_those_of_rows_are(shape, far):
    with pytest.raises((ValueError, OverflowError)):
        as_type(wrapped(far, shape), schema_of(f"c {shape.format('timestamp')}").field("c").type)


@pytest.mark.parametrize("shape", NESTED)
def test_far_dates_of_tables_are_refused(shape):
    far = wrapped(pa.array([3_000_000], pa.date32()), shape)
    with pytest.raises((ValueError, OverflowError)):
        as_type(far, far.type)


class More(NamedTuple):
    a: int
    b: int


@dataclass
class Further:
    a: int
    b: int


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize(
    "value",
    [{"a": 1, "b": 2}, {"b": 2}, {"a": 1, 5: 2}, More(1, 2), Further(1, 2), [("a", 1), ("b", 2)],
     [("a", 1), ("a", 2)], (1, 2), ()],
)  # fmt: skip
def test_a_struct_has_no_fields_but_the_declared_ones(shape, value):
    assert made([NESTED[shape](value)], shape.format("struct<a:bigint>")) is None


def test_a_struct_of_values_in_order_or_of_pairs_follows_the_rule():
    """They went past it: milliseconds were taken for microseconds."""
    kind = "struct<at:timestamp,n:bigint>"
    rows = [{"at": MILLIS}, (MILLIS, None), [("at", MILLIS)], [("n", None), ("at", NEW_YEAR)]]
    assert made(rows, kind) == [{"at": NEW_YEAR, "n": None}] * 4
    assert made([(NEW_YEAR, True)], kind) is None
    assert made([[("at", 1.0)]], kind) is None


def test_an_unknown_field_of_a_struct_is_a_dead_letter():
    job = hr.Job("fields")
    found = job.read("log:x", schema="i bigint", name="x")
    found.map(_with_more, schema="i bigint, s struct<a:bigint>").write("collect:", name="out")
    with Harness(job) as test:
        test.send("x", [{"i": 1}, {"i": 2}])
        assert test.output() == [{"i": 1, "s": {"a": 1}}]
        (letter,) = test.dead()
    assert "column 's' (struct<a bigint>): struct<a bigint> has no field 'b'" in letter["error"]


def _with_more(row: Any) -> Any:
    return {"i": row.i, "s": {"a": 1} if row.i == 1 else {"a": 1, "b": 2}}
