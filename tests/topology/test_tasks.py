"""Direct, custom and partial-key groupings; ticks; acks and failures."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.chunk import OFFSET, SOURCE
from headrace.ops.topology.groupings import FIELDS, PARTIAL_KEY, SHUFFLE, StreamGrouping
from headrace.testing import Harness
from tests.topology.bolts import Seen, numbered


def rows(test: Harness, name: str = "out") -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in test.output(name))


@dataclass
class Number:
    v: int


class Sends(hr.Bolt):
    output = "v bigint"
    outputs: ClassVar[Any] = {"plain": "v bigint"}
    direct = ("default",)

    def process(self, tup: Any, collector: Any) -> None:
        forms: list[Any] = [(tup.v,), [tup.v], {"v": tup.v}, Number(tup.v)]
        collector.emit_direct(tup.v % 10, forms[tup.v % 4])
        collector.emit((tup.v,), "plain")


def sends(tasks: int) -> hr.Topology:
    topology = hr.Topology("direct")
    topology.spout("numbers", "log:numbers", schema="v bigint")
    topology.bolt("sends", Sends(), tasks=2).shuffle("numbers")
    topology.bolt("seen", Seen(), tasks=tasks).direct("sends")
    topology.bolt("out", "collect:").shuffle("seen")
    topology.bolt("plain", "collect:").shuffle("sends", "plain")
    topology.stream("sends").write("collect:", name="stream")
    return topology


def test_direct_tuples_go_where_the_emitter_says() -> None:
    with Harness(sends(3)) as test:
        test.send("numbers", [(v,) for v in (10, 21, 32, 11)])
        assert sorted((task, v) for task, _, v in rows(test)) == [
            (0, 10),
            (1, 11),
            (1, 21),
            (2, 32),
        ]
        assert rows(test, "plain") == rows(test, "stream") == [(10,), (11,), (21,), (32,)]


def test_a_task_that_is_not_there_is_a_dead_letter() -> None:
    with Harness(sends(3)) as test:
        test.send("numbers", [(3,), (1,)])
        assert [row[::2] for row in rows(test)] == [(1, 1)]
        (dead,) = test.dead()
        assert dead["step"] == "seen" and "there is no task 3" in dead["error"]


@pytest.mark.parametrize("emit", ["emit", "emit_direct"])
def test_direct_and_other_streams_are_not_mixed_up(emit: str) -> None:
    class Wrong(Sends):
        def process(self, tup: Any, collector: Any) -> None:
            if emit == "emit":
                collector.emit((tup.v,))
            else:
                collector.emit_direct(0, (tup.v,), "plain")

    topology = hr.Topology("direct")
    topology.spout("numbers", "log:numbers", schema="v bigint")
    topology.bolt("sends", Wrong()).shuffle("numbers")
    topology.bolt("seen", Seen()).direct("sends")
    topology.bolt("out", "collect:").shuffle("seen")
    with Harness(topology) as test:
        test.send("numbers", [(3,)])
        (dead,) = test.dead()
        assert "direct" in dead["error"]


def test_a_direct_stream_is_read_by_direct() -> None:
    topology = sends(2)
    topology.bolt("other", Seen()).shuffle("sends")
    topology.bolt("more", "collect:").shuffle("other")
    with pytest.raises(hr.PlanError, match="HR-TOPOLOGY-014"):
        topology.check()


def test_a_grouping_of_ones_own() -> None:
    def chosen(tup: Any, tasks: int) -> Any:
        return {0: 0, 1: [0, 2], 2: [], 3: tasks, 4: "x"}.get(tup.v, np.int64(1))

    with Harness(numbered(3, "custom", chosen)) as test:
        test.send("numbers", [(v,) for v in range(7)])
        assert [(t, v) for t, _, v in rows(test)] == [(0, 0), (0, 1), (1, 5), (1, 6), (2, 1)]
        assert sorted(d["error"].split(": ")[1] for d in test.dead()) == [
            "chosen chose the task 'x' of 3", "chosen chose the task 3 of 3",
        ]  # fmt: skip


def skewed(count: int = 20_000) -> pa.Table:
    """Half of the rows are of one key."""
    draw = np.random.default_rng(7)
    keys = np.where(draw.random(count) < 0.5, 0, draw.integers(1, 2_000, count))
    offsets, sources = np.arange(count), np.full(count, 3)
    return pa.table({"key": keys, OFFSET: offsets, SOURCE: sources})


def partial(rows: pa.Table, tasks: int) -> np.ndarray:
    return StreamGrouping(PARTIAL_KEY, ("key",)).deal(rows, tasks)[1]


def test_partial_keys_have_two_tasks_each_of_which_gets_half() -> None:
    rows = skewed()
    chosen = partial(rows, 8)
    by_key: dict[int, Counter[int]] = {}
    for key, task in zip(rows["key"].to_pylist(), chosen.tolist(), strict=True):
        by_key.setdefault(key, Counter())[task] += 1
    assert max(map(len, by_key.values())) == 2
    few, many = sorted(by_key[0].values())
    assert many - few < 0.05 * (few + many)
    plain = StreamGrouping(FIELDS, ("key",)).deal(rows, 8)[1]
    assert np.bincount(plain).max() > 10_000 > 1.5 * np.bincount(chosen).max()


@pytest.mark.parametrize("batch", [1, 2, 3, 100, 257])
def test_the_task_of_a_tuple_by_partial_key_depends_on_nothing_beside_it(batch: int) -> None:
    """Or a tuple of a task that Spark repeats could go elsewhere, and be lost or come twice."""
    rows = skewed(5_000)
    whole = partial(rows, 4)
    parts = [rows.slice(at, batch) for at in range(0, 5_000, batch)]
    assert np.concatenate([partial(part, 4) for part in parts]).tolist() == whole.tolist()
    order = np.random.default_rng(1).permutation(5_000)
    assert partial(rows.take(pa.array(order)), 4).tolist() == whole[order].tolist()


def test_tuples_of_one_key_in_a_row_go_to_its_tasks_in_turn() -> None:
    rows = pa.table({"key": [5] * 100, OFFSET: range(100), SOURCE: [0] * 100})
    assert sorted(np.bincount(partial(rows, 2)).tolist()) == [50, 50]


def test_partial_key_counts_add_up() -> None:
    class Words(hr.Bolt):
        output = "word string, task int"

        def process(self, tup: Any, collector: Any) -> None:
            collector.emit((tup.word, collector.task))

    topology = hr.Topology("skewed")
    topology.spout("words", "log:words", schema="word string")
    topology.bolt("words seen", Words(), tasks=5).partial_key("words", "word")
    topology.bolt("out", "collect:").shuffle("words seen")
    found: list[tuple[Any, ...]] = []
    with Harness(topology) as test:
        for _ in range(6):  # batches of a few rows
            test.send("words", [("hot",), ("hot",), ("b",), ("hot",)])
            found += rows(test)
    assert Counter(word for word, _ in found) == {"hot": 18, "b": 6}
    assert len({task for word, task in found if word == "hot"}) == 2


# ticks


class Ticks(hr.Bolt):
    output = "at bigint, task int, n bigint"
    tick_every = "10s"
    n = hr.value(int, default=0)

    def process(self, tup: Any, collector: Any) -> None:
        self.n += 1

    def tick(self, collector: Any) -> None:
        collector.emit((collector.time, collector.task, self.n))


class EventTicks(Ticks):
    tick_by = "event"


def ticking(bolt: hr.Bolt, tasks: int = 2, **options: Any) -> hr.Topology:
    topology = hr.Topology("ticks")
    topology.spout("numbers", "log:numbers", schema="v bigint, at bigint", **options)
    topology.bolt("ticks", bolt, tasks=tasks).custom("numbers", by_value)
    topology.bolt("out", "collect:").shuffle("ticks")
    return topology


def by_value(tup: Any, tasks: int) -> int:
    return int(tup.v) % tasks


def test_ticks_by_the_clock(tmp_path: Path) -> None:
    with Harness(ticking(Ticks()), folder=tmp_path) as test:
        start = test.now
        first = (start // 10_000 + 1) * 10_000
        test.send("numbers", [(0, 0), (0, 0)])
        assert rows(test) == []
        test.advance("10s")
        assert rows(test) == [(first, 0, 2)]  # task 1 has had no tuple
        test.send("numbers", [(1, 0)])
        test.crash()
        test.advance("10s")
        assert rows(test) == [(first + 10_000, 0, 2), (first + 10_000, 1, 1)]
        test.advance("1m")  # a pause: one tick, not six
        assert [row[1:] for row in rows(test)] == [(0, 2), (1, 1)]
        test.advance("10s")
        assert [row[1:] for row in rows(test)] == [(0, 2), (1, 1)]


@pytest.mark.parametrize("cut", [1, 2, 5])
def test_ticks_by_event_time(cut: int) -> None:
    """Each multiple of ten seconds after the first tuple, however tuples are cut into batches."""
    sent = [(0, 1_000), (0, 12_000), (0, 15_000), (1, 31_000), (0, 32_000)]
    found = []
    with Harness(ticking(EventTicks(), time="at", in_order=True)) as test:
        for first in range(0, 5, cut):
            test.send("numbers", sent[first : first + cut])
            found += rows(test)
        test.end()
        found += rows(test)
    assert [(at, task) for at, task, _ in sorted(found)] == [
        (10_000, 0), (20_000, 0), (30_000, 0), (40_000, 0), (40_000, 1),
    ]  # fmt: skip
    assert [n for _, task, n in sorted(found) if task == 0] == [1, 3, 3, 4]


class Fails(Ticks):
    def tick(self, collector: Any) -> None:
        if (collector.time // 10_000) % 2:
            raise ValueError("odd")
        super().tick(collector)


def test_a_tick_that_fails_is_a_dead_letter_and_ticks_go_on() -> None:
    class ByEvent(Fails):
        tick_by = "event"

    with Harness(ticking(Fails(), tasks=1)) as test:
        test.send("numbers", [(0, 0)])
        found = [(test.advance("10s"), rows(test), len(test.dead()))[1:] for _ in range(4)]  # type: ignore[func-returns-value]
        assert sorted((len(out), dead) for out, dead in found) == [(0, 1), (0, 1), (1, 0), (1, 0)]
    with Harness(ticking(ByEvent(), tasks=1, time="at", in_order=True)) as test:
        test.send("numbers", [(0, 1_000)])
        test.watermark("numbers", 45_000)
        assert [row[0] for row in rows(test)] == [20_000, 40_000] and len(test.dead()) == 2
        test.watermark("numbers", 61_000)
        assert [row[0] for row in rows(test)] == [60_000] and len(test.dead()) == 1


def test_a_pause_of_the_event_time_is_ticked_through_at_the_end() -> None:
    with Harness(ticking(EventTicks(), time="at", in_order=True)) as test:
        test.send("numbers", [(0, 1_000), (1, 1_500), (0, 41_000)])
        test.end()
        assert [row[:2] for row in rows(test)] == [
            (10_000 * i, task) for i in (1, 2, 3, 4, 5) for task in (0, 1)
        ]


# shuffle


def placed(offsets: list[int], source: int) -> pa.Table:
    columns = {SOURCE: pa.array([source] * len(offsets), pa.int32())}
    return pa.table({**columns, OFFSET: pa.array(offsets, pa.int64())})


def dealt(offsets: list[int], source: int, tasks: int) -> list[int]:
    return StreamGrouping(SHUFFLE).deal(placed(offsets, source), tasks, stateful=False)[1].tolist()


@given(
    first=st.integers(-(2**62), 2**62),
    count=st.integers(0, 60),
    source=st.integers(-1, 5),
    tasks=st.integers(1, 7),
    cut=st.integers(0, 60),
)
def test_shuffle_deals_out_a_run_of_offsets_evenly_however_it_is_cut(
    first: int, count: int, source: int, tasks: int, cut: int
) -> None:
    offsets = list(range(first, first + count))
    found = dealt(offsets, source, tasks)
    loads = [found.count(task) for task in range(tasks)]
    assert max(loads) - min(loads) <= 2  # an incomplete round at both ends
    assert found == dealt(offsets[:cut], source, tasks) + dealt(offsets[cut:], source, tasks)


@given(source=st.integers(0, 5), tasks=st.integers(2, 7), word=st.integers(1, 20))
def test_shuffle_deals_out_several_rows_of_one_place_in_turn(
    source: int, tasks: int, word: int
) -> None:
    found = dealt([7] * word, source, tasks)
    assert found == [(found[0] + n) % tasks for n in range(word)]


@pytest.mark.parametrize("tasks", [2, 3, 4])
def test_a_filter_leaves_no_task_of_a_shuffle_without_rows(tasks: int) -> None:
    found = dealt(list(range(0, 1_000 * tasks, tasks)), 0, tasks)
    assert all(0.7 * 1_000 / tasks < found.count(task) < 1.3 * 1_000 / tasks for task in set(found))
    assert len(set(found)) == tasks


class Where(hr.Bolt):
    output = "task int"

    def process(self, tup: Any, collector: Any) -> None:
        collector.emit((collector.task,))


def test_a_few_tuples_are_spread_over_the_tasks_of_a_bolt() -> None:
    topology = hr.Topology("few")
    topology.spout("numbers", "log:numbers", schema="v bigint")
    topology.bolt("where", Where(), tasks=4).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("where")
    with Harness(topology) as test:
        for _ in range(8):
            test.send("numbers", [(1,)])
        found = Counter(row["task"] for row in test.output("out"))
    assert found == {task: 2 for task in range(4)}
