"""Joins that cannot run are refused when the program is built, each with its own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.plan.program import build

SCHEMA = "k string, n bigint, at timestamp"


class Daily(hr.WindowAssigner):
    def assign(self, time: int, row: object) -> list[tuple[int, int]]:
        return [(0, 86_400_000)]


WRONG: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "no bound": ("HR-JOIN-001", lambda a, b: a.join(b, on="k")),
    "cogroup without a bound": (
        "HR-JOIN-001", lambda a, b: a.cogroup(b, lambda k, x, y: 1, on="k", schema="x int"),
    ),
    "cogroup by key without a bound": (
        "HR-JOIN-001",
        lambda a, b: a.key_by("k").cogroup(b.key_by("k"), lambda k, x, y: 1, schema="x int"),
    ),
    "join_all without a bound": ("HR-JOIN-001", lambda a, b: hr.join_all(on="k", a=a, b=b)),
    "join_all without columns": ("HR-JOIN-002", lambda a, b: hr.join_all(within="5s", a=a, b=b)),
    "a broadcast stream": (
        "HR-JOIN-013", lambda a, b: a.join(b.broadcast(), on="k", within="5s"),
    ),
    "a broadcast stream in windows": (
        "HR-JOIN-013", lambda a, b: a.join(b.broadcast(), on="k", window=hr.tumbling("5s")),
    ),
    "cogroup of a broadcast stream": (
        "HR-JOIN-013",
        lambda a, b: a.cogroup(
            b.broadcast(), lambda k, x, y: 1, on="k", window=hr.tumbling("5s"), schema="x int"
        ),
    ),
    "cogroup of a table": (
        "HR-JOIN-014",
        lambda a, b: a.cogroup(
            b.table("k", unbounded=True), lambda k, x, y: 1, on="k", window=hr.tumbling("5s"),
            schema="x int",
        ),
    ),
    "no columns": ("HR-JOIN-002", lambda a, b: a.join(b, within="5s")),
    "too few columns": (
        "HR-JOIN-002", lambda a, b: a.key_by("k", "n").join(b.key_by("k"), within="5s"),
    ),
    "types differ": ("HR-JOIN-003", lambda a, b: a.join(b, on={"k": "n"}, within="5s")),
    "empty interval": ("HR-JOIN-004", lambda a, b: a.join(b, on="k", within=("5s", "-5s"))),
    "negative interval": ("HR-JOIN-004", lambda a, b: a.join(b, on="k", within="-5s")),
    "three ends": ("HR-JOIN-004", lambda a, b: a.join(b, on="k", within=("1s", "2s", "3s"))),
    "no duration": ("HR-TIME-001", lambda a, b: a.join(b, on="k", within="soon")),
    "unknown kind": ("HR-JOIN-005", lambda a, b: a.join(b, on="k", within="5s", how="outer")),
    "unknown kind with a table": (
        "HR-JOIN-005", lambda a, b: a.join(b.table("k", unbounded=True), on="k", how="outer"),
    ),
    "unknown kind of tables": (
        "HR-JOIN-005",
        lambda a, b: a.table("n", unbounded=True).join(
            b.table("k", unbounded=True), on="k", how="outer"
        ),
    ),
    "twice a column": ("HR-JOIN-006", lambda a, b: a.join(b, on="k", within="5s", suffix="")),
    "two bounds": (
        "HR-JOIN-007", lambda a, b: a.join(b, on="k", within="5s", window=hr.tumbling("5s")),
    ),
    "a table and windows": (
        "HR-JOIN-007",
        lambda a, b: a.join(b.table("k", unbounded=True), window=hr.tumbling("5s")),
    ),
    "no stream": ("HR-JOIN-008", lambda a, b: a.join(5, on="k", within="5s")),
    "negative lateness": ("HR-JOIN-009", lambda a, b: a.join(b, on="k", within="5s", lateness=-1)),
    "windows of one's own": ("HR-JOIN-010", lambda a, b: a.join(b, on="k", window=Daily())),
    "a gap that one side has not": (
        "HR-EXPR-001",
        lambda a, b: a.join(b.rename(m="n"), on="k", window=hr.session(hr.col("n"))),
    ),
    "a gap that is no number": (
        "HR-WINDOW-009", lambda a, b: a.join(b, on="k", window=hr.session(hr.col("k"))),
    ),
    "windows of rows": ("HR-JOIN-010", lambda a, b: a.join(b, on="k", window=hr.tumbling(rows=5))),
    "a window without end": ("HR-JOIN-010", lambda a, b: a.join(b, on="k", window=hr.everything())),
    "unknown column": ("HR-EXPR-001", lambda a, b: a.join(b, on="x", within="5s")),
    "endless table": ("HR-PLAN-003", lambda a, b: a.join(b.table("k"), on="k")),
    "part of a table's key": (
        "HR-JOIN-002", lambda a, b: a.join(b.table("k", "n", unbounded=True), on="k"),
    ),
    "cogroup of two arguments": (
        "HR-PLAN-028",
        lambda a, b: a.cogroup(b, lambda k, x: x, on="k", window=hr.tumbling("5s"), schema="x int"),
    ),
    "cogroup without schema": (
        "HR-PLAN-011",
        lambda a, b: a.cogroup(b, lambda k, x, y: 1, on="k", window=hr.tumbling("5s")),
    ),
    "streams by the clock": (
        "HR-JOIN-005",
        lambda a, b: a.join(b, on="k", within="5s", time="processing"),
    ),
    "lookup without columns": ("HR-JOIN-021", lambda a, b: a.lookup(lambda: None, on="k")),
    "lookup in an empty list": ("HR-JOIN-021", lambda a, b: a.lookup([], on="k")),
    "lookup in rows without columns": ("HR-JOIN-021", lambda a, b: a.lookup([{}], on="k")),
    "lookup of nothing": ("HR-JOIN-008", lambda a, b: a.lookup(5, on="k")),
    "lookup that waits for ever": (
        "HR-JOIN-023",
        lambda a, b: a.lookup(pa.table({"k": ["a"]}), on="k", on_missing="wait", refresh="5s"),
    ),
    "lookup with other types": ("HR-JOIN-003", lambda a, b: a.lookup(pa.table({"k": [1]}), on="k")),
    "lookup that may not miss so": (
        "HR-JOIN-005", lambda a, b: a.lookup(pa.table({"k": ["a"]}), on="k", on_missing="skip"),
    ),
    "join_all of two lengths": (
        "HR-JOIN-004", lambda a, b: hr.join_all(on="k", within=("0s", "5s"), a=a, b=b),
    ),
    "unknown kind of join_all": (
        "HR-JOIN-005", lambda a, b: hr.join_all(on="k", within="5s", how="outer", a=a, b=b),
    ),
    "a stream as how": (
        "HR-JOIN-005", lambda a, b: hr.join_all(on="k", within="5s", how=a, a=a, b=b),
    ),
    "outer join_all without a bound": (
        "HR-JOIN-001", lambda a, b: hr.join_all(on="k", how="full", a=a, b=b),
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_run_is_refused(wrong: str) -> None:
    code, build = WRONG[wrong]
    job = hr.Job("wrong")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="1s", name=n) for n in "ab")
    build(a, b).write("console:")
    b.write("console:", name="rest")
    with pytest.raises(hr.PlanError) as caught:
        job.check()
    assert {p.code for p in caught.value.problems} == {code}
    problem = caught.value.problems[0]
    assert problem.site is not None and problem.site.file == __file__
    assert problem.hint


IN_WORDS = {
    "windows of rows": "windows of rows (5 rows): rows of two streams have no common order",
    "a window without end": "hr.everything(), which never ends",
    "windows of one's own": "the assigner 'Daily': it assigns rows of one stream",
}


@pytest.mark.parametrize("wrong", IN_WORDS)
def test_windows_that_a_join_cannot_use_are_named_in_words(wrong: str) -> None:
    job = hr.Job("wrong")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="1s", name=n) for n in "ab")
    WRONG[wrong][1](a, b).write("console:")
    with pytest.raises(hr.PlanError) as caught:
        job.check()
    assert f"a join in windows cannot use {IN_WORDS[wrong]}" in str(caught.value)


def test_a_join_without_time_is_refused() -> None:
    job = hr.Job("wrong")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, name=n) for n in "ab")
    a.join(b, on="k", within="5s").write("console:")
    with pytest.raises(hr.PlanError, match="HR-PLAN-002 the join"):
        job.check()


def test_streams_of_two_jobs_do_not_meet() -> None:
    one, other = hr.Job("one"), hr.Job("other")
    a, b = (job.read("log:x", schema=SCHEMA, time="at", delay="1s") for job in (one, other))
    a.join(b, on="k", within="5s").write("console:")
    with pytest.raises(hr.PlanError, match="HR-PLAN-020"):
        one.check()


def test_a_join_of_one_stream_is_refused() -> None:
    a = hr.Job("one").read("log:x", schema=SCHEMA, time="at")
    with pytest.raises(hr.PlanError, match="HR-JOIN-012"):
        hr.join_all(on="k", within="5s", a=a)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("code", "make"),
    [
        ("HR-JOIN-013", lambda s: s.broadcast()),
        ("HR-JOIN-014", lambda s: s.table("k", unbounded=True)),
    ],
)
def test_join_all_takes_streams_only(first: bool, code: str, make: Callable[[Any], Any]) -> None:
    job = hr.Job("one")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at") for n in "ab")
    said = {"b": make(b), "a": a} if first else {"a": a, "b": make(b)}
    with pytest.raises(hr.PlanError, match=code) as caught:
        hr.join_all(on="k", within="5s", **said)
    assert caught.value.hint and caught.value.site and caught.value.site.file == __file__


def test_join_all_of_streams_with_a_key_needs_no_columns() -> None:
    job = hr.Job("keyed")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="1s").key_by("k") for n in "ab")
    both = hr.join_all(within="5s", a=a, b=b)
    both.write("console:")
    job.check()
    assert both.schema.names == ["k", "n_a", "at_a", "n_b", "at_b"]


@pytest.mark.parametrize("first", [True, False])
def test_an_option_that_join_all_has_not_is_refused(first: bool) -> None:
    job = hr.Job("one")
    named = {n: job.read(f"log:{n}", schema=SCHEMA, time="at") for n in "ab"}
    said: dict[str, Any] = {"suffix": "_b", **named} if first else {**named, "suffix": "_b"}
    with pytest.raises(hr.PlanError, match=r"HR-JOIN-008 .*suffix= is '_b'") as caught:
        hr.join_all(on="k", within="5s", **said)
    assert caught.value.hint and caught.value.site and caught.value.site.file == __file__


@pytest.mark.parametrize(
    ("how", "hint"),
    [
        ("right", "name that one first and say left"),
        ("semi", 'a.join(b, on="id", within="1m", how="semi")'),
        ("anti", 'a.join(b, on="id", within="1m", how="anti")'),
    ],
)
def test_a_kind_that_join_all_has_not_is_refused_with_what_to_do(how: str, hint: str) -> None:
    job = hr.Job("one")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="1s", name=n) for n in "ab")
    hr.join_all(on="k", how=how, within="5s", a=a, b=b).write("console:")
    with pytest.raises(hr.PlanError, match=f"HR-JOIN-005 how of join_all cannot be '{how}'") as e:
        job.check()
    told = e.value.problems[0].hint
    assert told is not None and "Choose one of inner, left, full." in told and hint in told


def test_late_rows_of_an_unknown_input_are_refused() -> None:
    a = hr.Job("one").read("log:x", schema=SCHEMA, time="at")
    with pytest.raises(hr.PlanError, match="HR-JOIN-011"):
        a.join(a, on="k", within="5s").late_of("middle")


def test_a_lookup_in_an_unknown_kind_of_database_is_refused() -> None:
    with pytest.raises(hr.PlanError, match="HR-JOIN-022"):
        hr.sql_table("oracle:x", "select 1", schema="x int")


def test_results_of_windows_are_told_what_to_drop_before_they_are_joined_in_windows() -> None:
    def joined(drop: bool) -> None:
        job, size = hr.Job("windows"), hr.tumbling("5s")
        rows = job.read(hr.rows([], "k string, at bigint"), time="at", delay="1s")
        counts = [rows.key_by("k").window(size).agg(n=hr.count(), name=n) for n in ("a", "b")]
        left, right = (c.drop("window_start", "window_end") if drop else c for c in counts)
        left.join(right, on="k", window=size).write("collect:")
        build(job)

    with pytest.raises(hr.PlanError) as refused:
        joined(drop=False)
    assert "The join gives it by itself: say .drop('window_end') before" in str(refused.value)
    joined(drop=True)
