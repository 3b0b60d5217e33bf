"""The program of a transcript's case: Python text, and what it may speak of.

hr, t     headrace, and its triggers
rows      in `stream`: the input "rows" (key string, value bigint, at timestamp, its time)
job       in `job`: the job; `read(name, **options)` makes such an input
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import headrace as hr

ROWS, OUT = "rows", "out"
COLUMNS = "key string, value bigint, at timestamp"


def made(program: Mapping[str, str], read: Mapping[str, Any]) -> hr.Job:
    """The job that a case's text writes; `read` says how its inputs are read."""
    job = hr.Job("transcript")
    reading = _reader(job, read)
    # Functions of "__main__" travel to Spark's workers by value: nobody can import these.
    names = {"__name__": "__main__", "hr": hr, "t": hr.triggers, "job": job, "read": reading}
    if "job" in program:
        exec(compile(program["job"], "<job>", "exec"), names)
        return job
    names[ROWS] = reading()
    result = eval(compile(program["stream"].strip(), "<stream>", "eval"), names)
    result.write("collect:", name=OUT)
    return job


def _reader(job: hr.Job, options: Mapping[str, Any]) -> Callable[..., hr.Stream]:
    def read(name: str = ROWS, **more: Any) -> hr.Stream:
        said = {"time": "at", **options, **more}
        if not {"delay", "watermark"} & set(said) and said["time"] == "at":
            said.setdefault("in_order", True)
        return job.read(f"log:{name}", schema=COLUMNS, name=name, **said)

    return read
