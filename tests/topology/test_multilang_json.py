"""Tuples as JSON: there and back, and what is refused on the way back."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.ops.topology.multilang_json import Unfitting, cannot_travel, columns_of, rows_as_json
from headrace.schema import schema_of

UTC = st.datetimes(timezones=st.just(dt.UTC))
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INT = st.integers(-(2**31), 2**31 - 1)
KINDS: dict[str, Any] = {
    "boolean": st.booleans(),
    "tinyint": st.integers(-128, 127),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": TEXT,
    "binary": st.binary(max_size=5),
    "date": st.dates(),
    "timestamp": UTC,
    "decimal(12,3)": st.decimals(-(10**8), 10**8, places=3),
    "array<int>": st.lists(st.none() | INT, max_size=3),
    "array<array<string>>": st.lists(st.lists(TEXT, max_size=2), max_size=2),
    "map<string,double>": st.dictionaries(TEXT, st.floats(allow_nan=False), max_size=3),
    "map<int,timestamp>": st.dictionaries(INT, UTC, max_size=3),
    "struct<a:int,b:array<decimal(4,1)>>": st.fixed_dictionaries(
        {"a": st.none() | INT, "b": st.lists(st.decimals(-99, 99, places=1), max_size=2)}
    ),
}


@pytest.mark.parametrize("kind", list(KINDS))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_there_and_back(kind: str, data: Any) -> None:
    values = data.draw(st.lists(st.none() | KINDS[kind], max_size=6))
    schema = schema_of(f"v {kind}, n bigint")
    as_arrow = [list(v.items()) if kind.startswith("map") and v is not None else v for v in values]
    column = pa.array(as_arrow, schema.field("v").type)
    table = pa.table([column, pa.array(range(len(values)), pa.int64())], schema=schema)
    sent = [json.loads(text) for text in rows_as_json(table)]
    back = pa.table(columns_of(sent, schema), schema=schema)
    assert str(back.to_pylist()) == str(table.to_pylist())  # a NaN is not equal to itself


def test_how_values_travel() -> None:
    schema = schema_of(
        "x binary, t timestamp, d decimal(5,2), f float, o double, m map<int,string>"
    )
    at = dt.datetime(2026, 11, 18, 8, 30, tzinfo=dt.UTC)
    row = [b"\x00\xff", at, Decimal("1.5"), 0.1, float("nan"), [(1, "a")]]
    columns = [pa.array([v], f.type) for v, f in zip(row, schema, strict=True)]
    assert json.loads(rows_as_json(pa.table(columns, schema=schema))[0]) == [
        "AP8=", "2026-11-18T08:30:00.000000Z", "1.50", 0.1, "NaN", [[1, "a"]],
    ]  # fmt: skip


REFUSED: dict[str, list[Any]] = {
    "tinyint": [200, "5", 1.0, True],
    "bigint": ["5", 2**63, 2**70, 1.0, 1.5, True, [], {}],
    "bigint not null": [None],
    "boolean": [1, 0, "true"],
    "double": ["5", "nan", float("inf"), 2**53 + 1, 10**400, True],
    "float": [1e39],
    "string": [5, True, ["a"], "\ud800"],
    "binary": ["?", "AP8", 5],
    "date": ["20261118", "2026-02-30", 5],
    "timestamp": ["2026-11-18T08:30:00", "2026-11-18", "2026-11-18T08:30:00.1234567Z", 5],
    "decimal(4,2)": [1.5, 1, "1.234", "100.00", "1e1", "NaN", ""],
    "array<int>": [["1"], [2**31], "1", {"0": 1}],
    "struct<a:int>": [{"b": 1}, {}, {"a": 1, "b": 2}, {"a": "1"}, [1]],
    "map<string,int>": [[["a", 1]], {"a": "1"}],
    "map<int,string>": [{"1": "a"}, [[1]], [["1", "a"]], [[None, "a"]]],
}


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind, values in REFUSED.items() for value in values]
)
def test_what_does_not_fit_is_refused_with_the_field(kind: str, value: Any) -> None:
    schema = schema_of(f"it {kind}")
    with pytest.raises(Unfitting, match="field 'it'"):
        columns_of([[value]], schema)


ACCEPTED: dict[str, list[tuple[Any, Any]]] = {
    "double": [(5, 5.0), (2**53, 2.0**53), ("-Infinity", float("-inf"))],
    "timestamp": [
        ("2026-11-18T08:30:00Z", dt.datetime(2026, 11, 18, 8, 30, tzinfo=dt.UTC)),
        ("2026-11-18T08:30:00.5+01:00", dt.datetime(2026, 11, 18, 7, 30, 0, 500000, dt.UTC)),
    ],
    "decimal(4,2)": [("1.500", Decimal("1.50")), ("-7", Decimal("-7.00"))],
}


@pytest.mark.parametrize(
    ("kind", "value", "expected"), [(k, *pair) for k, pairs in ACCEPTED.items() for pair in pairs]
)
def test_what_is_another_way_to_write_a_value(kind: str, value: Any, expected: Any) -> None:
    (column,) = columns_of([[value]], schema_of(f"it {kind}"))
    assert column.to_pylist() == [expected]


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.duration("s"), pa.timestamp("ns")])
def test_other_types_do_not_travel(kind: pa.DataType) -> None:
    for schema in (pa.schema([("a", pa.int64()), ("b", kind)]), pa.schema([("b", pa.list_(kind))])):
        found = cannot_travel(schema)
        assert found is not None and found.name == "b"
