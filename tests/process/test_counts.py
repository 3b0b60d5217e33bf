"""Figures of the user's own: they add up in the run's progress and survive a replay."""

from __future__ import annotations

from typing import Any

import numpy as np

import headrace as hr
from headrace.inspect.progress import account


class Counting(hr.KeyedProcess):
    output = "k string"

    def on_row(self, row: Any, ctx: Any) -> Any:
        ctx.counter("rows").add()
        ctx.counter("sum").add(np.int64(row.v))  # as it may come out of a user's NumPy
        if row.v == 3:
            raise ValueError("three")


def test_counts_add_up_over_keys_tasks_and_batches(play: Any) -> None:
    test = play(Counting())
    test.send("rows", [("a", 1, 1), ("b", 2, 1)])
    test.send("rows", [("c", 4, 1)])
    assert test.progress.metrics == {"p": {"rows": 3, "sum": 7}}


def test_a_row_that_fails_counts_nothing(play: Any) -> None:
    test = play(Counting())
    test.send("rows", [("a", 1, 1), ("a", 3, 1), ("a", 5, 1)])
    assert test.progress.metrics == {"p": {"rows": 2, "sum": 6}}


def test_a_batch_that_is_done_again_counts_once(play: Any) -> None:
    test = play(Counting())
    test.send("rows", [("a", 1, 1)])
    test.crash()
    test.send("rows", [("a", 2, 1)])
    test.restart()
    assert test.progress.metrics == {"p": {"rows": 2, "sum": 3}}


def test_a_renamed_step_keeps_its_counts(play: Any) -> None:
    test = play(Counting())
    test.send("rows", [("a", 1, 1)])
    job = hr.Job("process")
    rows = job.read("log:rows", schema="k string, v bigint, at bigint", name="rows",
                    time="at", delay="1h")  # fmt: skip
    made = rows.key_by("k").process(Counting(), name="q", was="p")
    made.write("collect:", name="out")
    test.restart(job)
    assert test.progress.metrics == {"q": {"rows": 1, "sum": 1}}


def test_the_end_of_a_run_tells_them(play: Any) -> None:
    test = play(Counting())
    test.send("rows", [("a", 1_234, 1)])
    assert account(test.progress)[-1] == "step   p: counted rows 1, sum 1,234"
