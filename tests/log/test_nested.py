"""What lies inside a record's values is stored as it was given, or refused."""

from __future__ import annotations

import datetime as dt
import json
from collections import namedtuple
from decimal import Decimal
from types import MappingProxyType

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headrace.errors import LogError
from headrace.log import EmbeddedLog

GOOD, BAD = {"area": "hall", "celsius": 21.5}, {"area": "hall", "celcius": 21.5}
SHAPES = {
    "struct<area: string, celsius: double>": lambda s: s,
    "array<struct<area: string, celsius: double>>": lambda s: [None, GOOD, s],
    "struct<in: struct<area: string, celsius: double>>": lambda s: {"in": s},
    "map<string, struct<area: string, celsius: double>>": lambda s: [("a", GOOD), ("b", s)],
    "struct<at: timestamp, in: struct<area: string, celsius: double>>": lambda s: {
        "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "in": s,
    },
}  # fmt: skip


def read(log: EmbeddedLog) -> list[dict]:
    return [row for _, t in log.read("t", 0, 0) for row in t.to_pylist()]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_field_that_the_schema_does_not_have_is_refused(embedded, kind):
    shape = SHAPES[kind]
    embedded.create("t", 1, f"s {kind}")
    column = embedded.describe("t").schema.field("s").type
    table = pa.table({"s": pa.array([shape(BAD)], _renamed(column))})
    for bad in ([{"s": shape(BAD)}], [(shape(BAD),)], table):
        with pytest.raises(LogError) as caught:
            embedded.append("t", bad)
        assert caught.value.code == "HR-LOG-006"
        assert "celcius" in caught.value.message
    embedded.append("t", [{"s": shape(GOOD)}])
    embedded.append("t", pa.table({"s": pa.array([shape(GOOD)], column)}))
    assert read(embedded) == [{"s": shape(GOOD)}] * 2


def _renamed(kind: pa.DataType) -> pa.DataType:
    """The type with the slip of the pen."""
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _renamed(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_renamed(kind.value_type))
    if not pa.types.is_struct(kind):
        return kind
    names = {"celsius": "celcius"}
    return pa.struct([(names.get(f.name, f.name), _renamed(f.type)) for f in kind])


def test_a_named_tuple_with_another_field_is_refused(embedded):
    embedded.create("t", 1, "s struct<area: string, celsius: double>")
    Slip = namedtuple("Slip", ["area", "celcius"])
    with pytest.raises(LogError) as caught:
        embedded.append("t", [{"s": Slip("hall", 21.5)}])
    assert "'s.celcius'" in caught.value.message


@pytest.mark.parametrize(
    ("kind", "given"),
    [("bigint", ["5"]), ("string", [5]), ("boolean", [0, 1]), ("decimal(9,2)", [1.5]),
     ("double", [Decimal(1)]), ("timestamp", pa.array([10**18], pa.timestamp("us"))),
     ("timestamp", ["soon"]), ("array<bigint>", [["5"]]), ("struct<a:bigint>", [{"a": "5"}])],
)  # fmt: skip
def test_a_column_of_a_table_is_refused_as_its_values_are(embedded, kind, given):
    embedded.create("t", 1, f"c {kind}")
    with pytest.raises(LogError) as caught:
        embedded.append("t", pa.table({"c": given}))
    assert caught.value.code == "HR-LOG-006"
    assert "Cast the column before the append" in caught.value.hint
    assert embedded.latest("t") == {0: 0}


@pytest.mark.parametrize(
    ("kind", "text"),
    [("timestamp", "2024-01-01T02:00:00+02:00"), ("timestamp", "2024-01-01"),
     ("date", "2024-01-01"), ("decimal(38,2)", "123456789012345678901234567890123456.78")],
)  # fmt: skip
def test_text_of_times_and_decimals_is_read_in_tables_as_in_rows(embedded, kind, text):
    embedded.create("t", 1, f"c {kind}")
    embedded.append("t", [{"c": text}])
    embedded.append("t", pa.table({"c": [text]}))
    first, second = read(embedded)
    assert first == second


@pytest.mark.parametrize(
    "value",
    [b"abc", {1, 2}, object(), float("nan"), float("inf"), np.float32("nan"), pd.NaT, pd.NA,
     np.datetime64("NaT"), Decimal("NaN"), 1j, dt.timedelta(1), np.timedelta64(1, "ns"),
     {1: "a", "1": "b"}, [{"x": ({True: 1, "true": 2},)}], MappingProxyType({1: 0, "1": 0})],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_json_does_not_have_is_refused(embedded, value):
    embedded.create("t")
    for records in ([{"n": value}], [{"n": value}] * 100):
        with pytest.raises(LogError) as caught:
            embedded.append("t", records)
        assert caught.value.code == "HR-LOG-006"
    assert embedded.latest("t") == {0: 0}


def test_what_json_has_by_another_name_is_stored(embedded):
    embedded.create("t")
    given = {
        "i": np.int64(1), "f": np.float32(0.5), "b": np.bool_(True), "a": np.array([1, 2]),
        "d": dt.date(2024, 2, 9), "n": Decimal("1.10"), "m": MappingProxyType({"x": (1, None)}),
        3: "three",
    }  # fmt: skip
    embedded.append("t", [given])
    assert json.loads(read(embedded)[0]["value"]) == {
        "i": 1, "f": 0.5, "b": True, "a": [1, 2], "d": "2024-02-09", "n": "1.10",
        "m": {"x": [1, None]}, "3": "three",
    }  # fmt: skip


@pytest.mark.parametrize(
    "clock", [0, object(), dt.datetime, "now"], ids=["0", "object", "a class", "text"]
)
def test_a_clock_that_is_none_is_refused(folder, clock):
    with pytest.raises(LogError) as caught:
        EmbeddedLog(folder, clock)
    assert caught.value.code == "HR-LOG-019"
    assert "clock" in caught.value.message


def test_a_clock_that_gives_no_milliseconds_is_refused(folder):
    class Seconds:
        def now(self) -> float:
            return 1.5

    EmbeddedLog(folder).create("t")
    with pytest.raises(LogError) as caught:
        EmbeddedLog(folder, Seconds()).append("t", [b"x"])
    assert caught.value.code == "HR-LOG-019"
