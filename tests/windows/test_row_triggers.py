"""Windows that rows end, with triggers, evictors and stored values: examples.

The first are situations of Flink's tests of evictors (EvictingWindowOperatorTest), with the
results that Flink has: there, a global window with `CountTrigger.of(2)`; here, a window of rows
that never becomes full, looked at after every two rows. A row comes by itself, as it does there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.errors import PlanError, StateError
from headrace.testing import Driver, Harness

EARLY = t.at_watermark(early=t.after_rows(2))
MANY = hr.tumbling(rows=100)
Send = list[tuple[str, int]]  # rows: key and time in ms


def job_of(window: Any, timed: bool = True, compute: Any = None, **options: Any) -> hr.Job:
    job = hr.Job("rows")
    time = {"time": "at", "delay": "1d", "idle": "1d"} if timed else {}
    rows = job.read(hr.rows([], "k string, at bigint, v bigint"), name="rows", **time)
    windows = rows.key_by("k").window(window, **options)
    made = compute(windows) if compute else windows.agg(n=hr.count(), vs=hr.collect("v"))
    made.named("w").write("collect:", name="out")
    return job


def counts(evict: Any, sent: Send) -> dict[str, list[int]]:
    """For each key, how many rows each of its firings sees."""
    seen: dict[str, list[int]] = {}
    with Harness(job_of(MANY, trigger=EARLY, evict=evict)) as harness:
        for key, at in sent:
            harness.send("rows", [{"k": key, "at": at, "v": 1}])
            for row in harness.output("out"):
                seen.setdefault(row["k"], []).append(row["n"])
    return seen


COUNTED = [("key2", 3000), ("key2", 3999), ("key1", 20), ("key1", 0), ("key1", 999), ("key2", 1998),
           ("key2", 1999), ("key2", 1000), ("key1", 10999), ("key2", 1000), ("key2", 1000),
           ("key2", 1000)]  # fmt: skip
TIMED = [("key2", 1000), ("key2", 4000), ("key1", 20), ("key1", 0), ("key1", 999), ("key2", 3500),
         ("key2", 2001), ("key2", 1001), ("key1", 10999), ("key2", 1002)]  # fmt: skip


def test_flink_the_last_four_rows_evicted_after_the_function() -> None:
    found = counts(hr.keep_last(rows=4, after=True), COUNTED)
    assert found == {"key1": [2, 4], "key2": [2, 4, 6, 6]}


def test_flink_the_last_four_rows_evicted_before_the_function() -> None:
    assert counts(hr.keep_last(rows=4), COUNTED[:10]) == {"key1": [2, 4], "key2": [2, 4, 4]}


def test_flink_the_last_two_seconds_evicted_after_the_function() -> None:
    found = counts(hr.keep_last("2s", after=True), TIMED)
    assert found == {"key1": [2, 4], "key2": [2, 3, 5]}


def test_flink_the_last_two_seconds_evicted_before_the_function() -> None:
    mine = [("key2", at) for at in (1000, 3999, 3500, 2001, 1001, 1002)]
    assert counts(hr.keep_last("2s"), mine) == {"key2": [1, 3, 3]}


def play(job: hr.Job, *batches: Any, columns: tuple[str, ...] = ("vs", "timing")) -> list[Any]:
    """What is emitted after each batch of values; a number is seconds on the clock."""
    shown = []
    with Harness(job) as harness:
        for batch in batches:
            if batch == "end":
                harness.end()
            elif isinstance(batch, list):
                rows = [{"k": "a", "at": 1_000 * v, "v": v} for v in batch]
                harness.send("rows", rows)
            else:
                harness.advance(batch)
            shown.append([tuple(row[c] for c in columns) for row in harness.output("out")])
    return shown


def test_rows_without_event_time_fire_by_the_clock() -> None:
    job = job_of(hr.tumbling(rows=3), timed=False, trigger=t.at_watermark(early=t.every("5s")))
    assert play(job, [1], 5, [2], 4, [3], 60, [4], "end") == [
        [], [([1], "early")], [], [], [([1, 2, 3], "on time")], [], [], [([4], "end")],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("at the watermark, early every 5s of event time",
         {"trigger": t.at_watermark(early=t.every("5s", time="event"))}),
        ("keep the last 5s", {"evict": hr.keep_last("5s")}),
    ],
)  # fmt: skip
def test_event_time_is_refused_where_rows_have_none(what: str, options: Any) -> None:
    with pytest.raises(PlanError, match="HR-WINDOW-064") as refused:
        job_of(hr.tumbling(rows=3), timed=False, **options).check()
    assert f"({what}) goes by event time, which these rows do not have" in str(refused.value)


def test_the_best_of_early_results_are_refused() -> None:
    def best(windows: Any) -> Any:
        return windows.agg(n=hr.count()).top(1, by="n")

    with pytest.raises(PlanError, match=r"HR-STREAM-016 .* the bounds of a window of rows move"):
        job_of(MANY, compute=best, trigger=EARLY).check()
    job_of(MANY, compute=best, evict=hr.keep_last(rows=3)).check()


class Streak(hr.WindowProcess):
    """The number of the key's windows so far, and of this window's firings."""

    windows = hr.value(int, default=0)
    firings = hr.window_value(int, default=0)

    def process(self, key: Any, window: Any, rows: Any) -> Any:
        self.firings += 1
        self.windows += window.final
        return self.windows, self.firings, [row.v for row in rows]


def streak(windows: Any) -> Any:
    schema = "windows bigint, firings bigint, vs array<bigint>"
    return windows.process(Streak(), schema=schema, unbounded=True)


def test_windows_build_on_the_one_before_in_the_order_of_rows_not_of_time() -> None:
    job = job_of(hr.tumbling(rows=2), compute=streak)
    columns = ("vs", "windows", "firings")
    # a later batch has earlier times: the window that counts first ends last
    assert play(job, [9], [1, 2, 3], columns=columns) == [[], [([9, 1], 1, 1), ([2, 3], 2, 1)]]


def test_values_of_a_window_end_with_it() -> None:
    job = job_of(hr.tumbling(rows=4), compute=streak, trigger=EARLY)
    columns = ("vs", "windows", "firings", "window_number", "pane")
    assert play(job, [1, 2], [3, 4], [5, 6], columns=columns) == [
        [([1, 2], 0, 1, 0, 0)], [([1, 2, 3, 4], 1, 2, 0, 1)], [([5, 6], 1, 1, 1, 0)],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "window",
    [hr.tumbling(rows=4), hr.sliding(rows=4, every_rows=2), hr.sliding("4s", every_rows=2)],
)
def test_state_does_not_grow_with_what_was(window: Any) -> None:
    job = job_of(window, compute=lambda w: w.fold("", lambda text, row: text, schema=str))
    plain = job_of(window, evict=hr.keep_last(rows=3), trigger=EARLY)
    for one in (job, plain):
        with Harness(one) as harness:
            for n in range(0, 40, 2):
                rows = [{"k": "a", "at": 1_000 * v, "v": v} for v in (n, n + 1)]
                harness.send("rows", rows)
                harness.watermark("rows", f"{n}s")
            held = {name: table.num_rows for name, table in harness.state("w").items()}
    assert held["rows"] <= 8 and held["windows"] <= 1 and held["keys"] == 1


def test_open_windows_can_be_looked_at(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("x", partitions=1, schema="k string, at bigint, v bigint")
    log.append("x", [{"k": "a" if v % 3 else "b", "at": v, "v": v} for v in range(8)], partition=0)

    def made(**options: Any) -> hr.Job:
        job = hr.Job("look")
        rows = job.read("log:x", log=str(tmp_path / "log"), name="x", time="at", delay="1s")
        cut = rows.key_by("k").window(hr.tumbling(rows=3), trigger=EARLY, **options)
        cut.agg(total=hr.sum("v"), name="w").write("collect:", name="out")
        return job

    for name, options, shown in (
        ("partials", {}, {("a", 1, 12)}),  # of "a", 1, 2 and 4 are shown, and 5 and 7 to come
        ("rows", {"evict": hr.keep_last(rows=1)}, {("a", 1, 2)}),  # how many came
    ):
        driver = Driver(made(**options), tmp_path / name, until=None)
        driver.drain()
        driver.close()
        state = hr.peek(made(**options), "w", folder=str(tmp_path / name)).to_arrow()
        assert {tuple(row.values()) for row in state.to_pylist()} == shown


def test_other_options_under_state_are_refused_by_name(tmp_path: Path) -> None:
    with Harness(job_of(hr.tumbling(rows=4), trigger=EARLY)) as harness:
        harness.send("rows", [{"k": "a", "at": 1, "v": 1}])
        for options, why in (
            ({}, "it had a trigger, lateness=, evict= or info="),
            ({"trigger": EARLY, "mode": "retract"}, "its mode was 'replace' and is 'retract'"),
            ({"trigger": EARLY, "evict": hr.keep_last(rows=1)}, "stored aggregates of each window"),
            ({"trigger": t.per_row(EARLY)}, "its trigger stored other values"),
        ):
            with pytest.raises(StateError, match=why):
                harness.restart(job_of(hr.tumbling(rows=4), **options))
        # another number of rows is a matter of the trigger alone
        harness.restart(job_of(hr.tumbling(rows=4), trigger=t.at_watermark(early=t.after_rows(1))))
        harness.send("rows", [{"k": "a", "at": 2, "v": 2}])
        assert [row["vs"] for row in harness.output("out")] == [[1, 2]]
