"""How long from the start after a kill -9 to the first new commit, with ever more keys stored.

Nothing is asserted of the time; it is printed, beside the mission's 15 seconds for a quiet machine.
`HEADRACE_KILLS` says how often each is killed (10).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.engine.killing import ROOT, environment, left_behind
from tools.evidence import record

import headrace as hr
from headrace.state.epochs import EpochLog

pytestmark = pytest.mark.spark
KILLS = int(os.environ.get("HEADRACE_KILLS", "10"))
MORE = 10_000  # rows for each start
PATIENCE = 180.0  # seconds


@pytest.mark.parametrize("keys", [10_000, 100_000, 1_000_000])
def test_recovery(keys: int, tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("rows", partitions=2, schema="key bigint, value bigint")
    draw, appended, took = np.random.default_rng(keys), list[pa.Table](), list[float]()

    def append(keys_of: np.ndarray) -> None:
        rows = pa.table({"key": keys_of, "value": draw.integers(0, 100, len(keys_of))})
        appended.append(rows)
        log.append("rows", rows)

    append(np.arange(keys))
    for kill in range(KILLS + 1):
        before = _read(tmp_path)
        if kill:
            append(draw.integers(0, keys, MORE))
        began = time.monotonic()
        running = _start(tmp_path)
        while _read(tmp_path) == before:
            assert running.poll() is None and time.monotonic() - began < PATIENCE
            time.sleep(0.02)
        took += [time.monotonic() - began] if kill else []
        while _read(tmp_path) < sum(rows.num_rows for rows in appended):
            assert running.poll() is None and time.monotonic() - began < PATIENCE
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        assert not left_behind(running.pid, within=30)
    violations = _check(tmp_path, pa.concat_tables(appended))
    took.sort()
    p95 = took[min(len(took) - 1, int(0.95 * len(took)))]
    print(
        f"\nrecovery: {keys:,} keys, {len(took)} kills, first new commit after p50 "
        f"{took[len(took) // 2]:.1f} s, p95 {p95:.1f} s, worst {took[-1]:.1f} s"
    )
    record(
        f"recovery-{keys}", f"kill -9, {keys:,} keys; first commit p95 {p95:.1f} s",
        "make chaos", faults=len(took), records=sum(t.num_rows for t in appended),
        violations=violations,
    )  # fmt: skip


def _start(place: Path) -> subprocess.Popen[bytes]:
    with open(place / "told", "ab") as told:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.engine.recovery_job", str(place)],
            cwd=ROOT, start_new_session=True, stdout=told, stderr=told,
            env=environment(),
        )  # fmt: skip


def _read(place: Path) -> int:
    """How many rows are committed."""
    manifest = EpochLog(place / "job").latest() if (place / "job" / "epochs").is_dir() else None
    return manifest.counts["rows"]["read"] if manifest is not None else 0


def _check(place: Path, appended: pa.Table) -> int:
    """Every row came out once: the totals of each key, in any order, end with its sum."""
    import duckdb

    found = hr.read_output(place / "out")
    with duckdb.connect() as db:
        db.register("rows", appended)
        db.register("found", found)
        wanted = db.sql("SELECT key, sum(value) FROM rows GROUP BY key ORDER BY key").fetchall()
        shown = db.sql("SELECT key, max(total) FROM found GROUP BY key ORDER BY key").fetchall()
    assert found.num_rows == appended.num_rows and wanted == shown
    return 0
