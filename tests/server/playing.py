"""`headrace run` without Spark: the module that starts a run, with one that drives it here.

All else is real: the command line, its errors and exit codes, the job's folder, state, outputs. It
writes the note of a run (`inspect/live.py`) as the run on Spark does.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace.clock import SystemClock
from headrace.driver.planner import clear_requests, request_stop, stop_requested
from headrace.engine.interrupts import acting
from headrace.engine.processes import process_start
from headrace.inspect.live import RUN, Live, write_live
from headrace.look.in_process import Driver

_PAUSE = 0.1  # seconds between two epochs: rows come all the while, and others want the machine
_NOTES = 0.2  # between two notes


class PlayedRun:
    def __init__(self, driver: Driver) -> None:
        self._driver, self._noted = driver, -_NOTES

    def _write_note(self, folder: Path) -> None:
        if time.monotonic() - self._noted >= _NOTES:
            self._noted, pid = time.monotonic(), os.getpid()
            now = SystemClock().now()
            write_live(folder, Live(now, pid, process_start(pid), run=os.environ.get(RUN)))

    def wait(self) -> None:
        driver, folder = self._driver, self._driver.start.log.folder
        with acting(lambda number: request_stop(folder)):
            while not driver.ended and not stop_requested(folder):
                self._write_note(folder)
                driver.epoch()
                time.sleep(_PAUSE)
        driver.close()
        clear_requests(folder)


def run(
    job: Any, *, until: str | None, folder: str | None, parallelism: int | None,
    max_batch: int | None, drop: Any, drop_all: bool, take_over: bool, go_back: bool,
    for_good: bool, **others: Any,
) -> PlayedRun:  # fmt: skip
    if wanted := os.environ.get("PLAYED_FAILURE"):
        os._exit(int(wanted))
    driver = Driver(
        job, folder or "", until=until, tasks=parallelism or 2, max_batch=max_batch or 50,
        drop=drop_all or drop, take_over=take_over, go_back=go_back, for_good=for_good,
        silent=False,
    )  # fmt: skip
    return PlayedRun(driver)


_module = ModuleType("headrace.engine.start_run")
_module.run = run  # type: ignore[attr-defined]
sys.modules["headrace.engine.start_run"] = _module
