"""Jobs in tests: driven to the end in this process, or played on a stage of a harness."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headrace.clock import Clock
from headrace.driver.planner import clear_requests, stop_requested
from headrace.driver.start import Start
from headrace.epoch.bundle import Edges
from headrace.look.in_process import Driver
from headrace.plan.program import Drafted

PATIENCE = 60  # seconds without a batch


def drive(job: Drafted, folder: str | Path, **options: Any) -> Driver:
    """Run `job` over what its inputs hold now, to the end.

    A bounded input that has nothing now and has not ended, such as a spout, is waited for; with a
    clock of the caller's it is not, because nobody would set it meanwhile.
    """
    driver = Driver(job, folder, **options)
    driver.drain()
    if options.get("until", "end") == "end" and "clock" not in options:
        _to_the_end(driver)
    driver.close()
    return driver


def _to_the_end(driver: Driver) -> None:
    """Look again until all inputs have ended, or the job is asked to stop."""
    since = time.monotonic()
    while not driver.ended and not stop_requested(driver.start.log.folder):
        if driver.drain() is not None:
            since = time.monotonic()
        elif time.monotonic() - since > PATIENCE:
            driver.close()
            raise AssertionError(f"nothing came for {PATIENCE} s, and the inputs have not ended")
        else:
            time.sleep(0.001)


# Where a harness plays its job: in this process here, on Spark in `on_spark.py`.


MANY = 1 << 40  # rows a batch: what a step sends is one


@dataclass(frozen=True)
class Play:
    """One start of a job on a folder, as every stage needs it."""

    job: Drafted
    folder: str
    clock: Clock
    edges: Edges
    tasks: int
    drop: Collection[str] = ()


class Stage(Protocol):
    @property
    def start(self) -> Start: ...

    def settle(self) -> None:
        """Do all there is to do, then return; raise what the job failed with."""

    def close(self) -> None: ...


class InProcess:
    def __init__(self, play: Play) -> None:
        clear_requests(play.folder)  # of a run on Spark before
        self._driver = Driver(
            play.job,
            play.folder,
            until=None,
            tasks=play.tasks,
            max_batch=MANY,
            clock=play.clock,
            drop=play.drop,
            edges=play.edges,
        )

    @property
    def start(self) -> Start:
        return self._driver.start

    def settle(self) -> None:
        self._driver.drain()

    def close(self) -> None:
        self._driver.close()
