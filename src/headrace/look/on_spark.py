"""A look that needs Spark: the part of the program runs in a folder of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pyarrow as pa

from headrace.driver.planner import request_stop
from headrace.engine.start_run import run
from headrace.inspect.progress import Progress
from headrace.plan.part import Part

_POLL = 0.1  # seconds


def take(
    part: Part, folder: str, until: str, enough: Callable[[Progress], bool]
) -> tuple[pa.Table, Progress | None]:
    """The rows of the part's output when there were enough, or no more."""

    def watch(progress: Progress) -> None:
        if enough(progress):
            request_stop(folder)

    running = run(part, until=until, folder=folder, quiet=True, on_progress=watch)
    pause = threading.Event()
    try:
        while running.status.state == "running":  # Ctrl-C ends the look, not just its batch
            pause.wait(_POLL)
        running.wait()  # raises what it failed with
    finally:
        running.cancel()
    return running.output(part.output), running.progress
