"""A changed topology on the state of an earlier one: what goes on, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import headrace as hr
from headrace.ops.topology.operator import BoltSpec
from headrace.testing import Harness
from tests.topology.bolts import Exclaim, numbered, word_count


def started(before: hr.Topology, after: hr.Topology, folder: Path, **options: Any) -> Harness:
    with Harness(before, folder=folder) as test:
        (name,) = test.inputs
        test.send(name, [("a b",)] if name == "lines" else [(1,), (2,)])
    return Harness(after, folder=folder, **options)


def refused(before: hr.Topology, after: hr.Topology, folder: Path) -> str:
    with pytest.raises(hr.HeadraceError) as error:
        started(before, after, folder).close()
    return str(error.value)


def test_another_number_of_tasks_is_refused_where_there_is_state(tmp_path: Path) -> None:
    text = refused(word_count(3), word_count(4), tmp_path)
    assert "HR-EVOLVE-001" in text and "'count'" in text
    assert "it had 3 tasks and has 4, and has state by task" in text


def test_another_number_of_tasks_of_a_bolt_without_state(tmp_path: Path) -> None:
    with started(word_count(3, 2), word_count(3, 5), tmp_path) as test:
        test.output("out")
        test.send("lines", [("a b c",)])
        assert sorted(tuple(r.values())[:2] for r in test.output("out")) == [
            ("a", 2), ("b", 2), ("c", 1),
        ]  # fmt: skip


@pytest.mark.parametrize("now", ["all", "global_"])
def test_another_grouping_is_refused_where_there_is_state(now: str, tmp_path: Path) -> None:
    text = refused(numbered(2, "shuffle"), numbered(2, now), tmp_path)
    assert f"it read 'numbers' by shuffle and reads it by {now.strip('_')}" in text


def test_local_is_shuffle(tmp_path: Path) -> None:
    started(numbered(2, "shuffle"), numbered(2, "local"), tmp_path).close()


class Twice(hr.Bolt):
    output = "task int, n bigint, v bigint"
    n = hr.value(int, default=0)
    most = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        self.n += 1
        self.most = max(self.most, tup.v)
        collector.emit((collector.task, self.n, self.most))


def test_values_may_be_added(tmp_path: Path) -> None:
    after = hr.Topology("numbers")
    after.spout("numbers", "log:numbers", schema="v bigint")
    after.bolt("seen", Twice()).global_("numbers")
    after.bolt("out", "collect:").shuffle("seen")
    with started(numbered(1, "global_"), after, tmp_path) as test:
        test.output("out")
        test.send("numbers", [(9,), (5,)])
        assert [tuple(r.values()) for r in test.output("out")] == [(0, 3, 9), (0, 4, 9)]


def by_words(expression: str, rename: str = "lines") -> hr.Topology:
    from tests.topology.bolts import Count

    topology = hr.Topology("words")
    was = {"was": "lines"} if rename != "lines" else {}
    read = topology.read("log:lines", schema="line string", name=rename, **was)
    topology.spout("words", read.select(word=expression))
    topology.bolt("count", Count(), tasks=3).fields("words", "word")
    topology.bolt("out", "collect:").shuffle("count")
    return topology


def test_another_origin_of_a_field_is_refused(tmp_path: Path) -> None:
    text = refused(by_words("line"), by_words("upper(line)"), tmp_path)
    assert "the field 'word' of words was line and is upper(line)" in text


class CountValues(hr.Bolt):
    output = "value string, n bigint"
    counts = hr.map_of(str, int)

    def process(self, tup: Any, collector: Any) -> None:
        value = str(float(tup.value))
        self.counts[value] = self.counts.get(value, 0) + 1
        collector.emit((value, self.counts[value]))


def by_values(
    kind: str, what: Any, expression: str = "v", tasks: int = 4, **options: Any
) -> hr.Topology:
    topology = hr.Topology("values")
    read = topology.read("log:values", schema=f"v {kind}, at bigint", time="at", in_order=True)
    topology.spout("cast", read.select(value=expression))
    topology.bolt("seen", what, tasks=tasks, **options).fields("cast", "value")
    topology.bolt("out", "collect:").shuffle("seen")
    return topology


WINDOWED = {
    "window": hr.tumbling("1m"),
    "agg": {"n": hr.count()},
    "schema": "n bigint",
}


def size(task: int, window: Any, row: Any) -> tuple[int]:
    return (row.n,)


@pytest.mark.parametrize(("what", "options"), [(CountValues(), {}), (size, WINDOWED)])
@pytest.mark.parametrize("kind", ["double", "string", "decimal(9,0)"])
def test_another_type_of_a_field_is_refused_where_its_tuples_would_go_to_other_tasks(
    what: Any, options: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    before, after = (by_values(k, what, **options) for k in ("int", kind))
    with Harness(before, folder=tmp_path) as test:
        test.send("values", [(1, 0)])
    with pytest.raises(hr.HeadraceError) as error:
        Harness(after, folder=tmp_path).close()
    text = str(error.value)
    assert "HR-EVOLVE-001" in text and "field 'value'" in text and "whole numbers and " in text


@pytest.mark.parametrize(("kind", "tasks"), [("bigint", 4), ("tinyint", 4), ("double", 1)])
def test_a_type_whose_values_stay_in_their_tasks_may_change(
    kind: str, tasks: int, tmp_path: Path
) -> None:
    with Harness(by_values("int", CountValues(), tasks=tasks), folder=tmp_path) as test:
        test.send("values", [(v, 0) for v in range(8)])
    with Harness(by_values(kind, CountValues(), tasks=tasks), folder=tmp_path) as test:
        test.output()
        test.send("values", [(v, 1) for v in range(8)])
        assert [row["n"] for row in test.output()] == [2] * 8


def test_a_folder_that_does_not_say_the_types_of_fields_goes_on(tmp_path: Path) -> None:
    said = BoltSpec._groupings
    with (
        patch.object(BoltSpec, "_groupings", lambda *args: [one[:2] for one in said(*args)]),
        Harness(by_values("int", CountValues()), folder=tmp_path) as test,
    ):
        test.send("values", [(1, 0)])
    with Harness(by_values("int", CountValues()), folder=tmp_path) as test:
        test.output()
        test.send("values", [(1, 1)])
        assert [row["n"] for row in test.output()] == [2]


def test_another_origin_of_a_field_is_refused_with_open_windows(tmp_path: Path) -> None:
    before, after = (by_values("int", size, e, **WINDOWED) for e in ("v", "v + 1"))
    with Harness(before, folder=tmp_path) as test:
        test.send("values", [(1, 0)])
    with pytest.raises(hr.HeadraceError, match="the field 'value' of its tasks was v and is v \\+"):
        Harness(after, folder=tmp_path).close()


def test_a_bolt_is_no_process_function(tmp_path: Path) -> None:
    class Last(hr.KeyedProcess):
        output = "word string"
        n = hr.value(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> None:
            return None

    after = hr.Topology("words")
    after.spout("words", "log:lines", schema="line string", was="lines")
    after.bolt("count", Last(), unbounded=True).fields("words", "line")
    after.bolt("out", "collect:").shuffle("count")
    text = refused(by_words("line"), after, tmp_path)
    assert "it was a bolt and is a process function" in text


def test_a_bolt_without_state_may_get_some(tmp_path: Path) -> None:
    def program(bolt: hr.Bolt, tasks: int) -> hr.Topology:
        topology = hr.Topology("words")
        topology.spout("lines", "log:lines", schema="word string")
        topology.bolt("b", bolt, tasks=tasks).shuffle("lines")
        topology.bolt("out", "collect:").shuffle("b")
        return topology

    class Numbered(hr.Bolt):
        output = "word string"
        n = hr.value(int, default=0)

        def process(self, tup: Any, collector: Any) -> None:
            self.n += 1
            collector.emit((f"{tup.word} {self.n}",))

    with started(program(Exclaim(), 2), program(Numbered(), 1), tmp_path) as test:
        test.output("out")
        test.send("lines", [("x",), ("y",)])
        assert [r["word"] for r in test.output("out")] == ["x 1", "y 2"]
