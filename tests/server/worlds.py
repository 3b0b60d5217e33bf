"""A server, its folder and its programs, in tests; the processes of its jobs are real."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.server.daemon import Daemon
from headrace.server.lifecycle import WITH_PROCESS, State
from headrace.server.service import Service
from headrace.server.supervisor import Policy
from headrace.state.epochs import EpochLog
from tests.server.forking import Command

PATIENCE = 240.0  # seconds
POLICY = Policy(every=0.05, pace=0.02)

# Adds up what is in files below `in`, one JSON object a line, with a module beside it.
PROGRAM = """
import headrace as hr
from sizes import size

job = hr.Job({name!r})
rows = job.read("files:in", format="json", schema="k string, n bigint", name="lines")
sums = rows.key_by("k").agg(total=hr.sum("n"){more}, unbounded=True, name="sums")
{before}
sums.write("files:out-{name}", name="out")
"""
SIZES = "def size(n):\n    return n\n"


def program(name: str = "shop", more: str = "", before: str = "") -> str:
    return PROGRAM.format(name=name, more=more, before=before)


class World:
    def __init__(self, place: Path, command: Command) -> None:
        self.place, self._command = place, command
        self.programs = place / "programs"
        self.programs.mkdir(parents=True)
        (place / "in").mkdir()
        self.daemon: Daemon | None = None
        self.policy = POLICY
        self.write("sizes.py", SIZES)

    @classmethod
    def at(cls, place: Path, command: Command) -> World:
        """One that is there already, as another process has made it."""
        world = cls.__new__(cls)
        world.place, world.programs, world._command = place, place / "programs", command
        world.daemon, world.policy = None, POLICY
        return world

    # the server

    @property
    def service(self) -> Service:
        assert self.daemon is not None
        return self.daemon.service

    def open(self, **options: Any) -> Daemon:
        self.daemon = Daemon(
            self.place / "home", [self.programs], folder=self.place, runs=self._command,
            questions=self._command, **{"policy": self.policy, **options},
        )  # fmt: skip
        self.daemon.__enter__()
        return self.daemon

    def close(self) -> None:
        """The server ends, its jobs go on."""
        if self.daemon is not None:
            self.daemon.__exit__(None, None, None)
        self.daemon = None

    @contextmanager
    def running(self, **options: Any) -> Iterator[Service]:
        self.open(**options)
        try:
            yield self.service
        finally:
            self.close()

    def end(self) -> None:
        """Kill whatever still runs."""
        if self.daemon is None:
            self.open()
        with suppress(Exception):
            for job in self.service.jobs():
                if job.state in WITH_PROCESS:
                    self.service.kill(job.name)
        self.close()

    # programs and what they read

    def write(self, name: str, text: str) -> str:
        path = self.programs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def send(self, *rows: str) -> None:
        number = len(list((self.place / "in").iterdir()))
        fresh = self.place / f"{number}.new"
        fresh.write_text("".join(f"{row}\n" for row in rows))
        fresh.rename(self.place / "in" / f"{number:04}.jsonl")

    # looking

    def until(self, done: Callable[[], Any], what: str = "it comes to that") -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := done()):
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}; {self.told()}"
            time.sleep(0.02)
        return found

    def state(self, job: str) -> State:
        return self.service.job(job).job.state

    def until_state(self, job: str, *states: State) -> None:
        self.until(lambda: self.state(job) in states, f"{job} is {states}")

    def epoch(self, job: str) -> int:
        return EpochLog(self.place / ".headrace" / "jobs" / job).newest()

    def kinds(self, job: str) -> list[str]:
        return [event.kind for event in self.service.events(job)]

    def told(self) -> str:
        if self.daemon is None:
            return "no server"
        events = [f"{e.job}: {e.kind}: {e.text}" for e in self.service.events(limit=30)]
        for job in self.service.jobs():
            events += [
                f"{job.name} is {job.state}: {job.reason}",
                *self.service.logs(job.name).lines,
            ]
        return "\n".join(events)


def with_policy(world: World, **changes: Any) -> World:
    world.policy = replace(world.policy, **changes)
    return world


def is_alive(pid: int) -> bool:
    with suppress(OSError):
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return False
