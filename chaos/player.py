"""One start of a program, as a process of its own that is to be killed: without Spark, or on it.

`python -m chaos.player PLACE PROGRAM ORDERS` runs it on Spark; ORDERS is JSON. What the suite wants
of a process that runs lies in small files beside the job: how far the clock is off, how slow the
outputs are, at which durable step to halt or to be killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import headrace as hr
from chaos.programs import build
from headrace.clock import SystemClock
from headrace.state import faults
from headrace.testing import Driver

PAUSE = 0.02  # seconds between two looks when there was nothing to do
KILL, HALT, CLOCK, SLOW, PASSED = "kill", "halt", "clock", "slow", "passed"  # the small files


@dataclass(frozen=True, slots=True)
class Orders:
    """How one start is made."""

    tasks: int  # parallelism: without Spark tasks, on Spark cores
    batch: int  # rows of an epoch
    retained: int = 20  # epochs
    until: str | None = None
    dies_at: int = 0  # at the so-many-th durable step of this process; 0: at none
    victims: str = "1"  # on Spark: who dies at a durable step

    def environment(self, place: Path) -> dict[str, str]:
        return {
            "HEADRACE_KEEP_EPOCHS": str(self.retained),
            "HEADRACE_CRASH": f"@{place / KILL}",
            "HEADRACE_CRASH_SESSION": self.victims,
        }

    def __str__(self) -> str:
        return json.dumps(asdict(self))


def play(program: str, place: Path, orders: Orders) -> None:
    """Without Spark: drive the job in this process until it is killed, or to the end."""
    os.setsid()
    said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.environ.update(orders.environment(place))
    with faults.hooked(_Hook(place, orders.dies_at)), _clock(place):
        try:
            _drive(program, place, orders)
        except hr.HeadraceError as error:
            print(f"{type(error).__name__} {error}", flush=True)
            os._exit(1)
    os._exit(0)


def _drive(program: str, place: Path, orders: Orders) -> None:
    driver = Driver(
        build(program, place), place / "work" / "job", until=orders.until, tasks=orders.tasks,
        max_batch=orders.batch,
    )  # fmt: skip
    while not driver.ended:
        if driver.epoch() is None:
            time.sleep(PAUSE)
    driver.close()


class _Hook:
    """What is done at durable steps: note their names, be slow, halt, die."""

    def __init__(self, place: Path, dies_at: int) -> None:
        self._place, self._dies_at, self._count, self._names = place, dies_at, 0, set[str]()

    def __call__(self, name: str) -> None:
        self._count += 1
        if self._count == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if name not in self._names:
            self._names.add(name)
            with (self._place / PASSED).open("a") as file:
                file.write(f"{name}\n")
        if name.startswith("sink.") and (self._place / SLOW).exists():
            time.sleep(0.05)  # what a slow output takes
        with suppress(FileNotFoundError):
            if (self._place / HALT).read_text() == name:
                (self._place / HALT).unlink()
                os.kill(os.getpid(), signal.SIGSTOP)


@contextmanager
def _clock(place: Path) -> Iterator[None]:
    """The machine's clock, off by what a file says: it may jump at any time."""
    right, file = SystemClock.now, place / CLOCK

    def now(clock: SystemClock) -> int:
        try:
            return right(clock) + int(file.read_text())
        except FileNotFoundError:
            return right(clock)

    with patch.object(SystemClock, "now", now):
        yield


def play_on_spark(program: str, place: Path, orders: Orders) -> None:
    run = hr.run(
        build(program, place), folder=str(place / "work" / "job"), until=orders.until,
        max_batch=orders.batch, master=f"local[{orders.tasks},4]", quiet=True,
        for_good=orders.until == "end",  # the last run closes what is open
    )  # fmt: skip
    run.wait()


if __name__ == "__main__":
    play_on_spark(sys.argv[2], Path(sys.argv[1]), Orders(**json.loads(sys.argv[3])))
