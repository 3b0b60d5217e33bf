"""A burst of twenty times the usual rate, for a minute: nothing is lost, and the job lives.

`HEADRACE_RATE` rows a second come as usual (10,000), twenty times as many in the burst. What is
counted per sensor and second equals what was appended, and every row is accounted for. Printed:
how long batches took before, in and after the burst, beside the target of one second.

Once more with `shed=`: a job that is slower than the burst may be two seconds behind. What it
dropped is counted, what it used is not doubled, and the estimates are as right as they should be.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tools.evidence import record

import headrace as hr
from headrace.state.epochs import EpochLog

pytestmark = pytest.mark.spark
RATE = int(os.environ.get("HEADRACE_RATE", "10000"))
TIMES, CALM, BURST = 20, 15, 60  # times the rate; seconds before and after; seconds of it
SENSORS, TARGET_MS = 1_000, 1_000
SCHEMA = "sensor int, value bigint, at bigint"
BEGIN = 1_700_000_000_000


def second(at: int, rows: int) -> pa.Table:
    draw = np.random.default_rng([7, at])
    times = BEGIN + 1_000 * at + np.sort(draw.integers(0, 1_000, rows))
    sensors = draw.integers(0, SENSORS, rows).astype("int32")
    return pa.table([sensors, draw.integers(0, 100, rows), times], names=["sensor", "value", "at"])


def build(place: Path) -> hr.Job:
    job = hr.Job("burst")
    rows = job.read("log:readings", log=str(place / "log"), time="at", delay="5s", name="readings")
    windows = rows.key_by("sensor").window(hr.sliding("5s", every="1s"))
    windows.agg(n=hr.count(), total=hr.sum("value")).write(f"files:{place}/out", name="out")
    return job


def test_a_burst_of_twenty_times_for_a_minute(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("readings", partitions=2, schema=SCHEMA)
    run = hr.run(
        build(tmp_path), folder=str(tmp_path / "job"), target_batch=f"{TARGET_MS}ms",
        master="local[2]", quiet=True,
    )  # fmt: skip
    seconds = [RATE] * CALM + [TIMES * RATE] * BURST + [RATE] * CALM
    began, behind, marks = time.monotonic(), list[int](), list[int]()
    for at, rows in enumerate(seconds):
        log.append("readings", second(at, rows))
        if at in (CALM, CALM + BURST):
            marks.append(run.status.epoch or 0)
        behind.append(sum(seconds[: at + 1]) - (run.progress.total["read"] if run.progress else 0))
        time.sleep(max(0.0, began + at + 1 - time.monotonic()))
    ended = time.monotonic()
    run.catch_up()
    caught = time.monotonic() - ended
    run.drain()
    assert run.wait(600).state == "ended"
    counts = run.progress.total
    total = sum(seconds)
    assert counts["read"] == total == counts["used"] + counts["late"] and not counts["dead"]
    assert not counts["late"]
    _compare(hr.read_output(tmp_path / "out"), seconds)
    took = list(_batch_times(tmp_path / "job"))
    print(
        f"\nburst: {total:,} rows, 0 lost; at most {max(behind):,} behind, in time again "
        f"{caught:.1f} s after; the last {len(took)} batches took {median(took):.0f} ms "
        f"(target {TARGET_MS} ms), the longest {max(took):.0f} ms"
    )
    record(
        "burst", f"a burst of {TIMES} times {RATE:,} rows/s for {BURST} s", "make chaos",
        faults=1, records=total, violations=0,
    )  # fmt: skip


def _batch_times(folder: Path) -> Iterator[float]:
    """Between two manifests that are still there."""
    log = EpochLog(folder)
    walls = [log.read(epoch).wall for epoch in log.epochs()]
    yield from (float(b - a) for a, b in pairwise(walls))


def _compare(found: pa.Table, seconds: list[int]) -> None:
    """With what DuckDB finds in the same rows, each in the five windows that it is in."""
    import duckdb

    with duckdb.connect() as db:
        db.register("rows", pa.concat_tables(second(at, n) for at, n in enumerate(seconds)))
        db.register("found", found)
        db.sql(
            "CREATE TABLE wanted AS SELECT sensor, (at // 1000 - k) * 1000 AS start, "
            "count(*) AS n, sum(value)::BIGINT AS total FROM rows, range(5) AS w(k) GROUP BY ALL"
        )
        db.sql(
            "CREATE TABLE ours AS SELECT sensor, epoch_ms(window_start) AS start, n, total "
            "FROM found"
        )
        for more, less in (("wanted", "ours"), ("ours", "wanted")):
            found = db.sql(f"SELECT * FROM {more} EXCEPT ALL SELECT * FROM {less}").fetchall()
            assert found == [], f"{more}, and not {less}: {found[:3]} of {len(found)}"


SLOW_RATE = int(os.environ.get("HEADRACE_SLOW_RATE", "2000"))


def slow(row: Any) -> dict[str, Any]:
    """About 5,000 rows a second and core."""
    time.sleep(0.0002)
    return {"sensor": row.sensor, "value": row.value, "w": row.w}


def shedding(place: Path) -> hr.Job:
    job = hr.Job("shedding")
    rows = job.read(
        "log:readings", log=str(place / "log"), name="readings",
        shed=hr.shedding.random(lag="2s", weight="w"),
    )  # fmt: skip
    slowed = rows.map(slow, schema="sensor int, value bigint, w double")
    slowed.key_by("sensor").agg(
        seen=hr.count(), n=hr.sum("w"), total=hr.sum("value * w"), unbounded=True
    ).write(f"files:{place}/out", name="out")
    return job


def test_a_burst_of_twenty_times_that_is_shed(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("readings", partitions=2, schema=SCHEMA)
    run = hr.run(
        shedding(tmp_path), folder=str(tmp_path / "job"), target_batch=f"{TARGET_MS}ms",
        master="local[2]", quiet=True,
    )  # fmt: skip
    seconds = [SLOW_RATE] * CALM + [TIMES * SLOW_RATE] * BURST + [SLOW_RATE] * CALM
    began, behind = time.monotonic(), list[int]()
    for at, rows in enumerate(seconds):
        log.append("readings", second(at, rows))
        behind.append(sum(seconds[: at + 1]) - (run.progress.total["read"] if run.progress else 0))
        time.sleep(max(0.0, began + at + 1 - time.monotonic()))
    run.catch_up()
    run.stop()
    run.wait(600)
    counts, rows = run.progress.total, sum(seconds)
    assert counts["read"] == rows == counts["used"] + counts["shed"]
    assert counts["shed"] > 0
    found = hr.read_output(tmp_path / "out").to_pylist()
    last = {r["sensor"]: r for r in sorted(found, key=lambda r: r["seen"])}.values()
    assert sum(r["seen"] for r in last) == counts["used"]
    estimate = sum(r["n"] for r in last)
    assert abs(estimate - rows) < 0.05 * rows
    print(
        f"\nshed: {counts['shed']:,} of {rows:,} rows, at most {max(behind):,} behind; "
        f"estimated {estimate:,.0f}"
    )
