"""Records that name their schema by a number: Avro and JSON, and what makes one bad."""

from __future__ import annotations

import datetime as dt
import io
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.reading import read_all, refusal

from headrace.connect.schema_registry import SchemaRegistry
from headrace.errors import LogError
from headrace.log import EmbeddedLog
from headrace.schema import schema_of
from headrace.sources import decode, open_source

FIRST = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
SECOND = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "n", "type": "long"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "d",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}  # fmt: skip
AT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
SCHEMA = schema_of("n bigint, text string, at timestamp, d decimal(9,2), tags map<string, int>")


def wire(id: int, content: bytes) -> bytes:
    return b"\0" + id.to_bytes(4, "big") + content


def avro(id: int, schema: Any, row: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return wire(id, stream.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("registry")
    (folder / "1.avsc").write_text(json.dumps(FIRST))
    (folder / "2.json").write_text(json.dumps({"schema": json.dumps(SECOND)}))
    (folder / "3.json").write_text(json.dumps({"schema": "{}", "schemaType": "JSON"}))
    (folder / "4.json").write_text(json.dumps({"schema": "no schema"}))
    (folder / "5.json").write_text(json.dumps({"schema": "{}", "references": [{"name": "x"}]}))
    (folder / "6.json").write_text("no JSON")
    return folder


def decoded(folder: Path, format: str, values: list[Any], schema: pa.Schema = SCHEMA) -> Any:
    registry = SchemaRegistry(f"file:{folder}")
    return decode(format, pa.array(values, pa.binary()), schema, registry=registry)


def row(n: int) -> dict[str, Any]:
    return {"n": n, "text": f"t{n}", "at": AT, "d": Decimal("1.25"), "tags": {"a": n}}


def test_records_of_several_schemas_and_bad_ones(folder: Path) -> None:
    values = [
        avro(1, FIRST, {"n": 1}), avro(2, SECOND, row(2)), avro(9, FIRST, {"n": 3}), b"{}",
        avro(1, FIRST, {"n": 4}) + b"x", wire(2, b""), wire(3, b"{}"), wire(4, b""), None,
        avro(2, SECOND, row(6) | {"text": None}),
    ]  # fmt: skip
    table, bad, reasons = decoded(folder, "avro", values)
    nothing = dict.fromkeys(("text", "at", "d", "tags"))
    whole = [{**row(n), "tags": [("a", n)]} for n in (2, 6)]
    assert table.to_pylist() == [{"n": 1, **nothing}, whole[0], {**whole[1], "text": None}]
    assert table.schema.equals(SCHEMA)
    assert [i for i, wrong in enumerate(bad) if wrong] == [2, 3, 4, 5, 6, 7, 8]
    assert reasons[0] == f"its schema, 9, is not in the registry file:{folder}"
    assert "not in the wire format" in reasons[1] and reasons[1] == reasons[6]
    assert reasons[2] == "there are more bytes than its schema describes"
    assert reasons[3].startswith("not a record of its schema")
    assert reasons[4] == "its schema, 3, is of kind JSON, not AVRO"
    assert "its schema, 4, is not an Avro schema" in reasons[5]


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("n string", "column 'n': '2' is not string"),
        ("n boolean", "column 'n': '2' is not boolean"),
        ("at date", "is not date"),
        ("d decimal(3,1)", "column 'd': '1.25' is not decimal(3,1)"),
        ("missing bigint not null", "column 'missing' has no value"),
    ],
)
def test_a_value_that_does_not_fit_its_column_makes_its_row_bad(
    folder: Path, column: str, why: str
) -> None:
    table, bad, reasons = decoded(folder, "avro", [avro(2, SECOND, row(2))], schema_of(column))
    assert table.num_rows == 0 and bad.all() and why in reasons[0]


def test_json_is_decoded_as_without_a_registry(folder: Path) -> None:
    values = [
        wire(3, b'{"n": 1}'),
        wire(3, b'{"n": "x"}'),
        wire(8, b'{"n": 2}'),
        wire(3, b'{"n": 5}'),
    ]
    table, bad, reasons = decoded(folder, "json", values, schema_of("n bigint"))
    assert table.to_pylist() == [{"n": 1}, {"n": 5}] and bad.tolist() == [False, True, True, False]
    assert reasons[0] == "field 'n': \"x\" is not bigint" and "its schema, 8" in reasons[1]


@given(st.lists(st.tuples(st.sampled_from([1, 2, 7]), st.integers(-5, 5)), max_size=20))
def test_drawn_records_are_what_they_were(folder: Path, drawn: list[tuple[int, int]]) -> None:
    schemas = {1: FIRST, 2: SECOND, 7: FIRST}
    values = [avro(id, schemas[id], row(n)) for id, n in drawn]
    table, bad, _ = decoded(folder, "avro", values, schema_of("n bigint"))
    assert table["n"].to_pylist() == [n for id, n in drawn if id != 7]
    assert bad.tolist() == [id == 7 for id, _ in drawn]


class _Server(BaseHTTPRequestHandler):
    asked: list[tuple[str, str | None]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers["Authorization"]))
        found = self.path.endswith("/1")
        content = json.dumps({"schema": json.dumps(FIRST)} if found else {"error_code": 40403})
        self.send_response(200 if found else 500 if self.path.endswith("/50") else 404)
        self.end_headers()
        self.wfile.write(content.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    _Server.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_is_asked_once_for_each_schema(server: str) -> None:
    registry = SchemaRegistry(server, "user:hunter2")
    values = pa.array([avro(1, FIRST, {"n": n}) for n in (1, 2)] + [avro(9, FIRST, {"n": 3})])
    for _ in range(2):
        table, bad, reasons = decode("avro", values, schema_of("n bigint"), registry=registry)
    assert table["n"].to_pylist() == [1, 2] and bad.tolist() == [False, False, True]
    assert "hunter2" not in f"{registry!r}{reasons}"
    assert {auth for _, auth in _Server.asked} == {"Basic dXNlcjpodW50ZXIy"}
    paths = [path for path, _ in _Server.asked]
    assert paths.count("/schemas/ids/1") == 1  # the unknown one may be registered later
    assert paths.count("/schemas/ids/9") == 2


def test_a_registry_that_does_not_answer_stops_the_job(server: str, folder: Path) -> None:
    for place, id in ((server, 50), ("http://127.0.0.1:1", 1), ("file:/no/such", 1)):
        with pytest.raises(LogError) as caught:
            SchemaRegistry(place).schema(id)
        assert caught.value.code == "HR-KAFKA-010"
        values = pa.array([wire(id, b"")], pa.binary())
        registry = SchemaRegistry(place)
        error = refusal(decode, "avro", values, schema_of("n bigint"), registry=registry)
        assert error.code == "HR-KAFKA-010"
    for id in (5, 6):
        with pytest.raises(LogError) as caught:
            SchemaRegistry(f"file:{folder}").schema(id)
        assert caught.value.code == "HR-KAFKA-010"


def test_a_registry_is_checked_when_the_program_is_built(tmp_path: Path) -> None:
    schema = schema_of("n bigint")

    def code(format: str | None = "avro", uri: str = "kafka://h/t", **options: Any) -> str:
        error = refusal(open_source, uri, schema, format, options)
        assert "hunter2" not in str(error)
        return error.code

    assert code() == "HR-INPUT-004"
    assert code(registry="nowhere") == code(registry="http://u:hunter2@h") == "HR-KAFKA-009"
    assert code("csv", registry="file:x") == code(None, registry=5) == "HR-INPUT-013"
    assert code(registry="file:x", registry_auth="env:NO_SUCH_THING_2") == "HR-KAFKA-004"
    assert code(uri=f"files:{tmp_path}", registry="file:x") == "HR-INPUT-013"


def test_byte_topics_of_the_log_are_read_so_too(folder: Path, tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path)
    log.create("t")
    log.append("t", [avro(1, FIRST, {"n": 1}), avro(2, SECOND, row(2))])
    options = {"log": str(tmp_path), "registry": f"file:{folder}"}
    source = open_source("log:t", schema_of("n bigint"), "avro", options, until="end")
    assert read_all(source) == [{"n": 1}, {"n": 2}]
