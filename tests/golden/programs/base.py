"""What the golden programs share: how each is known, what it reads and where it writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
from tests.golden.feeding import ORDER, READING

PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True)
class Program:
    """A job that can be built in any folder, and the inputs that it reads."""

    name: str
    build: Callable[[Path], hr.Job]
    inputs: tuple[str, ...]


def program(*inputs: str) -> Callable[[Callable[[Path, hr.Job], None]], Any]:
    """Register a function that fills a job; its name is the program's, the job's and the zip's."""

    def known(fill: Callable[[Path, hr.Job], None]) -> Any:
        def build(root: Path) -> hr.Job:
            job = hr.Job(fill.__name__, slots=4)
            fill(root, job)
            return job

        PROGRAMS[fill.__name__] = Program(fill.__name__, build, inputs)
        return fill

    return known


def readings(root: Path, job: hr.Job, **how: Any) -> hr.Stream:
    said: dict[str, Any] = {"time": "at", "delay": "3s", "idle": "1d", "name": "readings"}
    return job.read("log:readings", log=str(root / "log"), schema=READING, **{**said, **how})


def orders(root: Path, job: hr.Job, **how: Any) -> hr.Stream:
    said: dict[str, Any] = {"time": "due", "delay": "3s", "idle": "1d", "name": "orders"}
    return job.read("log:orders", log=str(root / "log"), schema=ORDER, **{**said, **how})


def control(root: Path, job: hr.Job, topic: str, schema: str, **how: Any) -> hr.Stream:
    return job.read(f"log:{topic}", log=str(root / "log"), schema=schema, name=topic, **how)


def write(**streams: hr.Stream) -> None:
    """Each stream to an output in the job's folder: its name, and "out"."""
    for name, stream in streams.items():
        stream.write("collect:", name=f"{name} out")
