"""Windows of rows and time together, by processing time: the clock says where they lie."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness

LAST_ROWS = hr.sliding(rows=2, every="5s")
LAST_TIME = hr.sliding("5s", every_rows=2)


def clocked(window: Any, timed: bool) -> Harness:
    job = hr.Job("mixed")
    said: dict[str, Any] = {"time": "at", "delay": "1s"} if timed else {}
    rows = job.read("log:rows", schema="key string, value bigint, at bigint", name="rows", **said)
    windows = rows.key_by("key").window(window, time="processing")
    windows.agg(total=hr.sum("value")).write("collect:", name="out")
    return Harness(job)


def shown(h: Harness) -> list[tuple[float, float, int]]:
    def row(r: Any) -> tuple[float, float, int]:
        return r["window_start"].timestamp(), r["window_end"].timestamp(), r["total"]

    return [row(r) for r in h.table("out").to_pylist()]


@pytest.mark.parametrize("timed", [True, False])
def test_the_last_rows_are_looked_at_by_the_clock(timed: bool) -> None:
    with clocked(LAST_ROWS, timed) as h:
        for at, row in enumerate([("a", 1, 900_000), ("a", 2, 100_000), ("a", 4, 500_000)], 1):
            h.send("rows", [row], at=f"{at}s")
        assert shown(h) == []
        h.advance("10s")
        assert shown(h) == [(2, 3.001, 6)]


@pytest.mark.parametrize("timed", [True, False])
def test_the_last_while_is_one_of_the_clock(timed: bool) -> None:
    with clocked(LAST_TIME, timed) as h:
        for at, row in [(1, ("a", 1, 100_000)), (2, ("a", 2, 900_000)),
                        (3, ("a", 4, 100_001)), (9, ("a", 8, 100_002))]:  # fmt: skip
            h.send("rows", [row], at=f"{at}s")
        assert shown(h) == [(1, 2.001, 3), (9, 9.001, 8)]


def test_a_window_of_event_time_may_follow() -> None:
    job = hr.Job("mixed")
    rows = job.read("log:rows", schema="key string, value bigint", name="rows")
    last = rows.key_by("key").window(LAST_ROWS, time="processing").agg(total=hr.sum("value"))
    last.window(hr.tumbling("10s")).agg(total=hr.sum("total")).write("collect:", name="out")
    job.check()


def test_the_plan_says_so() -> None:
    job = hr.Job("mixed")
    rows = job.read("log:rows", schema="key string, value bigint", name="rows")
    last = rows.key_by("key").window(LAST_ROWS, time="processing").agg(n=hr.count())
    last.write("collect:", name="out")
    assert "last 2 rows every 5s, by processing time" in str(job.explain())
