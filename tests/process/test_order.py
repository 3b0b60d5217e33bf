"""Process functions in the order of event time: the same results, whatever cuts the rows.

HEADRACE_EXAMPLES=500 runs 500 streams.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.state import faults
from headrace.testing import Driver, drive
from tests.process.order_model import OPS, SCHEMA, Expected, InOrder, Row
from tests.windows.driving import ROOM

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "0")) or 8
OPTIONS: dict[str, Any] = {
    "deadline": None, "phases": [Phase.explicit, Phase.reuse, Phase.generate], "database": None,
    "print_blob": True, "suppress_health_check": list(HealthCheck),
}  # fmt: skip
POINTS = ["source.read", "run.added", "state.written", "commit.checked", "commit.manifest",
          "sink.publish", "commit.published"]  # fmt: skip
DELAY, SPLITS = 2_000, 3


class Crash(Exception):
    pass


@st.composite
def streams(draw: Any) -> list[Row]:
    """Rows out of order within the delay, over some splits."""
    at, offsets, rows = 0, [0] * SPLITS, []
    one = st.tuples(
        st.sampled_from("abc"), st.sampled_from(OPS), st.integers(0, 6),
        st.sampled_from([0, 0, 500, 1_000, DELAY]), st.integers(0, SPLITS - 1),
        st.sampled_from([0, 0, 500, 900, 4_000]),
    )  # fmt: skip
    for key, op, arg, back, split, step in draw(st.lists(one, min_size=1, max_size=20)):
        at += step
        rows.append(Row(key, op, arg, at - back, split, offsets[split]))
        offsets[split] += 1
    return rows


def job_of(folder: str, inputs: int) -> hr.Job:
    """`inputs` streams that meet by key, whose rows are processed in order."""
    job = hr.Job("ordered")
    read = [
        job.read(f"log:x{i}", log=f"{folder}/log", name=f"x{i}", time="at", delay=f"{DELAY}ms")
        for i in range(inputs)
    ]
    if inputs == 1:
        made = read[0].key_by("k").process(InOrder(), order="event_time", unbounded=True, name="p")
    else:
        both = hr.connect(by="k", **{f"x{i}": one for i, one in enumerate(read)})
        made = both.process(InOrder(), order="event_time", unbounded=True, name="p")
    made.write("collect:", name="out")
    made.side("aside").write("collect:", name="aside")
    for i in range(inputs):
        made.late_of(f"x{i}").write("collect:", name=f"late{i}")
    counted = made.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count())
    counted.write("collect:", name="times")
    return job


def filled(folder: str, rows: list[Row], inputs: int) -> None:
    """Each split is one of a topic, or the only one of a topic of its own."""
    log = hr.EmbeddedLog(f"{folder}/log")
    for i in range(inputs):
        log.create(f"x{i}", partitions=SPLITS if inputs == 1 else 1, schema=SCHEMA)
    for split in range(SPLITS):
        mine = [
            {"k": r.key, "op": r.op, "arg": r.arg, "at": r.time} for r in rows if r.split == split
        ]
        if mine:
            topic, partition = ("x0", split) if inputs == 1 else (f"x{split}", 0)
            log.append(topic, mine, partition=partition)


def hook(point: str) -> Any:
    def crash(name: str) -> None:
        if name == point:
            raise Crash(name)

    return crash


def play(folder: str, inputs: int, data: Any) -> Driver:
    """Run to the end: batches of any size, crashes at any point, tasks changed at every start."""
    most = data.draw(st.sampled_from([1, 3, 8, 1_000]))

    def start() -> Driver:
        tasks = data.draw(st.integers(1, 3))
        return Driver(job_of(folder, inputs), f"{folder}/job", tasks=tasks, max_batch=most)

    driver = start()
    while True:
        if data.draw(st.integers(0, 7)) == 7:
            point = data.draw(st.sampled_from(POINTS))
            with faults.hooked(hook(point)), contextlib.suppress(Crash):
                driver.epoch()
            driver = start()
        elif driver.epoch() is None:
            return driver


def found(driver: Driver, name: str) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in driver.output(name).to_pylist())


# A crash leaves files open, and the interpreter says so when it collects them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("inputs", [1, SPLITS])
@settings(max_examples=EXAMPLES, **OPTIONS)
@given(rows=streams(), data=st.data())
def test_what_comes_out_depends_on_nothing_but_the_rows(
    inputs: int, rows: list[Row], data: Any
) -> None:
    last = [max((r.time for r in rows if r.split == s), default=None) for s in range(SPLITS)]
    wanted = Expected(rows, max(t for t in last if t is not None) - DELAY)
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        filled(folder, rows, inputs)
        driver = play(folder, inputs, data)
        assert found(driver, "out") == wanted.out
        assert found(driver, "aside") == wanted.aside
        counted = {
            (r["k"], r["window_start"].timestamp()): r["n"]
            for r in driver.output("times").to_pylist()
        }
        assert counted == wanted.times
        assert driver.manifest is not None
        counts = Counter[str]()
        for one in driver.manifest.counts.values():
            counts.update(one)
        assert counts["read"] == len(rows) and counts["late"] == 0
        assert counts["dead"] == wanted.dead
        assert counts["used"] + counts["dead"] == len(rows)


class Silence(hr.KeyedProcess):
    """The example of the guide, as one would write it first."""

    output = "area string, silent_since bigint"
    last = hr.value(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        if self.last is not None:
            ctx.cancel(self.last + 1_500)
        self.last = ctx.time
        ctx.timer(ctx.time + 1_500)

    def on_timer(self, time: int, ctx: Any) -> Any:
        del self.last
        return (ctx.key, time - 1_500)


SPOKEN = [("a", 0), ("b", 1), ("a", 2), ("a", 3), ("a", 10), ("a", 20)]


@pytest.mark.parametrize("reading", [{"delay": "2s"}, {"in_order": True}])
@pytest.mark.parametrize("most", [1, 2, 3, 1_000])
def test_a_silence_is_found_however_rows_are_cut(tmp_path: Any, most: int, reading: Any) -> None:
    job = hr.Job("silence")
    rows = hr.rows([{"area": area, "at": 1_000 * second} for area, second in SPOKEN])
    areas = job.read(rows, time="at", **reading).key_by("area")
    areas.process(Silence(), order="event_time", unbounded=True).write("collect:", name="o")
    told = found(drive(job, tmp_path, max_batch=most), "o")
    assert told == Counter([("a", 0), ("a", 3_000), ("a", 10_000), ("a", 20_000), ("b", 1_000)])
