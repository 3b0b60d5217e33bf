"""No record's bytes stop a job: what cannot be read is dead, and its neighbours live.

What a record reads as must not depend on what lies next to it, so each is read alone, among
good ones, and among ones that send the whole chunk down the slow path.
"""

from __future__ import annotations

import decimal
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.schema import schema_of
from headrace.sources import decode
from headrace.testing import Driver

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "100"))  # others in every run; make models: 500
MANY = 100_000
DEEP = b"[" * MANY + b"]" * MANY
NINES = b"9" * MANY

DOCUMENTS = {
    "lists not closed": b"[" * MANY,
    "objects not closed": b'{"a":' * MANY,
    "a deep list": DEEP,
    "a deep extra field": b'{"k":"a","x":' + DEEP + b"}",
    "a deep field next to a wrong one": b'{"v":"w","x":' + DEEP + b"}",
    "a deep text": b'{"k":' + DEEP + b"}",
    "a deep struct": b'{"s":{"a":1,"b":"c","x":' + DEEP + b"}}",
    "a deep map": b'{"m":{"a":' + DEEP + b"}}",
    "a deep number": b'{"v":' + DEEP + b"}",
    "brackets in a text": b'{"k":"' + b"[" * 1_000 + b'\\"[","v":1}',
    "not UTF-8": b'{"k":"\xff"}',
    "a NUL": b"\0",
    "a NUL in a text": b'{"k":"a\0b"}',
    "an escaped NUL": b'{"t":"\\u0000","by":"\\u0000"}',
    "a byte order mark": b'\xef\xbb\xbf{"k":"q"}',
    "nothing": b"",
    "blanks": b"  ",
    "a huge exponent": b'{"v":1e999999}',
    "a huge exponent in a text": b'{"v":"1e99999999999999999999","t":"1e-99999999999999999999"}',
    "a huge exponent for a double": b'{"d":1e999999}',
    "many digits": b'{"v":' + NINES + b"}",
    "many digits in a text": b'{"v":"' + NINES + b'"}',
    "many digits in a decimal": b'{"n":' + NINES + b"}",
    "many digits in a time": b'{"t":' + NINES + b"}",
    "many digits in an extra field": b'{"x":' + NINES + b',"v":5,"l":[null]}',
    "many digits in a list": b'{"l":[' + NINES + b"]}",
    "a long text": b'{"k":"' + b"x" * 10_000_000 + b'"}',
    "a long text for a number": b'{"v":"' + b"x" * 10_000_000 + b'"}',
    "many fields": b"{" + b",".join(b'"f%d":1' % i for i in range(MANY)) + b',"v":3}',
    "a key twice": b'{"v":1,"v":"w"}',
    "a key twice, badly": b'{"v":"w","v":1}',
    "a lone surrogate": b'{"k":"\\ud800"}',
    "a lone surrogate in a struct": b'{"s":{"a":null,"b":"\\ud800"}}',
    "a lone surrogate in a key": b'{"\\ud800":1,"v":"5"}',
    "no number": b'{"d":NaN,"v":NaN}',
    "a time without end": b'{"t":"infinity"}',
    "a date without end": b'{"dy":"infinity"}',
    "a date before Christ": b'{"dy":"0044-03-15 (BC)"}',
    "a late date": b'{"dy":"99999-01-01"}',
    "times in a list": b'{"ts":["infinity"]}',
    "dates in a list": b'{"ds":["99999-01-01"]}',
    "two documents": b'{"v":1}{"v":2}',
    "a list of documents": b'[{"v":1}]',
    "a word": b"null",
}
SCHEMA = (
    "k string, v bigint, d double, t timestamp, n decimal(10,2), b boolean, dy date, "
    "l array<bigint>, s struct<a:bigint,b:string>, m map<string,bigint>, by binary, "
    "ts array<timestamp>, ds array<date>"
)
GOOD = b'{"k":"good","v":9,"l":[1,2],"s":{"a":1,"b":"c"},"m":{"x":1}}'
NULLS = b'{"k":"null","l":[null],"s":{"a":null},"m":{"x":null},"ts":[null],"ds":[null]}'


def read(documents: list[bytes], format: str = "json", schema: str = SCHEMA) -> list[Any]:
    """For each document, its row as a Python value, or why it is dead."""
    table, bad, reasons = decode(format, pa.array(documents, pa.binary()), schema_of(schema))
    rows, told = iter(table.to_pylist()), iter(reasons)
    found: list[Any] = [next(told) if b else next(rows) for b in bad]
    assert next(rows, None) is None
    assert next(told, None) is None
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_reads_the_same_whatever_lies_next_to_it(name):
    document = DOCUMENTS[name]
    alone, good, nulls = read([document])[0], read([GOOD])[0], read([NULLS])[0]

    assert read([GOOD, document, GOOD]) == [good, alone, good]
    assert read([NULLS, document, GOOD]) == [nulls, alone, good]


@pytest.mark.parametrize("depth", [256, 257])
def test_a_document_may_have_256_levels(depth):
    document = b'{"k":"a","x":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
    deep = "the document is nested more than 256 levels deep"

    (found,) = read([document])

    assert (found == deep) == (depth > 256)


VALUES = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=4).map(json.dumps),
    st.dates().map(lambda d: f'"{d}"'),
    st.datetimes().map(lambda d: f'"{d}"'),
    st.integers().map(lambda i: f'"{i}"'),
    st.sampled_from(["null", "true", "1.10", "-0", "1E5", "[1, 2]", '{"a" : 1, "a":2}', '"1_0"']),
)
KINDS = [
    "bigint", "smallint", "string", "double", "float", "decimal(20,2)", "timestamp", "date",
    "boolean", "binary",
]  # fmt: skip


@settings(max_examples=EXAMPLES)
@example(kind="bigint", value="9007199254740993", exact=False)
@example(kind="decimal(20,2)", value="123456789012345678.25", exact=False)
@example(kind="string", value="0.1000", exact=False)
@example(kind="bigint", value="1e-400", exact=False)
@given(kind=st.sampled_from(KINDS), value=VALUES, exact=st.booleans())
def test_a_value_inside_a_list_reads_as_it_does_outside(kind, value, exact):
    schema = f"a {kind}, b array<{kind}>" + ", n decimal(5,1)" * exact
    (plain,) = read([f'{{"a":{value}}}'.encode()], schema=schema)
    listed = f'{{"b":[{value}]}}'.encode()

    (inside,) = read([listed], schema=schema)
    (_, beside) = read([b'{"b":[null]}', listed], schema=schema)

    assert repr(inside) == repr(beside)
    assert isinstance(plain, str) == isinstance(inside, str)
    if isinstance(plain, dict):
        assert repr(plain["a"]) == repr(inside["b"][0])


@settings(max_examples=EXAMPLES)
@given(value=st.one_of(st.integers(-(2**63), 2**63 - 1), st.decimals(-(10**17), 10**17, places=2)))
def test_numbers_in_lists_are_the_numbers_that_are_written(value):
    kind = "bigint" if isinstance(value, int) else "decimal(20,2)"

    for document in (f'{{"a":[{value}]}}', f'{{"a":[{value},null]}}'):
        expected = json.loads(document, parse_float=decimal.Decimal)

        (found,) = read([document.encode()], schema=f"a array<{kind}>")

        assert found == expected


PIECES = st.lists(
    st.one_of(
        st.binary(max_size=6),
        st.sampled_from([*b'{}[]":,\\', 0, 10, 13, 0xFF]).map(lambda b: bytes([b])),
        st.sampled_from([b'"v"', b'"k"', b"1", b"null", b"1e999", b"\\u", b"\xed\xa0\x80", b'"']),
    ),
    max_size=12,
).map(b"".join)
LINES = {
    "json": (b'{"k":"good","v":9}', "k string, v bigint"),
    "csv": (b"good,9", "k string, v bigint"),
    "text": (b"good", "value string"),
    "bytes": (b"good", "value binary"),
}


@settings(max_examples=EXAMPLES)
@given(format=st.sampled_from(list(LINES)), records=st.lists(PIECES, min_size=1, max_size=4))
def test_any_bytes_are_rows_or_dead(format, records):
    good, schema = LINES[format]
    alone = [read([r], format, schema)[0] for r in records]
    (fine,) = read([good], format, schema)

    found = read([good, *records, good], format, schema)

    assert isinstance(fine, dict)
    assert found == [fine, *alone, fine]


@settings(max_examples=300)
@example(b"1,2")
@given(PIECES)
def test_a_csv_record_may_end_as_a_line_does(record):
    _, schema = LINES["csv"]
    alone, *ended, twice = read(
        [record, record + b"\n", record + b"\r\n", record + b"\n" + record + b"\n"], "csv", schema
    )
    if not record.endswith((b"\n", b"\r")):
        assert ended == [alone, alone]
    assert isinstance(twice, str)


DECIMALS = st.from_regex(r"[+-]?[0-9]{0,45}(\.[0-9]{0,45})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)


@settings(max_examples=EXAMPLES)
@example("9" * 300)
@example("9" * 39)
@example("7000000000000E22")
@example("1." + "0" * 300)
@given(DECIMALS)
def test_a_decimal_in_csv_is_the_number_that_is_written_or_dead(text):
    (found,) = read([f"x,{text}".encode()], "csv", "k string, n decimal(38,4)")

    if isinstance(found, dict) and found["n"] is not None:
        with decimal.localcontext(prec=400):
            assert found["n"] == decimal.Decimal(text)


def counts(job: hr.Job, folder: Path) -> dict[str, int]:
    driver = Driver(job, folder)
    driver.drain()
    found: dict[str, int] = driver.manifest.counts["s"]
    return found


@pytest.mark.parametrize("place", ["topic", "file", "file without a last line end"])
def test_every_odd_document_is_used_or_dead(tmp_path, place):
    odd = [d for d in DOCUMENTS.values() if d.strip()]
    records = [r for d in odd for r in (GOOD, d)] + [DOCUMENTS["a deep extra field"]]
    job = hr.Job("odd")
    if place == "topic":
        log = hr.EmbeddedLog(str(tmp_path / "log"))
        log.create("t")
        log.append("t", records)
        where = {"uri": "log:t", "log": str(tmp_path / "log")}
    else:
        end = b"\n" if place == "file" else b""
        (tmp_path / "in.json").write_bytes(b"\n".join(records) + end)
        where = {"uri": f"files:{tmp_path}/in.json"}
    rows = job.read(where.pop("uri"), schema=SCHEMA, format="json", name="s", **where)
    rows.where("k = 'good'").write("collect:", name="o")

    found = counts(job, tmp_path / "job")

    dead = sum(isinstance(read([r])[0], str) for r in records)
    assert found["read"] == len(records)
    assert found["dead"] == dead
    assert found["used"] == len(odd)
    assert sum(n for fate, n in found.items() if fate != "read") == len(records)


def test_strict_mode_names_the_record(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t")
    log.append("t", [GOOD, DEEP])
    job = hr.Job("strict", on_error="fail")
    job.read("log:t", log=str(tmp_path / "log"), schema=SCHEMA, format="json", name="s").write(
        "collect:", name="o"
    )

    with pytest.raises(hr.StepError, match=r"nested more than 256 .*offset 1.*record \[\[\["):
        Driver(job, tmp_path / "job").drain()


FAR = pa.array([2**60], pa.int64()).cast(pa.timestamp("us"))
PARQUET = {
    "a number that is too large": (
        "v int",
        pa.array([3_000_000_000]),
        "'v': 3000000000 is not int",
    ),
    "a fraction": ("v bigint", pa.array([1.5]), "'v': 1.5 is not bigint"),
    "a null": ("v bigint not null", pa.array([None], pa.int64()), "'v' has no value"),
    "a far time": ("v timestamp", FAR, "the time of column 'v' is not within the years 1 to 9999"),
    "a far date": (
        "v date",
        pa.array([2**30], pa.int32()).cast(pa.date32()),
        "the time of column 'v' is not within the years 1 to 9999",
    ),
    "a decimal": ("v decimal(4,1)", pa.array([decimal.Decimal("1.55")]), "is not decimal(4,1)"),
}


@pytest.mark.parametrize("name", PARQUET)
def test_a_value_of_a_parquet_file_that_does_not_fit_is_dead_alone(tmp_path, name):
    schema, bad, reason = PARQUET[name]
    kind = bad.type
    good = pa.array([1], pa.int32()).cast(pa.int64() if pa.types.is_timestamp(kind) else pa.int32())
    good = (
        good.cast(kind) if not pa.types.is_decimal(kind) else pa.array([decimal.Decimal(1)], kind)
    )
    values = pa.concat_arrays([good, bad, good])
    pq.write_table(pa.table({"k": ["a", "b", "c"], "v": values}), tmp_path / "a.parquet")
    job = hr.Job("parquet")
    rows = job.read(f"files:{tmp_path}/a.parquet", schema=f"k string, {schema}", name="s")
    rows.map(lambda row: {"k": row.k, "seen": str(row.v)}, schema="k string, seen string").write(
        "collect:", name="o"
    )
    driver = Driver(job, tmp_path / "job")
    driver.drain()

    (letter,) = hr.read_output(tmp_path / "job" / "dead").to_pylist()
    assert [r["k"] for r in driver.output("o").to_pylist()] == ["a", "c"]
    assert reason in letter["error"]
    assert letter["place"] == "a.parquet row 2"
    found = driver.manifest.counts["s"]
    assert (found["read"], found["used"], found["dead"]) == (3, 2, 1)
