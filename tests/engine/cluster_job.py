"""Jobs on a cluster, as a program of its own: a process has one Spark, and the tests' is local.

`cluster_job MASTER PLACE` runs the job of tests/runtime/crashing.py to its end, then another
until it has read what there is, and leaves that one to be taken up elsewhere.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import headrace as hr
from tests.runtime.crashing import build


def _label(row: Any) -> dict[str, Any]:  # travels with the program: no cluster has this file
    return {"k": row.k, "label": f"{row.k}{row.v}"}


def moving(place: Path) -> hr.Job:
    """Counts by window and key, running totals, and a row function."""
    job = hr.Job("moving")
    rows = job.read(
        "log:rows", log=str(place / "log"), time="at", delay="1s", idle="1d", name="rows"
    )
    windows = rows.key_by("k").window(hr.tumbling("5s"))
    windows.agg(n=hr.count(), total=hr.sum("v")).write("collect:", name="counts")
    totals = rows.key_by("k").agg(total=hr.sum("v"), unbounded=True)
    totals.select("k", "v", "total").write("collect:", name="running")
    rows.map(_label, schema="k string, label string").write("collect:", name="labels")
    return job


def main(master: str, place: Path) -> None:
    ended = hr.run(
        build(place), folder=str(place / "job"), until="end", max_batch=40, master=master
    ).wait()
    print(ended.state, ended.epoch)
    run = hr.run(moving(place), folder=str(place / "moving"), master=master)
    run.catch_up()
    print(run.stop().state)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
