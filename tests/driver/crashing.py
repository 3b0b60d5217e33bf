"""A job that writes to every kind of output, and what its outputs hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import headrace as hr

ROWS = [{"k": f"k{i % 5}", "v": i, "at": i * 200, "bad": i % 17 == 0} for i in range(120)]
SCHEMA = "k string, v bigint, at bigint, bad boolean"


def _half(row: Any) -> dict[str, Any]:
    if row.bad:
        raise ValueError("half of this cannot be had")
    return {"k": row.k, "v": row.v // 2}


def build(place: Path) -> hr.Job:
    job = hr.Job("crashing")
    rows = job.read(hr.rows(ROWS, SCHEMA), time="at", delay="1s", name="rows")
    counts = rows.key_by("k").window(hr.tumbling("2s")).agg(n=hr.count(), total=hr.sum("v"))
    counts.write(f"files:{place}/parquet", name="parquet")
    counts.write(f"files:{place}/json", format="json", name="json")
    counts.write("log:counts", log=str(place / "log"), name="log")
    counts.write("collect:", name="collected")
    halves = rows.map(_half, schema="k string, v bigint")
    halves.write("collect:", name="halves")
    running = rows.key_by("k").agg(total=hr.sum("v"), unbounded=True)
    running.select("k", "v", "total").write("collect:", name="running")
    return job


def contents(place: Path) -> dict[str, Counter[Any]]:
    folder = str(place / "job")
    log = hr.EmbeddedLog(str(place / "log"))
    partitions = range(len(log.latest("counts")))
    found = {
        "parquet": hr.read_output(place / "parquet"),
        "json": hr.read_output(place / "json"),
        "dead": hr.read_output(f"{folder}/dead").drop_columns(["epoch", "at", "traceback"]),
        **{name: hr.collected(folder, name) for name in ("collected", "halves", "running")},
    }
    rows = {name: Counter(map(repr, table.to_pylist())) for name, table in found.items()}
    rows["log"] = Counter(
        repr(r) for p in partitions for _, t in log.read("counts", p, 0) for r in t.to_pylist()
    )
    return rows
