"""Avro, Protobuf and JSON Schema through a real broker: written by one job, read by another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import OutputError
from headrace.testing import Driver
from tests.kafka.running import broker, new_topic, produce
from tests.kafka.written import messages

pytestmark = pytest.mark.usefixtures("kafka")
PROTO = 'syntax = "proto3"; message Row { int64 n = 1; optional string t = 2; }'
SCHEMA = "n bigint, t string"
FORMATS = [("avro", {}), ("protobuf", {"value_schema": PROTO}), ("json", {}),
           ("csv", None)]  # fmt: skip


def through(
    tmp: Path, format: str, source: str, target: str, options: dict[str, Any] | None
) -> list[Any]:
    registry = {} if options is None else {"registry": f"file:{tmp / 'registry'}"}
    writing = hr.Job("writing")
    rows = writing.read(f"kafka://{broker().address}/{source}", schema=SCHEMA, name="in")
    uri = f"kafka://{broker().address}/{target}"
    rows.write(uri, name="out", format=format, key="n", **registry, **(options or {}))
    run(writing, tmp / "writing").close()
    reading = hr.Job("reading")
    found = reading.read(uri, schema=SCHEMA, name="in", format=format, **registry)
    found.write("collect:", name="out")
    return collected(reading, tmp / "reading")


def run(job: hr.Job, folder: Path) -> Driver:
    driver = Driver(job, folder, until="now")
    driver.drain()
    return driver


def collected(job: hr.Job, folder: Path) -> list[Any]:
    driver = run(job, folder)
    driver.close()
    return sorted(driver.output("out").to_pylist(), key=lambda r: r["n"])


@pytest.mark.parametrize(("format", "options"), FORMATS)
def test_what_one_job_writes_another_reads(
    tmp_path: Path, format: str, options: dict[str, Any] | None
) -> None:
    source, target = new_topic(2), new_topic(2)
    (tmp_path / "registry").mkdir()
    rows = [{"n": n, "t": None if n % 3 else f"é {n}"} for n in range(50)]
    for at, part in ((0, rows[:25]), (1, rows[25:])):
        produce(source, [json.dumps(r).encode() for r in part], at)
    assert through(tmp_path, format, source, target, options) == rows
    more = {"n": 99, "t": "later"}
    produce(source, [json.dumps(more).encode()])
    assert through(tmp_path, format, source, target, options) == [*rows, more]  # it goes on
    if options is not None:
        assert {m.value()[:1] for m in messages(target)} == {b"\0"}
        assert len(list((tmp_path / "registry").glob("*.json"))) == 1


def test_bytes_go_in_and_out(tmp_path: Path) -> None:
    source, target = new_topic(), new_topic()
    values = [b"\xff\x00", b"", b"text"]
    produce(source, values)
    job = hr.Job("bytes")
    place = f"kafka://{broker().address}"
    job.read(f"{place}/{source}", name="in").write(f"{place}/{target}", name="out", format="bytes")
    run(job, tmp_path).close()
    assert [m.value() for m in messages(target)] == values


def test_a_row_that_the_schema_cannot_hold_stops_the_job_and_nothing_is_written(
    tmp_path: Path,
) -> None:
    source, target = new_topic(), new_topic()
    (tmp_path / "registry").mkdir()
    produce(source, [b'{"n": 1}', b'{"n": 11}'])
    small = json.dumps({"properties": {"n": {"maximum": 10}}})
    with pytest.raises(OutputError) as caught:
        through(tmp_path, "json", source, target, {"value_schema": small})
    assert caught.value.code == "HR-KAFKA-054" and "maximum" in caught.value.message
    assert messages(target) == []


@pytest.mark.spark
def test_on_spark_messages_are_read_and_written(spark: Any, tmp_path: Path) -> None:
    source, target = new_topic(2), new_topic(2)
    (tmp_path / "registry").mkdir()
    (tmp_path / "registry" / "1.proto").write_text(PROTO)
    head = b"\0\0\0\0\1\0"
    for at in (0, 1):
        produce(source, [head + bytes([8, n]) for n in range(1, 100)], at)
    produce(source, [b"\0\0\0\0\2\0" + bytes([8, 1])])
    job = hr.Job("messages", folder=str(tmp_path / "job"))
    place, registry = f"kafka://{broker().address}", f"file:{tmp_path / 'registry'}"
    read = job.read(
        f"{place}/{source}", schema=SCHEMA, name="in", format="protobuf", registry=registry
    )
    read.where("n > 50").write(f"{place}/{target}", name="out", format="avro", registry=registry)
    hr.run(job, until="now", quiet=True).wait()
    again = hr.Job("again")
    found = again.read(
        f"{place}/{target}", schema=SCHEMA, name="in", format="avro", registry=registry
    )
    found.write("collect:", name="out")
    numbers = [r["n"] for r in collected(again, tmp_path / "again")]
    assert numbers == [n for n in range(51, 100) for _ in (0, 1)]
