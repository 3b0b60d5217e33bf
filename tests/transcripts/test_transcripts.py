"""The meaning of windows and time as transcripts: input, clock, expectation, step by step.

Every case runs in process with a clock of its own; those marked `spark` run the same script
on real Spark, one batch per step.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import headrace as hr
from headrace.clock import ManualClock
from headrace.testing import Driver

CASES = yaml.safe_load((Path(__file__).parent / "windows.yaml").read_text())
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.int64())])


def build(case: dict[str, Any], root: Path) -> hr.Job:
    spec = dict(case["window"])
    size = spec.pop("tumbling", None)
    window = hr.tumbling(size, **spec) if size else hr.sliding(spec.pop("sliding"), **spec)
    job = hr.Job("transcript")
    timing = {"time": "at", "delay": case["delay"], "idle": case.get("idle", "1h")}
    rows = job.read("log:rows", log=str(root / "log"), name="rows", **timing)
    result = rows.key_by("k").window(window).agg(n=hr.count(), total=hr.sum("v"))
    result.write("collect:", name="results")
    result.late.write("collect:", name="late")
    return job


class InProcess:
    def __init__(self, case: dict[str, Any], root: Path) -> None:
        self._case, self._root, self._clock = case, root, ManualClock(10**9)
        self._driver = self._start(None)

    def _start(self, until: str | None) -> Driver:
        return Driver(build(self._case, self._root), self._root / "job", until=until,
                      clock=self._clock)  # fmt: skip

    def sent(self, rows: int) -> None:
        self._driver.drain()

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(round(seconds * 1_000))
        self._driver.drain()

    def restart(self) -> None:
        self._driver = self._start(None)

    def end(self) -> None:
        self._driver = self._start("end")
        self._driver.drain()

    def output(self, name: str) -> pa.Table:
        return self._driver.output(name)


class OnSpark:
    """Plays what needs neither a restart nor a clock that can be moved."""

    def __init__(self, case: dict[str, Any], root: Path) -> None:
        self._run = hr.run(build(case, root), folder=str(root / "job"), target_batch="100ms")
        self._sent = 0

    def sent(self, rows: int) -> None:
        self._sent += rows
        deadline = time.monotonic() + 120
        while (p := self._run.progress) is None or p.total["read"] < self._sent:
            assert time.monotonic() < deadline and self._run.status.state == "running"
            self._run.wait(timeout=0.05)

    def end(self) -> None:
        self._run.drain()
        self._run.wait(timeout=120)

    def output(self, name: str) -> pa.Table:
        return self._run.output(name)

    def close(self) -> None:
        if self._run.status.state == "running":
            self._run.cancel()


def play(case: dict[str, Any], root: Path, stage: Any, log: hr.EmbeddedLog) -> None:
    seen = {"results": 0, "late": 0}
    for step in case["steps"]:
        ((verb, value),) = step.items()
        if verb == "send":
            rows = [{"k": k, "v": v, "at": round(t * 1_000)} for k, v, t in value]
            log.append("rows", rows)
            stage.sent(len(rows))
        elif verb == "clock":
            stage.pass_time(value)
        elif verb in ("restart", "end"):
            getattr(stage, verb)()
        else:
            name = {"expect": "results", "late": "late"}[verb]
            found = _rows(stage.output(name), verb)
            assert sorted(map(str, found[seen[name] :])) == sorted(map(str, value)), step
            seen[name] = len(found)


def _rows(table: pa.Table, verb: str) -> list[list[Any]]:
    if verb == "late":
        return [[r["k"], r["v"], _number(r["at"] / 1_000)] for r in table.to_pylist()]
    rows = table.to_pylist()
    bounds = [(r["window_start"].timestamp(), r["window_end"].timestamp()) for r in rows]
    return [
        [r["k"], _number(a), _number(b), r["n"], r["total"]]
        for r, (a, b) in zip(rows, bounds, strict=True)
    ]


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value


@pytest.fixture
def log(tmp_path: Path) -> hr.EmbeddedLog:
    made = hr.EmbeddedLog(str(tmp_path / "log"))
    made.create("rows", schema=SCHEMA)
    return made


@pytest.mark.parametrize("case", CASES, ids=[c["name"] for c in CASES])
def test_in_process(case: dict[str, Any], tmp_path: Path, log: hr.EmbeddedLog) -> None:
    play(case, tmp_path, InProcess(case, tmp_path), log)


ON_SPARK = [c for c in CASES if c.get("spark")]


@pytest.mark.spark
@pytest.mark.parametrize("case", ON_SPARK, ids=[c["name"] for c in ON_SPARK])
def test_on_spark(case: dict[str, Any], tmp_path: Path, log: hr.EmbeddedLog, spark: Any) -> None:
    stage = OnSpark(case, tmp_path)
    try:
        play(case, tmp_path, stage, log)
    finally:
        stage.close()
