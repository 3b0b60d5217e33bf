"""Protobuf, JSON Schema, and schemas that refer to others: what a record becomes, and when not."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import threading
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import refusal
from tests.sources.test_wire_formats import avro, wire

from headrace.connect import protobuf
from headrace.connect.schema_registry import RegisteredSchema, SchemaRegistry
from headrace.errors import LogError
from headrace.schema import schema_of
from headrace.sources import decode, open_source

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Size { SMALL = 0; LARGE = 2; }
message Order {
  message Line { string item = 1; optional int32 count = 2; }
  int64 id = 1;
  optional string note = 2;
  Size size = 3;
  repeated Line lines = 4;
  map<string, double> prices = 5;
  oneof paid { string card = 6; uint64 cash = 7; }
  google.protobuf.Timestamp at = 8;
  google.protobuf.Int64Value tip = 9;
  bytes raw = 10;
  Line first = 11;
  repeated sint32 steps = 12;
  bool gift = 13;
}
message Other { int64 id = 3; }
"""
COLUMNS = schema_of(
    "id bigint, note string, size string, lines array<struct<item: string, count: int>>, "
    "prices map<string, double>, card string, cash bigint, at timestamp, tip bigint, raw binary, "
    "first struct<item: string, count: int>, steps array<int>, gift boolean, unknown int"
)
NOTHING: dict[str, Any] = {
    "id": 0, "note": None, "size": "SMALL", "lines": [], "prices": [], "card": None, "cash": None,
    "at": None, "tip": None, "raw": b"", "first": None, "steps": [], "gift": False, "unknown": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    (folder / "1.proto").write_text(PROTO)
    return folder


def put(folder: Path, id: int, kind: str, text: Any, references: Any = ()) -> None:
    text = text if isinstance(text, str) else json.dumps(text)
    answer = {"schemaType": kind, "schema": text, "references": list(references)}
    (folder / f"{id}.json").write_text(json.dumps(answer))


def version(folder: Path, subject: str, number: int, id: int) -> dict[str, Any]:
    (folder / "subjects" / subject).mkdir(parents=True, exist_ok=True)
    (folder / "subjects" / subject / str(number)).write_text(str(id))
    return {"subject": subject, "version": number}


def decoded(folder: Path, format: str, values: list[bytes], schema: pa.Schema) -> Any:
    registry = SchemaRegistry(f"file:{folder}")
    return decode(format, pa.array(values, pa.binary()), schema, registry=registry)


# Protobuf, written by hand: a field is its number and kind, then the value.


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes([*out, n])


def number(field: int, n: int) -> bytes:
    return varint(field << 3) + varint(n)


def text(field: int, content: bytes | str) -> bytes:
    content = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(content)) + content


ORDER = b"\0"


def test_a_message_fills_the_columns_of_its_fields(folder: Path) -> None:
    whole = b"".join([
        number(1, -7), text(2, "n"), number(3, 2),
        text(4, text(1, "pen") + number(2, 3)), text(4, text(1, "ink")),
        text(5, text(1, "b") + b"\x11" + struct.pack("<d", 2.5)),
        text(5, text(1, "a") + b"\x11" + struct.pack("<d", 1.5)),
        number(7, 9), text(8, number(1, 1_700_000_000) + number(2, 123_456_789)),
        text(9, b""), text(10, b"\xff"), text(11, b""), text(12, varint(1) + varint(4)),
        number(13, 1), number(99, 5),
    ])  # fmt: skip
    values = [wire(1, ORDER + whole), wire(1, ORDER), wire(1, ORDER + text(6, ""))]
    table, bad, reasons = decoded(folder, "protobuf", values, COLUMNS)
    assert not bad.any(), reasons
    assert table.schema.equals(COLUMNS)
    at = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC).replace(microsecond=123_456)
    assert table.to_pylist() == [
        {
            "id": -7, "note": "n", "size": "LARGE",
            "lines": [{"item": "pen", "count": 3}, {"item": "ink", "count": None}],
            "prices": [("a", 1.5), ("b", 2.5)], "card": None, "cash": 9, "at": at, "tip": 0,
            "raw": b"\xff", "first": {"item": "", "count": None}, "steps": [-1, 2], "gift": True,
            "unknown": None,
        },
        NOTHING,
        {**NOTHING, "card": ""},
    ]  # fmt: skip


def test_the_path_says_which_message_it_is(folder: Path) -> None:
    schema = schema_of("id bigint, item string")
    other, line = b"\x02\x02", b"\x04\x00\x00"  # [1] and [0, 0], zigzag
    values = [
        wire(1, other + number(3, 5)), wire(1, line + text(1, "pen")), wire(1, b"\x02\x00"),
        wire(1, b"\x02\x0a"), wire(1, b""), wire(1, b"\xff\xff\xff\xff\xff\xff"), wire(1, b"\x03"),
    ]  # fmt: skip
    table, bad, reasons = decoded(folder, "protobuf", values, schema)
    assert table.to_pylist() == [
        {"id": 5, "item": None}, {"id": None, "item": "pen"}, {"id": 0, "item": None},
    ]  # fmt: skip
    assert bad.tolist() == [False] * 3 + [True] * 4
    assert reasons[0] == "its schema has no message at the path [5]"
    assert all("no path to a message" in why for why in reasons[1:])


@given(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5))
def test_paths_are_read_as_they_are_written(path: list[int]) -> None:
    written = protobuf.index_bytes(path)
    assert protobuf.index_path(written + b"rest") == (tuple(path), len(written))


@pytest.mark.parametrize(
    ("column", "content", "why"),
    [
        ("id string", number(1, 5), "column 'id': '5' is not string"),
        ("cash bigint", number(7, 2**63), "is not bigint"),
        ("size string", number(3, 7), "7 is no value of enum shop.Size in its schema"),
        ("lines bigint", b"", "column 'lines' is bigint, and its field is repeated shop.Order."),
        ("prices string", b"", "column 'prices' is string, and its field is a map"),
        ("first string", b"", "its field is shop.Order.Line"),
        ("id array<bigint>", b"", "its field is shop.Order.id"),
        ("id bigint", b"\x08", "not a message shop.Order"),
        ("unknown bigint not null", b"", "column 'unknown' has no value"),
    ],
)
def test_what_does_not_fit_is_bad_with_a_reason(
    folder: Path, column: str, content: bytes, why: str
) -> None:
    table, bad, reasons = decoded(folder, "protobuf", [wire(1, ORDER + content)], schema_of(column))
    assert table.num_rows == 0 and bad.all() and why in reasons[0]


def test_an_enum_is_a_number_in_a_column_of_numbers(folder: Path) -> None:
    values = [wire(1, ORDER + number(3, n)) for n in (2, 7)]
    table, bad, _ = decoded(folder, "protobuf", values, schema_of("size int"))
    assert table["size"].to_pylist() == [2, 7] and not bad.any()


def test_schemas_that_are_none_and_required_fields(folder: Path) -> None:
    put(folder, 20, "PROTOBUF", "message {")
    put(folder, 21, "PROTOBUF", 'syntax = "proto2"; message M { required int64 n = 1; }')
    put(folder, 22, "PROTOBUF", 'syntax = "proto3"; import "gone.proto"; message M { int64 n=1; }')
    put(folder, 23, "PROTOBUF", 'syntax = "proto3";')
    values = [wire(id, ORDER) for id in (20, 21, 22, 23, 9)]
    values.append(wire(21, ORDER + number(1, 4)))
    table, bad, reasons = decoded(folder, "protobuf", values, schema_of("n bigint"))
    assert table["n"].to_pylist() == [4] and bad.tolist() == [True] * 5 + [False]
    assert "its schema, 20, is not a Protobuf schema" in reasons[0]
    assert reasons[1] == "a required field of message M is missing"
    assert "gone.proto" in reasons[2] and "there is no message" in reasons[3]
    assert "its schema, 9, is not in the registry" in reasons[4]


# Schemas that refer to others.


def test_imports_come_from_the_registry(folder: Path) -> None:
    base = 'syntax = "proto3"; package geo; message Point { double x = 1; }'
    put(folder, 30, "PROTOBUF", base)
    point = {"name": "geo/point.proto"} | version(folder, "point", 4, 30)
    area = 'syntax="proto3"; import "geo/point.proto"; message Area { geo.Point at = 1; }'
    put(folder, 31, "PROTOBUF", area, [point])
    both = [{"name": "area.proto"} | version(folder, "area", 1, 31), point]
    text_ = 'syntax="proto3"; import "area.proto"; message Fire { Area area = 1; int32 n = 2; }'
    put(folder, 32, "PROTOBUF", text_, both)
    schema = schema_of("n int, area struct<at: struct<x: double>>")
    content = text(1, text(1, b"\x09" + struct.pack("<d", 1.5))) + number(2, 3)
    table, bad, reasons = decoded(folder, "protobuf", [wire(32, ORDER + content)], schema)
    assert not bad.any(), reasons
    assert table.to_pylist() == [{"n": 3, "area": {"at": {"x": 1.5}}}]
    put(folder, 33, "PROTOBUF", 'import "../x.proto";', [{**point, "name": "../x.proto"}])
    _, bad, reasons = decoded(folder, "protobuf", [wire(33, ORDER)], schema)
    assert bad.all() and "imports '../x.proto'" in reasons[0]


def test_named_types_of_avro_come_from_the_registry(folder: Path) -> None:
    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "double"}]}
    area = {"type": "record", "name": "Area", "fields": [{"name": "at", "type": "geo.Point"}]}
    fire = {"type": "record", "name": "F", "fields": [
        {"name": "area", "type": "Area"}, {"name": "p", "type": ["null", "geo.Point"]},
    ]}  # fmt: skip
    put(folder, 40, "AVRO", point)
    needs = {"name": "geo.Point"} | version(folder, "point-avro", 1, 40)
    put(folder, 41, "AVRO", area, [needs])
    put(folder, 42, "AVRO", fire, [{"name": "Area"} | version(folder, "a", 2, 41), needs])
    schema = schema_of("area struct<at: struct<x: double>>, p struct<x: double>")
    whole = {**fire, "fields": [
        {"name": "area", "type": {**area, "fields": [{"name": "at", "type": point}]}},
        {"name": "p", "type": ["null", "geo.Point"]},
    ]}  # fmt: skip
    row = {"area": {"at": {"x": 2.5}}, "p": None}
    table, bad, reasons = decoded(folder, "avro", [avro(42, whole, row)], schema)
    assert not bad.any(), reasons
    assert table.to_pylist() == [row]


def test_a_reference_that_is_not_there_stops_the_job(folder: Path) -> None:
    put(folder, 43, "AVRO", "{}", [{"name": "x", "subject": "nobody", "version": 1}])
    loop = {"name": "x"} | version(folder, "loop", 1, 44)
    put(folder, 44, "AVRO", "{}", [loop])
    for id in (43, 44):
        values = pa.array([wire(id, b"")], pa.binary())
        registry = SchemaRegistry(f"file:{folder}")
        error = refusal(decode, "avro", values, schema_of("n int"), registry=registry)
        assert error.code == "HR-KAFKA-010" and "to which a schema refers" in error.message


# JSON Schema.

SCHEMA = {
    "type": "object", "required": ["n"],
    "properties": {"n": {"type": "integer", "maximum": 10}, "t": {"type": "string"}},
}  # fmt: skip


def test_documents_are_checked_by_their_schemas(folder: Path) -> None:
    put(folder, 50, "JSON", SCHEMA)
    put(folder, 51, "JSON", True)
    put(folder, 52, "JSON", {"type": "nonsense"})
    put(folder, 53, "JSON", {"$ref": "http://127.0.0.1:1/elsewhere.json"})
    values = [
        wire(50, b'{"n": 1}'), wire(50, b'{"n": 11}'), wire(50, b"{}"), wire(50, b"{"),
        wire(51, b'{"n": 12}'), wire(52, b"{}"), wire(53, b"{}"), wire(50, b'{"n": 1, "n": 99}'),
        wire(50, b'{"n": NaN}'), wire(50, b'{"n": 2, "t": "x"}'), wire(51, b'{"n": "x"}'),
    ]  # fmt: skip
    schema = schema_of("n bigint, t string")
    table, bad, reasons = decoded(folder, "json", values, schema)
    assert table["n"].to_pylist() == [1, 12, 2]
    assert [i for i, wrong in enumerate(bad) if wrong] == [1, 2, 3, 5, 6, 7, 8, 10]
    assert reasons[0] == "not as its schema, 50, says: n: 11 is greater than the maximum of 10"
    assert reasons[1] == 'not as its schema, 50, says: the document: "n" is a required property'
    assert "not a JSON document" in reasons[2] and "its schema, 52, is not a JSON" in reasons[3]
    assert "its schema, 53, is not a JSON Schema" in reasons[4]
    assert "a name occurs twice" in reasons[5] and "NaN is not a number" in reasons[6]
    assert reasons[7] == "field 'n': \"x\" is not bigint"
    trusting = SchemaRegistry(f"file:{folder}", None, False)
    raw = pa.array(values[:2], pa.binary())
    assert decode("json", raw, schema, registry=trusting)[0]["n"].to_pylist() == [1, 11]


@pytest.mark.parametrize("id", [None, "http://example.com/schemas/order.json"])
def test_schemas_of_json_refer_to_others_in_the_registry(folder: Path, id: str | None) -> None:
    put(folder, 60, "JSON", {"definitions": {"small": {"maximum": 10}}})
    ref = {"name": "small.json"} | version(folder, f"small-{id is None}", 1, 60)
    main = {"properties": {"n": {"$ref": "small.json#/definitions/small"}}}
    number_ = 61 if id is None else 62
    put(folder, number_, "JSON", main | ({} if id is None else {"$id": id}), [ref])
    values = [wire(number_, b'{"n": %d}' % n) for n in (9, 11)]
    table, _, reasons = decoded(folder, "json", values, schema_of("n bigint"))
    assert table["n"].to_pylist() == [9] and "greater than the maximum" in reasons[0], reasons


@settings(max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.integers(-20, 20)), max_size=30), st.integers(1, 7))
def test_drawn_documents_are_checked_in_batches_of_any_size(
    folder: Path, drawn: list[tuple[bool, int]], size: int
) -> None:
    put(folder, 50, "JSON", SCHEMA)
    values = [wire(50 if known else 77, b'{"n": %d}' % n) for known, n in drawn]
    found, wrong = list[int](), list[bool]()
    for at in range(0, len(values), size):
        table, bad, _ = decoded(folder, "json", values[at : at + size], schema_of("n bigint"))
        found += table["n"].to_pylist()
        wrong += bad.tolist()
    assert wrong == [not known or n > 10 for known, n in drawn]
    assert found == [n for known, n in drawn if known and n <= 10]


def test_options_of_an_input(tmp_path: Path) -> None:
    schema = schema_of("n bigint")

    def code(format: str | None, **options: Any) -> str:
        return refusal(open_source, "kafka://h/t", schema, format, options).code

    assert code("protobuf") == "HR-INPUT-004"
    assert code("json", validate=True) == "HR-INPUT-013"  # there is no registry
    assert code("avro", registry="file:x", validate=False) == "HR-INPUT-013"
    assert code("json", registry="file:x", validate="no") == "HR-INPUT-013"
    open_source("kafka://h/t", schema, "json", {"registry": "file:x", "validate": False})


def test_a_folder_registers_schemas(tmp_path: Path) -> None:
    registry = SchemaRegistry(f"file:{tmp_path}")
    assert registry.latest("a/b-value") is None
    first = registry.register("a/b-value", "JSON", "{}")
    assert registry.register("a/b-value", "JSON", "{}") == first
    second = registry.register("a/b-value", "JSON", "true")
    assert registry.register("other", "JSON", "true") == second != first
    assert registry.latest("a/b-value") == (second, RegisteredSchema("JSON", "true"))
    assert registry.schema(first) == RegisteredSchema("JSON", "{}")


# Columns of the schema.


def columns_of(folder: Path, format: str, subject: str, **options: Any) -> pa.Schema:
    options = {"registry": f"file:{folder}", "subject": subject, **options}
    return open_source("kafka://h/t", None, format, options).schema


def test_columns_are_those_of_the_newest_schema(folder: Path) -> None:
    version(folder, "orders", 1, 1)
    found = columns_of(folder, "protobuf", "orders")
    assert found.equals(pa.schema([f for f in COLUMNS if f.name != "unknown"]))
    assert columns_of(folder, "protobuf", "orders", message="Order.Line").names == ["item", "count"]
    fields = [
        {"name": "n", "type": "long"}, {"name": "t", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "p", "type": "geo.Point"},
    ]  # fmt: skip
    point = {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "double"}]}
    put(folder, 70, "AVRO", point)
    needs = {"name": "geo.Point"} | version(folder, "point-70", 1, 70)
    put(folder, 71, "AVRO", {"type": "record", "name": "R", "fields": fields}, [needs])
    version(folder, "t-value", 1, 71)
    found = open_source("kafka://h/t", None, "avro", {"registry": f"file:{folder}"}).schema
    wanted = schema_of("n bigint, t string, at timestamp, p struct<x: double>")
    assert found.equals(wanted)
    keyed = open_source(
        "kafka://h/t", None, "avro", {"registry": f"file:{folder}", "key": "k"}
    ).schema
    assert keyed.names == ["n", "t", "at", "p", "k"]


def test_schemas_that_give_no_columns(folder: Path) -> None:
    put(folder, 80, "PROTOBUF", 'syntax="proto3"; message T { T again = 1; }')
    put(folder, 81, "PROTOBUF", 'syntax="proto3"; import "google/protobuf/struct.proto"; '
        "message S { google.protobuf.Struct any = 1; }")  # fmt: skip
    put(folder, 82, "AVRO", {"type": "record", "name": "R", "fields": [
        {"name": "u", "type": ["int", "string"]}]})  # fmt: skip
    put(folder, 83, "AVRO", '"string"')
    for id, format in ((80, "protobuf"), (81, "protobuf"), (82, "avro"), (83, "avro")):
        version(folder, f"none-{id}", 1, id)
        error = refusal(columns_of, folder, format, f"none-{id}")
        assert error.code == "HR-KAFKA-057", error
    assert refusal(columns_of, folder, "avro", "nobody").code == "HR-KAFKA-056"
    assert refusal(columns_of, folder, "avro", 5).code == "HR-INPUT-013"
    none = {"registry": f"file:{folder}"}
    assert refusal(open_source, "kafka://h/t", None, "json", none).code == "HR-INPUT-012"


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}
NOON = dt.datetime(2023, 11, 14, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("kind", "value", "column"),
    [
        ("double", 5.5, "bigint"), ("double", 5.0, "int"), (DECIMAL, Decimal("1.999"), "bigint"),
        ("double", 1e300, "float"), ("long", 1_700_000_000_000, "timestamp"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 10**18 + 1, "timestamp"),
        ({"type": "array", "items": MILLIS}, [NOON], "array<date>"), (MILLIS, NOON, "date"),
        ("string", "abc", "array<string>"), ("bytes", b"abc", "array<int>"),
        ("boolean", True, "double"), ("boolean", True, "int"), ("int", 19_000, "date"),
        ({"type": "map", "values": "double"}, {"a": 5.5}, "map<string, bigint>"),
        ({"type": "record", "name": "in", "fields": [{"name": "x", "type": "double"}]},
         {"x": 5.5}, "struct<x: int>"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_bad_and_never_changed(
    tmp_path: Path, kind: Any, value: Any, column: str
) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    put(tmp_path, 7, "AVRO", schema)
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), {"a": value})
    columns = schema_of(f"a {column}")
    rows, bad, why = decoded(tmp_path, "avro", [wire(7, content.getvalue())], columns)
    assert bad.tolist() == [True] and rows.num_rows == 0 and "column 'a'" in why[0]


def avro_rows(folder: Path, fields: dict[str, Any], stored: Any, columns: str) -> Any:
    """What records are read as that were written by the schema without its logical types."""
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    schema = {"type": "record", "name": "r", "fields": named}
    put(folder, 7, "AVRO", schema)
    plain = json.loads(json.dumps(schema).replace("logicalType", "was"))
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(plain), stored)
    return decoded(folder, "avro", [wire(7, content.getvalue())], schema_of(columns))


def logical(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "logicalType": name}


@pytest.mark.parametrize(
    ("kind", "stored", "column", "read"),
    [
        (logical("long", "timestamp-millis"), 2**40, "timestamp", 2**40 * 1_000),
        (logical("long", "timestamp-micros"), 2**62, "timestamp", 2**62),
        (logical("long", "timestamp-nanos"), -(10**18), "timestamp", -(10**15)),
        (logical("long", "local-timestamp-millis"), -1, "timestamp", -1_000),
        (logical("int", "date"), 10_000_000, "date", 10_000_000),
        (logical("int", "date"), -1, "date", -1),
    ],
)
def test_every_time_that_avro_stores_is_read(
    tmp_path: Path, kind: Any, stored: int, column: str, read: int
) -> None:
    fields = {
        "a": kind, "n": ["null", kind], "l": {"type": "array", "items": ["null", kind]},
        "m": {"type": "map", "values": kind},
        "s": {"type": "record", "name": "in", "fields": [{"name": "x", "type": kind}]},
        "again": ["null", "in"],
    }  # fmt: skip
    inside = {"x": stored}
    row = {"a": stored, "n": None, "l": [stored, None], "m": {"k": stored}, "s": inside,
           "again": inside}  # fmt: skip
    columns = (f"a {column}, n {column}, l array<{column}>, m map<string, {column}>, "
               f"s struct<x: {column}>, again struct<x: {column}>")  # fmt: skip
    rows, bad, why = avro_rows(tmp_path, fields, row, columns)
    assert not bad.any(), why
    number = pa.int64() if column == "timestamp" else pa.int32()
    flat = [rows["a"], rows["l"].combine_chunks().flatten(), rows["m"].combine_chunks().items,
            *(rows[s].combine_chunks().field("x") for s in ("s", "again"))]  # fmt: skip
    found = [one for part in flat for one in part.cast(number).to_pylist()]
    assert found == [read, read, None, read, read, read] and rows["n"].null_count == 1


def test_what_is_not_read_of_an_avro_record_spoils_nothing(tmp_path: Path) -> None:
    fields = {"far": logical("long", "timestamp-millis"), "n": "int"}
    rows, bad, why = avro_rows(tmp_path, fields, {"far": 2**61, "n": 5}, "n int")
    assert rows.to_pylist() == [{"n": 5}] and not bad.any(), why


def test_a_list_of_records_within_themselves_has_its_times(tmp_path: Path) -> None:
    at = logical("long", "timestamp-millis")
    node = {
        "type": "record",
        "name": "node",
        "fields": [{"name": "at", "type": at}, {"name": "next", "type": ["null", "node"]}],
    }
    stored = {"at": 1, "next": {"at": 2, "next": None}}
    columns = "n struct<at: timestamp, next: struct<at: timestamp>>"
    rows, _, why = avro_rows(tmp_path, {"n": node}, {"n": stored}, columns)
    one, two = (dt.datetime(1970, 1, 1, 0, 0, 0, ms * 1_000, dt.UTC) for ms in (1, 2))
    assert rows.to_pylist() == [{"n": {"at": one, "next": {"at": two}}}], why


def test_uuids_and_times_of_day_are_read_as_they_are_stored(tmp_path: Path) -> None:
    fields = {"u": logical("string", "uuid"), "t": logical("int", "time-millis"),
              "either": ["string", logical("long", "timestamp-millis")]}  # fmt: skip
    row = {"u": "00000000-0000-0000-0000-00000000000A", "t": 5, "either": "x"}
    rows, _, why = avro_rows(tmp_path, fields, row, "u string, t int, either string")
    assert rows.to_pylist() == [row], why


def test_an_entry_of_a_map_whose_enum_has_no_such_value_is_bad(tmp_path: Path) -> None:
    """The library leaves the whole entry out."""
    put(tmp_path, 9, "PROTOBUF", 'syntax = "proto2"; enum E { A = 0; B = 1; } '
        "message M { map<string, E> m = 1; optional M in = 2; }")  # fmt: skip
    known, unknown = (text(1, text(1, "k") + number(2, n)) for n in (1, 7))
    columns = schema_of("m map<string, string>, in struct<m: map<string, string>>")
    records = [known, known + unknown, text(2, unknown)]
    rows, bad, why = decoded(tmp_path, "protobuf", [wire(9, b"\0" + r) for r in records], columns)
    assert rows.to_pylist() == [{"m": [("k", "B")], "in": None}]
    assert bad.tolist() == [False, True, True] and all("no value of enum E" in w for w in why)


def test_a_message_behind_a_map_that_clients_number_in_two_ways(tmp_path: Path) -> None:
    """A map is a message of its own, which not every client counts."""
    proto = ('syntax = "proto3"; message O { map<string, int32> m = 1; message A { int32 v = 1; } '
             "message B { int32 v = 1; } }")  # fmt: skip
    put(tmp_path, 9, "PROTOBUF", proto)

    def at(*path: int) -> bytes:
        return wire(9, protobuf.index_bytes(path) + number(1, 5))

    records = [at(0, 0), at(0, 1), at(0, 2), at(0, 3)]
    rows, bad, why = decoded(tmp_path, "protobuf", records, schema_of("v int"))
    assert rows.to_pylist() == [{"v": 5}, {"v": 5}] and bad.tolist() == [False, True, False, True]
    assert "may mean O.A or O.B" in why[0] and "no message at the path [0, 3]" in why[1]


def test_enums_with_aliases_and_closed_ones(tmp_path: Path) -> None:
    put(tmp_path, 8, "PROTOBUF", 'syntax = "proto3"; enum E { option allow_alias = true; A = 0; '
        "B = 1; C = 1; } message M { E e = 1; }")  # fmt: skip
    rows, _, _ = decoded(
        tmp_path, "protobuf", [wire(8, b"\0" + number(1, 1))], schema_of("e string")
    )
    assert rows.to_pylist() == [{"e": "B"}]
    put(tmp_path, 9, "PROTOBUF", 'syntax = "proto2"; enum E { A = 0; B = 1; } '
        "message M { optional E e = 1; repeated E many = 2; }")  # fmt: skip
    records = [number(1, 1), number(1, 7), number(2, 1) + number(2, 7)]
    columns = schema_of("e string, many array<string>")
    rows, bad, why = decoded(tmp_path, "protobuf", [wire(9, b"\0" + r) for r in records], columns)
    assert rows.to_pylist() == [{"e": "B", "many": []}] and bad.tolist() == [False, True, True]
    assert all("7 is no value of enum E" in reason for reason in why)


def test_a_password_is_not_sent_to_another_host() -> None:
    seen = list[str | None]()

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{server.server_port}/x")
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    registry = SchemaRegistry(f"http://127.0.0.1:{server.server_port}", "user:secret")
    with pytest.raises(LogError, match=r"HR-KAFKA-010 .* it answers 302"):
        registry.schema(4711)
    server.shutdown()
    server.server_close()
    assert len(seen) == 1


@pytest.mark.parametrize("place", ["http://h:abc", "http://h ost:80", "http://[::1", "http://:80"])
def test_an_address_that_is_none_is_refused(place: str) -> None:
    with pytest.raises(LogError, match="HR-KAFKA-009"):
        SchemaRegistry(place).check()
