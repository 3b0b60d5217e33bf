"""URIs of inputs."""

from __future__ import annotations

import pytest
from tests.sources.reading import refusal

import headrace as hr
from headrace.schema import schema_of
from headrace.sources import open_source
from headrace.testing import drive


@pytest.mark.parametrize("uri", ["", "events.json", "s3:x", "Files:x", "files", "log"])
def test_what_is_no_input_is_refused_with_the_known_ones(uri):
    error = refusal(open_source, uri, schema_of("a bigint"))

    assert error.code == "HR-INPUT-001" and "files" in str(error.hint)


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("postgresql://me:s3cret@localhost/shop", "sql:"), ("sqlite:shop.db", "sql:"),
        ("https://example.org/feed", "sse:"), ("table:sales", "hr.from_spark"),
        ("topic:readings", "log:"), ("generate:10", "hr.generate"), ("collect:", "output"),
    ],
)  # fmt: skip
def test_what_has_another_name_here_is_told(uri, meant):
    error = refusal(open_source, uri, schema_of("a bigint"))

    assert error.code == "HR-INPUT-001" and meant in error.hint.partition("known are")[0]
    assert "s3cret" not in str(error)


def test_records_of_avro_without_a_registry_are_told_about_it(tmp_path):
    hr.EmbeddedLog(str(tmp_path)).create("t")
    options = {"log": str(tmp_path)}

    error = refusal(open_source, "log:t", schema_of("a bigint"), "avro", options)
    assert error.code == "HR-INPUT-004" and "registry=" in error.hint
    error = refusal(open_source, "log:t", schema_of("a bigint"), "parquet", options)
    assert error.code == "HR-INPUT-004" and error.hint == "Known: json, csv, text, bytes."


def test_a_path_is_needed():
    assert refusal(open_source, "files:", schema_of("a bigint")).code == "HR-INPUT-001"


def test_a_topic_of_bytes_without_a_schema_gives_its_bytes(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("raw")
    log.append("raw", [b"one", b"\xff"])
    job = hr.Job("raw")
    job.read("log:raw", log=str(tmp_path / "log")).write("collect:", name="out")

    assert drive(job, tmp_path / "job").output("out")["value"].to_pylist() == [b"one", b"\xff"]


def test_lines_of_a_socket_without_a_schema_are_text():
    job = hr.Job("lines")
    job.read("socket:127.0.0.1:9").write("console:")

    (read,) = job.program().sources()
    assert read.format == "text" and read.schema.names == ["value"]


def test_inputs_of_which_one_cannot_go_on_for_the_other_have_other_identities(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    schema = schema_of("a bigint")
    for root, topic in (("one", "t"), ("one", "u"), ("two", "t")):
        hr.EmbeddedLog(tmp_path / root).create(topic, schema=schema)

    def identity(uri, format=None, **options):
        return tuple(open_source(uri, schema, format, options, name="in").identity().values())

    def number(i):
        return {"a": i}

    found = [
        identity("files:in", "json"), identity("files:other", "json"),
        identity("files:in", "parquet"),
        identity("files:in/*.json", "json"), identity("log:t", log="one"),
        identity("log:u", log="one"), identity("log:t", log="two"),
        identity("socket:h:1"), identity("socket:h:2"), identity(hr.rows([{"a": 1}])),
        identity(hr.rows([{"b": 1}])), identity(hr.rows([{"a": 1}] * 2, splits=2)),
        identity(hr.rows([{"a": 1}] * 3, splits=2)), identity(hr.generate(1, number)),
        identity(hr.generate(1, number, splits=2)), identity(hr.generate(9, number)),
    ]  # fmt: skip
    hr.EmbeddedLog(tmp_path / "one").delete("t")
    hr.EmbeddedLog(tmp_path / "one").create("t", schema=schema)
    found.append(identity("log:t", log="one"))

    assert len(set(found)) == len(found)
    assert identity("files:in", "json") == identity(f"files:{tmp_path}/in/", "csv")
    assert identity(hr.rows([{"a": 1}])) == identity(hr.rows([{"a": 1}, {"a": 2}]))
    assert identity(hr.generate(1, number)) == identity(hr.generate(1, number, 50))
