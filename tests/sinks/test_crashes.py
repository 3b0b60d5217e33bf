"""Killed between any two durable steps and started again: every row once, always.

The suite of all outputs raises an exception at each crash point; here real processes are killed.
What is cleaned up on the way out of an exception is not cleaned up by a kill, so the points lie
between the steps, not inside them.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.sinks.writing import ALONE, EXACT, expected, files, in_child, made, stage, values

from headrace.sinks import merging, read_output
from headrace.testing.output_drivers import EPOCHS, CrashingDriver


@pytest.mark.parametrize("kind", ["collect", "json lines", "parquet"])
def test_the_crash_points_of_the_suite_include_those_of_merging(tmp_path, eager, hasty, kind):
    calm = CrashingDriver(EXACT[kind](tmp_path), None)
    calm.run()

    assert {p for p in calm.passed if p.startswith("sink.merge")} == {
        "sink.merge.written", "sink.merge.recorded", "sink.merge.removed", "sink.merge.renamed",
    }  # fmt: skip


def test_at_rest_a_reader_that_globs_sees_every_row_once(tmp_path, eager):
    output = files(tmp_path)
    CrashingDriver(output, None).run()

    found = pq.read_table(sorted((tmp_path / "out").glob("*.parquet")))

    assert values(found) == expected(EPOCHS)


def life(tmp_path: Path) -> None:
    """One life of a driver: it takes up what the manifests say and goes on to the end."""
    merging.EVERY = merging.FEW = 2
    sink = files(tmp_path).open()
    made(sink)
    log = tmp_path / "manifests"
    done = log.read_text().splitlines() if log.exists() else []
    manifests = [json.loads(line) for line in done]
    for epoch in range(max(0, len(manifests) - 1), 4):
        if epoch == len(manifests):
            manifests.append(stage(sink, epoch, attempt=f"{len(done)}-{epoch}"))
            with log.open("a") as file:
                file.write(json.dumps(manifests[-1]) + "\n")
        sink.publish(epoch, manifests[epoch], ALONE)


@pytest.mark.chaos
@pytest.mark.parametrize(
    "point",
    [
        "sink.stage.durable:3", "sink.publish.file:4", "sink.publish.renamed:3",
        "sink.publish.recorded:2", "sink.merge.written:1", "sink.merge.recorded:1",
        "sink.merge.removed:1", "sink.merge.renamed:1",
    ],
)  # fmt: skip
def test_a_process_that_is_killed_is_taken_up_by_the_next(tmp_path, point):
    def killed_life() -> None:
        os.environ["HEADRACE_CRASH"] = point
        life(tmp_path)

    assert in_child(killed_life) == (-signal.SIGKILL, "")
    assert in_child(lambda: life(tmp_path)) == (0, "")

    assert values(read_output(tmp_path / "out")) == expected(4)
    found = pq.read_table(sorted((tmp_path / "out").glob("*.parquet")))
    assert values(found) == expected(4)
