"""Values with a schema from a registry: what is written is read back, or refused."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.connect.schema_registry import SchemaRegistry
from headrace.errors import HeadraceError, OutputError
from headrace.schema import schema_of
from headrace.sinks import check_output
from headrace.sinks.registered_values import value_schema_of
from headrace.sources import decode

URI = "kafka://h/my.topic"
COLUMNS = schema_of(
    "n bigint, i int, d double, f float, t string, b binary, yes boolean, day date, at timestamp, "
    "m decimal(9,2), list array<bigint>, s struct<x: int, t: array<string>>, map map<string, int>"
)
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
message Unused { int32 x = 1; }
message Row {
  message Part { optional int32 x = 1; repeated string t = 2; }
  enum Size { SMALL = 0; LARGE = 1; }
  optional int64 n = 1; optional int32 i = 2; optional double d = 3; optional float f = 4;
  optional string t = 5; optional bytes b = 6; google.protobuf.BoolValue yes = 7;
  google.protobuf.Timestamp at = 9; repeated int64 list = 10; Part s = 11;
  map<string, int32> map = 12; optional Size size = 13; int64 plain = 14;
  map<string, Part> parts = 15; repeated Part many = 16;
}
"""


def of(tmp: Path, format: str, **options: Any) -> Any:
    found = value_schema_of(URI, "my.topic", format, {"registry": f"file:{tmp}", **options})
    assert found is not None
    return found


def written(tmp: Path, format: str, rows: pa.Table, **options: Any) -> pa.Array:
    chosen = of(tmp, format, **options)
    chosen.check(rows.schema)
    return chosen.registered(rows.schema).values(rows)


def back(tmp: Path, format: str, values: pa.Array, schema: pa.Schema) -> list[Any]:
    table, bad, why = decode(format, values, schema, registry=SchemaRegistry(f"file:{tmp}"))
    assert not bad.any(), why
    return table.to_pylist()


moments = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)).map(
    lambda m: m.replace(tzinfo=dt.UTC)
)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=5)
ints, longs = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
parts = st.fixed_dictionaries({"x": st.none() | ints, "t": st.lists(texts, max_size=2)})
COMMON = {
    "n": longs, "i": ints, "d": st.floats(allow_nan=False), "f": st.floats(width=32,
    allow_nan=False), "t": texts, "b": st.binary(max_size=4), "yes": st.booleans(), "at": moments,
}  # fmt: skip
ROWS = {name: st.none() | one for name, one in COMMON.items()} | {
    "day": st.none() | st.dates(),
    "m": st.none() | st.decimals(-9_999_999, 9_999_999, places=2).map(Decimal),
    "list": st.none() | st.lists(st.none() | longs, max_size=3),
    "s": st.none() | parts,
    "map": st.none()
    | st.dictionaries(texts, st.none() | ints, max_size=2).map(lambda d: list(d.items())),
}


@pytest.mark.parametrize("format", ["avro", "json"])
@settings(max_examples=25)
@given(st.data())
def test_a_schema_made_of_the_columns_holds_every_row(
    tmp_path_factory: Any, format: str, data: Any
) -> None:
    drawn = data.draw(st.lists(st.fixed_dictionaries(ROWS), min_size=1, max_size=5))
    tmp = tmp_path_factory.mktemp("r")
    rows = pa.Table.from_pylist(drawn, COLUMNS)
    values = written(tmp, format, rows)
    assert all(v[:1] == b"\0" for v in values.to_pylist())
    assert str(back(tmp, format, values, COLUMNS)) == str(rows.to_pylist())


@settings(max_examples=25)
@given(
    st.lists(
        st.fixed_dictionaries(
            {name: st.none() | one for name, one in COMMON.items()}
            | {
                "list": st.lists(longs, max_size=3), "s": st.none() | parts,
                "map": st.dictionaries(texts, ints, max_size=3).map(lambda d: sorted(d.items())),
                "size": st.sampled_from(["SMALL", "LARGE", None]), "plain": longs,
                "parts": st.dictionaries(texts, parts, max_size=2).map(
                    lambda d: sorted(d.items(), key=lambda p: p[0])
                ),
                "many": st.lists(parts, max_size=2),
            }
        ),
        min_size=1, max_size=5,
    )
)  # fmt: skip
def test_messages_of_protobuf_hold_every_row(tmp_path_factory: Any, drawn: list[Any]) -> None:
    part = "struct<x: int, t: array<string>>"
    schema = schema_of(
        "n bigint, i int, d double, f float, t string, b binary, yes boolean, at timestamp, "
        f"list array<bigint>, s {part}, map map<string, int>, size string, plain bigint, "
        f"parts map<string, {part}>, many array<{part}>"
    )
    tmp = tmp_path_factory.getbasetemp() / "proto"
    tmp.mkdir(exist_ok=True)
    rows = pa.Table.from_pylist(drawn, schema)
    values = written(tmp, "protobuf", rows, value_schema=PROTO, message="Row")
    assert {v[5:7] for v in values.to_pylist()} == {b"\x02\x02"}  # one step: the second message
    assert str(back(tmp, "protobuf", values, schema)) == str(rows.to_pylist())


def test_the_avro_schema_is_one_that_others_read(tmp_path: Path) -> None:
    rows = pa.table({"area": ["a", None], "n": [1, 2]})
    values = written(tmp_path, "avro", rows)
    registry = SchemaRegistry(f"file:{tmp_path}")
    id, schema = registry.latest("my.topic-value") or (0, None)
    assert schema is not None and json.loads(schema.text)["name"] == "my_topic"
    parsed = fastavro.parse_schema(json.loads(schema.text))
    first = values[0].as_py()
    assert first[:5] == b"\0" + id.to_bytes(4, "big")
    import io

    assert fastavro.schemaless_reader(io.BytesIO(first[5:]), parsed) == {"area": "a", "n": 1}


def refused(tmp: Path, format: str, rows: pa.Table, **options: Any) -> str:
    with pytest.raises(HeadraceError) as caught:
        written(tmp, format, rows, **options)
    assert caught.value.code in ("HR-KAFKA-053", "HR-KAFKA-054")
    return f"{caught.value.code} {caught.value.message}"


def avro_schema(**types: Any) -> str:
    fields = [{"name": n, "type": t} for n, t in types.items()]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def test_what_the_schema_cannot_hold_is_never_written(tmp_path: Path) -> None:
    at = pa.array([1_500], pa.timestamp("us", "UTC"))
    millis = avro_schema(at={"type": "long", "logicalType": "timestamp-millis"})
    fine = pa.table({"at": pa.array([2_000], pa.timestamp("us", "UTC"))})
    assert len(written(tmp_path, "avro", fine, value_schema=millis)) == 1
    assert "it would be read as 1970-01-01 00:00:00.001000" in refused(
        tmp_path, "avro", pa.table({"at": at}), value_schema=millis
    )
    n = pa.table({"n": [1.1]})
    assert "column 'n' is 1.1" in refused(tmp_path, "avro", n, value_schema=avro_schema(n="float"))
    assert "HR-KAFKA-054" in refused(
        tmp_path, "avro", pa.table({"n": pa.array([None], pa.int64())}),
        value_schema=avro_schema(n="long"),
    )  # fmt: skip
    assert "no field 'x'" in refused(
        tmp_path, "avro", pa.table({"x": [1]}), value_schema=avro_schema(n="long")
    )
    plain = 'syntax="proto3"; message M { int64 n = 1; }'
    null = pa.table({"n": pa.array([None], pa.int64())})
    said = refused(tmp_path, "protobuf", null, value_schema=plain)
    assert "column 'n' is None in a row: it would be read as 0" in said
    assert "has no field 'm'" in refused(
        tmp_path, "protobuf", pa.table({"m": [1]}), value_schema=plain
    )
    assert "there is no message 'X'" in refused(
        tmp_path, "protobuf", pa.table({"n": [1]}), value_schema=plain, message="X"
    )
    assert "not a Protobuf schema" in refused(
        tmp_path, "protobuf", pa.table({"n": [1]}), value_schema="message {"
    )
    small = json.dumps({"properties": {"n": {"maximum": 10}}})
    assert len(written(tmp_path, "json", pa.table({"n": [10]}), value_schema=small)) == 1
    assert "greater than the maximum" in refused(
        tmp_path, "json", pa.table({"n": [10, 11]}), value_schema=small
    )
    assert "cannot be a name in Avro" in refused(tmp_path, "avro", pa.table({"a b": [1]}))
    assert "no AVRO schema can be made" in refused(
        tmp_path, "avro", pa.table({"n": pa.array([1], pa.uint64())})
    )
    assert "HR-KAFKA-053" in refused(
        tmp_path, "avro", pa.table({"n": [1]}), value_schema="latest", subject="nobody"
    )


def test_the_newest_schema_of_a_subject_and_checks_that_register_nothing(tmp_path: Path) -> None:
    registry = SchemaRegistry(f"file:{tmp_path}")
    columns = pa.schema([("n", pa.int64())])
    of(tmp_path, "avro", subject="s").check(columns)
    assert registry.latest("s") is None
    with_default = {"type": "record", "name": "R", "fields": [
        {"name": "n", "type": "long"}, {"name": "more", "type": "int", "default": 7}]}  # fmt: skip
    id = registry.register("s", "AVRO", json.dumps(with_default))
    values = written(tmp_path, "avro", pa.table({"n": [1]}), value_schema="latest", subject="s")
    assert values[0].as_py()[4] == id
    assert back(tmp_path, "avro", values, schema_of("n bigint, more int")) == [{"n": 1, "more": 7}]
    assert "of kind AVRO, not JSON" in refused(
        tmp_path, "json", pa.table({"n": [1]}), value_schema="latest", subject="s"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"format": "avro"}, {"format": "protobuf", "registry": "file:x"},
        {"format": "csv", "registry": "file:x"}, {"registry_auth": "u:hunter2"},
        {"subject": "s"}, {"registry": 5}, {"registry": "file:x", "subject": ""},
        {"format": "avro", "registry": "file:x", "message": "M"},
    ],
)  # fmt: skip
def test_options_are_checked_when_the_program_is_built(options: dict[str, Any]) -> None:
    with pytest.raises(OutputError) as caught:
        check_output(URI, options)
    assert caught.value.code == "HR-OUTPUT-008" and "hunter2" not in str(caught.value)


def test_a_registry_that_is_none_is_refused() -> None:
    for options in ({"registry": "nowhere"}, {"registry": "http://u:hunter2@h"}):
        with pytest.raises(OutputError) as caught:
            check_output(URI, {"format": "avro", **options})
        assert caught.value.code == "HR-KAFKA-009" and "hunter2" not in str(caught.value)
