"""JSON lines: what Python's own parser reads back."""

from __future__ import annotations

import datetime as dt
import json
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.schema import schema_of
from headrace.sinks.json_lines import json_lines, json_values, parsed

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
            assert found["d"] == (row["d"] if math.isfinite(row["d"]) else None)
        if row["t"] is not None:
            assert dt.datetime.fromisoformat(found["t"]) == row["t"]


@given(ROWS)
@settings(max_examples=40, deadline=None)
def test_what_was_written_is_read_back(rows):
    finite = [
        r | {"d": None if r["d"] is None or not math.isfinite(r["d"]) else r["d"]} for r in rows
    ]
    table = pa.Table.from_pylist(finite, SCHEMA)

    assert parsed(json_values(table), SCHEMA) == table


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
    assert parsed(pa.array([], pa.binary()), SCHEMA).num_rows == 0
