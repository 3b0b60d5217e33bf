"""Killed between any two durable steps and started again: every row once, always.

A crash is an exception that nobody catches, raised at each crash point in turn; one suite
kills real processes. What is cleaned up on the way out of an exception is not cleaned up by
a kill, so the points lie between the steps, not inside them.
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
from headrace.state import faults

EPOCHS = 5


class Crash(BaseException):
    pass


class Machine:
    """Runs a job's epochs against an output; crashes at the n-th crash point it passes."""

    def __init__(self, output, crash_at: int | None) -> None:
        self._output, self._crash_at = output, crash_at
        self.passed: list[str] = []

    def run(self) -> None:
        manifests: dict[int, list] = {}
        published = -1
        with faults.hooked(self._pass):
            while published < EPOCHS - 1:
                try:
                    sink = self._output.open()
                    made(sink)
                    for epoch in range(published, EPOCHS):  # the last one again, as at a restart
                        if epoch >= 0:
                            if epoch not in manifests:
                                manifests[epoch] = stage(sink, epoch, attempt=str(len(self.passed)))
                            sink.publish(epoch, manifests[epoch], ALONE)
                            self._look(epoch)
                            published = epoch
                    sink.discard({r["file"] for m in manifests.values() for r in m})
                except Crash:
                    self._look(published)

    def _pass(self, name: str) -> None:
        self.passed.append(name)
        if self._crash_at is not None and len(self.passed) == self._crash_at:
            raise Crash(name)

    def _look(self, published: int) -> None:
        """A reader sees whole epochs, in order, at any moment."""
        assert self._output.rows() in (expected(published + 1), expected(published + 2))


@pytest.mark.parametrize("kind", sorted(EXACT))
def test_a_crash_at_any_point_loses_and_doubles_nothing(tmp_path_factory, eager, hasty, kind):
    calm = Machine(EXACT[kind](tmp_path_factory.mktemp("calm")), None)
    calm.run()
    points = [i for i, name in enumerate(calm.passed, 1) if name.startswith("sink.")]
    assert len(points) >= 2 * EPOCHS
    if kind in ("parquet", "json lines", "collect"):
        assert {p for p in calm.passed if p.startswith("sink.merge")} == {
            "sink.merge.written", "sink.merge.recorded", "sink.merge.removed", "sink.merge.renamed",
        }  # fmt: skip

    for point in points:
        output = EXACT[kind](tmp_path_factory.mktemp("crash"))
        Machine(output, point).run()
        assert output.rows() == expected(EPOCHS), calm.passed[point - 1]


def test_at_rest_a_reader_that_globs_sees_every_row_once(tmp_path, eager):
    output = files(tmp_path)
    Machine(output, None).run()

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
