"""Every public method with arguments that make no sense: refused by name, and nothing is changed.

Each case is one call; what it raises is a LogError (or another error of ours) with a hint.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
from itertools import count
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import HeadraceError, LogError
from headrace.log import EmbeddedLog

ODD = [
    None, True, -1, 1.5, float("nan"), "", "x", "a/b", "\0", "\ud800", b"x", (), [], {}, set(),
    object(), len, dt.datetime(2026, 1, 1), decimal.Decimal(1), np.int64(1), np.array([1]), 10**30,
]  # fmt: skip

CALLS = {
    "create name": lambda log, odd: log.create(odd),
    "create partitions": lambda log, odd: log.create(_new(), odd),
    "create schema": lambda log, odd: log.create(_new(), 1, odd),
    "create key": lambda log, odd: log.create(_new(), 1, "a int", odd),
    "create retention": lambda log, odd: log.create(_new(), retention=odd),
    "create retention_bytes": lambda log, odd: log.create(_new(), retention_bytes=odd),
    "create segment_bytes": lambda log, odd: log.create(_new(), segment_bytes=odd),
    "delete": lambda log, odd: log.delete(odd),
    "describe": lambda log, odd: log.describe(odd),
    "append topic": lambda log, odd: log.append(odd, [b"x"]),
    "append bytes": lambda log, odd: log.append("bytes", odd),
    "append a byte record": lambda log, odd: log.append("bytes", [odd]),
    "append typed": lambda log, odd: log.append("typed", odd),
    "append a typed record": lambda log, odd: log.append("typed", [odd]),
    "append a value": lambda log, odd: log.append("typed", [(odd, odd)]),
    "append key": lambda log, odd: log.append("typed", [("a", 1.0)], key=odd),
    "append byte key": lambda log, odd: log.append("bytes", [b"x"], key=odd),
    "append keys": lambda log, odd: log.append("typed", [("a", 1.0)], key=[odd]),
    "append byte keys": lambda log, odd: log.append("bytes", [b"x"], key=[odd]),
    "append partition": lambda log, odd: log.append("bytes", [b"x"], partition=odd),
    "append partitioner": lambda log, odd: log.append("bytes", [b"x"], partitioner=odd),
    "append chosen": lambda log, odd: log.append("bytes", [b"x"], partitioner=lambda t, n: odd),
    "append each chosen": lambda log, odd: log.append(
        "bytes", [b"x"], partitioner=lambda t, n: [odd]
    ),
    "append producer": lambda log, odd: log.append("bytes", [b"x"], producer=odd, sequence=1),
    "append sequence": lambda log, odd: log.append("bytes", [b"x"], producer="p", sequence=odd),
    "earliest": lambda log, odd: log.earliest(odd),
    "latest": lambda log, odd: log.latest(odd),
    "read topic": lambda log, odd: list(log.read(odd, 0, 0)),
    "read partition": lambda log, odd: list(log.read("bytes", odd, 0)),
    "read start": lambda log, odd: list(log.read("bytes", 0, odd)),
    "read end": lambda log, odd: list(log.read("bytes", 0, 0, odd)),
    "read max_rows": lambda log, odd: list(log.read("bytes", 0, 0, max_rows=odd)),
    "offset_for_time topic": lambda log, odd: log.offset_for_time(odd, 0, 0),
    "offset_for_time partition": lambda log, odd: log.offset_for_time("bytes", odd, 0),
    "offset_for_time ms": lambda log, odd: log.offset_for_time("bytes", 0, odd),
    "sweep": lambda log, odd: log.sweep(odd),
    "open root": lambda log, odd: EmbeddedLog(odd).topics(),
    "open patience": lambda log, odd: EmbeddedLog(log.root, patience=odd),
}
_numbers = count()


def _new() -> str:
    return f"new{next(_numbers)}"


@pytest.fixture
def log(embedded, monkeypatch, tmp_path) -> EmbeddedLog:
    monkeypatch.chdir(tmp_path)
    embedded.create("bytes", 2)
    embedded.create("typed", 2, "area string, celsius double")
    return embedded


@pytest.mark.parametrize("call", CALLS)
def test_what_makes_no_sense_is_refused_by_name(log, call):
    for odd in ODD:
        before = log.latest("bytes"), log.latest("typed")
        try:
            CALLS[call](log, odd)
        except HeadraceError as error:
            assert error.code, (call, odd)
            assert error.hint, (call, odd, error)
            assert (log.latest("bytes"), log.latest("typed")) == before
        except Exception as error:
            pytest.fail(f"{call} with {odd!r}: {type(error).__name__} {error}")


@pytest.mark.parametrize(
    "records",
    [
        lambda: ({"area": "x", "celsius": 1.0} for _ in range(3)),
        lambda: map(tuple, [["x", 1.0]] * 3),
        lambda: iter([("x", 1.0)] * 3),
        lambda: pa.RecordBatchReader.from_batches(BATCH.schema, [BATCH] * 3),
        lambda: pd.DataFrame({"area": ["x"] * 3, "celsius": [1.0] * 3}),
        lambda: pa.table({"area": ["x"] * 3, "celsius": [1.0] * 3}),
        lambda: pa.array([{"area": "x", "celsius": 1.0}] * 3),
        lambda: np.array([("x", 1.0)] * 3, [("area", "U1"), ("celsius", "f8")]),
        lambda: (row for row in [{"area": "x", "celsius": 1.0}] * 3),
    ],
)
def test_whatever_gives_rows_is_appended_whole(log, records):
    acks = log.append("typed", records(), partition=0)
    assert acks == {0: (0, 3)}
    assert [r for _, t in log.read("typed", 0, 0) for r in t.to_pylist()] == [
        {"area": "x", "celsius": 1.0}
    ] * 3


BATCH = pa.record_batch({"area": ["x"], "celsius": [1.0]})


@pytest.mark.parametrize("one", ["hello", b"hello", bytearray(b"x"), {"value": 1}, memoryview(b"")])
def test_one_record_that_is_no_list_is_refused(log, one):
    for topic in ("bytes", "typed"):
        with pytest.raises(LogError) as caught:
            log.append(topic, one)
        assert caught.value.code == "HR-LOG-006"
        assert "[record]" in caught.value.hint


def test_a_data_frame_to_a_byte_topic_is_its_rows(log):
    log.append("bytes", pd.DataFrame({"value": [b"a"] * 7}), partition=0)
    assert log.latest("bytes")[0] == 7


def test_a_column_given_twice_is_refused(log):
    twice = pa.table([["a"], ["b"], [1.0]], names=["area", "area", "celsius"])
    values = pa.table([["a"], ["b"]], names=["value", "value"])
    for topic, table in (("typed", twice), ("bytes", values)):
        with pytest.raises(LogError) as caught:
            log.append(topic, table)
        assert caught.value.code == "HR-LOG-006"
        assert "twice" in caught.value.message
    with pytest.raises(HeadraceError):
        log.create("new", 1, twice.schema)


def test_an_error_in_a_generator_is_the_users_own_and_appends_nothing(log):
    def rows():
        yield b"one"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.append("bytes", rows())
    assert log.latest("bytes") == {0: 0, 1: 0}


@pytest.mark.parametrize("odd", ["file", "folder", "unreadable", "name", "link", "topic.json"])
def test_what_else_lies_in_the_logs_folder_does_no_harm(log, odd):
    place = log.root / "odd"
    if odd == "file":
        place.write_text("x")
    elif odd == "folder":
        (place / "deep").mkdir(parents=True)
    elif odd == "unreadable":
        (place / "deep").mkdir(parents=True)
        place.chmod(0)
    elif odd == "name":
        place = log.root / "a b"
        place.mkdir()
        (place / "topic.json").write_text("{}")
    elif odd == "link":
        place.symlink_to(log.root / "nowhere")
    else:
        (place / "topic.json").mkdir(parents=True)
    log.append("bytes", [b"x"])
    names = log.topics()
    assert {"bytes", "typed"} <= set(names) <= {"bytes", "typed", "odd"}
    for call in (log.describe, log.latest, log.delete, log.create, log.sweep):
        with pytest.raises(LogError):
            call(place.name)
    if "odd" not in names:
        log.sweep()
    assert sum(log.latest("bytes").values()) == 1


@pytest.mark.parametrize("name", ["x.log", "0.log", f"{'9' * 20}.log.old", "note.txt", "deep"])
def test_what_else_lies_in_a_topics_folder_does_no_harm(log, name):
    place = log.root / "bytes" / name
    place.mkdir() if name == "deep" else place.write_bytes(os.urandom(100))
    for i in range(3):
        log.append("bytes", [b"%d" % i], partition=0)
    again = EmbeddedLog(log.root)
    assert [v for _, t in again.read("bytes", 0, 0) for v in t["value"].to_pylist()] == [
        b"0", b"1", b"2",
    ]  # fmt: skip


@pytest.mark.parametrize("root", ["kafka:localhost:9092", "localhost:9092", "a:9092,b:9092"])
def test_brokers_are_not_taken_for_a_folder(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for call in (EmbeddedLog, hr.Producer, lambda place: hr.Consumer("t", log=place)):
        with pytest.raises(LogError) as refused:
            call(root)
        assert refused.value.code == "HR-LOG-019" and "kafka://" in refused.value.hint
    Path(root).mkdir()
    assert EmbeddedLog(root).topics() == []


@pytest.mark.parametrize("root", ["s3://bucket/log", "file:///tmp/log"])
def test_a_folder_on_another_system_is_refused_and_makes_nothing(tmp_path, monkeypatch, root):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(LogError) as refused:
        EmbeddedLog(root).create("t")

    assert refused.value.code == "HR-LOG-019" and root in refused.value.message
    assert list(tmp_path.iterdir()) == []
