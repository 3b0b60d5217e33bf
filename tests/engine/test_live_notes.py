"""What a run on Spark says of itself: its note, and how long publishing took."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import SystemClock
from headrace.engine.processes import process_start
from headrace.inspect.live import Live, read_live

pytestmark = pytest.mark.spark


def _note(folder: Path) -> Live | None:
    me = os.getpid()
    return read_live(folder, SystemClock().now(), (me, process_start(me)))


def test_a_run_leaves_a_note_of_itself_and_its_figures_have_it(spark: Any, tmp_path: Path) -> None:
    log, folder = hr.EmbeddedLog(str(tmp_path / "log")), tmp_path / "job"
    log.create("rows", schema=pa.schema([("k", pa.string()), ("at", pa.int64())]))
    job = hr.Job("noted")
    rows = job.read("log:rows", log=str(tmp_path / "log"), time="at", delay="1s", name="rows")
    rows.where("at >= 0", name="all").write("collect:", name="out")
    run = hr.run(job, folder=str(folder), quiet=True)
    for turn in range(3):
        log.append("rows", [{"k": "a", "at": turn}])
        run.catch_up()
    deadline = time.monotonic() + 60
    while (note := _note(folder)) is None or not note.memory or not note.phases or note.epoch < 3:
        assert time.monotonic() < deadline, note
        run.wait(timeout=0.1)
    assert note.state == "running" and note.gc_ms is not None
    assert all((note.memory[kind] or 0) > 10_000_000 for kind in ("driver", "jvm", "jvm_heap"))
    assert "addBatch" in note.phases

    found = run.figures
    assert found is not None and found.epoch == 3 and found.totals["read"] == 3
    assert found.memory == note.memory or found.memory["driver"]
    (out,) = [output for output in found.outputs if output.name == "out"]
    assert out.publish_ms is not None and out.publish_ms > 0
    assert found.inputs[0].latency["ingest"] is not None
    assert {s.name for s in found.steps if s.busy} >= {"rows", "out"}
    assert run.stop().state == "stopped"
    last = _note(folder)
    assert last is not None and last.state == "stopped"
