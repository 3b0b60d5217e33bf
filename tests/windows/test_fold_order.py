"""The order in which `fold` and `reduce` see rows: one rule, whatever else a window is told.

Epoch after epoch, and within an epoch by event time, split and offset. The functions here
write down what they see, so any other order gives another result. The model is a sort.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import triggers as t
from headrace.clock import ManualClock
from headrace.testing import Driver

ROOM = "/dev/shm" if Path("/dev/shm").is_dir() else None
SPLITS = 2


class Row(NamedTuple):
    split: int
    second: int
    value: int


Epochs = list[list[Row]]
Lists = list[list[int]]

# Rows of one minute in three epochs. Each epoch is out of order, so are the epochs, and the two
# splits meet at seconds 20 and 25. Sessions with a gap of 5 s are two until second 13 joins them.
EPOCHS: Epochs = [
    [Row(0, 25, 1), Row(1, 20, 2), Row(0, 20, 3), Row(0, 7, 4)],
    [Row(1, 16, 5), Row(1, 10, 6), Row(0, 22, 7)],
    [Row(0, 13, 8), Row(1, 25, 9), Row(1, 5, 10)],
]


# the model


def place(row: Row) -> tuple[int, int]:
    """By event time, then split; those of a split stay in the order of their offsets."""
    return row.second, row.split


def seen(epochs: Epochs) -> list[int]:
    """What a fold sees."""
    return [row.value for rows in epochs for row in sorted(rows, key=place)]


def by_time(epochs: Epochs) -> list[int]:
    """What a process function sees."""
    return [row.value for row in sorted((r for rows in epochs for r in rows), key=place)]


# functions that write down what they see


def _append(values: list[int], row: Any) -> list[int]:
    return [*values, row.v]


def _join(a: Any, b: Any) -> Any:
    return a._replace(text=f"{a.text} {b.text}")


def fold(windows: Any, **more: Any) -> Any:
    return windows.fold(list, _append, schema="seen array<bigint>", **more)


def reduce(windows: Any, **more: Any) -> Any:
    return windows.reduce(_join, **more)


def process(windows: Any) -> Any:
    return windows.process(lambda key, window, rows: [(rows["v"],)], schema="seen array<bigint>")


# a job with many steps, epoch by epoch


Steps = dict[str, Callable[[Any], Any]]


def told_by(steps: Steps, epochs: Epochs, again: bool = False) -> dict[str, list[Lists]]:
    """What each step told in every epoch, and last at the end; `again`: started anew each time."""
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        log = hr.EmbeddedLog(f"{folder}/log")
        log.create("x", partitions=SPLITS, schema="k string, v bigint, text string, at bigint")
        driver = _started(steps, folder)
        tables = []
        for rows in epochs:
            if again:
                driver.close()
                driver = _started(steps, folder)
            for split in range(SPLITS):
                if mine := [_record(r) for r in rows if r.split == split]:
                    log.append("x", mine, partition=split)
            assert driver.epoch() is not None
            tables.append({name: driver.output(name) for name in steps})
        driver.close()
        driver = _started(steps, folder, until="end")
        assert driver.epoch() is not None
        tables.append({name: driver.output(name) for name in steps})
        driver.close()
    return {name: _news([table[name] for table in tables]) for name in steps}


def _started(steps: Steps, folder: str, until: str | None = None) -> Driver:
    job = hr.Job("folds")
    rows = job.read("log:x", log=f"{folder}/log", name="x", time="at", delay="10m").key_by("k")
    for name, make in steps.items():
        make(rows).write("collect:", name=name)
    return Driver(job, f"{folder}/job", clock=ManualClock(0), until=until, tasks=2)


def _record(row: Row) -> dict[str, Any]:
    return {"k": "a", "v": row.value, "text": str(row.value), "at": row.second * 1_000}


def _news(tables: list[Any]) -> list[Lists]:
    """What was told is told: each table goes on from the one before."""
    known = [0, *(table.num_rows for table in tables)]
    news = [table.slice(first).to_pylist() for table, first in zip(tables, known, strict=False)]
    return [[_values(row) for row in rows] for rows in news]


def _values(row: dict[str, Any]) -> list[int]:
    return row["seen"] if "seen" in row else [int(v) for v in row["text"].split()]


FUNCTIONS = pytest.mark.parametrize("function", [fold, reduce])


def told_by_window(function: Any, **window: Any) -> list[Lists]:
    return told_by({"out": lambda rows: function(rows.window(**window))}, EPOCHS)["out"]


# windows that hold all rows and show them once, when the input ends


class Minutes(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> Any:
        return [(time // 60_000 * 60_000, time // 60_000 * 60_000 + 60_000)]


class Around(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> Any:
        return [(time - 60_000, time + 60_000)]

    def merge(self, first: Any, second: Any) -> Any:
        if second[0] < first[1]:
            return first[0], max(first[1], second[1])
        return None


MINUTE = hr.tumbling("1m")
ONCE: dict[str, dict[str, Any]] = {
    "plain": {"window": MINUTE},
    "lateness": {"window": MINUTE, "lateness": "10s"},
    "info": {"window": MINUTE, "info": True},
    "trigger": {"window": MINUTE, "trigger": t.at_watermark(early=t.after_rows(1_000))},
    "retract": {"window": MINUTE, "mode": "retract"},
    "delta": {"window": MINUTE, "mode": "delta"},
    "evict": {"window": MINUTE, "evict": hr.keep_last("1h")},
    "cumulating": {"window": hr.cumulating("1m", "1m")},
    "calendar": {"window": hr.calendar("day")},
    "everything": {"window": hr.everything()},
    "session": {"window": hr.session("1m")},
    "own": {"window": Minutes()},
    "own_merging": {"window": Around()},
    "rows": {"window": hr.tumbling(rows=1_000)},
    "last_rows": {"window": hr.sliding(rows=1_000, every_rows=1_000)},
    "last_hour": {"window": hr.sliding("1h", every_rows=1_000)},
    "until": {"window": hr.until("v > 1000")},
    "change": {"window": hr.delta("v", 1_000)},
}


def once(function: Any) -> Steps:
    return {name: lambda rows, w=w: function(rows.window(**w)) for name, w in ONCE.items()}


@pytest.mark.parametrize("again", [False, True], ids=["", "started anew"])
@FUNCTIONS
def test_rows_are_folded_epoch_after_epoch(function: Any, again: bool) -> None:
    told = told_by(once(function), EPOCHS, again)
    assert seen(EPOCHS) == [4, 3, 2, 1, 6, 5, 7, 10, 8, 9]
    assert told == {name: [[], [], [], [seen(EPOCHS)]] for name in ONCE}


PLACES = st.tuples(st.integers(0, SPLITS - 1), st.integers(0, 59))


@settings(max_examples=3, database=None, phases=[Phase.generate])  # shrinking jobs takes minutes
@given(
    st.lists(st.lists(PLACES, min_size=1, max_size=8), min_size=2, max_size=4),
    st.sampled_from([fold, reduce]),
)
def test_no_option_changes_what_a_fold_sees(places: Any, function: Any) -> None:
    values = iter(range(100))
    epochs = [[Row(*place, next(values)) for place in rows] for rows in places]
    told = told_by(once(function), epochs)
    last = max(epochs[-1], key=place).second  # such a window ends with the time of its last row
    whole = [[row for row in rows if row.second <= last] for rows in epochs]
    wanted = {name: seen(whole if name == "last_hour" else epochs) for name in ONCE}
    assert told == {name: [*([] for _ in epochs), [wanted[name]]] for name in ONCE}


# windows that show something after every epoch

EARLY = t.at_watermark(early=t.on_change())
BEGINNINGS = list(accumulate(seen([rows]) for rows in EPOCHS))


@FUNCTIONS
def test_an_early_result_is_the_beginning_of_the_last_one(function: Any) -> None:
    told = told_by_window(function, window=MINUTE, trigger=EARLY)
    assert told == [[b] for b in (*BEGINNINGS, seen(EPOCHS))]


@FUNCTIONS
def test_what_is_taken_back_is_what_was_told(function: Any) -> None:
    told = told_by_window(function, window=MINUTE, trigger=EARLY, mode="retract")
    first, second, third = BEGINNINGS
    assert told == [[first], [first, second], [second, third], [third, third]]


@FUNCTIONS
def test_deltas_one_after_the_other_are_the_whole(function: Any) -> None:
    told = told_by_window(function, window=MINUTE, trigger=EARLY, mode="delta")
    assert told == [*([seen([rows])] for rows in EPOCHS), []]


@FUNCTIONS
def test_sessions_that_become_one_are_folded_as_one(function: Any) -> None:
    told = told_by_window(function, window=hr.session("5s"), trigger=EARLY)
    assert sorted(told[0]) == [[3, 2, 1], [4]]  # seconds 20 to 25, and 7
    assert sorted(told[1]) == [[3, 2, 1, 5, 7], [4, 6]]  # and 16, 22; 10
    assert told[2:] == [[seen(EPOCHS)], [seen(EPOCHS)]]  # and 13, which joins them


@FUNCTIONS
def test_an_evictor_chooses_by_event_time_and_what_stays_is_folded_as_it_came(
    function: Any,
) -> None:
    told = told_by_window(function, window=MINUTE, evict=hr.keep_last(rows=4))
    last = by_time(EPOCHS)[-4:]
    assert last == [2, 7, 1, 9]
    assert told[-1] == [[v for v in seen(EPOCHS) if v in last]] == [[2, 1, 7, 9]]


@FUNCTIONS
def test_the_rows_of_the_last_seconds_are_folded_as_they_came(function: Any) -> None:
    told = told_by_window(function, window=hr.sliding("10s", every_rows=5))
    # of the fifth row, 6 of second 10, and the tenth, 9 of second 25
    assert told == [[], [[4, 6]], [[3, 2, 1, 5, 7, 9]], []]


@FUNCTIONS
def test_a_running_fold_gives_every_beginning(function: Any) -> None:
    told = told_by({"out": lambda rows: function(rows, unbounded=True)}, EPOCHS)["out"]
    whole = seen(EPOCHS)
    beginnings = [whole[: i + 1] for i in range(len(whole))]
    assert sorted((row for rows in told for row in rows), key=len) == beginnings


# what goes by event time


@FUNCTIONS
def test_the_last_rows_at_a_tick_are_folded_by_event_time(function: Any) -> None:
    """Such a window takes a row in when the watermark passes a tick, not when it arrives."""
    told = told_by_window(function, window=hr.sliding(rows=100, every="1m"))
    assert told == [[], [], [], [by_time(EPOCHS)]]


def test_process_and_collect_go_by_event_time() -> None:
    kinds = ["plain", "lateness", "info", "retract", "evict", "everything", "session", "own"]
    steps: Steps = {
        name: lambda rows, w=ONCE[name]: rows.window(**w).agg(seen=hr.collect("v"))
        for name in kinds
    }
    for name in kinds:
        if name != "retract":
            steps[f"process_{name}"] = lambda rows, w=ONCE[name]: process(rows.window(**w))
    told = told_by(steps, EPOCHS)
    assert told == {name: [[], [], [], [by_time(EPOCHS)]] for name in steps}
