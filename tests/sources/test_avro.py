"""Avro files as an input: what fastavro and Spark's kind of writers put there."""

from __future__ import annotations

import datetime as dt
import io
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from tests.sources.reading import read_all, refusal

from headrace.clock import ManualClock
from headrace.schema import ddl_of, schema_of
from headrace.sources import open_source

TIME = dt.datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
FIELDS: dict[str, tuple[Any, Any]] = {
    "b": ("boolean", True),
    "i": ("int", -1),
    "l": (["null", "long"], 2**62),
    "f": ("float", 0.5),
    "d": (["double", "null"], 1e300),
    "y": ("bytes", b"\x00\xff"),
    "s": ("string", "é"),
    "e": ({"type": "enum", "name": "colour", "symbols": ["red", "blue"]}, "blue"),
    "t": ({"type": "long", "logicalType": "timestamp-micros"}, TIME),
    "ms": ({"type": "long", "logicalType": "timestamp-millis"}, TIME.replace(microsecond=123000)),
    "day": (["null", {"type": "int", "logicalType": "date"}], dt.date(2024, 5, 1)),
    "p": (
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
        Decimal("1.250"),
    ),
    "a": ({"type": "array", "items": "int"}, [1, 2]),
    "m": ({"type": "map", "values": "long"}, {"k": 1}),
    "r": (
        {"type": "record", "name": "inner", "fields": [{"name": "x", "type": ["null", "int"]}]},
        {"x": 7},
    ),
    "again": ("inner", {"x": None}),
}
ALL = {"type": "record", "name": "row", "namespace": "some.where"}


def put(path: Path, rows: list[dict[str, Any]], fields: dict[str, Any], **options: Any) -> None:
    avro = ALL | {"fields": [{"name": n, "type": t} for n, t in fields.items()]}
    with path.open("wb") as file:
        fastavro.writer(file, avro, rows, **options)


def whole(path: Path, columns: str | None = None, **options: Any):
    schema = schema_of(columns) if columns else None
    return open_source(f"files:{path}", schema, until="end", **options)


def test_every_type_has_its_column(tmp_path):
    row = {n: v for n, (_, v) in FIELDS.items()}
    put(tmp_path / "a.avro", [row], {n: t for n, (t, _) in FIELDS.items()})

    source = whole(tmp_path)

    assert read_all(source) == [row | {"m": [("k", 1)]}]
    assert ddl_of(source.schema) == (
        "b boolean not null, i int not null, l bigint, f float not null, d double, "
        "y binary not null, s string not null, e string not null, t timestamp not null, "
        "ms timestamp not null, day date, p decimal(9,3) not null, a array<int> not null, "
        "m map<string, bigint> not null, r struct<x int> not null, again struct<x int> not null"
    )


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_blocks_are_read_whatever_their_codec(tmp_path, codec):
    rows = [{"n": i} for i in range(5_000)]
    put(tmp_path / "a.avro", rows, {"n": "long"}, codec=codec, sync_interval=500)
    assert read_all(whole(tmp_path), rows=777, pieces=4) == rows


def packed_by(codec: str, block: bytes) -> bytes:
    """As the specification of Avro has it."""
    if codec == "zstandard":
        return pa.compress(block, codec="zstd", asbytes=True)
    packed = pa.compress(block, codec="snappy", asbytes=True)
    return packed + zlib.crc32(block).to_bytes(4, "big")


def put_packed(path: Path, codec: str, count: int, spoilt: bytes = b"") -> None:
    """A file whose blocks are made here: fastavro needs other libraries for these codecs."""
    head = io.BytesIO()
    fastavro.writer(head, ALL | {"fields": [{"name": "n", "type": "long"}]}, [])
    meta = head.getvalue().replace(b"\x08null", bytes([2 * len(codec)]) + codec.encode())
    blocks = []
    for first in range(0, count, 100):
        rows = io.BytesIO()
        for n in range(first, first + 100):
            fastavro.schemaless_writer(rows, "long", n)
        block = packed_by(codec, rows.getvalue()) + spoilt
        sizes = io.BytesIO()
        fastavro.schemaless_writer(sizes, "long", 100)
        fastavro.schemaless_writer(sizes, "long", len(block))
        blocks.append(sizes.getvalue() + block + meta[-16:])
    path.write_bytes(meta + b"".join(blocks))


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_blocks_of_snappy_and_zstandard_need_no_other_library(tmp_path, codec):
    put_packed(tmp_path / "a.avro", codec, 1_000)
    rows = [{"n": i} for i in range(1_000)]
    assert read_all(whole(tmp_path), rows=77, pieces=4) == rows


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_a_packed_block_that_is_damaged_is_refused_before_a_row_of_it_is_read(tmp_path, codec):
    put_packed(tmp_path / "a.avro", codec, 300, spoilt=b"\xff\xff\xff\xff\x0f")
    error = refusal(lambda: read_all(whole(tmp_path)))
    assert error.code == "HR-INPUT-071" and "block" in error.message


def test_a_codec_that_cannot_be_read_is_named_when_the_input_is_opened(tmp_path):
    put(tmp_path / "a.avro", [{"n": 1}], {"n": "long"})
    data = (tmp_path / "a.avro").read_bytes()
    (tmp_path / "a.avro").write_bytes(data.replace(b"\x08null", b"\x06lz4"))
    error = refusal(lambda: whole(tmp_path))
    assert error.code == "HR-INPUT-071"
    assert "'lz4'" in error.message and "snappy" in error.hint


def test_what_is_no_record_or_has_too_many_digits_is_said_as_it_is(tmp_path):
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, "long", [1, 2])
    error = refusal(lambda: whole(tmp_path))
    assert "its rows are not records" in error.message and "Keep it out" in error.hint
    wide = {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2}
    put(tmp_path / "a.avro", [{"d": Decimal(1)}], {"d": wide})
    assert "is a decimal of 50 digits" in refusal(lambda: whole(tmp_path)).message


def test_columns_of_files_that_differ_are_found_by_name_or_the_file_is_refused(tmp_path):
    put(tmp_path / "a.avro", [{"n": 1, "s": "x"}], {"n": "int", "s": "string"})
    put(
        tmp_path / "b.avro",
        [{"more": 0.5, "s": "y", "n": 2}],
        {"more": "double", "s": "string", "n": "long"},
    )
    assert read_all(whole(tmp_path, "s string, n bigint")) == [
        {"s": "x", "n": 1},
        {"s": "y", "n": 2},
    ]
    put(tmp_path / "c.avro", [{"n": 3}], {"n": "int"})
    assert refusal(whole(tmp_path, "s string, n bigint").check).code == "HR-INPUT-005"
    put(tmp_path / "c.avro", [{"n": "3", "s": "z"}], {"n": "string", "s": "string"})
    assert refusal(whole(tmp_path, "s string, n bigint").check).code == "HR-INPUT-006"


def test_a_value_that_does_not_fit_is_a_bad_row(tmp_path):
    put(tmp_path / "a.avro", [{"n": 1}, {"n": 2**40}], {"n": "long"})
    source = whole(tmp_path, "n int")
    [part] = source.cut("files", 0, source.latest("files"), 1)
    [(chunk, _)] = source.read(part)
    assert chunk["__misfit"].to_pylist()[0] is None and "1099511627776" in str(chunk["__misfit"][1])


@pytest.mark.parametrize("kind", [["int", "string"], {"type": "int", "logicalType": "time-millis"}])
def test_a_column_without_a_type_here_is_refused_unless_it_is_left_out(tmp_path, kind):
    put(tmp_path / "a.avro", [{"n": 1, "u": 5}], {"n": "int", "u": kind})
    assert refusal(whole, tmp_path).code == "HR-INPUT-006"
    assert refusal(whole(tmp_path, "u string").check).code == "HR-INPUT-006"
    assert read_all(whole(tmp_path, "n int")) == [{"n": 1}]


def test_times_that_python_has_not_are_bad_rows_and_no_end_of_the_job(tmp_path):
    kind = {"type": "long", "logicalType": "timestamp-micros"}
    put(tmp_path / "a.avro", [{"t": 10**18}, {"t": 0}], {"t": kind})
    source = whole(tmp_path, "t timestamp")
    [part] = source.cut("files", 0, source.latest("files"), 1)
    [(chunk, _)] = source.read(part)
    assert chunk["__misfit"].to_pylist()[1] is None and "9999" in str(chunk["__misfit"][0])


def test_a_file_that_is_cut_short_is_an_error_and_never_fewer_rows(tmp_path):
    path = tmp_path / "a.avro"
    put(path, [{"n": i} for i in range(300)], {"n": "long"}, sync_interval=100)
    data = path.read_bytes()
    counts = set()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        try:
            counts.add(whole(path, "n bigint").latest("files"))
        except Exception as error:
            assert getattr(error, "code", None) == "HR-INPUT-071", error
    ends = [0]
    with path.open("wb") as file:
        file.write(data)
    with path.open("rb") as file:
        for block in fastavro.block_reader(file):
            ends.append(ends[-1] + block.num_records)
    assert counts <= set(ends)  # only where a block ends: such a file is complete


def test_a_damaged_file_is_an_error(tmp_path):
    path = tmp_path / "a.avro"
    put(path, [{"s": f"row {i}"} for i in range(300)], {"s": "string"}, codec="deflate")
    data = bytearray(path.read_bytes())
    data[-40] ^= 0xFF
    path.write_bytes(data)
    source = whole(path, "s string")
    assert refusal(read_all, source).code == "HR-INPUT-071"
    marked, other = tmp_path / "marked.avro", tmp_path / "other.avro"
    marked.write_bytes(bytes(data[:-1]) + bytes([data[-1] ^ 1]))
    assert refusal(whole(marked, "s string").check).code == "HR-INPUT-071"
    other.write_bytes(b"PAR1" * 10)
    assert refusal(whole(other, "s string").check).code == "HR-INPUT-071"


def test_a_watched_file_is_waited_for_while_it_is_written(tmp_path):
    clock, path = ManualClock(0), tmp_path / "a.avro"
    put(path, [{"n": 1}], {"n": "long"})
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    source = open_source(f"files:{tmp_path}", schema_of("n bigint"), format="avro", clock=clock)
    assert source.latest("files") == 0 and source.unsettled("files")
    path.write_bytes(data)
    assert source.latest("files") == 1
