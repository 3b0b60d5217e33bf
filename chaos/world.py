"""A job that lives many lives, and all that is around it: its disk, what is sent, who looks.

A life is one start, as a process of its own. Without Spark it is forked from a server that has
imported everything, so a start takes a tenth of a second; on Spark it is a session of processes:
driver, JVM and Python workers.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.engine.killing import STEPS, environment

from chaos.feed import Feed
from chaos.player import KILL, PASSED, Orders, play
from chaos.verifier import Verifier

ROOT = Path(__file__).parent.parent
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["chaos.player", "deltalake", "duckdb"])
PATIENCE = 60.0  # seconds for an epoch without Spark
ON_SPARK = 240.0
DISK = "256m"
_CODE = re.compile(r"HR-[A-Z]+-\d+")


class Broken(Exception):
    """A violation after which this job cannot go on."""


class Life:
    """A process of its own, in a session of its own."""

    def __init__(self, world: World, orders: Orders) -> None:
        self.said = world.place / "said"
        self._before = self.said.stat().st_size if self.said.exists() else 0
        self.began, self.epoch = time.monotonic(), world.epoch()
        self._code: int | None = None
        self._ended, self._mark = False, os.fsencode(str(world.place)) if world.spark else b""
        if world.spark:
            self._process = self._on_spark(world, orders)
        else:
            work = (world.program, world.place, orders)
            self._process = FORKS.Process(target=play, args=work, daemon=True)
            self._process.start()
        self.pid: int = self._process.pid

    def _on_spark(self, world: World, orders: Orders) -> Any:
        command = [sys.executable, "-m", "chaos.player", str(world.place), world.program]
        with self.said.open("ab") as said:
            return subprocess.Popen(
                [*command, str(orders)], cwd=ROOT, start_new_session=True, stdout=said,
                stderr=said, env=environment() | orders.environment(world.place),
            )  # fmt: skip

    @property
    def code(self) -> int | None:
        """How the driver ended; None while it lives."""
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll()
        if self._code is None and not self._process.is_alive():
            self._process.join()
            self._code = self._process.exitcode
        return self._code

    def words(self) -> str:
        """What it has said."""
        with self.said.open("rb") as file:
            file.seek(self._before)
            return file.read().decode(errors="replace")

    def errors(self) -> list[str]:
        """The codes of the errors that it has named."""
        return _CODE.findall(self.words())

    def processes(self, who: str = "all") -> list[int]:
        """Who lives: "driver", "java", "workers" (Python, but not the driver), or "all".

        On Spark those of its session that have its place in their environment: once it is over, the
        number of the session may be somebody else's.
        """
        if not self._mark:
            return [self.pid] if self.code is None else []
        found = []
        for entry in () if self._ended else Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                process = int(entry.name)
                if os.getsid(process) != self.pid or self._mark not in _environment_of(entry):
                    continue
                java = (entry / "comm").read_text().strip() == "java"
                leader = process == self.pid
                if {"all": True, "java": java, "driver": leader,
                    "workers": not java and not leader}[who]:  # fmt: skip
                    found.append(process)
        return found

    def kill(self, who: str = "all", number: signal.Signals = signal.SIGKILL) -> None:
        for process in self.processes(who):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def end(self) -> None:
        """Kill what is left of it."""
        self.kill("all")
        while self.code is None or self.processes():
            self.kill("all")
            time.sleep(0.005)
        self._ended = True


def _environment_of(entry: Path) -> bytes:
    return (entry / "environ").read_bytes()


class World:
    """One program, its seed, and what happened to it."""

    def __init__(self, program: str, seed: int, place: Path, *, spark: bool, disk: bool) -> None:
        self.program, self.seed, self.place, self.spark, self.disk = (
            program, seed, place, spark, disk,
        )  # fmt: skip
        self.draw = random.Random(f"{program} {seed} {spark}")
        self.work = place / "work"
        self.job = self.work / "job"
        (self.work / "out").mkdir(parents=True)
        self.feed = Feed(program, place / "in", self.draw)
        self.verifier = Verifier(program, self.work, self.feed.sent)
        self.faults, self.recoveries = Counter[str](), list[float]()
        self.life: Life | None = None
        self.lives = list[Life]()
        self.blind = False  # a file is damaged on purpose
        self.points = list[str]()
        if not spark:  # the server of forks, which imports everything
            first = FORKS.Process(target=int)
            first.start()
            first.join()

    # lives

    def start(self, step: str = "", **orders: Any) -> Life:
        """Another life, with another parallelism; it dies at a step, if one is named."""
        drawn: dict[str, Any] = {
            "tasks": self.draw.randrange(1, 5), "batch": self.draw.randrange(20, 120),
            "retained": self.draw.choice([1, 2, 20]),
        }  # fmt: skip
        (self.place / KILL).unlink(missing_ok=True)
        if step:
            self.give_order(step)
        self.life = Life(self, Orders(**(drawn | orders)))
        self.lives.append(self.life)
        return self.life

    def give_order(self, step: str) -> None:
        """Who runs dies at the durable step "name:n", when it passes it for the n-th time."""
        (self.place / f"{KILL}.passed").unlink(missing_ok=True)
        (self.place / "order").write_text(step)
        os.rename(self.place / "order", self.place / KILL)

    def end_life(self) -> None:
        if self.life is not None:
            self.life.end()

    def running(self, **orders: Any) -> Life:
        """A life that has committed something: the one there is, or a new one, which is timed."""
        if self.life is not None and self.life.code is None:
            return self.life
        self.feed.send(self.draw.randrange(20, 60))
        life = self.start(**orders)
        self.until(lambda: self.epoch() > life.epoch or life.code is not None)
        if self.epoch() == life.epoch:
            if life.code is None:
                self.wrong("a start does nothing")
            else:
                self.wrong(f"a start ended with {life.code}: {life.words()[-800:]}")
            raise Broken
        if life.epoch:
            self.recoveries.append(time.monotonic() - life.began)
        return life

    def until(self, done: Callable[[], bool], patience: float | None = None) -> bool:
        """Look at the outputs until something is so; whether it came to that."""
        patience = patience or (ON_SPARK if self.spark else PATIENCE)
        end = time.monotonic() + patience
        while not done():
            if time.monotonic() > end:
                return False
            self.look()
            time.sleep(0.1 if self.spark else 0.05)
        return True

    def look(self) -> None:
        if not self.blind:
            try:
                self.verifier.look()
            except Exception as error:
                self.wrong(f"an output cannot be read: {type(error).__name__} {error}")

    def pause(self, seconds: float) -> None:
        """Until a moment like any other."""
        self.until(lambda: False, seconds)

    def epoch(self) -> int:
        """The newest manifest, by its name."""
        with suppress(FileNotFoundError):
            names = os.listdir(self.job / "epochs")
            return max((int(n[:12]) for n in names if n[:12].isdecimal()), default=0)
        return 0

    def advanced(self, life: Life, epochs: int = 1) -> bool:
        """Rows come, and it commits, or has ended."""
        begun = self.epoch()
        self.feed.send(self.draw.randrange(20, 60))
        return self.until(lambda: self.epoch() >= begun + epochs or life.code is not None)

    # what happens

    def count(self, fault: str) -> None:
        self.faults[fault] += 1

    def wrong(self, what: str) -> None:
        self.verifier.violations.append(f"{self.program}: {what}")

    def passed(self) -> list[str]:
        """The durable steps that any life has passed, in drawn order; on Spark those of a batch."""
        if self.spark:
            return list(STEPS)
        file = self.place / PASSED
        known = sorted({*file.read_text().split()}) if file.exists() else []
        new = [name for name in known if name not in self.points]
        self.points += self.draw.sample(new, len(new))
        return self.points

    def refused(self, life: Life, during: str, named: str = "") -> None:
        """It has ended: by an error with a code, which names a file if there is one."""
        if not life.errors() or (named and named not in life.words()):
            about = f", and {named} is not named" if named else ""
            self.wrong(f"{during}: it ended with {life.code}{about}: {life.words()[-800:]}")

    def finish(self) -> None:
        """Everything that was sent, to the end; then nobody may be left."""
        self.end_life()
        life = self.start(until="end")
        if not self.until(lambda: life.code is not None) or life.code != 0:
            self.wrong(f"the last run ended with {life.code}: {life.words()[-800:]}")
        else:
            self.verifier.end()
            if self.verifier.violations:
                self.wrong(f"the job counted {self._counts()}")

    def _counts(self) -> Any:
        """Where it says that its records went."""
        manifest = self.job / "epochs" / f"{self.epoch():012d}.json"
        return json.loads(manifest.read_text().split("\n", 1)[1])["body"]["counts"]

    def close(self) -> None:
        for life in self.lives:
            life.kill("all", signal.SIGCONT)
            life.end()

    @property
    def total(self) -> int:
        return self.faults.total()


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A folder that is a small disk of its own, where that is allowed, and whether it is."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    done = os.geteuid() == 0 and not subprocess.call(command, stderr=subprocess.DEVNULL)
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", "-l", str(folder)], check=True)
