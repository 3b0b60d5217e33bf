"""Partial matches, looked at while they wait: against plain Python, and by examples."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness

SCHEMA = "key string, value bigint, n bigint, at timestamp"
ABC = hr.pattern("a", "value = 1").then("b", "value = 2").then("c", "value = 3").within("10s")


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def job_of(
    patterns: Any = None, key: tuple[str, ...] = ("key",), schema: str = SCHEMA, **options: Any
) -> hr.Job:
    job = hr.Job("looked-at")
    rows = job.read("log:x", schema=schema, time="at", delay="1s", name="rows")
    if patterns is None:
        said = "name string, pattern string, at timestamp"
        control = job.read("log:c", schema=said, time="at", delay="1s", name="control")
        options["rules"] = control.broadcast()
    keyed = rows.key_by(*key) if key else rows
    keyed.match(*([patterns] if patterns else []), name="match", **options).write(
        "collect:", name="out"
    )
    return job


class Look:
    """A harness, and the state of its step as people see it."""

    def __init__(self, job: hr.Job, folder: Path, **more: Any) -> None:
        self.test, self._job, self._folder = Harness(job, folder=folder, **more), job, folder

    def __enter__(self) -> Look:
        return self

    def __exit__(self, *_: object) -> None:
        self.test.close()

    @property
    def state(self) -> hr.StepState:
        return hr.peek(self._job, "match", folder=str(self._folder / "job"))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(map(told, self.state.to_arrow().to_pylist()), key=str)


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    """Key, what is held, waits for, (name, n) of its rows, since, deadline; times in seconds."""
    since, deadline = (
        None if row[c] is None else row[c].timestamp() for c in ("since", "deadline")
    )
    rows = tuple((r["name"], r["row"]["n"]) for r in row["rows"])
    return (row["key"], row["held"], row["waits_for"], rows, since, deadline)


# against plain Python


def model(rows: list[tuple[str, int, int, int]], mark: float) -> list[tuple[Any, ...]]:
    """What is held of ABC when the watermark is at `mark`: (key, value, n, second) came so far.

    Every `a` begins a match; it takes the first `b` after it, and the first `c` after that. A
    row that is none of them is not kept.
    """
    found: list[tuple[Any, ...]] = []
    for key in {r[0] for r in rows}:
        mine = sorted((s, n, v) for k, v, n, s in rows if k == key)
        due = [r for r in mine if r[0] < mark]
        found += [(key, "row", None, ((None, n),), s, None) for s, n, v in mine if v and s >= mark]
        for i, (began, first, v) in enumerate(due):
            taken, wanted = [("a", first)], ["b", "c"]
            if v != 1 or began + 10 <= mark:
                continue
            for _, n, value in due[i + 1 :]:
                if wanted and value == {"b": 2, "c": 3}[wanted[0]]:
                    taken.append((wanted.pop(0), n))
            if wanted:
                found.append((key, "partial", wanted[0], tuple(taken), began, began + 10))
    return sorted(found, key=str)


ROW = st.tuples(st.sampled_from("xyz"), st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=60)
@given(st.lists(st.lists(ROW, max_size=6), min_size=1, max_size=5), st.sampled_from([1, 3]))
def test_what_is_seen_is_what_a_model_holds(batches: Any, tasks: int) -> None:
    sent: list[tuple[str, int, int, int]] = []
    newest, mark, n = 0, -math.inf, 0
    with TemporaryDirectory() as folder, Look(job_of(ABC), Path(folder), tasks=tasks) as look:
        for batch in batches:
            rows = []
            for key, value, step in batch:
                newest, n = newest + step, n + 1
                rows.append((key, value, n, newest))
            if not rows:
                continue
            look.test.send("rows", [(k, v, i, at(s)) for k, v, i, s in rows])
            sent += rows
            mark = newest - 1  # the delay
            assert look.rows() == model(sent, mark)


# by examples


def test_what_a_partial_match_shows(tmp_path: Path) -> None:
    with Look(job_of({"steps": ABC, "two": hr.pattern("x", "value = 2").then("y").within("1m")}),
              tmp_path) as look:  # fmt: skip
        look.test.send("rows", [("k", 1, 0, at(1)), ("k", 2, 1, at(2)), ("j", 9, 2, at(9))])
        look.test.watermark("rows", "5s")
        table = look.state.to_arrow()
        names = ["key", "held", "pattern", "waits_for", "rows", "since", "deadline"]
        assert table.column_names == names
        (steps,) = (r for r in table.to_pylist() if r["pattern"] == "steps")
        row = {"key": "k", "value": 1, "n": 0, "at": at(1)}
        assert steps == {
            "key": "k", "held": "partial", "pattern": "steps", "waits_for": "c",
            "rows": [{"name": "a", "row": row},
                     {"name": "b", "row": row | {"value": 2, "n": 1, "at": at(2)}}],
            "since": at(1), "deadline": at(11),
        }  # fmt: skip
        two = ("k", "partial", "y", (("x", 1),), 2.0, 62.0)
        waiting = ("j", "row", None, ((None, 2),), 9.0, None)
        one = ("k", "partial", "c", (("a", 0), ("b", 1)), 1.0, 11.0)
        assert look.rows() == sorted([one, two, waiting], key=str)
        assert [told(r) for r in look.state.get("j").to_pylist()] == [waiting]
        assert look.state.get("nobody").num_rows == 0
        cut = look.state.slice(2_000, 9_000)
        assert [told(r) for r in cut.to_arrow().to_pylist()] == [two]
        assert look.state.sql("SELECT waits_for FROM state WHERE held = 'partial' ORDER BY 1")[
            "waits_for"
        ].to_pylist() == ["c", "y"]
        assert look.state.top(1)["pattern"].to_pylist() == ["two"]
        look.test.watermark("rows", "70s")
        assert look.rows() == []


WAITS = [
    (hr.pattern("a", "value = 1").then_not("b", "value = 2", within="5s"), "no b", 6.0),
    (hr.pattern("a", "value = 1").then("b", "value = 2").then_not("c", within="5s").within("9s"),
     "b", 10.0),
    (hr.pattern("a", "value = 1").then(hr.either(hr.pattern("b", "value = 2"),
     hr.pattern("c", "value = 3"))).within("9s"), "b or c", 10.0),
    (hr.pattern("a", "value = 1").then("b", "value = 2").optional().then("c", "value = 3"),
     "b or c", None),
    (hr.pattern("a", "value = 1").next("b", "value = 2").within("1m"), "b", 61.0),
    (hr.pattern("a", "value = 1").then("a2", "value = 1").times(2).within("1m"), "a2", 61.0),
    (hr.pattern("a", "value = 1").one_or_more(greedy=True).then("c", "value = 3").within("1m"),
     "a or c", 61.0),
    (hr.pattern("a", "value = 1").not_next("n", "value = 2"), "no n next", None),
    (hr.pattern("a", "value = 1").not_next("n", "value = 2").then("b", "value = 3").optional()
     .within("1m"), "b or no n next", 61.0),
    (hr.pattern("a", "value = 1").not_next("n", "value = 2").then("b", "value = 3"), "b", None),
    (hr.pattern("a", "value = 1").then("b", "value = 2", within="5s"), "b", 6.0),
    (hr.pattern("a", "value = 1").then("b", "value = 2", within="5s").optional()
     .then("c", "value = 3", within="3s").within("1m"), "b or c", 4.0),
    (hr.pattern("a", "value = 1").times(2, within="5s"), "a", 6.0),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "waits_for", "deadline"), WAITS)
def test_the_row_it_waits_for_and_when_time_ends_it(
    tmp_path: Path, pattern: hr.Pattern, waits_for: str, deadline: float | None
) -> None:
    with Look(job_of(pattern, unbounded=True), tmp_path) as look:
        look.test.send("rows", [("k", 1, 0, at(1))])
        look.test.watermark("rows", "2s")
        assert look.rows() == [("k", "partial", waits_for, (("a", 0),), 1.0, deadline)]
        assert look.state.to_arrow()["pattern"].to_pylist() == ["pattern"]


def test_a_step_whose_time_is_over_is_not_waited_for_any_more(tmp_path: Path) -> None:
    a = hr.pattern("a", "value = 1")
    pattern = a.then("b", "value = 2", within="5s").optional().then("c", "value = 3").within("1m")
    with Look(job_of(pattern), tmp_path) as look:
        look.test.send("rows", [("k", 1, 0, at(1))])
        look.test.watermark("rows", "5999ms")
        assert look.rows() == [("k", "partial", "b or c", (("a", 0),), 1.0, 6.0)]
        look.test.watermark("rows", "6s")
        assert look.rows() == [("k", "partial", "c", (("a", 0),), 1.0, 61.0)]


def test_what_must_not_be_next_is_not_waited_for_after_a_row(tmp_path: Path) -> None:
    a = hr.pattern("a", "value = 1")
    pattern = a.not_next("n", "value = 2").then("b", "value = 3").optional().within("1m")
    with Look(job_of(pattern), tmp_path) as look:
        look.test.send("rows", [("k", 1, 0, at(1)), ("k", 7, 1, at(2)), ("k", 2, 2, at(3))])
        look.test.watermark("rows", "4s")
        assert look.rows() == [("k", "partial", "b", (("a", 0),), 1.0, 61.0)]
        assert len(look.test.output("out")) == 1


def test_a_match_that_is_held_back_says_so(tmp_path: Path) -> None:
    loop = hr.pattern("a", "value = 1").then("b", "value = 2").then("c", "value = 3")
    either = hr.either(loop, hr.pattern("d", "value = 2").then("e", "value = 4"))
    pattern = either.within("1m").skip_past_last()
    with Look(job_of(pattern), tmp_path) as look:
        look.test.send("rows", [("k", v, i, at(i + 1)) for i, v in enumerate([1, 2, 4])])
        look.test.watermark("rows", "9s")
        assert look.rows() == [
            ("k", "match", None, (("d", 1), ("e", 2)), 2.0, None),
            ("k", "partial", "c", (("a", 0), ("b", 1)), 1.0, 61.0),
        ]


def test_rules_of_a_control_stream_are_seen_with_what_they_hold(tmp_path: Path) -> None:
    with Look(job_of(), tmp_path, tasks=3) as look:
        look.test.send("control", [("abc", ABC.to_json(), at(0)), ("other", ABC.to_json(), at(2))])
        look.test.send("rows", [(f"k{i}", 1, i, at(1 + i)) for i in range(3)])
        look.test.watermark("rows", "8s")
        look.test.watermark("control", "8s")
        held = look.state.to_arrow().to_pylist()
        assert sorted((r["key"], r["pattern"], r["waits_for"]) for r in held) == [
            ("k0", "abc", "b"), ("k1", "abc", "b"), ("k1", "other", "b"), ("k2", "abc", "b"),
            ("k2", "other", "b"),
        ]  # fmt: skip
        mine = look.state.get("k1").to_pylist()
        assert sorted(r["pattern"] for r in mine) == ["abc", "other"]


def test_columns_of_ours_make_room_for_the_users_key(tmp_path: Path) -> None:
    schema = "rows string, held bigint, value bigint, at timestamp"
    with Look(job_of(ABC, ("rows", "held"), schema), tmp_path) as look:
        look.test.send("rows", [("k", 7, 1, at(1))])
        look.test.watermark("rows", "2s")
        (row,) = look.state.get("k", 7).to_pylist()
        assert (row["rows"], row["held"], row["held_"]) == ("k", 7, "partial")
        assert row["rows_"][0]["row"]["value"] == 1


def test_a_stream_without_a_key_has_partial_matches_too(tmp_path: Path) -> None:
    with Look(job_of(ABC, ()), tmp_path) as look:
        look.test.send("rows", [("k", 1, 5, at(1)), (None, 2, 6, at(2))])
        look.test.watermark("rows", "3s")
        (row,) = look.state.to_arrow().to_pylist()
        assert "key" not in row and row["waits_for"] == "c"
        assert [r["row"]["n"] for r in row["rows"]] == [5, 6]


@pytest.mark.parametrize("kind", ["string", "double"])
def test_null_and_nan_are_keys_like_others(tmp_path: Path, kind: str) -> None:
    odd = float("nan") if kind == "double" else "x"
    schema = SCHEMA.replace("key string", f"key {kind}")
    with Look(job_of(ABC, schema=schema), tmp_path) as look:
        look.test.send("rows", [(None, 1, 0, at(1)), (odd, 1, 1, at(1)), (odd, 2, 2, at(2))])
        look.test.watermark("rows", "3s")
        assert [told(r)[2:4] for r in look.state.get(None).to_pylist()] == [("b", (("a", 0),))]
        assert [told(r)[2] for r in look.state.get(odd).to_pylist()] == ["c"]


@pytest.mark.spark
def test_partial_matches_of_a_job_on_spark_are_seen_while_it_runs(
    spark: Any, tmp_path: Path
) -> None:
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("x", schema=SCHEMA, partitions=2)
    job = hr.Job("on-spark")
    rows = job.read("log:x", log=str(tmp_path / "log"), time="at", delay="1s", name="rows")
    rows.key_by("key").match(ABC, name="match").write("collect:", name="out")
    steps = [(i, v) for i in range(5) for v in range(1, 4 if i == 0 else 3)]
    sent = [{"key": f"k{i}", "value": v, "n": 10 * i + v, "at": at(v)} for i, v in steps]
    log.append("x", sent, key="key")
    for i in range(2):  # so that the watermark of every partition passes
        log.append("x", [{"key": "late", "value": 0, "n": 0, "at": at(5)}], partition=i)
    run = hr.run(job, folder=str(tmp_path / "job"))
    try:
        run.catch_up()
        held = [r for r in run.state("match").to_arrow().to_pylist() if r["held"] == "partial"]
        assert sorted(map(told, held)) == [
            (f"k{i}", "partial", "c", (("a", 10 * i + 1), ("b", 10 * i + 2)), 1.0, 11.0)
            for i in range(1, 5)
        ]
        frame = run.state("match").to_spark(spark)
        assert frame.where("waits_for = 'c'").count() == 4
    finally:
        run.stop()
