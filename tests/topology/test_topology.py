"""Spouts and bolts, against plain Python; rows cut into batches anywhere, crashes in between."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.hashing import hash_keys, tasks_of
from headrace.ops.topology.groupings import task_keys
from headrace.testing import Harness, drive
from tests.topology.bolts import Exclaim, Seen, Split, numbered, word_count

LINES = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "dd", "e"]), max_size=4).map(" ".join),
    max_size=5,
)


def rows(test: Harness, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in test.output(name)]


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(st.tuples(st.sampled_from(["", "crash", "restart"]), LINES), max_size=5),
    tasks=st.integers(1, 5),
    processes=st.lists(st.integers(1, 4), min_size=6, max_size=6),
)
def test_word_count_is_that_of_a_counter(
    batches: Any, tasks: int, processes: Any, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("words")
    test = Harness(word_count(tasks, slots=4), folder=folder, tasks=processes[0])
    counts, place = Counter[str](), dict[str, int]()
    for (what, lines), count in zip(batches, processes[1:], strict=False):
        if what == "crash":
            test.crash()
        elif what:
            test.close()
            test = Harness(word_count(tasks, slots=4), folder=folder, tasks=count)
            rows(test, "out"), rows(test, "none")
        expected = []
        for word in (word for line in lines for word in line.split()):
            counts[word] += 1
            expected.append((word, counts[word]))
        test.send("lines", [(line,) for line in lines])
        found = rows(test, "out")
        assert sorted(row[:2] for row in found) == sorted(expected)
        for word, _, task in found:  # a word is always counted by the same task
            assert place.setdefault(word, task) == task < tasks
        assert rows(test, "none") == [("",)] * lines.count("")
    test.close()


@pytest.mark.spark
def test_word_count_on_spark(tmp_path: Path) -> None:
    with Harness(word_count(2, 2), on="spark", folder=tmp_path, tasks=2) as test:
        test.send("lines", [("a b a",), ("",), ("c",)])
        assert sorted(row[:2] for row in rows(test, "out")) == [
            ("a", 1),
            ("a", 2),
            ("b", 1),
            ("c", 1),
        ]
        assert rows(test, "none") == [("",)]
        test.crash()
        test.send("lines", [("a c",)])
        assert sorted(row[:2] for row in rows(test, "out")) == [("a", 3), ("c", 2)]


def test_exclamation(tmp_path: Path) -> None:
    topology = hr.Topology("exclamation")
    topology.spout("words", hr.rows([{"word": w} for w in ("nathan", "mike", "jackson")]))
    topology.bolt("exclaim1", Exclaim(), tasks=3).shuffle("words")
    topology.bolt("exclaim2", Exclaim(), tasks=2).shuffle("exclaim1")
    topology.bolt("out", "collect:").shuffle("exclaim2")
    found = drive(topology, tmp_path, max_batch=2).output("out").column("word").to_pylist()
    assert sorted(found) == ["jackson!!!!!!", "mike!!!!!!", "nathan!!!!!!"]


# groupings


def dealt(
    topology: hr.Topology, count: int, batch: int, processes: int = 2
) -> dict[int, list[int]]:
    """The numbers that each task has seen, in order."""
    tasks: dict[int, list[int]] = {}
    with Harness(topology, tasks=processes) as test:
        for first in range(0, count, batch):
            test.send("numbers", [(v,) for v in range(first, min(first + batch, count))])
            found = sorted(rows(test, "out"), key=lambda row: row[1])
            for task, n, v in found:
                tasks.setdefault(task, []).append(v)
                assert n == len(tasks[task])
    return tasks


@pytest.mark.parametrize("batch", [9, 60])
def test_shuffle_is_even_and_does_not_depend_on_batches(batch: int) -> None:
    tasks = dealt(numbered(4, "shuffle"), 60, batch)
    assert sorted(v for seen in tasks.values() for v in seen) == list(range(60))
    assert all(8 <= len(seen) <= 25 for seen in tasks.values())
    assert tasks == dealt(numbered(4, "shuffle"), 60, 25, processes=1)


def test_several_tuples_of_one_are_shuffled_in_turn(tmp_path: Path) -> None:
    class Many(hr.Bolt):
        output = "v bigint"

        def process(self, tup: Any, collector: Any) -> None:
            for v in range(tup.v):
                collector.emit((v,))

    topology = hr.Topology("many")
    topology.spout("one", hr.rows([{"v": 100}]))
    topology.bolt("many", Many()).shuffle("one")
    topology.bolt("seen", Seen(), tasks=5).shuffle("many")
    topology.bolt("out", "collect:").shuffle("seen")
    out = drive(topology, tmp_path).output("out")
    assert Counter(out.column("task").to_pylist()) == dict.fromkeys(range(5), 20)


@pytest.mark.parametrize("batch", [4, 50])
def test_all_global_and_local(batch: int) -> None:
    everything = list(range(10))
    assert dealt(numbered(3, "all"), 10, batch) == dict.fromkeys(range(3), everything)
    assert dealt(numbered(3, "global_"), 10, batch) == {0: everything}
    assert dealt(numbered(3, "local"), 10, batch) == dealt(numbered(3, "shuffle"), 10, batch)


def test_tasks_run_side_by_side() -> None:
    for tasks in (1, 2, 3, 4, 8, 16, 64, 65, 200):
        keys = task_keys(tasks)
        assert [int(k) % tasks for k in keys] == list(range(tasks))
        if tasks in (2, 4, 8):
            holders = tasks_of(hash_keys([pa.array(keys)]), 32, tasks)
            assert holders.tolist() == list(range(tasks))
    assert task_keys(3).tolist() == [3, 1, 23]  # at rest


# one job with streams


def test_a_stream_is_a_spout_and_a_component_is_a_stream(tmp_path: Path) -> None:
    topology = hr.Topology("mixed")
    lines = topology.read(hr.rows([{"line": "a b"}, {"line": ""}, {"line": "a"}]), name="in")
    topology.spout("lines", lines.where("line != 'x'"))
    topology.bolt("split", Split()).shuffle("lines")
    words = topology.stream("split").key_by("word").agg(n=hr.count(), unbounded=True)
    words.write("collect:", name="words")
    topology.stream("split", "empty").write("collect:", name="empty")
    driver = drive(topology, tmp_path)
    assert sorted(tuple(r.values()) for r in driver.output("words").to_pylist()) == [
        ("a", 1), ("a", 2), ("b", 1),
    ]  # fmt: skip
    assert driver.output("empty").to_pylist() == [{"line": ""}]


def test_a_process_function_is_a_bolt_by_fields() -> None:
    class Last(hr.KeyedProcess):
        output = "word string, n bigint"
        n = hr.value(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n += 1
            return (ctx.key, self.n)

    topology = hr.Topology("process")
    topology.spout("words", "log:words", schema="word string")
    topology.bolt("last", Last(), unbounded=True).fields("words", "word")
    topology.bolt("out", "collect:").shuffle("last")
    with Harness(topology) as test:
        test.send("words", [("a",), ("b",), ("a",)])
        assert sorted(rows(test, "out")) == [("a", 1), ("a", 2), ("b", 1)]


def test_several_inputs_say_where_a_tuple_comes_from() -> None:
    class From(hr.Bolt):
        output = "source string, stream string, value string"

        def process(self, tup: Any, collector: Any) -> None:
            collector.emit((collector.source, collector.stream, tup[0]))

    topology = hr.Topology("sources")
    topology.spout("lines", "log:lines", schema="line string")
    topology.bolt("split", Split()).shuffle("lines")
    topology.bolt("from", From(), tasks=2).shuffle("lines").fields("split", "word").all(
        "split", "empty"
    )
    topology.bolt("out", "collect:").shuffle("from")
    with Harness(topology) as test:
        test.send("lines", [("a",), ("",)])
        assert sorted(rows(test, "out")) == sorted(
            [
                ("lines", "default", "a"),
                ("lines", "default", ""),
                ("split", "default", "a"),
                ("split", "empty", ""),
                ("split", "empty", ""),
            ]
        )


def test_a_bolt_without_output_ends_its_tuples(tmp_path: Path) -> None:
    found: list[str] = []

    class Sink(hr.Bolt):
        def process(self, tup: Any, collector: Any) -> None:
            found.append(tup.word)

    topology = hr.Topology("sink")
    topology.spout("words", hr.rows([{"word": "a"}, {"word": "b"}]))
    topology.bolt("sink", Sink()).shuffle("words")
    drive(topology, tmp_path)
    assert sorted(found) == ["a", "b"]


def test_explain_shows_tasks_and_groupings() -> None:
    text = str(word_count(3).explain())
    assert "count  bolt   <- split        Count, 3 tasks: split by fields word" in text
    assert "=> split: rows of lines, shuffle, to 2 tasks" in text
    assert "=> count: rows of split, fields word, to 3 tasks" in text


def test_a_row_that_fails_is_a_dead_letter_and_leaves_nothing() -> None:
    with Harness(word_count(1)) as test:
        test.send("lines", [("a bad a",)])
        assert sorted(row[:2] for row in rows(test, "out")) == [("a", 1), ("a", 2)]
        (dead,) = test.dead()
        assert "a bad word" in dead["error"] and dead["step"] == "count"


def test_what_is_stored_can_be_looked_at(tmp_path: Path) -> None:
    topology = numbered(3, "all")
    with Harness(topology, folder=tmp_path) as test:
        test.send("numbers", [(1,), (2,)])
    shown = hr.peek(topology, "seen", folder=str(tmp_path / "job")).to_arrow().to_pylist()
    assert shown == [{"task": task, "n": 2} for task in range(3)]
