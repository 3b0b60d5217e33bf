"""Decoding JSON: every good document exactly, every bad one with its reason, whatever is near."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel import decode_json
from headrace.schema import schema_of

UTC = dt.UTC
NAN = pytest.approx(math.nan, nan_ok=True)
SCHEMA = schema_of("area string, celsius double, seq bigint, at timestamp, ok boolean")


def decode(documents: list[Any], schema: pa.Schema = SCHEMA) -> tuple[list[Any], list[str | None]]:
    """Each row, and for each document the reason why it is bad or None."""
    raw = [d if isinstance(d, bytes | None) else d.encode() for d in documents]
    table, bad, reasons = decode_json(pa.array(raw, pa.binary()), schema)
    assert table.num_rows == len(bad) == len(documents)
    assert int(bad.sum()) == len(reasons)
    left = iter(reasons)
    return table.to_pylist(), [next(left) if b else None for b in bad]


def one(document: Any, ddl: str) -> Any:
    """The value of the only field, or the reason."""
    schema = schema_of(ddl)
    rows, reasons = decode([document], schema)
    return reasons[0] if reasons[0] is not None else rows[0][schema.names[0]]


def test_fields_are_typed_missing_ones_are_null_and_extra_ones_are_ignored():
    rows, reasons = decode([
        '{"area": "roof", "celsius": 21.5, "seq": 7, "at": 1700000000123, "ok": true, "x": [1]}',
        '{"ok": false, "seq": -1}',
        "{}",
        ' {"area": null , "celsius" : 3 } ',
    ])  # fmt: skip
    assert reasons == [None] * 4
    at = dt.datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert rows[0] == {"area": "roof", "celsius": 21.5, "seq": 7, "at": at, "ok": True}
    assert rows[1] == {"area": None, "celsius": None, "seq": -1, "at": None, "ok": False}
    assert rows[2] == dict.fromkeys(SCHEMA.names)
    assert rows[3] == {**dict.fromkeys(SCHEMA.names), "celsius": 3.0}


READ = [
    ("5", "n bigint", 5), ("5.0", "n bigint", 5), ('"5"', "n bigint", 5), ("1e3", "n bigint", 1000),
    ("-0", "n bigint", 0), ("127", "n tinyint", 127),
    ("9007199254740993", "n bigint", 2**53 + 1), ("9223372036854775807", "n bigint", 2**63 - 1),
    ("-9223372036854775808", "n bigint", -(2**63)), ('"9007199254740993"', "n bigint", 2**53 + 1),
    ("5", "x double", 5.0), ('"2.5"', "x double", 2.5), ("0.1", "x double", 0.1),
    ("Infinity", "x double", math.inf), ("2.5", "x float", 2.5),
    ('"a\\u00e9\\n\\"\\\\"', "s string", 'aé\n"\\'), ("5", "s string", "5"),
    ('{"a": 1}', "s string", '{"a":1}'), ("true", "s string", "true"), ('"😀"', "s string", "😀"),
    ("false", "b boolean", False), ('"dGV4dA=="', "z binary", b"text"),
    ("1.25", "d decimal(5,2)", Decimal("1.25")),
    ('"1.25"', "d decimal(5,2)", Decimal("1.25")),
    ('"2024-02-29"', "d date", dt.date(2024, 2, 29)),
    ("0", "t timestamp", dt.datetime(1970, 1, 1, tzinfo=UTC)),
    ("-1", "t timestamp", dt.datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)),
    ("1.7e12", "t timestamp", dt.datetime(2023, 11, 14, 22, 13, 20, 0, UTC)),
    ('"2024-02-29T12:00:00.123456789Z"', "t timestamp",
     dt.datetime(2024, 2, 29, 12, 0, 0, 123456, UTC)),
    ("1e2", "n bigint", 100), ("5.000", "n int", 5), ("1.50e1", "n bigint", 15),
    ("1.250", "d decimal(5,2)", Decimal("1.25")), ("1e2", "d decimal(5,2)", Decimal("100.00")),
    ('"\\u0035"', "n bigint", 5), ('"NaN"', "x double", NAN), ('"-Infinity"', "x float", -math.inf),
    ("1.10", "s string", "1.10"),
    ("0.1234567890123456789012", "s string", "0.1234567890123456789012"),
    ('"2024-02-29T12:00:00Z"', "t timestamp", dt.datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ('"2024-02-29T12:00:00.123456+02:00"', "t timestamp",
     dt.datetime(2024, 2, 29, 10, 0, 0, 123456, UTC)),
    ('"2024-02-29 12:00:00"', "t timestamp", dt.datetime(2024, 2, 29, 12, tzinfo=UTC)),
    ('"2024-02-29"', "t timestamp", dt.datetime(2024, 2, 29, tzinfo=UTC)),
    ("[1, 2, null]", "xs array<bigint>", [1, 2, None]), ("[]", "xs array<string>", []),
    ('["a", "b"]', "xs array<string>", ["a", "b"]), ("[1.0, 2]", "xs array<int>", [1, 2]),
    ('{"x": 1, "y": "z"}', "s struct<x int, y string>", {"x": 1, "y": "z"}),
    ('{"x": null}', "s struct<x int, y string>", {"x": None, "y": None}),
    ('{"a": 1, "b": 2}', "m map<string, int>", [("a", 1), ("b", 2)]),
    ('[{"t": 0}]', "xs array<struct<t timestamp>>", [{"t": dt.datetime(1970, 1, 1, tzinfo=UTC)}]),
    ("[true]", "xs array<boolean>", [True]),
]  # fmt: skip


@pytest.mark.parametrize(("value", "ddl", "expected"), READ, ids=[f"{r[0]} {r[1]}" for r in READ])
def test_a_value_is_read_as(value, ddl, expected):
    document = '{"%s": %s}' % (ddl.split()[0], value)  # noqa: UP031
    assert one(document, ddl) == expected


REFUSED = [
    ("true", "n bigint"), ("true", "n int"), ("false", "x double"), ("true", "d decimal(5,2)"),
    ("true", "t timestamp"), ("true", "xs array<int>"), ("[true]", "xs array<double>"),
    ('"1e2"', "n bigint"), ('"5.0"', "n bigint"), ('"0x10"', "n bigint"), ('"true"', "n bigint"),
    ("1.255", "d decimal(5,2)"), ("1.25000000000000000000001", "d decimal(5,2)"),
    ("5.00000000000000000000001", "n bigint"), ("1e999999999", "n bigint"), ("1e-9", "n bigint"),
    ("1e400", "x double"), ("1e300", "x float"), ('"1e400"', "x double"),
    ("1e400", "d decimal(5,2)"),
    ('"2013"', "t timestamp"), ('"1700000000000"', "t timestamp"), ('"5"', "t timestamp"),
    ('"2013-01-01T00:00:00+25:00"', "t timestamp"), ('"2013-01-01T00:00:00-99:99"', "t timestamp"),
    ('"2013-01-01T24:00:00Z"', "t timestamp"), ('"2013-01-01T00:00:00+24:00"', "t timestamp"),
    ('"2013-01-01T05:00:00Z"', "d date"), ('"2013-01-01 05:00"', "d date"), ('"2013"', "d date"),
    ("0", "d date"), ('"a b"', "z binary"), ('"YWJ"', "z binary"), ("5", "z binary"),
    ('{"x": true}', "s struct<x int>"), ('{"a": true}', "m map<string, int>"),
    ("5.5", "n bigint"), ('"x"', "n bigint"), ("[1]", "n bigint"), ("{}", "n bigint"),
    ('""', "n int"), ("9223372036854775808", "n bigint"), ("128", "n tinyint"), ("3e9", "n int"),
    ("1e30", "n bigint"), ("NaN", "n bigint"), ('"hot"', "x double"),
    ("[1.5]", "x double"), ("1", "b boolean"), ('"true"', "b boolean"), ('"never"', "t timestamp"),
    ("1.5", "t timestamp"), ("1e18", "t timestamp"), ('"infinity"', "t timestamp"),
    ("true", "d date"), ('"2024-02-30"', "d date"), ('"x"', "d decimal(5,2)"),
    ("12345", "d decimal(5,2)"), ("1", "xs array<int>"), ('[1, "x"]', "xs array<int>"),
    ("[1.5]", "xs array<int>"), ("[[1]]", "xs array<int>"), ('{"x": "a"}', "s struct<x int>"),
    ("[1]", "s struct<x int>"), ('{"a": "b"}', "m map<string, int>"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "ddl"), REFUSED, ids=[f"{r[0]} {r[1]}" for r in REFUSED])
def test_a_value_that_does_not_fit_makes_the_document_bad(value, ddl):
    name = ddl.split()[0]
    reason = one('{"%s": %s}' % (name, value), ddl)  # noqa: UP031
    assert isinstance(reason, str)
    assert reason.startswith(f"field '{name}': ")
    assert " is not " in reason


@pytest.mark.parametrize(("value", "ddl"), REFUSED, ids=[f"{r[0]} {r[1]}" for r in REFUSED])
def test_it_is_refused_whatever_is_near(value, ddl):
    name = ddl.split()[0]
    bad = '{"%s": %s}' % (name, value)  # noqa: UP031
    for good in [v for v, d, _ in READ if d == ddl]:
        near = '{"%s": %s}' % (name, good)  # noqa: UP031
        _, reasons = decode([near, bad, near, "{}"], schema_of(ddl))
        assert [r is not None for r in reasons] == [False, True, False, False]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ('{"area": "x"', "malformed JSON: expecting ',' delimiter"),
        ("", "malformed JSON"),
        ('{"area": "x"} tail', "malformed JSON"),
        ('{"seq": 05}', "malformed JSON"),
        ('{"area": "\\ud800"}', "malformed JSON"),
        ("not json", "malformed JSON"),
        ('{"seq": 1,}', "malformed JSON"),
        ('{"seq": 1, "x": [1, ]}', "malformed JSON"),
        (b'{"area": "\xff"}', "the document is not UTF-8 text"),
        (None, "the document is null"),
        ("[1, 2]", "the document is [1,2], not an object"),
        ("null", "the document is null, not an object"),
        ('"text"', 'the document is "text", not an object'),
        ('{"celsius": "hot"}', "field 'celsius': \"hot\" is not double"),
    ],
)
def test_a_bad_document_says_why_and_its_neighbours_are_read(document, reason):
    rows, reasons = decode(['{"seq": 1}', document, '{"seq": 3}'])
    assert reasons[0] is None and reasons[2] is None
    assert (reasons[1] or "").startswith(reason)
    assert [r["seq"] for r in rows] == [1, None, 3]
    assert set(rows[1].values()) == {None}


def test_a_not_null_field_must_be_there():
    schema = schema_of("a string not null, n bigint not null, m bigint")
    rows, reasons = decode(
        ['{"a": "x", "n": 1}', '{"n": 1}', '{"a": null, "n": 1}', '{"a": "", "n": null}'], schema
    )
    assert rows[0] == {"a": "x", "n": 1, "m": None}
    assert reasons == [
        None,
        "field 'a' is missing, but it is declared not null",
        "field 'a' is null, but it is declared not null",
        "field 'n' is null, but it is declared not null",
    ]


def test_of_a_repeated_key_the_first_counts():
    assert one('{"n": 1, "n": "x"}', "n bigint") == 1
    assert isinstance(one('{"n": "x", "n": 1}', "n bigint"), str)


def test_odd_field_names_are_found():
    schema = pa.schema([('a "b"', pa.int64()), ("c/d~e", pa.int64()), ("$.x", pa.int64())])
    good = json.dumps({'a "b"': 1, "c/d~e": 2, "$.x": 3})
    rows, reasons = decode([good, '{"c/d~e": "x"}', '{"$.x": null}'], schema)
    assert rows[0] == {'a "b"': 1, "c/d~e": 2, "$.x": 3}
    assert reasons[0] is None and reasons[1] is not None and reasons[2] is None


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.floats(allow_nan=False),
    st.text(max_size=6), st.sampled_from(["5", "2024-02-29T01:02:03Z", "1700000000000", "1e5"]),
    st.lists(st.integers(), max_size=2), st.just({"a": 1}),
)  # fmt: skip
DOCUMENTS = st.one_of(
    st.dictionaries(st.sampled_from([*SCHEMA.names, "extra"]), VALUES, max_size=5).map(json.dumps),
    st.sampled_from(["{", "", "[]", '{"seq": 1}}', '{"seq": 1, }', "\t{}\n"]),
    st.binary(max_size=5),
)


@given(st.lists(DOCUMENTS, min_size=1, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_document_is_read_the_same_alone_and_in_company(documents):
    together = decode(documents)
    alone = [decode([d]) for d in documents]
    assert repr(together[0]) == repr([rows[0] for rows, _ in alone])
    assert together[1] == [reasons[0] for _, reasons in alone]


PLAIN = st.fixed_dictionaries(
    {
        "area": st.one_of(st.none(), st.text(max_size=10)),
        "celsius": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)),
        "seq": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "at": st.one_of(st.none(), st.integers(-(10**12), 10**13)),
        "ok": st.one_of(st.none(), st.booleans()),
    }
)


@given(st.lists(PLAIN, max_size=30))
@settings(max_examples=60, deadline=None)
def test_what_was_written_is_what_is_read(rows):
    made, reasons = decode([json.dumps(r) for r in rows])
    assert not any(reasons)
    epoch = dt.datetime(1970, 1, 1, tzinfo=UTC)
    expected = [
        {**r, "at": None if r["at"] is None else epoch + dt.timedelta(milliseconds=r["at"])}
        for r in rows
    ]
    assert made == expected


def test_text_columns_and_chunked_columns_are_read_too():
    chunks = pa.chunked_array([['{"seq": 1}'], [], ['{"seq": 2}', "{"]], pa.string())
    table, bad, reasons = decode_json(chunks, SCHEMA)
    assert table.column("seq").to_pylist() == [1, 2, None]
    assert bad.tolist() == [False, False, True]
    assert len(reasons) == 1
    empty, none, _ = decode_json(pa.array([], pa.binary()), SCHEMA)
    assert (empty.num_rows, len(none), empty.schema) == (0, 0, SCHEMA)


def test_a_sliced_column_is_read_from_where_it_starts():
    raw = pa.array([b'{"seq": %d}' % i for i in range(10)], pa.binary())
    table, bad, _ = decode_json(raw[4:7], SCHEMA)
    assert table.column("seq").to_pylist() == [4, 5, 6]
    assert not bad.any()


def test_a_few_bad_documents_among_many_are_found():
    documents = [b'{"seq": %d, "area": "a"}' % i for i in range(20_000)]
    for i, broken in ((5, b"{"), (9_999, b'{"seq": "x"}'), (19_999, b"\xff\xfe")):
        documents[i] = broken
    table, bad, reasons = decode_json(pa.array(documents, pa.binary()), SCHEMA)
    assert np.flatnonzero(bad).tolist() == [5, 9_999, 19_999]
    assert len(reasons) == 3
    good = table.filter(pa.array(~bad)).column("seq").to_pylist()
    assert good == [i for i in range(20_000) if i not in (5, 9_999, 19_999)]


def test_a_comma_before_a_bracket_is_only_bad_outside_of_texts():
    assert one('{"s": "a,}", "n": 1}', "s string") == "a,}"
    assert isinstance(one('{"s": "a,}", "n": 1,}', "s string"), str)


def test_records_that_are_not_always_there_are_read():
    schema = schema_of("s struct<x int, ys array<double>>, n int")
    documents = ['{"n": 1}', '{"s": {"x": 1, "ys": [1, 2.5]}}', '{"s": null}',
                 '{"s": {"x": 2, "ys": []}}']  # fmt: skip
    rows, reasons = decode(documents, schema)
    assert not any(reasons)
    assert [r["s"] for r in rows] == [None, {"x": 1, "ys": [1.0, 2.5]}, None, {"x": 2, "ys": []}]
