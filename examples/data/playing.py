"""Play an example: a fresh folder, its topics filled, the job run on Spark to the end.

Generators follow from a seed and from `BEGIN`, so everybody sees the same records and results.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import headrace as hr
from headrace.inspect.progress import Progress

BEGIN = 1_700_000_400  # seconds; a full hour less 20 minutes, as good as any
SEED = 7


def line(second: float, **fields: Any) -> bytes:
    """A record as JSON; `second` is when it happened, after the beginning."""
    at = datetime.fromtimestamp(BEGIN + second, UTC).isoformat(timespec="milliseconds")
    return json.dumps({**fields, "at": at}).encode()


def disorder(rng: random.Random, records: Iterable[tuple[float, bytes]]) -> Iterator[bytes]:
    """The records in the order in which they arrive: each up to a second after it happened."""
    arrivals = [(second + rng.uniform(0, 1), record) for second, record in records]
    for _, record in sorted(arrivals):
        yield record


def fill(topics: Mapping[str, Iterable[bytes]]) -> None:
    """Append records to topics, which are made if they are missing."""
    log = hr.EmbeddedLog()
    for topic, records in topics.items():
        log.create(topic, exist_ok=True)
        log.append(topic, list(records))


def topic(name: str) -> list[dict[str, Any]]:
    """All rows of a typed topic."""
    log = hr.EmbeddedLog()
    parts = [log.read(name, partition, 0) for partition in log.latest(name)]
    return [row for part in parts for _, rows in part for row in rows.to_pylist()]


class Data(Protocol):
    """A module that generates the records of an example, and reports what became of them."""

    def topics(self) -> Mapping[str, Iterable[bytes]]: ...
    def report(self, progress: Progress) -> None: ...


class Running(Protocol):
    """A job that runs until it is drained."""

    def catch_up(self) -> None: ...
    def state(self, step: str) -> hr.StepState: ...
    def rest(self, seconds: float) -> None: ...


@dataclass(frozen=True)
class OnSpark:
    """A run, as a `Running`."""

    run: hr.Run

    def catch_up(self) -> None:
        self.run.catch_up()

    def state(self, step: str) -> hr.StepState:
        return self.run.state(step)

    def rest(self, seconds: float) -> None:
        time.sleep(seconds)


def play(job: hr.Job, data: Data, during: Callable[[Running], None] | None = None) -> None:
    """Run a job over its records, in a folder of its own, and print what happened; stays there.

    `during` is called while the job runs, to look at it or to send more; then it is drained.
    """
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    place = Path(".headrace/examples").absolute() / f"{job.name}-{stamp}"
    place.mkdir(parents=True)
    os.chdir(place)  # the paths of a job are relative
    os.environ["HEADRACE_LOG"] = str(place / "log")
    fill(data.topics())
    run = hr.run(job, until="end" if during is None else None, folder="job")
    if during is not None:
        during(OnSpark(run))
        run.drain()
    run.wait()
    print(f"all of it is in {place}\n")
    data.report(run.progress)
