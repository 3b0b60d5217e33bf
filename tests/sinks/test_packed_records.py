"""Records that a task packed are stored as an append stores them, whatever became of the topic."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from tests.sinks.writing import ALONE, made, refusal

from headrace.log import EmbeddedLog
from headrace.schema import schema_of
from headrace.sinks import open_sink

COLUMNS = "k string, n bigint, x double"
ROWS = 300_000  # more than a block has


@pytest.fixture
def topics(tmp_path) -> EmbeddedLog:
    return EmbeddedLog(tmp_path / "log")


def sink_to(tmp_path, topic: str = "t", **options: Any) -> Any:
    options |= {"log": str(tmp_path / "log")}
    return made(open_sink(f"log:{topic}", schema_of(COLUMNS), options, str(tmp_path / "job"), "o"))


def rows(count: int, seed: int = 0) -> pa.Table:
    draw = random.Random(seed)
    found = [
        {"k": draw.choice(["a", "é", "", None, "key"]), "n": n, "x": draw.random()}
        for n in range(count)
    ]
    return pa.Table.from_pylist(found, schema_of(COLUMNS))


def stored(topics: EmbeddedLog, topic: str) -> dict[int, list[dict[str, Any]]]:
    return {
        p: [row for _, table in topics.read(topic, p, 0) for row in table.to_pylist()]
        for p in topics.latest(topic)
    }


def all_of(found: dict[int, list[Any]]) -> list[Any]:
    return [row for own in found.values() for row in own]


@pytest.mark.parametrize(("partitions", "key"), [(1, None), (3, None), (3, "k"), (4, "n")])
def test_what_tasks_packed_is_stored_as_if_it_had_been_appended(
    tmp_path, topics: EmbeddedLog, partitions: int, key: str | None
) -> None:
    sink, sent = sink_to(tmp_path, partitions=partitions, key=key), rows(500)
    staged = [r for at in (0, 200) for r in sink.stage(sent.slice(at, 200 + at), 3, f"a/{at}")]
    for _ in range(2):
        sink.publish(3, staged, ALONE)
    topics.create("appended", partitions, COLUMNS, key=key)
    topics.append("appended", sent, producer="p", sequence=3)
    found, wanted = stored(topics, "t"), stored(topics, "appended")
    if key:
        assert found == wanted
    else:
        assert Counter(map(str, all_of(found))) == Counter(map(str, sent.to_pylist()))
        assert max(map(len, found.values())) - min(map(len, found.values())) <= 2


@pytest.mark.constants
def test_more_records_than_a_block_has(tmp_path, topics: EmbeddedLog) -> None:
    sent = pa.table({"k": ["a", "b"] * (ROWS // 2), "n": range(ROWS), "x": [0.5] * ROWS})
    sink = sink_to(tmp_path, partitions=2, key="k")
    sink.publish(0, sink.stage(sent, 0, "a"), ALONE)
    found = [t for p in (0, 1) for _, t in topics.read("t", p, 0)]
    assert pa.concat_tables(found).sort_by("n").select(["k", "n", "x"]).equals(sent)


@pytest.mark.parametrize("when", ["between tasks", "after all"])
def test_columns_that_are_added_after_records_were_packed(
    tmp_path, topics: EmbeddedLog, when: str
) -> None:
    sink, sent = sink_to(tmp_path, partitions=3, key="k"), rows(60)
    staged = sink.stage(sent.slice(0, 30), 0, "a/0")
    for late in ("between tasks", "after all"):
        if late == "after all":
            staged += sink.stage(sent.slice(30), 0, "a/1")
        if late == when:
            topics.alter("t", f"{COLUMNS}, more string")
    for _ in range(2):
        sink.publish(0, staged, ALONE)
    found = stored(topics, "t")
    wanted = Counter(str({**row, "more": None}) for row in sent.to_pylist())
    assert Counter(map(str, all_of(found))) == wanted
    assert all(len({p for p, own in found.items() for r in own if r["k"] == k}) <= 1 for k in "aé")


@pytest.mark.parametrize(("partitions", "key"), [(2, "k"), (5, "k"), (3, "n"), (3, None)])
def test_a_topic_that_was_made_again_otherwise_gets_its_records_where_they_belong(
    tmp_path, topics: EmbeddedLog, partitions: int, key: str | None
) -> None:
    sink, sent = sink_to(tmp_path, partitions=3), rows(200)
    topics.delete("t")
    topics.create("t", 3, COLUMNS, key="k")
    staged = sink.stage(sent, 0, "a")
    topics.delete("t")
    topics.create("t", partitions, COLUMNS, key=key)
    sink.publish(0, staged, ALONE)
    topics.create("appended", partitions, COLUMNS, key=key)
    topics.append("appended", sent, producer="p", sequence=0)
    found, wanted = stored(topics, "t"), stored(topics, "appended")
    places = [
        {(row["n"], p) for p, own in of.items() for row in own} if key else len(all_of(of))
        for of in (found, wanted)
    ]
    assert places[0] == places[1]


def test_packed_records_that_are_damaged_are_refused(tmp_path, topics: EmbeddedLog) -> None:
    sink = sink_to(tmp_path, partitions=2, key="k")
    staged = sink.stage(rows(100), 0, "a")
    (path,) = (tmp_path / "job").rglob("*.arrows")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-012"
    assert sum(topics.latest("t").values()) == 0


def test_staged_records_are_an_arrow_stream(tmp_path) -> None:
    sent = rows(100)
    sink_to(tmp_path, partitions=2, key="n").stage(sent, 0, "a")
    (path,) = (tmp_path / "job").rglob("*.arrows")
    assert pa.ipc.open_stream(path.read_bytes()).read_all().sort_by("n").equals(sent)
