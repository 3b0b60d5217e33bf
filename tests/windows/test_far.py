"""Times and gaps that are far away: dead letters that say so, and bounds that never wrap."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import triggers as t
from headrace.arrays import beyond, milliseconds
from headrace.clock import FIRST_TIME, LAST_TIME, LONGEST, millis
from headrace.errors import PlanError, RunError
from headrace.testing import Harness

SCHEMA = "key string, value bigint, at bigint"
DAY = 86_400_000
NANOSECONDS = 1_763_251_200_000_000_000
FAR = [NANOSECONDS, 2**62, -(2**62), 2**63 - 1, -(2**63), FIRST_TIME - 1, LAST_TIME + 1]


def counted(window: Any, schema: str = SCHEMA, read: Any = None, **more: Any) -> hr.Job:
    job = hr.Job("far")
    options = read or {"delay": "1d", "idle": "1d"}
    rows = job.read("log:r", schema=schema, name="rows", time="at", **options)
    rows.key_by("key").window(window, **more).agg(n=hr.count()).write("collect:", name="out")
    return job


def bounds(test: Harness) -> list[tuple[int, int, int]]:
    """Of each result the start and end of its window, in ms, and the count."""
    table = test.table()
    start, end = (table[f"window_{b}"].cast(pa.int64()).to_pylist() for b in ("start", "end"))
    found = zip(start, end, table["n"].to_pylist(), strict=True)
    return sorted((s // 1_000, e // 1_000, n) for s, e, n in found)


def fates(test: Harness) -> dict[str, int]:
    assert test.progress is not None
    counts = test.progress.counts["rows"]
    return {fate: counts[fate] for fate in ("read", "used", "late", "dead")}


@pytest.mark.parametrize("at", FAR)
def test_a_time_beyond_the_years_is_dead_and_does_not_move_the_watermark(at: int) -> None:
    with Harness(counted(hr.tumbling("10s"))) as test:
        test.send("rows", [("a", 1, 15_000), ("a", 1, at)])
        assert test.progress is not None and test.progress.watermark == 15_000 - DAY
        test.send("rows", [("a", 1, 11_000)])
        test.end()
        assert bounds(test) == [(10_000, 20_000, 2)]
        assert fates(test) == {"read": 3, "used": 2, "late": 0, "dead": 1}
        (letter,) = test.dead()
        assert letter["error"] == (
            f"the time {at} of column 'at' is not within the years 1 to 9999: "
            "is it in milliseconds?"
        )
        assert (letter["step"], letter["offset"]) == ("rows", 1)


def test_a_timestamp_beyond_the_years_is_dead_too() -> None:
    with Harness(counted(hr.tumbling("10s"), "key string, at timestamp")) as test:
        times = pa.array([2**62, 5_000_000], pa.timestamp("us", "UTC"))
        test.send("rows", pa.table({"key": ["a", "a"], "at": times}))
        test.end()
        assert bounds(test) == [(0, 10_000, 1)]
        (letter,) = test.dead()
        assert letter["error"] == "the time of column 'at' is not within the years 1 to 9999"
        assert letter["record"] == f'{{"key": "a", "at": {2**62}}}'.encode()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_no_unit_wraps_and_none_is_rounded_beside_a_null(unit: str) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    good = [1_763_251_200 * per_second, -1 * per_second]
    given = pa.chunked_array([pa.array([*good, None, 2**63 - 1, -(2**63) + 1], pa.int64())])
    found = milliseconds(given.cast(pa.timestamp(unit)))
    assert found.to_pylist()[:3] == [1_763_251_200_000, -1_000, None]
    far = beyond(found)
    inside = unit == "ns"  # all that nanoseconds can hold is within the years
    assert (far is None) if inside else far.to_pylist() == [False] * 3 + [True] * 2


def test_a_time_in_nanoseconds_beside_a_null_keeps_its_millisecond() -> None:
    ticks = [1_763_251_200_001_000_000, None]
    column = pa.chunked_array([pa.array(ticks, pa.timestamp("ns"))])
    assert milliseconds(column).to_pylist() == [1_763_251_200_001, None]


def test_a_number_that_no_signed_one_can_hold_is_beyond() -> None:
    found = milliseconds(pa.chunked_array([pa.array([2**64 - 1, 5, None], pa.uint64())]))
    far = beyond(found)
    assert far is not None and far.to_pylist() == [True, False, False]


def test_a_step_that_gives_a_time_beyond_the_years_fails_on_its_rows() -> None:
    job = hr.Job("given")
    rows = job.read("log:r", schema=SCHEMA, name="rows", time="at", delay="1d")
    given = rows.transform(lambda table: table.set_column(2, "at", table["value"]), time="at")
    given.window(hr.tumbling("10s")).agg(n=hr.count()).write("collect:", name="out")
    with Harness(job) as test:
        test.send("rows", [("a", NANOSECONDS, 5_000)])
        test.send("rows", [("a", 5_000, 5_000)])
        test.end()
        assert bounds(test) == [(0, 10_000, 1)]
        (letter,) = test.dead()
        assert f"the time {NANOSECONDS} ms of column 'at' is not within" in letter["error"]


def test_a_watermark_column_beyond_the_years_moves_nothing() -> None:
    marks = hr.watermarks.punctuated(lambda r: r.value > 0, by="value")
    with Harness(counted(hr.tumbling("10s"), read={"watermark": marks})) as test:
        test.send("rows", [("a", 3_000, 5_000), ("a", NANOSECONDS, 5_000)])
        assert test.progress is not None and test.progress.watermark == 3_000
        (letter,) = test.dead()
        assert letter["error"] == "the watermark column 'value' is not within the years 1 to 9999"


@pytest.mark.parametrize("at", [FIRST_TIME, LAST_TIME])
@pytest.mark.parametrize(
    "window",
    [
        hr.tumbling("365d"), hr.sliding("730d", every="365d"), hr.tumbling(f"{LONGEST}ms"),
        hr.session("365d"), hr.session(f"{LONGEST}ms"), hr.session(lambda r: r.value),
        hr.cumulating("730d", every="365d"),
    ],
    ids=str,
)  # fmt: skip
def test_windows_at_the_edges_hold_their_row(window: Any, at: int) -> None:
    with Harness(counted(window)) as test:
        test.send("rows", [("a", 365 * DAY, at)])
        test.end()
        found = bounds(test)
        assert found and all(start <= at < end and n == 1 for start, end, n in found)
        assert not test.dead()


class Endless(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> list[tuple[int, int]]:
        return [(time, time + row.value)]


def test_a_window_of_your_own_that_no_timestamp_can_show_is_a_dead_letter() -> None:
    with Harness(counted(Endless())) as test:
        test.send("rows", [("a", 10, 0), ("a", 10**16, 0)])
        test.end()
        assert bounds(test) == [(0, 10, 1)]
        assert ["endless" in r["error"] for r in test.dead()] == [True]


def test_a_duration_whose_window_no_timestamp_could_show_is_refused() -> None:
    assert millis("100000000d") == LONGEST
    with pytest.raises(PlanError) as caught:
        hr.tumbling("100000001d")
    assert caught.value.code == "HR-TIME-002"


@pytest.mark.parametrize(
    ("gap", "fact"),
    [
        (None, "null"), (0, "0 ms"), (-5, "-5 ms"),
        (2**62, f"{2**62} ms, more than 1000 years"),
        (2**63 - 1, f"{2**63 - 1} ms, more than 1000 years"),
    ],
)  # fmt: skip
def test_a_row_whose_gap_makes_no_session_is_a_dead_letter(gap: int | None, fact: str) -> None:
    with Harness(counted(hr.session(lambda r: r.value))) as test:
        test.send("rows", [("a", 10, 1_000), ("a", gap, 1_005), ("b", gap, 1_000)])
        test.end()
        assert bounds(test) == [(1_000, 1_010, 1)]
        assert fates(test) == {"read": 3, "used": 1, "late": 0, "dead": 2}
        letters = test.dead()
        assert [r["error"] for r in letters] == [f"the gap of a session is {fact}"] * 2
        assert [r["offset"] for r in letters] == [1, 2]
        assert all(b"$gap" not in r["record"] for r in letters)


def test_in_a_window_for_all_time_event_time_is_counted_from_1970() -> None:
    window, fires = hr.everything(), t.every("5s", time="event")
    with Harness(counted(window, trigger=fires, read={"delay": "1ms"})) as test:
        shown = []
        for at in range(1, 31_000, 500):
            test.send("rows", [("a", 1, at)])
            shown += [at - 1] * len(test.output())
        assert shown == [0, 5_000, 10_000, 15_000, 20_000, 25_000, 30_000]


def test_rows_with_a_time_that_python_does_not_have_stay_unseen() -> None:
    with Harness(counted(hr.tumbling("10s"))) as test:
        test.send("rows", [("a", 1, LAST_TIME)])
        test.end()
        for _ in range(2):
            with pytest.raises(RunError, match="does not have") as caught:
                test.output()
            assert caught.value.code == "HR-TEST-017"
        assert bounds(test) == [(LAST_TIME - 9_999, LAST_TIME + 1, 1)]
