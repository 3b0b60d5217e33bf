"""Timers at the end of a bounded input: the same, however the rows were cut into batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import drive


class Beat(hr.KeyedProcess):
    """A timer that sets the next, for ever or so many times."""

    output = "time bigint"
    begun, left = hr.value(bool, default=False), hr.value(int, default=1_000)

    def on_row(self, row: Any, ctx: Any) -> None:
        if not self.begun:
            self.begun, self.left = True, row.beats
            ctx.timer(ctx.time + 1_000)

    def on_timer(self, time: int, ctx: Any) -> Any:
        self.left -= 1
        if self.left:
            ctx.timer(time + 1_000)
        return (time,)


def beats(folder: Path, count: int, max_batch: int) -> list[int]:
    job = hr.Job("beat")
    rows = hr.rows([{"k": "a", "beats": count, "at": 1_000 * s} for s in (0, 4, 6)])
    read = job.read(rows, time="at", delay="1s", name="in")
    read.key_by("k").process(Beat(), unbounded=True).write("collect:", name="out")
    given = drive(job, folder, max_batch=max_batch).output("out")
    return given["time"].to_pylist() if given.num_rows else []


@pytest.mark.parametrize("max_batch", [1, 2, 100])
def test_timers_set_by_timers_fire_as_far_as_the_rows_go(tmp_path: Path, max_batch: int) -> None:
    assert beats(tmp_path, 3, max_batch) == [1_000, 2_000, 3_000]


@pytest.mark.parametrize("max_batch", [1, 2, 100])
def test_one_that_would_go_on_for_ever_ends(tmp_path: Path, max_batch: int) -> None:
    # The watermark came to 5 s; the timer that was set then fires at the end, and no other.
    assert beats(tmp_path, 1_000, max_batch) == [1_000, 2_000, 3_000, 4_000, 5_000, 6_000]
