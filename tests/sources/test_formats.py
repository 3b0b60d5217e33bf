"""Decoding: good rows decoded, bad rows named one by one."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.sources.reading import refusal

from headrace.schema import schema_of
from headrace.sources import decode
from headrace.sources.formats import CsvStyle

EVERY = schema_of("i bigint, d double, s string, b boolean, t timestamp, day date, m decimal(9,2)")
UTC = dt.UTC


def records(*values: bytes) -> pa.Array:
    return pa.array(values, pa.binary())


def csv_line(*values: str) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(values)
    return out.getvalue().encode()


CELLS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), max_size=6),
    st.sampled_from(["", '"', ",", "1.5", " 7 ", "x", "007"]),
)


@given(rows=st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=12))
@example(rows=[["0\x1f", "0"]])
@settings(max_examples=60, deadline=None)
def test_csv_rows_are_good_exactly_when_each_field_is(rows):
    schema = schema_of("a bigint, b string")
    table, bad, errors = decode("csv", records(*(csv_line(*r) for r in rows)), schema)

    good = [r for r in rows if len(r) == 2 and is_bigint(r[0])]
    assert bad.tolist() == [not (len(r) == 2 and is_bigint(r[0])) for r in rows]
    assert len(errors) == bad.sum() and all(errors)
    assert table["a"].to_pylist() == [int(r[0].strip()) if r[0].strip() else None for r in good]
    assert [v or "" for v in table["b"].to_pylist()] == [r[1] for r in good]
    assert table.schema == schema


def is_bigint(text: str) -> bool:
    if text == "":
        return True
    digits = text.strip().removeprefix("-")
    plain = digits.isascii() and digits.isdecimal()
    return plain and -(2**63) <= int(text.strip()) < 2**63  # int does not know all blanks


def test_every_type_is_read_from_csv():
    line = b'1,1.5,"a ""b""",true,2024-05-01T12:00:00+02:00,2024-05-01,12.50'

    table, bad, _ = decode("csv", records(line, b",,,,,,", b',,"",,2024-05-01,,'), EVERY)

    assert not bad.any()
    first, empty, text = table.to_pylist()
    assert (first["i"], first["d"], first["s"], first["b"]) == (1, 1.5, 'a "b"', True)
    assert first["t"] == dt.datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert (first["day"], str(first["m"])) == (dt.date(2024, 5, 1), "12.50")
    assert set(empty.values()) == {None}
    assert (text["s"], text["t"]) == ("", dt.datetime(2024, 5, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"x,,,,,,", "column 'i': 'x' is not bigint"),
        (b",,,maybe,,,", "column 'b': 'maybe' is not boolean"),
        (b",,,,yesterday,,", "column 't': 'yesterday' is not timestamp"),
        (b",,,,,,1.234", "column 'm': '1.234' is not decimal(9,2)"),
        (b"1,2", "2 fields, expected 7"),
        (b"", "an empty record"),
        (b'1,2,"open,,,,', "1 fields"),
        (b"\xff,,,,,,", "not UTF-8 text"),
        (b'1,2,"two\nlines",,,,', "a line break in a record"),
    ],
)
def test_a_bad_csv_row_is_named_and_its_neighbours_are_read(line, reason):
    good = b"1,,,,,,"

    table, bad, errors = decode("csv", records(good, line, good, line), EVERY)

    assert table["i"].to_pylist() == [1, 1]
    assert bad.tolist() == [False, True, False, True]
    assert all(reason in e or "quote" in e or "fields" in e for e in errors), errors


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|", "^"])
@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('1,"a', None), ('1,"', None), ('"a,1', None), ('1,b"', None), ('1,b"c', None),
        ('1,"a"b', None),
        ('1, "a"', None), ('1,"a""', None), ('1,"a"""', 'a"'), ('1,"a"', "a"), ('"1","a,b"', "a,b"),
        ('1,""', ""), ('1,""""', '"'), ("1,a'b", "a'b"),
    ],
)  # fmt: skip
def test_a_quote_stands_around_a_whole_field_or_the_row_is_bad(line, wanted, delimiter):
    line = line.replace(",", delimiter).encode()
    good = f"1{delimiter}x".encode()

    for values in ((line,), (good, line, good), (line, good, line)):
        table, bad, errors = decode(
            "csv", records(*values), schema_of("i bigint, s string"), style=CsvStyle(delimiter)
        )

        text = None if wanted is None else wanted.replace(",", delimiter)
        expected = [text if v == line else "x" for v in values]
        assert table["s"].to_pylist() == [v for v in expected if v is not None]
        assert bad.tolist() == [v == line and wanted is None for v in values]
        assert all("quote" in e for e in errors)


@given(st.lists(st.one_of(st.integers(-9, 9), st.text(max_size=3), st.none()), max_size=20))
@settings(max_examples=40, deadline=None)
def test_json_rows_are_decoded_around_the_bad_ones(values):
    lines = [json.dumps({"a": v}).encode() if v != "" else b"{" for v in values]

    table, bad, errors = decode("json", records(*lines), schema_of("a bigint"))

    wanted = [None if v is None else isinstance(v, int) for v in values]
    sure = [(b, w) for b, w in zip(bad.tolist(), wanted, strict=True) if w is not False]
    assert not any(b for b, _ in sure)
    assert table.num_rows == len(values) - bad.sum() and len(errors) == bad.sum()
    ints = [v for v, b in zip(values, bad, strict=True) if not b and not isinstance(v, str)]
    kept = zip(table["a"].to_pylist(), [v for v, b in zip(values, bad, strict=True) if not b],
               strict=True)  # fmt: skip
    assert [t for t, v in kept if not isinstance(v, str)] == ints


@pytest.mark.parametrize("line", [b"", b"[1]", b"nonsense", b'{"a": "x"}', b"\xff", b'{"a": 1'])
def test_a_bad_json_record_is_named(line):
    table, bad, errors = decode("json", records(b'{"a": 1}', line), schema_of("a bigint"))

    assert table.to_pylist() == [{"a": 1}]
    assert bad.tolist() == [False, True] and errors[0]


@pytest.mark.parametrize(
    ("format", "lines"),
    [("json", (b'{"a": 1}', b'{"a": null}', b"{}", b"{")), ("csv", (b"1,x", b",x", b",y", b"q"))],
)
def test_a_value_that_must_be_there_is_missed(format, lines):
    schema = schema_of("a bigint not null, b string")

    table, bad, errors = decode(format, records(*lines), schema)

    assert table["a"].to_pylist() == [1] and table.schema == schema
    assert bad.tolist() == [False, True, True, True]
    assert all("'a'" in e for e in errors[:2]) and len(errors) == 3


def test_text_and_bytes_are_one_column():
    raw = pa.chunked_array([records(b"a", b""), records(b"\xff")])

    text, bad, errors = decode("text", raw, schema_of("line string"))
    every, none, _ = decode("bytes", raw, schema_of("value binary"))

    assert (text.to_pylist(), errors) == ([{"line": "a"}, {"line": ""}], ["not UTF-8 text"])
    assert bad.tolist() == [False, False, True]
    assert every["value"].to_pylist() == [b"a", b"", b"\xff"] and not none.any()


@pytest.mark.parametrize("format", ["json", "csv", "text", "bytes"])
def test_no_records_are_no_rows(format):
    schema = schema_of("value string")

    table, bad, errors = decode(format, pa.chunked_array([], pa.binary()), schema)

    assert (table.num_rows, table.schema, len(bad), errors) == (0, schema, 0, [])


def test_an_unknown_format_is_refused():
    assert refusal(decode, "xml", records(b"<a/>"), EVERY).code == "HR-INPUT-004"
