"""The event time of results, chosen: nothing is late for the steps that follow.

Two window steps after one another over drawn streams, started anew between epochs; the results
are those of plain Python over all rows that the first step took.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import triggers as t
from headrace.clock import ManualClock
from headrace.testing import Driver, Harness
from tests.windows.test_fold_order import ROOM

Row = tuple[str, int, int]  # key, ms, number
SCHEMA = "k string, n bigint, at bigint"

WINDOWS: dict[str, Any] = {
    "tumbling": hr.tumbling("6s"),
    "sliding": hr.sliding("6s", every="2s"),
    "cumulating": hr.cumulating("6s", every="2s"),
    "calendar": hr.calendar("day"),
    "session": hr.session("3s"),
}

SIZES = {"tumbling": 6_000, "calendar": 86_400_000}  # elsewhere a row may be late for one window


def wanted(window: str, result_time: str, rows: list[Row]) -> list[tuple[int, list[int]]]:
    """By second of the result: the number of rows of each result, in order."""
    choose = min if result_time == "earliest" else max
    found: dict[int, list[int]] = defaultdict(list)
    windows: dict[Any, list[int]] = defaultdict(list)
    for key, time, _ in rows:
        windows[key, time // SIZES[window]].append(time)
    for times in windows.values():
        found[choose(times) // 1_000].append(len(times))
    return sorted((second, sorted(sizes)) for second, sizes in found.items())


class Run:
    """A job over rows that come in batches, started anew for each of them."""

    def __init__(self, folder: str, window: str, result_time: str) -> None:
        self.folder, self.window, self.result_time = folder, window, result_time
        self.log = hr.EmbeddedLog(f"{folder}/log")
        self.log.create("x", schema=SCHEMA)

    def job(self) -> hr.Job:
        job = hr.Job("timed")
        rows = job.read("log:x", log=f"{self.folder}/log", time="at", delay="1s", name="x")
        windows = rows.key_by("k").window(WINDOWS[self.window], result_time=self.result_time)
        choose = hr.min if self.result_time == "earliest" else hr.max
        counts = windows.agg(at=choose("at"), n=hr.count(), name="counts")
        seconds = counts.window(hr.tumbling("1s")).agg(sizes=hr.collect("n"), name="seconds")
        again = seconds.window(hr.tumbling("1s"), result_time="earliest").agg(
            sizes=hr.first("sizes"), n=hr.count(), name="again"
        )
        last = again.window(hr.tumbling("1s")).agg(sizes=hr.first("sizes"), n=hr.sum("n"))
        for name, stream in {"late": counts.late, "first": counts, "out": last}.items():
            stream.write("collect:", name=name)
        for name, step in {"late2": seconds, "late3": again, "late4": last}.items():
            step.late.write("collect:", name=name)
        return job

    def over(self, batches: list[list[Row]]) -> None:
        for batch in [*batches, None]:
            if batch is not None:
                self.log.append("x", [{"k": k, "at": at, "n": n} for k, at, n in batch])
            until = None if batch is not None else "end"
            driver = Driver(
                self.job(), f"{self.folder}/job", clock=ManualClock(0), until=until, tasks=2
            )
            driver.drain()
            self.outputs = {
                name: driver.output(name).to_pylist()
                for name in ("out", "first", "late", "late2", "late3", "late4")
            }
            driver.close()


PLACES = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 400)), min_size=1, max_size=6),
    min_size=2,
    max_size=5,
)


@pytest.mark.parametrize("result_time", ["earliest", "latest"])
@pytest.mark.parametrize("window", WINDOWS)
@settings(
    max_examples=4, database=None, deadline=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
@given(places=PLACES)
def test_no_result_is_late_for_the_next_window(window: str, result_time: str, places: Any) -> None:
    if (window, result_time) == ("session", "earliest"):
        return  # refused
    numbers = iter(range(1_000))
    batches = [
        [(key, 4_000 * turn + 50 * at, next(numbers)) for key, at in batch]
        for turn, batch in enumerate(places)
    ]
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        run = Run(folder, window, result_time)
        run.over(batches)
    late = {row["n"] for row in run.outputs["late"]}
    rows = [row for batch in batches for row in batch if row[2] not in late]
    found = [
        (int(r["window_start"].timestamp()), sorted(r["sizes"]), r["n"]) for r in run.outputs["out"]
    ]
    assert {name: run.outputs[name] for name in ("late2", "late3", "late4")} == {
        "late2": [], "late3": [], "late4": [],
    }  # fmt: skip
    by_second: dict[int, list[int]] = defaultdict(list)
    for row in run.outputs["first"]:
        by_second[row["at"] // 1_000].append(row["n"])
    shown = sorted((second, sorted(sizes)) for second, sizes in by_second.items())
    assert sorted(found) == [(*one, 1) for one in shown]
    if window in SIZES:
        assert shown == wanted(window, result_time, rows)


def _windows(window: Any, **options: Any) -> hr.Job:
    job = hr.Job("refused")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1s", name="x")
    rows.key_by("k").window(window, **options).agg(n=hr.count()).write("collect:", name="out")
    return job


class Own(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> Any:
        return [(time, time + 1)]


@pytest.mark.parametrize(
    ("code", "window", "options"),
    [
        ("HR-WINDOW-055", hr.tumbling("5s"), {"result_time": "start"}),
        ("HR-WINDOW-037", hr.tumbling(rows=5), {"result_time": "latest"}),
        ("HR-WINDOW-056", hr.tumbling("5s"), {"result_time": "latest", "time": "processing"}),
        ("HR-WINDOW-057", hr.tumbling("5s"), {"result_time": "latest", "mode": "retract"}),
        ("HR-WINDOW-058", hr.session("5s"), {"result_time": "earliest"}),
        ("HR-WINDOW-058", hr.session(hr.col("n")), {"result_time": "latest"}),
        ("HR-WINDOW-058", hr.everything(), {"result_time": "earliest"}),
        ("HR-WINDOW-058", Own(), {"result_time": "earliest"}),
    ],
)
def test_refused(code: str, window: Any, options: Any) -> None:
    with pytest.raises(hr.PlanError, match=code):
        _windows(window, **options).check()


def test_early_results_have_the_time_of_the_rows_so_far() -> None:
    job = hr.Job("early")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1s", name="x")
    early = t.at_watermark(early=t.on_change())
    counts = rows.window(hr.tumbling("10s"), trigger=early, result_time="latest").agg(n=hr.count())
    counts.window(hr.tumbling("1s")).agg(n=hr.collect("n")).write("collect:", name="out")
    with Harness(job) as harness:
        for second in (3, 5, 4, 30):
            harness.send("x", [{"k": "a", "n": 0, "at": 1_000 * second}])
        harness.end()
        found = [(int(r["window_start"].timestamp()), r["n"]) for r in harness.output("out")]
    assert found == [(3, [1]), (5, [2, 3, 3]), (30, [1, 1])]
