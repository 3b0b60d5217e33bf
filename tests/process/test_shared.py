"""Rules on a control stream: they reach every task, and outlive restarts and rescaling."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.process.playing import SCHEMA, said


@dataclass
class Rule:
    least: int
    note: str = ""


class Screening(hr.KeyedProcess):
    output = "k string, v bigint, note string"
    rules = hr.shared_map(str, Rule)
    n = hr.value(int, default=0)

    def on_changes(self, row: Any, ctx: Any) -> None:
        ctx.counter("rules").add()
        if row.least is None:
            self.rules.pop(row.rule, None)
        elif row.least < 0:
            self.rules[row.rule] = Rule(row.least)
            raise ValueError("a rule below zero")
        elif row.rule in self.rules:
            self.rules[row.rule].least = row.least  # in place
        else:
            self.rules[row.rule] = Rule(row.least, f"note {row.rule}")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        ctx.timer(row.at + 100)
        return [(ctx.key, row.v, f"{n} {r.note}") for n, r in sorted(self.rules.items())
                if row.v >= r.least]  # fmt: skip

    def on_timer(self, time: int, ctx: Any) -> Any:
        return (ctx.key, -self.n, ",".join(sorted(self.rules)))


def job_of(fn: hr.KeyedProcess) -> hr.Job:
    job = hr.Job("screening")
    rows = job.read("log:rows", schema=SCHEMA, time="at", delay="1h", name="rows")
    changes = job.read("log:changes", schema="rule string, least bigint", name="changes")
    both = hr.connect(by="k", changes=changes.broadcast(), rows=rows)
    both.process(fn, unbounded=True, name="p").write("collect:", name="out")
    return job


KEYS = [f"k{i}" for i in range(12)]


def test_a_rule_reaches_every_task_and_a_changed_one_replaces_it(harness: Any) -> None:
    test = harness(job_of(Screening()), tasks=3)
    test.send("changes", [("big", 10)])
    test.send("rows", [(k, 15, 1) for k in KEYS])
    assert sorted(said(test)) == sorted((k, 15, "big note big") for k in KEYS)
    test.send("changes", [("big", 20), ("all", 0)])
    test.send("rows", [(k, 15, 2) for k in KEYS])
    assert sorted(said(test)) == sorted((k, 15, "all note all") for k in KEYS)
    test.send("changes", [("all", None)])
    test.send("rows", [("k0", 30, 3)])
    assert said(test) == [("k0", 30, "big note big")]


def test_control_rows_come_before_the_other_rows_of_a_batch(harness: Any) -> None:
    test = harness(job_of(Screening()))
    page = test._script.rows(test._script.turn(), "rows", "0", _table(test, "rows", ("a", 5, 1)))
    test._script.put(page)
    test._script.put(test._script.rows(page, "changes", "0", _table(test, "changes", ("all", 0))))
    test.advance(1)
    assert said(test) == [("a", 5, "all note all")]


def _table(test: Harness, name: str, row: tuple[Any, ...]) -> Any:
    from headrace.testing.harness import records

    return records(name, [row], test.inputs[name])


def test_timers_see_the_rules_and_control_streams_do_not_hold_time_back(harness: Any) -> None:
    test = harness(job_of(Screening()))
    test.send("rows", [("a", 5, 1)])
    test.send("changes", [("x", 9)])
    test.watermark("rows", 1_000)
    assert said(test) == [("a", -1, "x")]


@pytest.mark.parametrize("tasks", [(1, 3), (3, 1), (2, 4)])
def test_rules_outlive_restarts_crashes_and_rescaling(tmp_path: Path, tasks: Any) -> None:
    for turn, count in enumerate((*tasks, *tasks)):
        with Harness(job_of(Screening()), folder=tmp_path, tasks=count) as test:
            if turn == 0:
                test.crash()
                test.send("changes", [("big", 10), ("gone", 0)])
                test.send("changes", [("gone", None)])
            test.send("rows", [(k, 15, turn) for k in KEYS])
            test.send("changes", [(f"rule {turn}", 100)])
            came = said(test)[-len(KEYS) :]
            assert sorted(came) == sorted((k, 15, "big note big") for k in KEYS)
            copies = test.state("p")["shared.rules"]["key"].to_pylist()
            assert set(copies) == {"big", *(f"rule {i}" for i in range(turn + 1))}


def test_a_control_row_that_fails_is_one_dead_letter_and_changes_nothing(harness: Any) -> None:
    test = harness(job_of(Screening()), tasks=3)
    test.send("changes", [("a", 1), ("bad", -1), ("b", 2)])
    (letter,) = test.dead()
    assert letter["error"] == "ValueError: a rule below zero" and letter["input"] == "changes"
    assert test.progress.metrics == {"p": {"rules": 2}}
    assert test.progress.counts["changes"]["dead"] == 1
    assert set(test.state("p")["shared.rules"]["key"].to_pylist()) == {"a", "b"}


class Wrong(hr.KeyedProcess):
    output = "k string"
    rules = hr.shared_map(str, int)
    n = hr.value(int, default=0)
    how = ""

    def on_changes(self, row: Any, ctx: Any) -> Any:
        match row.rule:
            case "give":
                return ("a",)
            case "read":
                return self.n
            case "write":
                self.n = 5
            case "timer":
                ctx.clock_timer(5)
            case "type":
                self.rules["x"] = "text"

    def on_row(self, row: Any, ctx: Any) -> Any:
        match row.v:
            case 1:
                self.rules["a"] = 1
            case 2:
                self.rules.update(a=1)
            case 3:
                self.rules |= {"a": 1}
            case 4:
                del self.rules["a"]

    def on_timer(self, time: int, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("rule", "error"),
    [
        ("give", "HR-PROCESS-012 on_changes returns rows"),
        ("read", "HR-PROCESS-013 Wrong.n is state of a key, and a control row has no key"),
        ("write", "HR-PROCESS-013 Wrong.n is state of a key"),
        ("timer", "HR-PROCESS-010 a timer cannot be set here: a control row has no key"),
        ("type", "column 'value' (bigint)"),
    ],
)
def test_what_a_control_row_cannot_do(harness: Any, rule: str, error: str) -> None:
    test = harness(job_of(Wrong()), tasks=2)
    test.send("changes", [(rule, 0)])
    (letter,) = test.dead()
    assert error in letter["error"]


@pytest.mark.parametrize("v", [1, 2, 3, 4])
def test_other_rows_cannot_change_what_is_shared(harness: Any, v: int) -> None:
    test = harness(job_of(Wrong()))
    test.send("rows", [("a", v, 1)])
    (letter,) = test.dead()
    assert "HR-PROCESS-014 shared state can be changed in the method of a" in letter["error"]


class Within(hr.KeyedProcess):
    """Changes what lies within an entry, where it may not, for rows of one v."""

    output = "k string, seen string"
    rules = hr.shared_map(str, Rule)
    lists = hr.shared_map(str, list[float])
    mine = hr.value(list[float])

    def on_changes(self, row: Any, ctx: Any) -> None:
        self.rules[row.rule] = Rule(row.least)
        self.lists[row.rule] = [float("nan")]

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v == 1:
            self.rules["a"].least += 1
        if row.v == 2:
            self.mine = self.lists["a"]  # the very list
            self.mine.append(1.0)
        if row.v == 3:
            self.lists["a"].append(2.0)
            raise ValueError("three")
        return (ctx.key, f"{self.rules['a'].least} {self.lists['a']}")


def test_other_rows_cannot_change_what_lies_within_an_entry(harness: Any) -> None:
    test = harness(job_of(Within()), tasks=2)
    test.send("changes", [("a", 7)])
    test.send("rows", [(k, v, v) for k in KEYS for v in (0, 1, 2, 3, 4)])
    assert sorted(said(test)) == sorted((k, "7 [nan]") for k in KEYS for _ in (0, 4))
    errors = [letter["error"] for letter in test.dead()]
    assert sum("HR-PROCESS-014 shared state" in e for e in errors) == 2 * len(KEYS)
    assert errors.count("ValueError: three") == len(KEYS)


def test_a_row_that_fails_after_it_changed_an_entry_leaves_it_as_it_was(harness: Any) -> None:
    test = harness(job_of(Within()))
    test.send("changes", [("a", 7)])
    test.send("rows", [row for k in KEYS for row in ((k, 3, 1), (k, 0, 2))])
    assert sorted(said(test)) == sorted((k, "7 [nan]") for k in KEYS)
    assert [letter["error"] for letter in test.dead()] == ["ValueError: three"] * len(KEYS)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_rules_are_a_dict_under_any_batches_and_tasks(data: Any) -> None:
    """Against a dict: what was said last, deleted where nothing was said."""
    model: dict[str, int] = {}
    change = st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9))
    with Harness(job_of(Screening()), tasks=data.draw(st.integers(1, 3))) as test:
        for turn in range(data.draw(st.integers(1, 4))):
            changes = data.draw(st.lists(change, max_size=5))
            if data.draw(st.booleans()):
                test.crash()
            test.send("changes", changes)
            for rule, least in changes:
                if least is None:
                    model.pop(rule, None)
                else:
                    model[rule] = least
            if data.draw(st.booleans()):
                test.restart()
            test.send("rows", [(k, 5, turn) for k in KEYS[:4]])
            told = [f"{r} note {r}" for r, least in sorted(model.items()) if least <= 5]
            assert sorted(said(test)) == sorted((k, 5, t) for k in KEYS[:4] for t in told)
