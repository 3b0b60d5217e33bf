"""`python -m soak [--keys N] [--minutes M]`: a process function over millions of keys, for minutes.

The topic is filled with every key once; then rows of random keys come at a steady pace. Every
few seconds the memory of all processes, their open files, the size of the job's folder and
the time of a batch are noted. Ends with 1 if, after a quarter of the time to warm up, memory
grew by more than a tenth, or files, folder or batches by more than half. And every row must
have been counted: the sum of all counts is the number of rows sent.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import headrace as hr

ROWS = 10_000  # touched a second
EVERY = 5.0  # seconds between two looks
LIMITS = {"memory": 1.10, "files": 1.5, "folder": 1.5, "batch": 1.5}


class Count(hr.KeyedProcess):
    n = hr.value(int, default=0)
    output = "key bigint, n bigint"

    def on_row(self, row: Any, ctx: Any) -> None:
        self.n += 1


@dataclass(frozen=True, slots=True)
class Look:
    memory: float  # MB, shared pages counted once
    files: float
    folder: float  # MB
    batch: float  # ms

    def __str__(self) -> str:
        return (
            f"memory {self.memory:,.0f} MB, {self.files:.0f} open files, "
            f"folder {self.folder:,.0f} MB, batch {self.batch:.0f} ms"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--keys", type=int, default=5_000_000)
    parser.add_argument("--minutes", type=float, default=10.0)
    asked = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="headrace-soak-"))
    try:
        return soak(folder, asked.keys, asked.minutes * 60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def soak(folder: Path, keys: int, seconds: float) -> int:
    log = hr.EmbeddedLog(folder / "log")
    log.create("rows", schema="key bigint", retention="10m")
    job = hr.Job("soak", folder=str(folder / "job"))
    rows = job.read("log:rows", log=folder / "log", name="rows")
    rows.key_by("key").process(Count(), unbounded=True, name="counts").write("collect:", name="out")
    times: list[float] = []
    run = hr.run(job, on_progress=lambda p: times.append(p.committed - p.clock))
    sent = _fill(log, keys)
    run.catch_up()
    print(f"{sent:,} keys are held", flush=True)
    looks, random = [], np.random.default_rng(7)
    begun = time.monotonic()
    for turn in range(int(seconds)):
        log.append("rows", pa.table({"key": random.integers(0, keys, ROWS)}))
        sent += ROWS
        if turn % EVERY == EVERY - 1:
            looks.append(_look(folder / "job", times))
            print(f"{turn + 1:5d} s: {looks[-1]}", flush=True)
        time.sleep(max(0.0, begun + turn + 1 - time.monotonic()))
    run.catch_up()
    counted = run.state("counts").sql("SELECT count(*) AS keys, sum(n) AS rows FROM state")
    run.stop()
    return _judged(looks, sent, keys, counted.to_pylist()[0])


def _fill(log: hr.EmbeddedLog, keys: int) -> int:
    for first in range(0, keys, 250_000):
        log.append("rows", pa.table({"key": np.arange(first, min(first + 250_000, keys))}))
    return keys


def _look(folder: Path, times: list[float]) -> Look:
    held, files = 0, 0
    root = psutil.Process(os.getpid())
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it may have ended meanwhile
            held += process.memory_full_info().pss
            files += process.num_fds()
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # merged away meanwhile
            size += path.stat().st_size
    recent, times[:] = [*times], []
    median = statistics.median(recent) if recent else 0.0
    return Look(held / 2**20, files, size / 2**20, median)


def _judged(looks: list[Look], sent: int, keys: int, counted: dict[str, int]) -> int:
    warm = looks[len(looks) // 4 :]
    half = max(1, len(warm) // 4)
    wrong = []
    for name, limit in LIMITS.items():
        first, last = (
            statistics.median(getattr(look, name) for look in part)
            for part in (warm[:half], warm[-half:])
        )
        grown = last / first if first else 1.0
        print(f"{name}: {first:,.0f} -> {last:,.0f}, {grown:.2f} x (at most {limit:g})")
        wrong += [name] if grown > limit else []
    print(
        f"{counted['rows']:,} rows counted of {sent:,} sent, {counted['keys']:,} keys of {keys:,}"
    )
    if counted["rows"] != sent or counted["keys"] != keys:
        wrong.append("rows")
    print(f"grew: {', '.join(wrong)}" if wrong else "flat")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
