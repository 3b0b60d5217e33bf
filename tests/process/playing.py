"""A process function as a job to play with."""

from __future__ import annotations

from typing import Any

import headrace as hr
from headrace.testing import Harness

SCHEMA = "k string, v bigint, at bigint"


def job_of(fn: hr.KeyedProcess, *sides: str, name: str = "p", **reading: Any) -> hr.Job:
    """A job with the step `p`, its output `out`, and side outputs under their names."""
    job = hr.Job("process")
    said = {"time": "at", "delay": "1h", **reading}
    rows = job.read("log:rows", schema=SCHEMA, name="rows",
                    **{k: v for k, v in said.items() if v is not None})  # fmt: skip
    made = rows.key_by("k").process(fn, unbounded=True, name=name)
    made.write("collect:", name="out")
    for side in sides:
        made.side(side).write("collect:", name=side)
    return job


def said(test: Harness, name: str = "out") -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in test.output(name)]
