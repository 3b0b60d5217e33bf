"""CSV, text and Avro files: what others read from them, and our own inputs."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.test_json_lines import COLUMNS, SCALARS
from tests.sinks.writing import ALONE, made, refusal

from headrace.schema import schema_of
from headrace.sinks import open_sink, output_files, read_output
from headrace.sinks.file_formats import format_of
from headrace.sources import open_source

FLAT = {k: v for k, v in SCALARS.items() if k not in ("binary", "string")}
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=8)
FLAT["string"] = LINE


def written(folder: Path, tables: list[pa.Table], **options: Any) -> Path:
    """An output of one epoch for each table."""
    out = folder / "out"
    sink = made(open_sink(f"files:{out}", tables[0].schema, options, str(folder / "job"), "o"))
    for epoch, table in enumerate(tables):
        sink.publish(epoch, sink.stage(table, epoch, "a"), ALONE)
    return out


def through_input(out: Path, schema: pa.Schema, format: str, **options: Any) -> pa.Table:
    pattern = f"files:{out}/*{output_files(out)[0].suffix}"
    source = open_source(pattern, schema, format=format, options=options, until="end")
    tables = [schema.empty_table()]
    for split in source.splits():
        for part in source.cut(split, 0, source.latest(split), 3):
            for chunk, _ in source.read(part):
                rows, bad, why = source.decode(chunk) if source.raw else (chunk, None, [])
                assert not why and (bad is None or not bad.any()), why
                tables.append(rows)
    return pa.concat_tables(tables)


def exactly(rows: pa.Table) -> str:
    return repr(rows.to_pylist())


@given(st.sampled_from([*FLAT.items()]), st.sampled_from(",;\t| "), st.booleans(), st.data())
@settings(max_examples=80, deadline=None)
def test_csv_of_every_type_comes_back_equal(tmp_path_factory, column, delimiter, header, data):
    kind, values = column
    schema = schema_of(f"c {kind}, n int")
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    table = pa.Table.from_pylist([{"c": v, "n": i} for i, v in enumerate(rows)], schema)
    style = {"delimiter": delimiter, "header": header}

    out = written(tmp_path_factory.mktemp("csv"), [table], format="csv", **style)

    assert exactly(read_output(out)) == exactly(table)
    assert exactly(through_input(out, schema, "csv", **style)) == exactly(table)


def test_python_and_duckdb_read_csv(tmp_path):
    schema = schema_of('n bigint, `a "name", long` string, d double, t timestamp')
    time = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    texts = ["plain", 'with "quotes"', "a, b", "", None, " spaces ", "é"]
    rows = [{"n": i, schema.names[1]: t, "d": i / 7, "t": time} for i, t in enumerate(texts)]
    out = written(tmp_path, [pa.Table.from_pylist(rows, schema)], format="csv")
    [path] = output_files(out)

    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [r[schema.names[1]] for r in found] == [t or "" for t in texts]
    assert [float(r["d"]) for r in found] == [i / 7 for i in range(len(texts))]
    table = duckdb.sql(f"select * from read_csv('{path}', header=true)").fetchall()
    assert [r[0] for r in table] == list(range(len(texts)))
    assert table[1][1] == 'with "quotes"'


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
@pytest.mark.parametrize("format", ["json", "csv", "text"])
def test_compressed_lines_come_back_equal_merged_or_not(tmp_path, format, compression):
    names = ["s"] if format == "text" else ["s", "n"]
    rows = [{"s": f"é {i}", "n": i} for i in range(40)]
    tables = [pa.Table.from_pylist(rows[i : i + 2]).select(names) for i in range(0, 40, 2)]
    options = {"format": format, "compression": compression}

    out = written(tmp_path, tables, **options)

    files, wanted = output_files(out), [{n: r[n] for n in names} for r in rows]
    assert len(files) < len(tables)  # some were merged
    assert {"".join(f.suffixes[-2:]) for f in files} == {
        f".{'txt' if format == 'text' else format}.{'gz' if compression == 'gzip' else 'zst'}"
    }
    assert sorted(read_output(out).to_pylist(), key=repr) == sorted(wanted, key=repr)
    found = through_input(out, tables[0].schema, format).to_pylist()
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    if compression == "gzip":  # by what shares nothing with us
        lines = [
            line for f in files for line in gzip.decompress(f.read_bytes()).decode().splitlines()
        ]
        assert len(lines) == len(rows) + (len(files) if format == "csv" else 0)
        assert all(any(r["s"] in line for line in lines) for r in rows)


def test_compression_may_be_changed_and_what_is_damaged_is_named(tmp_path):
    schema, out = pa.schema([("n", pa.int64())]), tmp_path / "out"
    for epoch, compression in enumerate([None, "gzip", "zstd", None]):
        options = {"format": "json", **({"compression": compression} if compression else {})}
        sink = made(open_sink(f"files:{out}", schema, options, str(tmp_path / "job"), "o"))
        rows = pa.table({"n": [epoch]})
        sink.publish(epoch, sink.stage(rows, epoch, "a"), ALONE)
    assert sorted(read_output(out)["n"].to_pylist()) == [0, 1, 2, 3]

    for suffix in (".json.gz", ".json.zst"):
        [path] = [f for f in output_files(out) if f.name.endswith(suffix)]
        whole = path.read_bytes()
        path.write_bytes(whole[:-3] + b"xyz")
        assert refusal(read_output, out).code == "HR-OUTPUT-012"
        path.write_bytes(whole)
        bad = tmp_path / f"bad{suffix}"
        bad.write_bytes(b"xyz" + whole[3:])
        assert (
            refusal(lambda b=bad: [*format_of(b.name).batches(b, schema)]).code == "HR-OUTPUT-007"
        )


@pytest.mark.parametrize(
    "options",
    [{"compression": "gzip"}, {"format": "parquet", "compression": "gzip"},
     {"format": "avro", "compression": "zstd"}, {"format": "json", "compression": "rar"},
     {"format": "csv", "compression": ["gzip"]}, {"format": "text", "compression": True}],
)  # fmt: skip
def test_a_compression_that_cannot_be_is_refused(tmp_path, options):
    schema = pa.schema([("n", pa.int64())])
    error = refusal(open_sink, f"files:{tmp_path}/o", schema, options, str(tmp_path / "job"), "o")
    assert error.code == "HR-OUTPUT-008" and "compression" in error.message


@pytest.mark.parametrize("format", ["csv", "text"])
def test_a_text_with_a_line_break_is_refused_before_anything_is_published(tmp_path, format):
    table = pa.table({"value": ["a", "b\nc"]})
    sink = made(
        open_sink(
            f"files:{tmp_path}/o", table.schema, {"format": format}, str(tmp_path / "job"), "o"
        )
    )
    error = refusal(sink.stage, table, 0, "a")
    assert (error.code, "'value' has a text with a line break" in str(error)) == (
        "HR-OUTPUT-070",
        True,
    )


@pytest.mark.parametrize(
    ("format", "value"),
    [("text", None), ("text", "a\r"), ("text", "\ufeffa"), ("csv", None)],
)
def test_what_a_line_could_not_give_back_is_refused(tmp_path, format, value):
    table = pa.table({"value": pa.array(["a", value], pa.string())})
    sink = made(
        open_sink(
            f"files:{tmp_path}/o", table.schema, {"format": format}, str(tmp_path / "job"), "o"
        )
    )
    assert refusal(sink.stage, table, 0, "a").code == "HR-OUTPUT-070"


@given(st.lists(LINE.filter(lambda t: t[-1:] != "\r" and t[:1] != "\ufeff"), min_size=1))
@settings(max_examples=40, deadline=None)
def test_text_comes_back_equal(tmp_path_factory, texts):
    table = pa.table({"value": pa.array(texts, pa.string())})
    out = written(tmp_path_factory.mktemp("text"), [table, table], format="text")
    assert exactly(read_output(out)) == exactly(pa.concat_tables([table, table]))
    assert exactly(through_input(out, table.schema, "text")) == exactly(
        pa.concat_tables([table, table])
    )


@pytest.mark.parametrize(
    ("format", "columns"),
    [
        ("csv", "l array<int>"), ("csv", "b binary"), ("text", "a string, b string"),
        ("text", "n int"), ("avro", "m map<int, string>"), ("avro", "`a b` string"),
    ],
)  # fmt: skip
def test_columns_that_a_format_cannot_hold_are_refused_at_the_start(tmp_path, format, columns):
    sink = open_sink(
        f"files:{tmp_path}/o", schema_of(columns), {"format": format}, str(tmp_path / "job"), "o"
    )
    assert refusal(sink.check).code == "HR-OUTPUT-006"


@pytest.mark.parametrize(
    "options",
    [
        {"format": "csv", "delimiter": "."}, {"format": "csv", "delimiter": "7"},
        {"format": "csv", "delimiter": ",,"}, {"format": "csv", "delimiter": '"'},
        {"format": "csv", "header": "yes"}, {"delimiter": ";"}, {"format": "xml"},
    ],
)  # fmt: skip
def test_wrong_options_are_refused(tmp_path, options):
    def open_one() -> object:
        return open_sink(f"files:{tmp_path}/o", schema_of("n int"), options, "job", "o")

    assert refusal(open_one).code == "HR-OUTPUT-008"


AVRO = COLUMNS.filter(lambda c: "y z" not in c[0] and "map<" not in c[0])


@given(AVRO, st.data())
@settings(max_examples=60, deadline=None)
def test_avro_of_every_type_is_read_by_fastavro_and_by_us(tmp_path_factory, column, data):
    kind, values = column
    schema = schema_of(f"c {kind}, n int not null")
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=5))
    table = pa.Table.from_pylist([{"c": v, "n": i} for i, v in enumerate(rows)], schema)

    out = written(tmp_path_factory.mktemp("avro"), [table], format="avro")

    assert exactly(read_output(out)) == exactly(table)
    with output_files(out)[0].open("rb") as file:
        found = list(fastavro.reader(file))
    assert [r["n"] for r in found] == list(range(len(rows)))
    assert exactly(through_input(out, schema, "avro")) == exactly(table)
    if kind in SCALARS:
        plain = [
            [_in_utc(v) for v in some] for some in ([r["c"] for r in found], table["c"].to_pylist())
        ]
        assert repr(plain[0]) == repr(plain[1])


def _in_utc(value: Any) -> Any:
    """A time with the zone's plainest name: libraries have several objects for it."""
    return value.astimezone(dt.UTC) if isinstance(value, dt.datetime) else value


def test_avro_holds_times_decimals_maps_and_records_as_such(tmp_path):
    schema = schema_of(
        "t timestamp, d date, p decimal(9,3), m map<string, bigint>, r struct<x int, t timestamp>"
    )
    time = dt.datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
    row = {
        "t": time, "d": dt.date(2024, 5, 1), "p": Decimal("1.250"), "m": [("a", 1), ("b", 2)],
        "r": {"x": 1, "t": time},
    }  # fmt: skip
    table = pa.Table.from_pylist([row, dict.fromkeys(row)], schema)

    out = written(tmp_path, [table], format="avro")

    assert exactly(read_output(out)) == exactly(table)
    with output_files(out)[0].open("rb") as file:
        found = list(fastavro.reader(file))
    assert found[0] == row | {"m": {"a": 1, "b": 2}}
    assert duckdb_reads(output_files(out)[0]) in (2, None)


def duckdb_reads(path: Path) -> int | None:
    """How many rows DuckDB sees; None where its extension for Avro is not installed."""
    try:
        duckdb.sql("load avro")
    except duckdb.Error:
        return None
    return duckdb.sql(f"select count(*) from read_avro('{path}')").fetchall()[0][0]


def test_a_map_with_a_key_twice_is_refused_in_avro(tmp_path):
    schema = schema_of("m map<string, int>")
    table = pa.Table.from_pylist([{"m": [("a", 1), ("a", 2)]}], schema)
    sink = made(
        open_sink(f"files:{tmp_path}/o", schema, {"format": "avro"}, str(tmp_path / "job"), "o")
    )
    assert refusal(sink.stage, table, 0, "a").code == "HR-OUTPUT-070"


@pytest.mark.parametrize("format", ["csv", "avro", "text"])
def test_small_files_are_merged(tmp_path, format, monkeypatch):
    from headrace.sinks import merging

    monkeypatch.setattr(merging, "EVERY", 4)
    monkeypatch.setattr(merging, "FEW", 2)
    tables = [pa.table({"value": [f"row {i}", ""]}) for i in range(10)]

    out = written(tmp_path, tables, format=format)

    assert exactly(read_output(out)) == exactly(pa.concat_tables(tables))
    assert len(output_files(out)) < len(tables)
    found = through_input(out, tables[0].schema, format)["value"].to_pylist()
    assert sorted(found) == sorted(pa.concat_tables(tables)["value"].to_pylist())


def test_files_are_read_in_the_style_they_were_written_in(tmp_path):
    table = pa.table({"a": [1], "b": ["x; y"]})
    for i, style in enumerate([{"delimiter": ";"}, {"header": False}, {}]):
        uri, job = f"files:{tmp_path}/out", str(tmp_path / "job")
        sink = made(open_sink(uri, table.schema, {"format": "csv", **style}, job, "o"))
        sink.publish(i, sink.stage(table, i, "a"), ALONE)
    assert exactly(read_output(tmp_path / "out")) == exactly(pa.concat_tables([table] * 3))
