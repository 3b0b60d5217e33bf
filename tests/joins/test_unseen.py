"""Versions that no row saw, in right and full joins with a table: when they are told, and how.

By event time the model of `test_table.py` has them too; here are processing time and examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.joins.driving import ALWAYS, OPTIONS, Driven, Row, examples, turns
from tests.joins.test_table import distinct

OUTER = ("right", "full")
LEFT, RIGHT = "k string, n bigint, at bigint", "id string, v bigint, at bigint"
Told = tuple[str | None, int | None, int | None, int]


class ByArrival:
    """Batch by batch, and in a batch by time: versions of a moment before its rows."""

    def __init__(self, how: str, deletes: bool) -> None:
        self._how, self._deletes = how, deletes
        self._latest: dict[str | None, Row] = {}
        self._unseen: dict[str | None, Row] = {}

    def late(self, time: int, floor: int) -> bool:
        return False

    def step(self, new: dict[str, list[Row]], before: int, after: int) -> list[Any]:
        told: list[Any] = []
        come = [(r.time, port, r) for port, rows in ((0, new["b"]), (1, new["a"])) for r in rows]
        for _, port, row in sorted(come, key=lambda c: c[:2]):
            told += self.seeing(row) if port else self.changed(row)
        if after == ALWAYS and self._how in OUTER:
            told += map(alone, self._unseen.values())
        return [(None, values) for values in told]

    def changed(self, b: Row) -> list[Any]:
        if b.key is None:
            return []
        self._latest.pop(b.key, None)
        old = self._unseen.pop(b.key, None)
        if not self._deletes or b.value % 3:  # type: ignore[operator]
            self._latest[b.key] = self._unseen[b.key] = b
        return [] if old is None or self._how not in OUTER else [alone(old)]

    def seeing(self, a: Row) -> list[Any]:
        b, mine = self._latest.get(a.key), (a.key, a.value, a.time)
        self._unseen.pop(a.key, None)
        if self._how in ("semi", "anti"):
            return [mine] if (b is None) == (self._how == "anti") else []
        if b is None:
            return [(*mine, None, None)] if self._how in ("left", "full") else []
        return [(*mine, b.value, b.time)]


def alone(b: Row) -> tuple[Any, ...]:
    return b.key, None, None, b.value, b.time


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@settings(max_examples=examples(3), **OPTIONS)
@given(data=st.data())
def test_by_processing_time_every_kind_gives_what_the_model_says(how: str, data: Any) -> None:
    model = ByArrival(how, data.draw(st.booleans()))
    delete = "v % 3 = 0" if model._deletes else None

    def build(a: Any, b: Any) -> Any:
        table = b.table("k", delete=delete, unbounded=True)
        return a.join(table, on="k", how=how, time="processing")

    Driven(build, model, distinct(data.draw(turns())), timed=False, has_late=False).run()


class Timed(hr.KeyedProcess):
    """Gives the rows of each key with their event time."""

    output = "k string, n bigint, v bigint, time bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (row.k, row.n, row.v, ctx.time)


def job(how: str = "right", delete: str | None = "v < 0", **said: Any) -> hr.Job:
    job = hr.Job("unseen")
    a, b = (
        job.read(f"log:{n}", schema=schema, time="at", delay="100s", name=n)
        for n, schema in (("a", LEFT), ("b", RIGHT))
    )
    table = b.table("id", delete=delete, unbounded="within" not in said)
    joined = a.join(table, on={"k": "id"}, how=how, name="join", **said)
    joined.key_by("k").process(Timed()).write("collect:", name="out")
    return job


def told(test: Harness, until: int | None) -> list[Told]:
    """What is told when the watermark has come to this second, or at the end."""
    if until is None:
        test.end()
    else:
        for name in "ab":
            test.watermark(name, f"{until}s")
    return sorted((tuple(row.values()) for row in test.output()), key=repr)


def send(test: Harness, name: str, rows: Sequence[tuple[str, int, int]]) -> None:
    test.send(name, [(key, value, 1_000 * second) for key, value, second in rows])


@pytest.mark.parametrize("how", OUTER)
def test_a_version_is_told_when_it_is_over_with_the_time_at_which_it_was(how: str) -> None:
    with Harness(job(how)) as test:
        send(test, "b", [("x", 1, 1), ("x", 2, 10), ("x", -1, 20), ("x", 3, 30)])
        assert told(test, 10) == []
        assert told(test, 11) == [("x", None, 1, 10_000)]
        test.crash()
        assert told(test, 21) == [("x", None, 2, 20_000)]
        assert told(test, 40) == []  # nothing was there from 20 s to 30 s
        test.restart()
        send(test, "b", [("x", 4, 50)])
        assert told(test, 60) == [("x", None, 3, 50_000)]
        assert told(test, None) == [("x", None, 4, 60_000)]  # as far as the watermark was


def test_at_the_end_the_furthest_watermark_says_when() -> None:
    with Harness(job()) as test:
        send(test, "b", [("x", 1, 1), ("y", 2, 90)])
        assert told(test, 10) == []
        test.watermark("b", "80s")
        assert told(test, None) == [("x", None, 1, 80_000), ("y", None, 2, 90_000)]


def test_who_has_been_seen_once_is_never_told_alone() -> None:
    with Harness(job()) as test:
        send(test, "b", [("x", 1, 1), ("y", 2, 1)])
        assert told(test, 10) == []
        send(test, "a", [("x", 7, 11)])
        assert told(test, 20) == [("x", 7, 1, 11_000)]
        test.crash()
        send(test, "b", [("x", 3, 30), ("y", 4, 30)])
        assert told(test, 40) == [("y", None, 2, 30_000)]
        send(test, "a", [("x", 8, 41), ("y", 9, 41)])
        assert told(test, None) == [("x", 8, 3, 41_000), ("y", 9, 4, 41_000)]


def test_of_versions_of_one_moment_only_the_last_can_be_seen() -> None:
    with Harness(job(), tasks=1) as test:
        send(test, "b", [("x", 1, 5), ("x", 2, 5), ("x", 3, 5)])
        send(test, "a", [("x", 7, 5)])
        assert told(test, 6) == [
            ("x", 7, 3, 5_000), ("x", None, 1, 5_000), ("x", None, 2, 5_000),
        ]  # fmt: skip


def test_a_version_that_gets_too_old_is_told_at_its_last_moment() -> None:
    with Harness(job(within="10s")) as test:
        send(test, "b", [("x", 1, 1), ("x", 2, 30), ("y", 3, 1), ("y", 4, 9), ("z", 5, 1)])
        send(test, "a", [("z", 7, 11)])
        assert told(test, 11) == [("y", None, 3, 9_000)]
        assert told(test, 12) == [("x", None, 1, 11_000), ("z", 7, 5, 11_000)]
        test.crash()
        assert told(test, 100) == [("x", None, 2, 40_000), ("y", None, 4, 19_000)]
        send(test, "b", [("x", 6, 200)])
        assert told(test, None) == [("x", None, 6, 210_000)]


def test_lateness_waits_for_rows_and_moves_the_times() -> None:
    with Harness(job(lateness="5s")) as test:
        send(test, "b", [("x", 1, 1), ("x", 2, 10), ("y", 3, 1), ("y", 4, 10)])
        assert told(test, 14) == []
        send(test, "a", [("x", 7, 9)])  # late but for the lateness
        assert told(test, 15) == [("x", 7, 1, 14_000)]
        assert told(test, 16) == [("y", None, 3, 15_000)]


def test_by_processing_time_the_time_is_never_behind_the_watermark() -> None:
    with Harness(job(time="processing")) as test:
        send(test, "b", [("x", 1, 50)])
        assert told(test, 60) == []
        send(test, "b", [("x", 2, 20), ("x", 3, 70)])
        assert told(test, 61) == [("x", None, 1, 60_000), ("x", None, 2, 70_000)]
        assert told(test, None) == [("x", None, 3, 70_000)]


def test_streams_without_time_tell_what_was_not_seen() -> None:
    plain = hr.Job("plain")
    a, b = (plain.read(f"log:{n}", schema="k string, v bigint", name=n) for n in "ab")
    table = b.table("k", unbounded=True)
    a.join(table, on="k", how="full", time="processing").write("collect:", name="out")
    with Harness(plain) as test:
        test.send("b", [("x", 1), ("y", 2)])
        test.send("a", [("x", 3), ("z", 4)])
        test.send("b", [("x", 5), ("y", 6)])
        test.end()
        found = {tuple(row.values()) for row in test.output()}
    pairs = {("x", 3, 1), ("z", 4, None)}
    assert found == pairs | {("y", None, 2), ("x", None, 5), ("y", None, 6)}


@pytest.mark.parametrize(("before", "after"), [("inner", "right"), ("full", "left")])
def test_outer_on_the_right_cannot_be_changed_under_the_state(before: str, after: str) -> None:
    """Who has been seen was not written down before, or would not be from now on."""
    with Harness(job(before)) as test:
        send(test, "b", [("x", 1, 1)])
        with pytest.raises(hr.StateError, match=r"HR-EVOLVE-001.*'outer' of this join was"):
            test.restart(job(after))


@pytest.mark.parametrize(("before", "after"), [("inner", "left"), ("right", "full")])
def test_what_needs_the_same_state_can_be_changed(before: str, after: str) -> None:
    with Harness(job(before)) as test:
        send(test, "b", [("x", 1, 1)])
        test.restart(job(after))
        send(test, "a", [("y", 7, 5)])
        alone = [("x", None, 1)] if after == "full" else []
        assert [row[:3] for row in told(test, None)] == [*alone, ("y", 7, None)]
