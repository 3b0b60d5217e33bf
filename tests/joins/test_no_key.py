"""Rows of tables without a key: dead letters, told by name and counted; never lost."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.testing import Harness

SCHEMA = "k string, v bigint, at bigint"
NO_KEY = "a row of a table has no key: 'k' is null"


def job_of(step, schema=SCHEMA):
    job = hr.Job("keyless")
    left, right = (
        job.read(f"log:{n}", schema=schema, time="at", delay="1s", name=n) for n in ("l", "r")
    )
    step(left, right).write("collect:", name="out")
    return job


def fates(test, name):
    inputs = test._stage.start.log.latest().counts
    return {fate: count for fate, count in inputs[name].items() if count and fate != "read"}


@pytest.mark.parametrize("time", ["event", "processing"])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_row_without_a_key_is_a_dead_letter_of_a_join_of_tables(how, time):
    def step(left, right):
        left, right = left.table("k", unbounded=True), right.table("k", unbounded=True)
        return left.join(right, on="k", how=how, time=time, name="both")

    with Harness(job_of(step), tasks=3) as test:
        test.send("l", [(None, 1, 1), ("a", 1, 2)])
        test.send("r", [(None, 2, 1)])
        test.end()
        letters = [(x["step"], x["input"], x["offset"], x["error"]) for x in test.dead()]
        assert [letter[:3] for letter in sorted(letters)] == [("both", "l", 0), ("both", "r", 0)]
        assert all(NO_KEY in letter[3] for letter in letters)
        assert [r["k"] for r in test.output()] == (["a"] if how in ("left", "full", "anti") else [])
        assert fates(test, "l") == {"used": 1, "dead": 1}
        assert fates(test, "r") == {"dead": 1}


def test_changes_of_a_table_tell_of_a_row_without_a_key():
    def step(left, right):
        return left.union(right).table("k", delete="v = 0", unbounded=True).changes(name="told")

    with Harness(job_of(step)) as test:
        test.send("l", [(None, 1, 1), ("a", 1, 2), (None, 0, 3)])
        test.end()
        assert [(r["k"], r["v"], r["change"]) for r in test.output()] == [("a", 1, "+")]
        records = sorted(x["record"] for x in test.dead())
        assert records == [b'{"k": null, "v": %d, "at": %d}' % row for row in ((0, 3), (1, 1))]
        assert fates(test, "l") == {"used": 1, "dead": 2}


def test_a_left_row_needs_a_key_of_its_own_but_may_point_nowhere():
    schema = "k string, v bigint, to string, at bigint"

    def step(left, right):
        right = right.select("k", "v", "at").table("k", unbounded=True)
        return left.table("k", unbounded=True).join(right, on={"to": "k"}, how="left")

    with Harness(job_of(step, schema)) as test:
        test.send("l", [(None, 1, "x", 1), ("a", 2, None, 2), ("b", 3, "x", 3)])
        test.send("r", [("x", 7, None, 1), (None, 8, None, 1)])
        test.end()
        rows = [(r["k"], r["to"], r["v_right"], r["change"]) for r in test.output()]
        assert sorted(rows) == [("a", None, None, "+"), ("b", "x", 7, "+")]
        letters = test.dead()
        assert sorted((x["input"], x["offset"]) for x in letters) == [("l", 0), ("r", 1)]
        assert all(NO_KEY in x["error"] for x in letters)
        assert fates(test, "l") == {"used": 2, "dead": 1}


def test_a_stream_joined_with_a_table_may_have_rows_without_a_key_the_table_may_not():
    def step(left, right):
        return left.join(right.table("k", unbounded=True), on="k", how="left")

    with Harness(job_of(step)) as test:
        test.send("l", [(None, 1, 1), ("a", 1, 2)])
        test.send("r", [(None, 2, 1), ("a", 3, 1)])
        test.end()
        rows = sorted((r["k"] or "", r["v_right"]) for r in test.output())
        assert rows == [("", None), ("a", 3)]
        assert [(x["input"], x["offset"]) for x in test.dead()] == [("r", 0)]
        assert fates(test, "l") == {"used": 2}


def test_all_columns_of_the_key_that_are_null_are_named():
    def step(left, right):
        return left.union(right).table("k", "v", unbounded=True).changes()

    with Harness(job_of(step)) as test:
        test.send("l", [(None, None, 1), ("a", None, 2)])
        test.end()
        errors = sorted(x["error"].partition("has no key: ")[2] for x in test.dead())
        assert errors == ["'k' and 'v' are null", "'v' is null"]
