"""What went wrong once: small streams that the windows got wrong, each against the model.

Rows are (value, seconds); a stream is a list of turns, each (seconds that pass, rows). The
watermark is the newest time less `delay`; after a second without rows it goes on with the
clock. Another key, in the other split, keeps pace.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace import triggers as t
from headrace.chunk import TIME
from headrace.clock import FIRST_TIME, LAST_TIME, ManualClock
from headrace.ops.contract import EpochStep
from headrace.ops.general_windows.operator import GeneralWindowOperator
from headrace.ops.window.triggers import AtWatermark, Combined, Every, Windowing
from headrace.state.table import KeyedTable
from headrace.testing import Driver
from headrace.testing import drive as drive_job
from tests.windows.driving import Stream, Turn, drive
from tests.windows.model import Model, Row

ON_CHANGE = ("at_watermark", ("on_change",), None)
TUMBLING, SESSION = ("tumbling", 10_000, 0), ("session", 2_000)


def stream(
    *turns: tuple[float, list[tuple[int | None, float]]], gaps: int | None = None, delay: int = 1
) -> Stream:
    offsets, newest = (count(), count()), -(10**6)
    made = []
    for wait, rows in turns:
        mine = [Row("a", value, int(seconds * 1_000), 0, next(offsets[0]), gaps)
                for value, seconds in rows]  # fmt: skip
        newest = max([newest, *(r.time for r in mine)])
        pace = [Row("b", 0, newest, 1, next(offsets[1]), gaps)] if mine else []
        made.append(Turn(int(wait * 1_000), (*mine, *pace)))
    return Stream(tuple(made), delay, idle=1_000, tasks=1)


FOUND: dict[str, tuple[Model, Stream]] = {
    "a timer that the end of input overtakes lets the job rest": (
        Model(TUMBLING, ("at_watermark", ("every", 60_000, "processing"), None)),
        stream((0, [(1, 1)])),
    ),
    "two timers of a window that are due at once fire once": (
        Model(
            ("tumbling", 60_000, 0),
            ("at_watermark", ("any_of", ("after_rows", 2), ("after_delay", 5_000)), None),
        ),
        stream((2, [(1, 1)]), (0.2, [(2, 1)]), (0.2, [(3, 1)]), (0.5, []), (9, [])),
    ),
    "all of two times wait for the later": (
        Model(
            TUMBLING,
            ("at_watermark",
             ("all_of", ("every", 3_000, "processing"), ("after_delay", 500)), None),
        ),
        stream((0, [(1, 1)]), (0.6, []), (0.6, []), (1, []), (1, [])),
    ),
    "all of two marks wait for one that they share": (
        Model(
            ("tumbling", 60_000, 0),
            ("at_watermark",
             ("all_of", ("every", 2_000, "event"), ("every", 3_000, "event")), None),
        ),
        stream((2, [(1, 0.5)]), (2, []), (2, []), (2, []), (2, []), (2, [])),
    ),
    "a limit holds for late firings, too": (
        Model(TUMBLING, ("at_watermark", None, ("at_most", ("on_change",), 1)), 60_000),
        stream((0, [(1, 1)]), (0, [(2, 25)]), (0, [(3, 2)]), (0, [(4, 3)]), (0, [(5, 4)])),
    ),
    "late rows are shown at marks of event time": (
        Model(
            ("tumbling", 4_000, 0), ("at_watermark", None, ("every", 3_000, "event")), 20_000
        ),
        stream((2, [(1, 1), (0, 5)]), (0.1, [(2, 1)]), (1, []), (1, []), (1, []), (3, [])),
    ),
    "a value is compared with the last one shown, though the session has grown": (
        Model(SESSION, ("at_watermark", ("on_delta", 3), None)),
        stream((2, [(0, 1), (4, 1.5)]), (0, [(5, 2)]), (0, [(6, 2.5)]), (0, [(8, 3)])),
    ),
    "delta shows the rows of a session that another, which has fired, takes in": (
        Model(SESSION, ("at_watermark", ("after_rows", 2), None), mode="delta", function="fold"),
        stream((2, [(1, 5)]), (0, [(2, 9), (3, 9)]), (0, [(4, 7)]), delay=9_000),
    ),
    "rows not shown are spared by an evictor that comes after, in merged sessions too": (
        Model(
            SESSION, ("at_watermark", ("after_rows", 2), None), evict=("keep_rows", 1),
            after=True, function="fold",
        ),
        stream((2, [(1, 5)]), (0, [(2, 9), (3, 9)]), (0, [(4, 7)]), delay=9_000),
    ),
    "a result is taken back as it was shown": (
        Model(TUMBLING, ON_CHANGE, 5_000, "retract"),
        stream((2, [(1, 1)]), (0, [(2, 2)]), (0, [(0, 11)]), (0, [(3, 3)]), (0, [(0, 40)])),
    ),
    "what an evictor left nothing of is not taken back twice": (
        Model(TUMBLING, ON_CHANGE, mode="retract", evict=("keep_near", 1)),
        stream((2, [(2, 1)]), (0, [(3, 2)]), (0, [(None, 3)]), (0, [(0, 40)])),
    ),
    "nothing shown is not taken back": (
        Model(TUMBLING, ON_CHANGE, mode="retract", evict=("keep_even",)),
        stream((2, [(2, 1)]), (0, [(3, 2)]), (0, [(4, 3)]), (0, [(0, 40)])),
    ),
    "the first late rows are shown once, whatever was shown before": (
        Model(
            ("tumbling", 4_000, 0),
            ("at_watermark", ("on_change",), ("at_most", ("on_change",), 1)), 20_000,
        ),
        stream((2, [(1, 1)]), (0, [(2, 5)]), (0, [(3, 2)]), (0, [(4, 2)]), (0, [(5, 90)])),
    ),
    "a limit is that of its trigger, not of the others": (
        Model(
            TUMBLING,
            ("at_watermark", ("any_of", ("at_most", ("on_row", 5), 1), ("after_rows", 2)), None),
        ),
        stream((2, [(1, 1), (1, 1)]), (0, [(5, 2)]), (0, [(6, 2)]), (0, [(1, 2)])),
    ),
    "what a trigger has not shown of everything is shown at the end": (
        Model(("everything",), ("after_rows", 2)),
        stream((2, [(1, 1), (2, 2)]), (0, [(3, 3)])),
    ),
    "unless the program may lose it": (
        Model(("everything",), ("after_rows", 2), may_lose=True),
        stream((2, [(1, 1), (2, 2)]), (0, [(3, 3)])),
    ),
    "a custom trigger is not asked because of another's timer": (
        Model(
            TUMBLING,
            ("at_watermark", ("all_of", ("every", 1_000, "processing"), ("custom", 2)), None),
        ),
        stream((0, [(1, 1), (2, 1)]), (1.5, []), (1, [(3, 1), (4, 1)])),
    ),
    "marks of event time are there before 1970 too": (
        Model(("everything",), ("every", 2_000, "event")),
        stream((2, [(1, -50)]), (0, [(2, -47)]), (0, [(3, -46.5)]), (0, [(4, -44)])),
    ),
    "a session by rows that takes in one that was forgotten has its own rows only": (
        Model(("session", None), ON_CHANGE, function="fold"),
        stream((2, [(1, 1)]), (0, [(2, 9)]), (0, [(3, 2)]), (0, [(4, 30)]), gaps=20_000),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_found(name: str) -> None:
    drive(*FOUND[name])


@pytest.mark.parametrize("wait", [0, 1])
def test_what_a_session_gives_when_it_closes_is_not_late_for_the_next_window(
    tmp_path: Path, wait: int
) -> None:
    """The session [5, 10] closes when the watermark has passed 10 s, perhaps after it was there."""
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("x", schema="k string, at bigint")
    job = hr.Job("chain")
    rows = job.read("log:x", log=tmp_path / "log", name="x", time="at", delay="1ms")
    sessions = rows.key_by("k").window(hr.session("5s")).agg(n=hr.count())
    counted = sessions.window(hr.tumbling("10s")).agg(n=hr.count())
    counted.write("collect:", name="out")
    counted.late.write("collect:", name="late")
    driver = Driver(job, tmp_path / "job", until=None, clock=ManualClock(0))
    for at in (5_000, 10_001 - wait, 10_002):
        log.append("x", [{"k": "a" if at == 5_000 else "b", "at": at}])
        driver.drain()
    driver.close()
    driver = drive_job(job, tmp_path / "job")

    assert driver.output("late").num_rows == 0
    assert sum(driver.output("out")["n"].to_pylist()) == 2


def test_a_shorter_lateness_after_a_restart_shows_what_it_forgets(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("x", schema="k string, at bigint")

    def started(lateness: str) -> Driver:
        job = hr.Job("patience")
        rows = job.read("log:x", log=tmp_path / "log", name="x", time="at", delay="1ms")
        fires = t.at_watermark(late=t.after_rows(5))
        windows = rows.key_by("k").window(hr.tumbling("10s"), trigger=fires, lateness=lateness)
        windows.agg(n=hr.count()).write("collect:", name="out")
        return Driver(job, tmp_path / "job", until=None, clock=ManualClock(0))

    for lateness, at in (("60s", 1_000), ("60s", 30_000), ("60s", 2_000), ("1s", 31_000)):
        log.append("x", [{"k": "a", "at": at}])
        driver = started(lateness)
        driver.drain()
        driver.close()

    shown = driver.output("out").select(["n", "timing", "final"]).to_pylist()
    assert [tuple(row.values()) for row in shown] == [(1, "on time", False), (2, "late", True)]


def seven_fails(a: Any, b: Any) -> Any:
    if b.v == 7:
        raise ValueError("seven")
    return a._replace(v=a.v + b.v)


def test_a_window_that_fails_each_time_makes_one_record_dead(tmp_path: Path) -> None:
    values = [1, 7, 1, 1]
    job = hr.Job("failing")
    source = hr.rows([{"k": "a", "v": v, "at": i * 1_000} for i, v in enumerate(values)])
    rows = job.read(source, time="at", delay="1s", name="rows")
    windows = rows.key_by("k").window(
        hr.sliding("20s", every="5s"), trigger=t.at_watermark(early=t.on_change())
    )
    windows.reduce(seven_fails).write("collect:", name="out")
    driver = drive_job(job, tmp_path, max_batch=1)

    assert driver.manifest is not None
    (counts,) = driver.manifest.counts.values()
    assert (counts["read"], counts["used"], counts["dead"]) == (4, 3, 1)
    assert driver.manifest.steps["rows.window"]["dead"] > 4  # told each time


def test_an_evictor_sees_columns_that_nobody_aggregates(tmp_path: Path) -> None:
    job = hr.Job("columns")
    source = hr.rows([{"k": "a", "v": v, "at": v * 1_000} for v in range(5)])
    rows = job.read(source, time="at", delay="1s", name="rows")
    kept = hr.keep(lambda rows: [r.v > 2 for r in rows])
    windows = rows.key_by("k").window(hr.tumbling("10s"), evict=kept)
    windows.agg(n=hr.count()).write("collect:", name="out")

    assert drive_job(job, tmp_path).output("out")["n"].to_pylist() == [2]


def test_a_window_on_which_the_evictor_fails_is_a_dead_letter(tmp_path: Path) -> None:
    def picky(rows: list[Any]) -> list[bool]:
        if any(r.v == 7 for r in rows):
            raise ValueError("seven")
        return [True] * len(rows)

    job = hr.Job("picky")
    source = hr.rows([{"k": "ab"[v % 2], "v": v, "at": v} for v in range(5, 9)])
    rows = job.read(source, time="at", delay="1s", name="rows")
    windows = rows.key_by("k").window(hr.tumbling("10s"), evict=hr.keep(picky))
    windows.agg(n=hr.count()).write("collect:", name="out")
    driver = drive_job(job, tmp_path)

    assert driver.output("out").select(["k", "n"]).to_pylist() == [{"k": "a", "n": 2}]
    assert driver.manifest is not None
    assert driver.manifest.counts["rows"]["dead"] == 1


def test_numbers_that_no_float_has_exactly_can_be_compared(tmp_path: Path) -> None:
    job = hr.Job("big")
    values = [2**60 + 1, 2**60 + 3, 5, 6]
    source = hr.rows([{"k": "a", "v": v, "at": i} for i, v in enumerate(values)])
    rows = job.read(source, time="at", delay="1s", name="rows")
    windows = rows.key_by("k").window(
        hr.tumbling("10s"), trigger=t.at_watermark(early=t.on_delta("v", 1e9)),
        evict=hr.keep_near("v", 1_000_000),
    )  # fmt: skip
    windows.agg(n=hr.count()).write("collect:", name="out")

    out = drive_job(job, tmp_path, max_batch=1).output("out")
    assert out.select(["n", "timing"]).to_pylist() == [
        {"n": 1, "timing": "early"}, {"n": 2, "timing": "on time"},
    ]  # fmt: skip


def test_a_session_that_grows_has_one_timer() -> None:
    schema = pa.schema([("k", pa.string())])
    stamp = pa.timestamp("us", "UTC")
    output = pa.schema([("k", pa.string()), *((f"window_{b}", stamp) for b in ("start", "end"))])
    fires = AtWatermark(early=Combined((Every(3_600_000), Every(5_000, event=True)), every=True))
    windowing = Windowing(hr.session("10s"), fires)
    operator = GeneralWindowOperator(windowing, {}, None, ["k"], schema, output)
    tables = {s.name: KeyedTable(s) for s in operator.tables()}
    for epoch in range(20):
        rows = pa.table({"k": ["a"], TIME: [epoch * 1_000]})
        step = EpochStep([operator.prepare(0, rows)], tables, epoch, epoch + 1, epoch, epoch)
        operator.step(step)

    assert step.wake == 3_600_000
    assert [tables[name].scan().num_rows for name in ("windows", "timers", "marks")] == [1, 1, 1]


@pytest.mark.parametrize("each", [1, 5_000])
@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
def test_windows_that_reach_beyond_the_calendar_are_there_too(
    tmp_path: Path, unit: str, each: int
) -> None:
    job = hr.Job("far")
    source = hr.rows([{"at": at} for at in (FIRST_TIME, -(10**13), 0, 10**14, LAST_TIME)])
    rows = job.read(source, time="at", delay="1s", name="rows")
    windows = rows.window(hr.calendar(unit, zone="Asia/Tokyo", each=each))
    windows.agg(n=hr.count()).write("collect:", name="out")

    out = drive_job(job, tmp_path).output("out")
    assert sum(out["n"].to_pylist()) == 5
    assert out.num_rows >= 2
