"""JSON lines: what Python's own parser reads back."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import OutputError
from headrace.schema import schema_of
from headrace.sinks.formats import check_json, json_lines, json_values, parse_json
from headrace.sources import decode

SCHEMA = schema_of(
    "i bigint, d double, s string, b boolean, t timestamp, y binary, l array<string>"
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "i": st.none() | st.integers(-(2**63), 2**63 - 1),
            "d": st.none() | st.floats(),
            "s": st.none() | TEXT,
            "b": st.none() | st.booleans(),
            "t": st.none() | TIMES,
            "y": st.none() | st.binary(max_size=5),
            "l": st.none() | st.lists(st.none() | TEXT, max_size=3),
        }
    ),
    min_size=1,
    max_size=8,
)


@given(ROWS)
@settings(max_examples=60, deadline=None)
def test_every_row_is_one_line_that_json_reads_back(rows):
    table = pa.Table.from_pylist(rows, SCHEMA)

    lines = json_lines(table).split(b"\n")

    assert lines.pop() == b"" and len(lines) == len(rows)
    assert json_values(table).to_pylist() == lines
    for row, line in zip(rows, lines, strict=True):
        found = json.loads(line)
        assert list(found) == SCHEMA.names
        for plain in ("i", "s", "b", "l"):
            assert found[plain] == row[plain]
        if row["d"] is not None:
            assert repr(float(found["d"])) == repr(row["d"])
        if row["t"] is not None:
            assert dt.datetime.fromisoformat(found["t"]) == row["t"]


def test_minus_zero_has_a_point_so_that_every_reader_keeps_its_sign():
    assert json_lines(pa.table({"d": [-0.0, 0.0, -1.0]})).split() == [
        b'{"d":-0.0}', b'{"d":0}', b'{"d":-1}',
    ]  # fmt: skip


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_what_was_written_is_read_back(rows):
    table = pa.Table.from_pylist(rows, SCHEMA)

    assert repr(parse_json(json_values(table), SCHEMA).to_pylist()) == repr(table.to_pylist())


NUMBERS = {
    "tinyint": st.integers(-128, 127), "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32), "double": st.floats(),
    "decimal(9,3)": st.decimals(-999_999, 999_999, places=3),
    "decimal(38,0)": st.integers(1 - 10**38, 10**38 - 1).map(Decimal),
}  # fmt: skip
SCALARS = {
    **NUMBERS, "boolean": st.booleans(), "string": TEXT, "binary": st.binary(max_size=5),
    "date": st.dates(), "timestamp": TIMES,
}  # fmt: skip


def nested(kinds: Any) -> Any:
    """Lists, maps and records of columns (type, values)."""
    none = kinds.map(lambda k: (k[0], st.none() | k[1]))
    keys = st.sampled_from([k for k in SCALARS if k not in ("float", "double")])
    return st.one_of(
        none.map(lambda k: (f"array<{k[0]}>", st.lists(k[1], max_size=3))),
        st.tuples(keys, none).map(
            lambda k: (
                f"map<{k[0]}, {k[1][0]}>",
                st.dictionaries(SCALARS[k[0]], k[1][1], max_size=3).map(lambda m: [*m.items()]),
            )
        ),
        st.tuples(none, none).map(
            lambda k: (
                f"struct<x {k[0][0]}, `y z` {k[1][0]}>",
                st.fixed_dictionaries({"x": k[0][1], "y z": k[1][1]}),
            )
        ),
    )


COLUMNS = st.recursive(st.sampled_from([*SCALARS.items()]), nested, max_leaves=4)


@given(COLUMNS, st.data())
@settings(max_examples=80, deadline=None)
def test_every_type_comes_back_equal_from_the_output_and_through_an_input(column, data):
    kind, values = column
    schema = schema_of(f"c {kind}, n int")
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    table = pa.Table.from_pylist([{"c": v, "n": i} for i, v in enumerate(rows)], schema)
    check_json(schema)

    lines = json_values(table)

    assert repr(parse_json(lines, schema).to_pylist()) == repr(table.to_pylist())
    again, bad, reasons = decode("json", lines, schema)
    assert not bad.any(), reasons
    assert repr(again.to_pylist()) == repr(table.to_pylist())


def test_what_could_not_come_back_is_refused_by_name():
    kinds = [pa.time64("us"), pa.list_(pa.duration("us")), pa.map_(pa.list_(pa.int8()), pa.int8())]
    for kind in kinds:
        with pytest.raises(ValueError, match="column 'odd' is"):
            check_json(pa.schema([("odd", kind)]))
    twice = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(OutputError, match="twice"):
        json_lines(pa.table({"m": twice}))


def test_a_line_that_was_not_written_is_named():
    with pytest.raises(ValueError, match="line 2"):
        parse_json(pa.array([b'{"i": 1}', b'{"i": "x"}']), schema_of("i bigint"))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([0.1], pa.float32()), "0.1"),
        (pa.array([1e300]), "1e+300"),
        (pa.array(["x"]).dictionary_encode(), '"x"'),
        (pa.array([None]), "null"),
        (pa.array([3], pa.date32()), '"1970-01-04"'),
        (pa.array([3], pa.timestamp("s")), '"1970-01-01T00:00:03.000000Z"'),
        (pa.array([3], pa.timestamp("us", "Europe/Berlin")), '"1970-01-01T00:00:00.000003Z"'),
        (pa.array([b"\xff"]), '"/w=="'),
        (pa.array([{"a": [b"", None]}]), '{"a": ["", null]}'),
        (pa.array(['\x7f"\\\u2028']), '"\x7f\\"\\\\\u2028"'),
    ],
)
def test_a_type_is_spelt_like_this(column, text):
    assert json_lines(pa.table({'"k"': column})).decode() == f'{{"\\"k\\"":{text}}}\n'


def test_no_rows_are_no_bytes():
    assert json_lines(SCHEMA.empty_table()) == b""
    assert parse_json(pa.array([], pa.binary()), SCHEMA).num_rows == 0
