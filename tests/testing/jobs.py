"""The jobs that the tests of the harness drive, and a plain model of what they should give."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import headrace as hr

SCHEMA = "key string, value bigint, at timestamp"
Sent = tuple[str, int | None, float]


def at(seconds: float) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)


def rows(*sent: Sent) -> list[dict[str, Any]]:
    return [{"key": k, "value": v, "at": at(s)} for k, v, s in sent]


def counts(size: str = "10s", **options: Any) -> hr.Job:
    """Counts per key and window, written where a test could not look."""
    job = hr.Job("counts", **options)
    read = job.read("log:nowhere", schema=SCHEMA, time="at", delay="1s", idle="1m", name="rows")
    found = read.key_by("key").window(hr.tumbling(size)).agg(n=hr.count(), name="counts")
    found.write("log:also-nowhere", name="out")
    return job


def halved(row: Any) -> dict[str, Any]:
    if row.value is None:
        raise ValueError("nothing to halve")
    return {"key": row.key, "value": row.value // 2, "at": row.at}


def two_inputs(size: str = "10s", name: str = "sums") -> hr.Job:
    """Two inputs made one, a function that fails on some rows, a window, and running sums."""
    job = hr.Job("two inputs")
    timing = {"schema": SCHEMA, "time": "at", "delay": "1s", "idle": "1m"}
    left = job.read("socket:localhost:1", format="json", name="left", **timing)
    right = job.read("files:/nowhere/at-all", format="json", name="right", **timing)
    both = left.map(halved, schema=SCHEMA, name="halved").union(right)
    windows = both.key_by("key").window(hr.tumbling(size))
    sums = windows.agg(n=hr.count(), total=hr.sum("value"), name=name)
    sums.write("console:", name="out")
    return job


def summed(sent: Iterable[Sent], size: int = 10) -> set[tuple[Any, ...]]:
    """Key, start of the window, count and sum: what windows over `sent` give in the end."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, value, second in sent:
        found[key, int(second // size) * size].append(value or 0)
    return {(k, start, len(v), sum(v)) for (k, start), v in found.items()}


def seen(found: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Window results as the model gives them, each with how often it came."""
    return Counter((r["key"], int(r["window_start"].timestamp()), *_rest(r)) for r in found)


def _rest(row: dict[str, Any]) -> list[Any]:
    return [v for name, v in row.items() if name not in ("key", "window_start", "window_end")]
