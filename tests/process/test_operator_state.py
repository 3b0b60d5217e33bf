"""Operator state: per task, not per key; through crashes, restarts and other numbers of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.hashing import hash_keys, tasks_of
from headrace.state.faults import hooked
from headrace.testing import Driver, Harness

SLOTS = 8
SCHEMA = "k string, v bigint"


class Seen(hr.KeyedProcess):
    output = "v bigint, n bigint, most bigint, seen bigint, all bigint"
    n = hr.operator_value(int, default=0, merge=lambda a, b: a + b)
    most = hr.operator_value(int, merge=max)
    seen = hr.operator_list(int)
    everyone = hr.operator_list(int, redistribute="union")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.seen.append(row.v)
        if row.v < 0:
            raise ValueError("below zero")
        self.most = max(self.most or 0, row.v)
        if row.v not in self.everyone:
            self.everyone.append(row.v)
        return (row.v, self.n, self.most, len(self.seen), len(self.everyone))


class ByKey(Seen):
    """The same beside state by key."""

    mine = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.mine += 1
        return super().on_row(row, ctx)


def job_of(fn: hr.KeyedProcess, keyed: bool = False, **options: Any) -> hr.Job:
    job = hr.Job("operator", slots=SLOTS)
    rows = job.read("log:rows", schema=SCHEMA, name="rows")
    made: Any = rows.key_by("k") if keyed else rows
    made.process(fn, unbounded=True, name="p", **options).write("collect:", name="out")
    return job


# A model in plain Python; only which task a row goes to is asked of the engine.


@dataclass
class Task:
    n: int = 0
    most: int | None = None
    seen: list[int] = field(default_factory=list)
    everyone: list[int] = field(default_factory=list)

    def row(self, v: int) -> tuple[int, ...]:
        self.n, self.most, self.seen = self.n + 1, max(self.most or 0, v), [*self.seen, v]
        self.everyone = self.everyone if v in self.everyone else [*self.everyone, v]
        return (v, self.n, self.most, len(self.seen), len(self.everyone))


class Model:
    def __init__(self, keyed: bool, tasks: int) -> None:
        self.keyed, self.tasks, self.read = keyed, [Task() for _ in range(tasks)], 0

    def batch(self, rows: list[tuple[str, int]]) -> list[tuple[int, ...]]:
        places = range(self.read, self.read + len(rows))
        self.read += len(rows)
        if self.keyed:
            hashes = hash_keys([pa.array([k for k, _ in rows])])
        else:
            split = pa.array(np.zeros(len(rows), np.int32))
            hashes = hash_keys([split, pa.array(np.array(places, np.int64))])
        tasks = tasks_of(hashes, SLOTS, len(self.tasks)).tolist()
        order = sorted(places, key=lambda p: (hashes[p - places[0]] if self.keyed else 0, p))
        out = []
        for place in order:
            v = rows[place - places[0]][1]
            if v >= 0:
                out.append(self.tasks[tasks[place - places[0]]].row(v))
        return sorted(out)

    def rescale(self, count: int) -> None:
        if count == len(self.tasks):
            return
        before, self.tasks = self.tasks, [Task() for _ in range(count)]
        seen = [v for task in before for v in task.seen]
        everyone = list(dict.fromkeys(v for task in before for v in task.everyone))
        for i, task in enumerate(self.tasks):
            task.seen = seen[len(seen) * i // count : len(seen) * (i + 1) // count]
            task.everyone = list(everyone)
        for i, old in enumerate(before):
            task = self.tasks[i * count // len(before)]
            task.n += old.n
            known = [m for m in (task.most, old.most) if m is not None]
            task.most = max(known, default=None)


def played(test: Harness, rows: list[tuple[str, int]]) -> list[tuple[int, ...]]:
    test.send("rows", rows)
    return sorted(tuple(row.values()) for row in test.output("out"))


def stored(job: hr.Job, folder: Path, name: str = "p") -> list[dict[str, Any]]:
    return hr.peek(job, name, folder=str(folder / "job")).to_arrow().to_pylist()  # type: ignore[no-any-return]


ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(-1, 9)), min_size=1, max_size=9)
STEP = st.tuples(st.sampled_from(["", "crash", "restart", "tasks"]), ROWS)


@pytest.mark.parametrize("keyed", [False, True])
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEP, min_size=1, max_size=6), counts=st.lists(st.integers(1, 9), min_size=7))
def test_operator_state_is_that_of_a_model(
    keyed: bool, steps: Any, counts: Any, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("operator")

    def make() -> hr.Job:
        return job_of(ByKey() if keyed else Seen(), keyed)

    counts = [min(count, SLOTS) for count in counts]
    model, test = Model(keyed, counts[0]), Harness(make(), folder=folder, tasks=counts[0])
    for (what, rows), count in zip(steps, counts[1:], strict=False):
        if what == "crash":
            test.crash()
        elif what:
            test.close()
            model.rescale(count if what == "tasks" else len(model.tasks))
            test = Harness(make(), folder=folder, tasks=len(model.tasks))
            test.output("out")
        assert played(test, rows) == model.batch(rows)
    test.close()
    found = {row["task"]: row["value"] for row in stored(make(), folder, "p.seen")}
    assert {i: v for i, v in found.items() if v} == {
        i: task.seen for i, task in enumerate(model.tasks) if task.seen
    }
    if keyed:
        mine = {row["k"]: row["mine"] for row in stored(make(), folder)}
        used = [
            k for (_, rows), _ in zip(steps, counts[1:], strict=False) for k, v in rows if v >= 0
        ]
        assert mine == {k: used.count(k) for k in used}


@pytest.mark.spark
def test_operator_state_on_spark(tmp_path: Path) -> None:
    rows = [(k, v) for v, k in enumerate("abcdefghabcd")]
    model = Model(False, 2)
    with Harness(job_of(Seen()), on="spark", folder=tmp_path, tasks=2) as test:
        assert played(test, rows[:5]) == model.batch(rows[:5])
        test.crash()
        assert played(test, rows[5:8]) == model.batch(rows[5:8])
    with Harness(job_of(Seen()), on="spark", folder=tmp_path, tasks=3) as test:
        test.output("out")
        model.rescale(3)
        assert played(test, rows[8:]) == model.batch(rows[8:])
    found = [
        {n: v for n, v in row.items() if n != "task"} for row in stored(job_of(Seen()), tmp_path)
    ]
    assert found == [vars(task) for task in model.tasks]


# Redistribution: the situations that other engines test.


@pytest.mark.parametrize(
    ("before", "after"), [(1, 4), (4, 1), (2, 3), (3, 2), (8, 3), (3, 8), (4, 4)]
)
def test_nothing_is_lost_or_doubled_between_numbers_of_tasks(
    before: int, after: int, tmp_path: Path
) -> None:
    rows = [("k", v) for v in range(11)]
    with Harness(job_of(Seen()), folder=tmp_path, tasks=before) as test:
        played(test, rows)
    Harness(job_of(Seen()), folder=tmp_path, tasks=after).close()
    found = stored(job_of(Seen()), tmp_path)
    assert sum(row["n"] for row in found) == 11
    assert sorted(v for row in found for v in row["seen"]) == list(range(11))
    if before != after:
        assert {len(row["seen"]) for row in found} <= {11 // after, -(-11 // after)}
        assert all(sorted(row["everyone"]) == list(range(11)) for row in found)


def test_fewer_elements_than_tasks_leave_some_without(tmp_path: Path) -> None:
    with Harness(job_of(Seen()), folder=tmp_path, tasks=1) as test:
        played(test, [("k", 1), ("k", 2)])
    Harness(job_of(Seen()), folder=tmp_path, tasks=5).close()
    found = [row["value"] for row in stored(job_of(Seen()), tmp_path, "p.seen")]
    assert sorted(map(len, found)) == [0, 0, 0, 1, 1]


def test_going_forth_and_back_multiplies_nothing(tmp_path: Path) -> None:
    for tasks in (2, 3, 1, 4, 2):
        with Harness(job_of(Seen()), folder=tmp_path, tasks=tasks) as test:
            played(test, [("k", 7), ("k", 8)])
    Harness(job_of(Seen()), folder=tmp_path, tasks=1).close()
    (row,) = stored(job_of(Seen()), tmp_path)
    assert (row["n"], row["most"], sorted(row["everyone"])) == (10, 8, [7, 8])
    assert sorted(row["seen"]) == [7] * 5 + [8] * 5


def test_a_start_that_dies_while_it_deals_out_is_repeated(tmp_path: Path) -> None:
    with Harness(job_of(Seen()), folder=tmp_path, tasks=4) as test:
        played(test, [("k", v) for v in range(9)])
    for tasks in (2, 3):
        for nth in range(1, 100):
            passed: list[str] = []

            def die(name: str, passed: list[str] = passed, nth: int = nth) -> None:
                passed.append(name)
                if len(passed) == nth:
                    raise KeyboardInterrupt(name)

            try:
                with hooked(die):
                    Harness(job_of(Seen()), folder=tmp_path, tasks=tasks).close()
                break
            except KeyboardInterrupt:
                continue
        assert nth > 1  # each step of the start that is durable was the last of one
        found = stored(job_of(Seen()), tmp_path)
        assert len(found) == tasks and sum(row["n"] for row in found) == 9
        assert sorted(v for row in found for v in row["seen"]) == list(range(9))


def test_a_renamed_step_is_dealt_out_under_its_new_name(tmp_path: Path) -> None:
    def job(name: str, **options: Any) -> hr.Job:
        job = hr.Job("operator", slots=SLOTS)
        rows = job.read("log:rows", schema=SCHEMA, name="rows")
        rows.process(Seen(), name=name, **options).write("collect:", name="out")
        return job

    with Harness(job("p"), folder=tmp_path, tasks=4) as test:
        played(test, [("k", v) for v in range(9)])
    Harness(job("q", was="p"), folder=tmp_path, tasks=3).close()
    found = stored(job("q"), tmp_path, "q")
    assert [row["task"] for row in found] == [0, 1, 2]
    assert [len(row["seen"]) for row in found] == [3, 3, 3]


@dataclass
class Place:
    name: str
    at: list[int]


class Records(hr.KeyedProcess):
    output = "v bigint"
    places = hr.operator_list(Place, redistribute="union")
    by_key = hr.operator_value(dict[str, int], default={}, merge=lambda a, b: {**a, **b})

    def on_row(self, row: Any, ctx: Any) -> None:
        self.places.append(Place(row.k, [row.v, row.v]))
        self.by_key[row.k] = row.v


def test_records_and_maps_are_stored_and_merged(tmp_path: Path) -> None:
    rows = [(k, v) for v, k in enumerate("abcda")]
    with Harness(job_of(Records()), folder=tmp_path, tasks=3) as test:
        played(test, rows)
    with Harness(job_of(Records()), folder=tmp_path, tasks=1) as test:
        played(test, [("z", 9)])
    (row,) = stored(job_of(Records()), tmp_path)
    assert dict(row["by_key"]) in ({"a": 0, **FOUND}, {"a": 4, **FOUND})
    assert len(row["places"]) == 6 and {"name": "z", "at": [9, 9]} in row["places"]


FOUND = {"b": 1, "c": 2, "d": 3, "z": 9}


# What is refused.


class Alone(hr.KeyedProcess):
    output = "v bigint"
    n = hr.operator_value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.n += 1


def test_a_value_without_merge_refuses_another_number_of_tasks(tmp_path: Path) -> None:
    with Harness(job_of(Alone()), folder=tmp_path, tasks=3) as test:
        played(test, [("k", v) for v in range(9)])
    for tasks in (2, 4):
        with pytest.raises(hr.StateError) as refused:
            Harness(job_of(Alone()), folder=tmp_path, tasks=tasks)
        assert refused.value.code == "HR-STATE-037"
        assert refused.value.message == (
            f"Alone.n of step 'p' is a value of each of 3 tasks, and this start has {tasks}"
        )
    with Harness(job_of(Alone()), folder=tmp_path, tasks=3) as test:
        played(test, [("k", 1)])

    class Merged(Alone):
        n = hr.operator_value(int, default=0, merge=max)

    with Harness(job_of(Merged()), folder=tmp_path, tasks=2):
        assert len(stored(job_of(Merged()), tmp_path)) == 2


def test_a_job_that_has_stored_nothing_may_have_any_number_of_tasks(tmp_path: Path) -> None:
    for tasks in (1, 3, 2):
        Harness(job_of(Alone()), folder=tmp_path, tasks=tasks).close()


@pytest.mark.parametrize("merge", [lambda a, b: 1 // 0, lambda a, b: "text"])
def test_a_merge_that_fails_refuses_the_start(merge: Any, tmp_path: Path) -> None:
    class Wrong(Alone):
        n = hr.operator_value(int, default=0, merge=merge)

    with Harness(job_of(Wrong()), folder=tmp_path, tasks=3) as test:
        played(test, [("k", v) for v in range(9)])
    with pytest.raises(hr.StateError) as refused:
        Harness(job_of(Wrong()), folder=tmp_path, tasks=1)
    assert refused.value.code == "HR-STATE-038"
    with Harness(job_of(Wrong()), folder=tmp_path, tasks=3):
        assert sum(row["n"] for row in stored(job_of(Wrong()), tmp_path)) == 9


def made(**members: Any) -> hr.KeyedProcess:
    base = {"output": "k string", "on_row": lambda self, row, ctx: None}
    return type("P", (hr.KeyedProcess,), {**base, **members})()  # type: ignore[no-any-return]


COUNT = hr.operator_value(int, default=0)
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "state by key without a key": (
        lambda: job_of(made(n=COUNT, mine=hr.value(int))).check(), "HR-PROCESS-001"),
    "timers without a key": (
        lambda: job_of(made(n=COUNT, on_timer=lambda self, t, ctx: None)).check(),
        "HR-PROCESS-002"),
    "by chunk": (
        lambda: job_of(type("C", (hr.KeyedProcess,), {
            "output": "k string", "n": COUNT, "on_chunk": lambda self, chunk, ctx: None})(),
            keyed=True).check(), "HR-PROCESS-006"),
    "merge of one": (lambda: hr.operator_value(int, merge=lambda a: a), "HR-PROCESS-022"),
    "merge that is none": (lambda: hr.operator_value(int, merge="sum"), "HR-PROCESS-022"),
    "another way": (lambda: hr.operator_list(int, redistribute="all"), "HR-PROCESS-022"),
    "a default of another type": (lambda: hr.operator_value(int, default="a"), "HR-PLAN-030"),
    "a function with a state": (
        lambda: _with_state(COUNT).check(), "HR-PROCESS-020"),
    "over windows": (lambda: _over_windows().check(), "HR-PROCESS-023"),
}  # fmt: skip


def _with_state(state: Any) -> hr.Job:
    job = hr.Job("wrong")
    rows = job.read("log:rows", schema=SCHEMA, name="rows").key_by("k")
    rows.map_with_state(lambda r, s: (r, s), state=state, output="k string", unbounded=True).write(
        "console:"
    )
    return job


def _over_windows() -> hr.Job:
    class Windowed(hr.WindowProcess):
        n = hr.operator_value(int, default=0)

        def process(self, key: Any, window: Any, rows: Any) -> Any:
            return []

    job = hr.Job("wrong")
    rows = job.read("log:rows", schema=SCHEMA, name="rows").key_by("k")
    windows = rows.window(hr.tumbling(rows=2))
    windows.process(Windowed(), schema="n bigint", unbounded=True).write("console:")
    return job


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_work_is_refused_by_name(name: str) -> None:
    wrong, code = WRONG[name]
    with pytest.raises(hr.PlanError) as refused:
        wrong()
    assert refused.value.code == code


def test_a_control_row_has_no_operator_state() -> None:
    class Ruled(hr.KeyedProcess):
        output = "v bigint"
        limits = hr.shared_map(str, int)
        n = hr.operator_value(int, default=0)

        def on_rules(self, row: Any, ctx: Any) -> None:
            self.n += row.v

        def on_rows(self, row: Any, ctx: Any) -> Any:
            self.n += 1
            return (self.n,)

    job = hr.Job("ruled")
    rows = job.read("log:rows", schema=SCHEMA, name="rows")
    rules = job.read("log:rules", schema=SCHEMA, name="rules")
    both = hr.connect(by="k", rows=rows, rules=rules.broadcast())
    both.process(Ruled(), name="p").write("collect:", name="out")
    with Harness(job, tasks=1) as test:
        test.send("rules", [("a", 5)])
        (letter,) = test.dead()
        assert "HR-PROCESS-013 Ruled.n is state of a task" in letter["error"]
        test.send("rows", [("a", 1)])
        assert test.output() == [{"v": 1}]


# Failures, deletion, order, and what is seen.


def test_what_does_not_fit_is_a_dead_letter_and_leaves_the_value() -> None:
    class Odd(hr.KeyedProcess):
        output = "v bigint, n bigint"
        n = hr.operator_value(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n = "many" if row.v == 3 else self.n + 1
            return (row.v, 0 if row.v == 3 else self.n)

    with Harness(job_of(Odd()), tasks=1) as test:
        assert played(test, [("k", v) for v in range(6)]) == [
            (0, 1),
            (1, 2),
            (2, 3),
            (4, 4),
            (5, 5),
        ]
        assert len(test.dead()) == 1


def test_a_deleted_value_has_its_default_again() -> None:
    class Reset(hr.KeyedProcess):
        output = "v bigint, n bigint"
        n = hr.operator_value(int, default=10)

        def on_row(self, row: Any, ctx: Any) -> Any:
            if row.v == 0:
                del self.n
            else:
                self.n += row.v
            return (row.v, self.n)

    with Harness(job_of(Reset()), tasks=1) as test:
        assert played(test, [("k", 1), ("k", 0)]) == [(0, 10), (1, 11)]
        assert played(test, [("k", 2)]) == [(2, 12)]


def test_without_a_key_a_task_sees_its_rows_in_order_of_time() -> None:
    class Order(hr.KeyedProcess):
        output = "seen string"
        seen = hr.operator_list(int)

        def on_row(self, row: Any, ctx: Any) -> Any:
            assert ctx.key is None
            self.seen.append(row.v)
            return ("".join(map(str, self.seen)),)

    job = hr.Job("order")
    rows = job.read("log:rows", schema="v bigint, at bigint", time="at", delay="1h", name="rows")
    rows.process(Order()).write("collect:", name="out")
    with Harness(job, tasks=1) as test:
        test.send("rows", [(3, 3), (1, 1)])
        test.send("rows", [(2, 2)], split=1)
        assert [row["seen"] for row in test.output()] == ["1", "13", "132"]


def test_timers_and_side_outputs_see_it_too() -> None:
    class Timed(hr.KeyedProcess):
        output = "k string, n bigint"
        outputs = {"side": "n bigint"}  # noqa: RUF012
        n = hr.operator_value(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n += 1
            ctx.emit("side", (self.n,))
            ctx.clock_timer(1_000)

        def on_timer(self, time: int, ctx: Any) -> Any:
            self.n += 10
            return (ctx.key, self.n)

    job = hr.Job("timed")
    rows = job.read("log:rows", schema=SCHEMA, name="rows").key_by("k")
    made = rows.process(Timed(), name="p")
    made.write("collect:", name="out")
    made.side("side").write("collect:", name="side")
    with Harness(job, tasks=1) as test:
        test.send("rows", [("a", 1), ("b", 1)])
        assert [row["n"] for row in test.output("side")] == [1, 2]
        test.advance("2s")
        assert sorted(row["n"] for row in test.output("out")) == [12, 22]


@pytest.mark.parametrize("kept", [lambda v: v % 2 == 0, lambda v: v >= 0])
def test_after_map_batches_all_rows_are_in_one_task_however_they_are_cut(
    kept: Callable[[int], bool], tmp_path: Path
) -> None:
    class Numbered(hr.KeyedProcess):
        output = "v bigint, n bigint"
        n = hr.operator_value(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n += 1
            return (row.v, self.n)

    for batch in (1, 3, 100):
        job = hr.Job("batches")
        rows = job.read(hr.rows([{"v": v} for v in range(12)]))
        some = rows.map_batches(
            lambda t: t.filter(pa.array([kept(v) for v in t["v"].to_pylist()], pa.bool_())),
            schema="v bigint",
        )
        some.where("v >= 0").process(Numbered()).write("collect:", name="out")
        driver = Driver(job, tmp_path / f"{batch}", tasks=3, max_batch=batch)
        driver.drain()
        found = [tuple(r.values()) for r in driver.output("out").to_pylist()]
        assert found == [(v, n) for n, v in enumerate(filter(kept, range(12)), 1)]


def test_a_batch_that_changes_nothing_writes_nothing(tmp_path: Path) -> None:
    class Still(hr.KeyedProcess):
        output = "v bigint"
        n = hr.operator_value(int, default=5)

        def on_row(self, row: Any, ctx: Any) -> Any:
            return (self.n,)

    with Harness(job_of(Still()), folder=tmp_path, tasks=1) as test:
        played(test, [("k", 1)])
        before = test._stage.start.log.latest().state  # type: ignore[union-attr]
        played(test, [("k", 1)])
        assert test._stage.start.log.latest().state == before  # type: ignore[union-attr]


def test_programs_without_it_say_nothing_of_tasks(tmp_path: Path) -> None:
    plain = made(mine=hr.value(int, default=0))
    with Harness(job_of(plain, keyed=True), folder=tmp_path) as test:
        played(test, [("k", 1)])
        facts = test._stage.start.log.latest().ops["p"].to_json()  # type: ignore[union-attr]
        assert "tasks" not in facts
    with Harness(job_of(Seen()), tasks=2) as test:
        played(test, [("k", 1)])
        facts = test._stage.start.log.latest().ops["p"].to_json()  # type: ignore[union-attr]
        assert facts["tasks"] == 2


# Changed declarations.


class Before(hr.KeyedProcess):
    output = "v bigint"
    n = hr.operator_value("int", default=0, merge=max)
    gone = hr.operator_list(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.n += 1
        self.gone.append(row.v)


class After(hr.KeyedProcess):
    output = "v bigint"
    count = hr.operator_value("bigint", default=0, merge=lambda a, b: a + b, was="n")
    new = hr.operator_list(str)
    mine = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.count += 1
        self.new.append(row.k)
        self.mine += 1


@pytest.mark.parametrize("tasks", [3, 2, 5])
def test_values_are_renamed_widened_added_and_dropped(tasks: int, tmp_path: Path) -> None:
    with Harness(job_of(Before(), keyed=True), folder=tmp_path, tasks=3) as test:
        played(test, [(k, v) for v, k in enumerate("abcdef")])
        test._tasks = tasks
        with pytest.raises(hr.HeadraceError) as refused:
            test.restart(job_of(After(), keyed=True))
        assert "gone" in str(refused.value)
        test.restart(job_of(After(), keyed=True), drop=["p.gone"])
        played(test, [("a", 1)])
    job = job_of(After(), keyed=True)
    assert sum(row["value"] for row in stored(job, tmp_path, "p.count")) == 7
    assert [v for row in stored(job, tmp_path, "p.new") for v in row["value"]] == ["a"]
    assert stored(job, tmp_path) == [{"k": "a", "mine": 1}]


@pytest.mark.parametrize(
    ("declared", "because"),
    [
        (hr.value(int, default=0), "was an operator value and is a value"),
        (hr.operator_list(int), "was an operator value and is an operator list"),
        (hr.operator_value(str, merge=max), "was int and is string"),
    ],
)
def test_another_kind_of_state_is_refused(declared: Any, because: str, tmp_path: Path) -> None:
    def changed() -> hr.KeyedProcess:
        return made(n=declared, gone=hr.operator_list(int))

    with Harness(job_of(Before(), keyed=True), folder=tmp_path) as test:
        played(test, [("a", 1)])
        with pytest.raises(hr.HeadraceError) as refused:
            test.restart(job_of(changed(), keyed=True))
        assert because in str(refused.value)


def test_a_key_cannot_come_between(tmp_path: Path) -> None:
    with Harness(job_of(Before()), folder=tmp_path) as test:
        played(test, [("a", 1)])
        with pytest.raises(hr.HeadraceError) as refused:
            test.restart(job_of(Before(), keyed=True))
        assert "its key was nothing" in str(refused.value)


def test_it_is_explained() -> None:
    text = job_of(Seen()).explain().text
    assert "=> p: rows of rows, spread over the slots" in text
