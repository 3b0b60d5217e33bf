"""A job on a cluster, as a program of its own: a process has one Spark, and the tests' is local.

`cluster_job MASTER PLACE` runs it until it has read what there is, and leaves it to be taken up
elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

import headrace as hr


def _label(row: Any) -> dict[str, Any]:  # travels with the program: no cluster has this file
    return {"k": row.k, "label": f"{row.k}{row.v}"}


def moving(place: Path) -> hr.Job:
    """Counts by window and key, running totals, and a row function, to three kinds of output."""
    job, log = hr.Job("moving"), str(place / "log")
    rows = job.read("log:rows", log=log, time="at", delay="1s", idle="1d", name="rows")
    counts = rows.key_by("k").window(hr.tumbling("5s")).agg(n=hr.count(), total=hr.sum("v"))
    counts.write(f"files:{place / 'counts'}")
    totals = rows.key_by("k").agg(total=hr.sum("v"), unbounded=True)
    totals.select("k", "v", "total").write("collect:", name="running")
    rows.map(_label, schema="k string, label string").write("log:labels", log=log)
    return job


def main(master: str, place: Path) -> None:
    run = hr.run(moving(place), folder=str(place / "job"), master=master)
    run.catch_up()
    assert not seen(Path(os.environ["HEADRACE_SECRET_FILE"]).read_text().strip())
    print(run.stop().state)


def seen(secret: str) -> list[str]:
    """The processes of this machine whose command line, which everybody can read, has it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if secret in entry.read_text(errors="replace"):
                found.append(entry.parent.name)
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
