"""Process functions against their model: random rows, cuts, tasks, restarts and crashes.

HEADRACE_EXAMPLES=500 runs 500 streams.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import MAX_TIME, ManualClock
from headrace.state import faults
from headrace.testing import Driver
from tests.process.model import Model
from tests.process.program import SCHEMA, Everything, Row, turns
from tests.windows.driving import ROOM, SPLITS, START, Watermark

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "0")) or 10
OPTIONS: dict[str, Any] = {
    "deadline": None, "phases": [Phase.explicit, Phase.reuse, Phase.generate], "database": None,
    "print_blob": True, "suppress_health_check": list(HealthCheck),
}  # fmt: skip
POINTS = ["source.read", "run.added", "state.written", "commit.checked", "commit.manifest",
          "sink.publish", "commit.published"]  # fmt: skip
DELAY, IDLE = 2_000, 5_000


class Crash(Exception):
    pass


class Driven:
    """A job and its model, side by side."""

    def __init__(self, folder: str, data: Any) -> None:
        self._folder, self._data = folder, data
        self._log = hr.EmbeddedLog(f"{folder}/log")
        self._log.create("x", partitions=SPLITS, schema=SCHEMA)
        self._clock, self._mark = ManualClock(START), Watermark(DELAY, IDLE)
        self._model, self._seen = Model(), Counter[str]()
        self._dead = 0
        self._crashed = False  # in the last epoch, after its commit
        self._driver = self._start()

    def run(self, all_turns: list[tuple[int, list[Row]]]) -> None:
        for wait, rows in all_turns:
            self._turn(wait, rows)
        self._driver = self._start("end")
        before = self._mark.value
        self._driver.epoch()
        self._compare([], before, MAX_TIME)
        assert self._driver.epoch() is None
        assert self._driver.manifest is not None
        counts = self._driver.manifest.counts.get("x", {})
        assert counts.get("dead", 0) == self._dead

    def _start(self, until: str | None = None) -> Driver:
        job = hr.Job("processes")
        rows = job.read("log:x", log=f"{self._folder}/log", name="x", time="at",
                        delay=f"{DELAY}ms", idle=f"{IDLE}ms")  # fmt: skip
        made = rows.key_by("k").process(Everything(), unbounded=True, name="p")
        made.write("collect:", name="out")
        made.side("aside").write("collect:", name="aside")
        tasks = self._data.draw(st.integers(1, 3))
        return Driver(job, f"{self._folder}/job", clock=self._clock, until=until, tasks=tasks)

    def _turn(self, wait: int, rows: list[Row]) -> None:
        restarts = self._data.draw(st.integers(0, 3)) == 0
        if restarts:
            self._driver.close()
            self._driver = self._start()
        self._clock.advance(wait)
        if restarts:
            self._mark.awake(self._clock.now())
        for split in range(SPLITS):
            mine = [r for r in rows if r.split == split]
            if mine:
                self._log.append("x", [_record(r) for r in mine], partition=split)
        for _ in range(6):
            before, worked = self._mark.value, self._epoch()
            if not worked:
                break
            after = self._mark.after(rows, self._clock.now())  # type: ignore[arg-type]
            if self._crashed:
                self._mark.awake(self._clock.now())  # the epoch was committed by the run before
            self._compare(rows, before, after)
            rows = []
        else:
            raise AssertionError("the job does not come to rest")
        assert not rows

    def _epoch(self) -> bool:
        """One epoch, though the job may crash on the way."""
        known = self._driver.manifest.epoch if self._driver.manifest else 0
        self._crashed = False
        if self._data.draw(st.integers(0, 3)) == 0:
            point = self._data.draw(st.sampled_from(POINTS))
            with faults.hooked(_hook(point)), contextlib.suppress(Crash):
                return self._driver.epoch() is not None
            self._driver = self._start()
            self._crashed = bool(self._driver.manifest) and self._driver.manifest.epoch > known
            if self._crashed:
                return True  # it was committed before the crash
            self._mark.awake(self._clock.now())
        return self._driver.epoch() is not None

    def _compare(self, rows: list[Row], before: int, after: int) -> None:
        out, aside, dead = self._model.step(
            rows, before, after, self._clock.now(), max(self._mark.marks.values(), default=before)
        )
        self._dead += dead
        for name, wanted in (("out", out), ("aside", aside)):
            table = self._driver.output(name)
            found = table.slice(self._seen[name]).to_pylist()
            self._seen[name] = table.num_rows
            came, due = Counter(tuple(r.values()) for r in found), Counter(wanted)
            assert (came - due, due - came) == (Counter(), Counter()), f"{name}, {before}, {after}"
        assert self._driver.manifest is not None
        assert self._driver.manifest.metrics.get("p", {}) == self._model.counts


def _hook(point: str) -> Any:
    def hook(name: str) -> None:
        if name == point:
            raise Crash(name)

    return hook


def _record(row: Row) -> dict[str, Any]:
    return {"k": row.key, "op": row.op, "arg": row.arg, "at": row.time}


# A crash leaves files open, and the interpreter says so when it collects them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@settings(max_examples=EXAMPLES, **OPTIONS)
@given(all_turns=turns(), data=st.data())
def test_a_process_does_what_the_model_says(all_turns: Any, data: Any) -> None:
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        Driven(folder, data).run(all_turns)
