"""Whatever a start refuses without looking at the outside world is refused by `job.check()`, too.

Of every kind of input and output: wrong options, in the words of the start; and good ones, whose
places are nowhere, so that a check which looks for them would fail.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.schema import schema_of
from headrace.sinks import open_sink
from headrace.sinks.open import KINDS as OUTPUTS
from headrace.sources import open_source
from headrace.sources.open import KINDS as INPUTS

SCHEMA = "id bigint, text string"
NESTED = "id bigint, all array<int>"
ICEBERG = {"catalog": {"type": "sql", "uri": "sqlite:////nowhere/c.db", "warehouse": "/nowhere"}}
READ: dict[str, tuple[str, dict[str, Any]]] = {  # one that is right, of each kind
    "delta": ("delta:/nowhere/t", {}),
    "files": ("files:/nowhere/in", {"format": "json"}),
    "http": ("http:127.0.0.1:7999/in", {}),
    "iceberg": ("iceberg:a.b", ICEBERG),
    "kafka": ("kafka://nowhere.invalid:9092/t", {"sasl_password": "env:NOT_SET_HERE"}),
    "listen": ("listen:127.0.0.1:7998", {}),
    "log": ("log:nothing", {"log": "/nowhere/log"}),
    "mqtt": ("mqtt:nowhere.invalid:1883/a", {}),
    "socket": ("socket:nowhere.invalid:7997", {}),
    "sql": ("sql:postgresql://me@nowhere.invalid/db", {"table": "t"}),
    "sse": ("sse:http://nowhere.invalid/s", {}),
}
WRONG_READS: list[tuple[str, dict[str, Any]]] = [
    *((uri, {**options, "speling": 1}) for uri, options in READ.values()),
    *((uri, {**options, "format": "yaml"}) for uri, options in READ.values()),
    ("kafka://me:secret@nowhere.invalid/t", {}),
    ("kafka://nowhere.invalid:9092", {}),
    ("kafka://nowhere.invalid/t", {"start": "somewhere"}),
    ("kafka://nowhere.invalid/t", {"isolation": "some"}),
    ("kafka://nowhere.invalid/t", {"on_data_loss": "maybe"}),
    ("kafka://nowhere.invalid/t", {"group": 7}),
    ("kafka://nowhere.invalid/t", {"key": "none"}),
    ("kafka://nowhere.invalid/t", {"options": {"enable.auto.commit": True}}),
    ("kafka://nowhere.invalid/t", {"format": "avro", "registry": "nowhere"}),
    ("delta:/nowhere/t", {"version": -1}),
    ("delta:/nowhere/t", {"start": "middle"}),
    ("iceberg:a.b", {"catalog": 7}),
    ("iceberg:a.b", {"changes": "yes"}),
    ("log:nothing", {"start": "middle"}),
    ("files:", {"format": "json"}),
    ("files:/nowhere/in", {"format": "json", "null": 7}),
    ("files:/nowhere/in", {"format": "json", "splits": 0}),
    ("files:/nowhere/in", {"format": "json", "watch": "never"}),
    ("files:/nowhere/in", {"format": "json", "order": "none"}),
    ("files:/nowhere/in", {"format": "csv", "partition_by": []}),
    ("files:/nowhere/in", {"format": "csv", "schema": NESTED}),
    ("files:/nowhere/in", {"format": "text"}),
    ("http:127.0.0.1:7999/in", {"max_body_mb": 0}),
    ("http:0.0.0.0:7999/in", {"token": False}),
    ("http:127.0.0.1:7999/in", {"on_bad": "weep"}),
    ("listen:nowhere", {}),
    ("socket:nowhere", {}),
    ("socket:nowhere.invalid:7997", {"format": "csv", "schema": NESTED}),
    ("mqtt:nowhere", {}),
    ("sql:", {"table": "t"}),
    ("sql:sqlite:/nowhere/db", {}),
    ("sql:sqlite:/nowhere/db", {"table": "t", "settle": "1s"}),
    ("sql:sqlite:/nowhere/db", {"table": "t", "growing": 7}),
    ("sql:sqlite:/nowhere/db", {"table": "t", "changes": True}),
    ("sse:nowhere", {}),
    ("sse:http://nowhere.invalid/s", {"token_env": 7}),
]
WRITTEN: dict[str, tuple[str, dict[str, Any]]] = {
    "collect": ("collect:", {}),
    "console": ("console:", {}),
    "delta": ("delta:/nowhere/t", {}),
    "files": ("files:/nowhere/out", {}),
    "iceberg": ("iceberg:a.b", ICEBERG),
    "kafka": ("kafka://nowhere.invalid:9092/t", {}),
    "log": ("log:nothing", {"log": "/nowhere/log"}),
    "mqtt": ("mqtt:nowhere.invalid:1883/a", {}),
    "sql": ("sql:postgresql://me@nowhere.invalid/db", {"table": "t"}),
    "table": ("table:nowhere", {}),
    "webhook": ("webhook:http://nowhere.invalid/hook", {}),
}
WRONG_WRITES: list[tuple[str, dict[str, Any]]] = [
    *((uri, {**options, "speling": 1}) for uri, options in WRITTEN.values()),
    *((uri, {**options, "mode": "sideways"}) for uri, options in WRITTEN.values()),
    *((uri, {**options, "format": "yaml"}) for uri, options in WRITTEN.values()),
    *((uri, {**options, "partition_by": []}) for uri, options in WRITTEN.values()),
    *((uri, {**options, "key": 7}) for uri, options in WRITTEN.values()),
    ("kafka://me:secret@nowhere.invalid/t", {}),
    ("kafka://nowhere.invalid/t", {"partitions": 0}),
    ("kafka://nowhere.invalid/t", {"guarantee": "none"}),
    ("kafka://nowhere.invalid/t", {"transaction_timeout": "1ms"}),
    ("files:/nowhere/out", {"compression": "rar"}),
    ("files:/nowhere/out", {"target_file_mb": 0}),
    ("files:/nowhere/out", {"roll": "soon"}),
    ("webhook:nowhere", {}),
    ("mqtt:nowhere", {}),
    ("mqtt:nowhere.invalid:1883/a", {"qos": 7}),
    ("sql:", {"table": "t"}),
    ("sql:sqlite:/nowhere/db", {}),
    ("delta:", {}),
    ("iceberg:nowhere", {}),
    ("iceberg:a.b", {"catalog": 7}),
    ("log:nothing", {"partitions": 0}),
    ("log:", {}),
    ("console:", {"limit": -1}),
]


def checked(job: hr.Job) -> HeadraceError | None:
    try:
        job.check()
    except HeadraceError as error:
        return error
    return None


def reading(uri: str, schema: str = SCHEMA, **options: Any) -> hr.Job:
    job = hr.Job("checked")
    job.read(uri, schema=schema, name="in", **options).write("collect:", name="out")
    return job


def writing(uri: str, **options: Any) -> hr.Job:
    job = hr.Job("checked")
    job.read(hr.rows([{"id": 1, "text": "a"}]), name="in").write(uri, name="out", **options)
    return job


@pytest.mark.parametrize(("uri", "options"), WRONG_READS)
def test_an_input_is_refused_by_the_check_as_by_the_start(uri, options):
    more = dict(options)
    schema, format = schema_of(more.pop("schema", SCHEMA)), more.pop("format", None)
    with pytest.raises(HeadraceError) as started:
        open_source(uri, schema, format, more)

    error = checked(reading(uri, **options))
    assert error is not None
    assert (error.code, error.message) == (started.value.code, started.value.message)


@pytest.mark.parametrize(("uri", "options"), WRONG_WRITES)
def test_an_output_is_refused_by_the_check_as_by_the_start(uri, options, tmp_path):
    try:
        open_sink(uri, schema_of(SCHEMA), options, str(tmp_path), "out")
    except HeadraceError as started:
        error = checked(writing(uri, **options))
        assert error is not None
        assert (error.code, error.message) == (started.code, started.message)
    else:
        assert checked(writing(uri, **options)) is None


@pytest.mark.parametrize("kind", sorted(INPUTS))
def test_an_input_that_is_nowhere_passes_the_check(kind):
    uri, options = READ[kind]
    assert checked(reading(uri, **options)) is None


@pytest.mark.parametrize("kind", sorted(OUTPUTS))
def test_an_output_that_is_nowhere_passes_the_check(kind):
    uri, options = WRITTEN[kind]
    assert checked(writing(uri, **options)) is None
