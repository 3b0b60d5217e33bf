"""An input whose event time is another column: its watermark is of that column from then on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import headrace as hr
from headrace.testing import Driver

COLUMNS = "id bigint, at bigint, made bigint"


def go(root: Path, first: int, time: str, *, windows: bool, until: str | None = None) -> Any:
    log = hr.EmbeddedLog(str(root / "log"))
    log.create("in", schema=COLUMNS, exist_ok=True)
    rows = range(first, first + 12)
    log.append("in", [{"id": n, "at": 1_000 * n, "made": 1_000 * n + 900_000} for n in rows])
    job = hr.Job("shop")
    rows_in = job.read("log:in", log=str(root / "log"), time=time, delay="1s", name="in")
    rows_in.key_by("id").agg(n=hr.count(), unbounded=True, name="all").write("collect:", name="o")
    if windows:
        counts = rows_in.window(hr.tumbling("5s")).agg(n=hr.count(), name="counts")
        counts.write("collect:", name="windows")
    driver = Driver(job, root / "job", until=until, max_batch=5)
    driver.drain()
    driver.close()
    return driver


def test_windows_by_an_earlier_event_time_hold_every_row(tmp_path: Path) -> None:
    """The input had come to 900 s by the other column: by that, all rows that follow were late."""
    go(tmp_path, 0, "made", windows=False)
    assert go(tmp_path, 12, "at", windows=True).manifest.watermark == 22_000
    last = go(tmp_path, 24, "at", windows=True, until="end")
    counts = last.output("windows").to_pylist()
    assert {c["window_start"].second: c["n"] for c in counts} == {
        10: 3, 15: 5, 20: 5, 25: 5, 30: 5, 35: 1,
    }  # fmt: skip
    assert last.manifest.counts["in"]["late"] == 0


def test_a_start_with_the_same_event_time_keeps_the_watermark(tmp_path: Path) -> None:
    before = go(tmp_path, 0, "at", windows=False).manifest.splits[0].watermark
    job = hr.Job("shop")
    again = job.read("log:in", log=str(tmp_path / "log"), time="at", delay="1s",
                     name="other", was="in")  # fmt: skip
    again.key_by("id").agg(n=hr.count(), unbounded=True, name="all").write("collect:", name="o")
    driver = Driver(job, tmp_path / "job", until=None)
    assert driver.manifest is not None
    assert driver.manifest.splits[0].watermark == before == 10_000
