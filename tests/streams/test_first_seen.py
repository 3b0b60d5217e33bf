"""The first sight of a key in a period: never twice, seldom not at all, for any number of tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.chunk import TIME
from headrace.hashing import block_starts, first_hash, hash_keys, slots_of
from headrace.ops.contract import EpochStep, Place
from headrace.ops.sketch import bloom
from headrace.ops.stream.first_seen import FILTERS, FirstSeen
from headrace.state.table import KeyedTable
from headrace.testing import Harness, drive
from tests.ops.sketch_streams import STREAMS
from tests.streams.playing import OPTIONS, Row, play, turns

ONE = pa.schema([("v", pa.int64())])


@dataclass
class Model:
    per: int
    seen: set[Any] = field(default_factory=set)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[int]:
        out = []
        for row in sorted(rows, key=lambda r: r.order):
            period = row.t // self.per
            if (period + 1) * self.per <= before or (row.k, row.v, period) in self.seen:
                continue
            self.seen.add((row.k, row.v, period))
            out.append(row.n)
        return out


@settings(**OPTIONS)
@given(script=turns(), per=st.sampled_from([1, 7, 30, 1_000]), tasks=st.integers(1, 3),
       expected=st.sampled_from([1, 1_000]))  # fmt: skip
def test_with_next_to_no_error_it_is_the_first_of_each_period(script, per, tasks, expected):
    play(
        lambda rows: rows.first_seen("k", "v", per=f"{per}ms", expected=expected, error=1e-6,
                                     name="d"),
        Model(per), script, lambda row: int(row["n"]), "d", tasks,
    )  # fmt: skip


class Alone:
    """The operator in one task with several slots, an epoch at a time."""

    def __init__(self, error: float, expected: int, slots: int = 3) -> None:
        self.spec = FirstSeen(10**9, error, expected)
        self.operator = self.spec.operator(Place((("v",),), (ONE,), ONE, timed=True))
        self.table = KeyedTable(self.operator.tables()[0])
        self.homes = [first_hash(slot, slots) for slot in range(slots)]

    def send(self, values: Any) -> list[int]:
        rows = pa.table({"v": pa.array(values), TIME: pa.array(np.zeros(len(values), np.int64))})
        sent = self.operator.prepare(0, rows)
        step = EpochStep([sent], {FILTERS: self.table}, 0, 0, 0, 1, homes=self.homes)
        self.operator.step(step)
        return [v for part in step.out for v in part["v"].to_pylist()]


@pytest.mark.parametrize("expected", [5_000, 40], ids=["as expected", "far more keys"])
@pytest.mark.parametrize("stream", STREAMS)
def test_lost_keys_are_within_the_error_for_95_of_100_streams(
    stream: Callable[[np.random.Generator], Any], expected: int
) -> None:
    """Cut into many batches, because a batch is judged by what was there before it."""
    inside = 0
    for seed in range(100):
        values = stream(np.random.default_rng(seed))
        job, passed = Alone(0.05, expected), []
        for part in np.array_split(values, 6):
            passed += job.send(part)
        assert len(passed) == len(set(passed)) and set(passed) <= set(values.tolist())
        inside += 1 - len(passed) / len(np.unique(values)) <= 0.05
    assert inside >= 95


@pytest.mark.parametrize("error", [0.3, 0.05, 0.001])
@pytest.mark.parametrize("times", [1, 30])
def test_a_new_key_is_lost_with_the_chance_that_was_asked_for_at_most(error, times):
    """Asked of full filters, where the chance is highest: it is near the error, and below it."""
    expected = 20_000
    job = Alone(error, expected)
    job.send(np.arange(expected * times))
    asked = 200_000
    lost = asked - len(job.send(10**9 + np.arange(asked)))
    assert lost / asked <= error
    assert times > 1 or lost / asked >= error / 20


@pytest.mark.parametrize("error", [0.9, 0.05, 1e-3, 1e-6])
def test_layers_have_room_for_twice_as_many_and_less_error_in_all(error):
    layers = [bloom.layer_of(error, number) for number in range(12)]
    assert sum(layer.error for layer in layers) <= error
    assert [layer.keys for layer in layers] == [layers[0].keys << n for n in range(12)]


def test_memory_is_what_was_said_for_the_keys_that_were_expected():
    job = Alone(0.05, 100_000, slots=1)
    job.send(np.arange(100_000))
    stored = job.table.scan()
    assert set(stored["layer"].to_pylist()) == {0}
    assert stored.num_rows <= bloom.blocks_for(0.05, 100_000)
    assert stored.nbytes <= bloom.memory(0.05, 100_000) < 120_000
    job.send(np.arange(400_000))
    assert set(job.table.scan()["layer"].to_pylist()) == {0, 1, 2}
    assert job.table.scan()["keys"].to_numpy().sum() >= 380_000


@pytest.mark.parametrize("blocks", [1, 3, 1_000, 2**31 - 1])
def test_blocks_begin_where_slots_of_their_number_would(blocks):
    hashes = hash_keys([pa.array(np.arange(500))])
    expected = [first_hash(slot, blocks) for slot in slots_of(hashes, blocks).tolist()]
    assert block_starts(hashes, blocks).tolist() == expected


def visits() -> pa.Table:
    draw = np.random.default_rng(3)
    at = np.sort(draw.integers(1_704_067_200_000, 1_711_929_600_000, 30_000))
    return pa.table({"visitor": draw.integers(0, 8_000, 30_000), "at": at})


def monthly(rows: pa.Table, expected: int = 8_000) -> hr.Job:
    job = hr.Job("visitors")
    read = job.read(hr.rows(rows), time="at", delay="1h", name="visits")
    month = hr.calendar("month")
    new = read.first_seen("visitor", per=month, error=0.05, expected=expected, name="first")
    new.write("collect:", name="new")
    new.window(month).agg(visitors=hr.count()).write("collect:", name="counts")
    return job


@pytest.mark.constants  # thousands of rows
@pytest.mark.parametrize("expected", [8_000, 300])
def test_unique_visitors_of_a_month_with_5_percent_error(tmp_path, expected):
    rows = visits()
    months = [datetime.fromtimestamp(t / 1000, UTC).month for t in rows["at"].to_pylist()]
    exact = {m: set[int]() for m in (1, 2, 3)}
    for visitor, month in zip(rows["visitor"].to_pylist(), months, strict=True):
        exact[month].add(visitor)
    bytes_of = []
    for tasks in (1, 3):
        done = drive(monthly(rows, expected), tmp_path / f"{tasks}", tasks=tasks, max_batch=2_000)
        counts = {r["window_start"].month: r["visitors"] for r in done.output("counts").to_pylist()}
        assert counts.keys() == exact.keys()
        for month, count in counts.items():
            assert 0.95 * len(exact[month]) <= count <= len(exact[month])
        bytes_of.append(sorted(done.output("new")["at"].to_pylist()))
    assert bytes_of[0] == bytes_of[1]  # the same rows, whatever the number of tasks


def harness(**more: Any) -> hr.Job:
    job = hr.Job("seen")
    read = job.read("log:x", schema="id bigint, at bigint", time="at", delay="1s", name="x")
    options = {"per": "1h", "expected": 100, "error": 0.2, **more}
    read.first_seen("id", name="new", **options).write("collect:", name="out")
    return job


def test_null_is_one_key_as_in_deduplicate():
    with Harness(harness(error=1e-6)) as test:
        test.send("x", [{"id": v, "at": 1_000} for v in (None, 1, None)])
        test.send("x", [{"id": v, "at": 2_000} for v in (1, None)])
        test.send("x", [{"id": None, "at": 3_600_000}])
        assert [row["id"] for row in test.output("out") if row["id"] is None] == [None, None]


def test_a_crash_or_a_restart_with_other_tasks_changes_nothing():
    draw, runs = np.random.default_rng(2), []
    batches = [[(int(i), 5) for i in draw.integers(0, 50_000, 4_000)] for _ in range(8)]
    for disturbed in (False, True):
        with Harness(harness(), tasks=2) as test:
            for number, batch in enumerate(batches):
                if disturbed and number % 3 == 0:
                    test.crash()
                elif disturbed and number % 3 == 1:
                    test.restart()
                test.send("x", batch)
            state = test.state("new")
            runs.append((sorted(r["id"] for r in test.output()), repr(state)))
            counts = test.progress.counts["x"]
            assert counts["read"] == 32_000 == counts["used"] + counts["filtered"]
    assert runs[0] == runs[1]
    assert len(runs[0][0]) < len({i for batch in batches for i, _ in batch})  # some are lost


@pytest.mark.parametrize("change", [{"per": "2h"}, {"expected": 200}, {"error": 0.1}])
def test_another_period_size_or_error_is_refused_for_stored_state(change):
    with Harness(harness()) as test:
        test.send("x", [(1, 5)])
        with pytest.raises(hr.StateError, match=f"HR-EVOLVE-001.*{next(iter(change))}"):
            test.restart(harness(**change))


def test_state_is_dropped_with_its_period():
    with Harness(harness(per="10s")) as test:
        test.send("x", [(1, 5_000), (2, 6_000), (1, 10_500)])
        assert set(test.state("new")[FILTERS][TIME].to_pylist()) == {0, 10_000}
        test.send("x", [(1, 31_000)])
        assert test.state("new")[FILTERS][TIME].to_pylist() == [30_000]


def test_live_state_has_the_keys_and_bytes_of_each_period():
    job = Alone(0.05, 100, slots=1)
    job.send(np.arange(50))
    (row,) = job.operator.view({FILTERS: job.table}, -1, 10**12).to_pylist()
    assert row == {"time": datetime(1970, 1, 1, tzinfo=UTC), "keys": 50, "bytes": 512}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"error": 0}, "HR-APPROX-002"), ({"error": 1}, "HR-APPROX-002"),
        ({"error": None}, "HR-APPROX-003"), ({"error": 1e-9}, "HR-APPROX-003"),
        ({"expected": 0}, "HR-APPROX-002"), ({"expected": 2.5}, "HR-APPROX-002"),
        ({"expected": 10**11}, "HR-APPROX-002"), ({"per": "0s"}, "HR-STREAM-001"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(options, code):
    with pytest.raises(hr.PlanError) as caught:
        harness(**options).check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)


def test_explain_says_the_memory():
    text = "the first in each 1h, error 0.05 (for 1,000,000 keys 1 MB per period, and 552 bytes per"
    assert text in str(harness(error=0.05, expected=1_000_000).explain())


@pytest.mark.spark
def test_on_spark_the_visitors_of_a_month(spark: Any, tmp_path: Path) -> None:
    rows = visits()[::5]
    run = hr.run(monthly(rows), folder=str(tmp_path), until="end", max_batch=1_500)
    assert run.wait(timeout=300).state == "ended"
    found = run.output("counts").to_pylist()
    months = np.array(rows["at"].to_numpy(), "datetime64[ms]").astype("datetime64[M]")
    for row in found:
        month = np.datetime64(row["window_start"].replace(tzinfo=None), "M")
        exact = len(np.unique(rows["visitor"].to_numpy()[months == month]))
        assert 0.95 * exact <= row["visitors"] <= exact
    assert len(found) == 3
