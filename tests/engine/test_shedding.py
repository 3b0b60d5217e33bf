"""Records that are shed on Spark: counted exactly, none doubled, with the weights of the rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headrace as hr

pytestmark = pytest.mark.spark


def test_a_job_sheds_what_is_more_than_it_may_leave_waiting(tmp_path: Path, spark: object) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in", partitions=2, schema="n bigint")
    for part in range(2):
        log.append("in", [{"n": n} for n in range(part, 20_000, 2)], partition=part)
    job = hr.Job("shed")
    rows = job.read(
        "log:in", log=str(tmp_path / "log"), name="rows",
        shed=hr.shedding.random(rows=1_000, weight="w"),
    )  # fmt: skip
    rows.write("collect:", name="out")
    run = hr.run(job, folder=str(tmp_path / "job"), max_batch=1_000, quiet=True)
    run.catch_up()
    run.stop()
    run.wait(60)
    assert run.progress is not None
    total = run.progress.total
    assert total["read"] == 20_000 == total["used"] + total["shed"]
    assert 1_000 < total["used"] < 5_000
    found = run.output("out")
    numbers = found.column("n").to_numpy()
    assert len(np.unique(numbers)) == len(numbers) == total["used"]
    assert abs(found.column("w").to_numpy().sum() - 20_000) < 4_000
