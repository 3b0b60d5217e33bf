"""A running total of each key, on Spark without an end, to be killed: PLACE."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr

if __name__ == "__main__":
    place = Path(sys.argv[1])
    job = hr.Job("recovery")
    rows = job.read("log:rows", log=str(place / "log"), name="rows")
    totals = rows.key_by("key").agg(total=hr.sum("value"), unbounded=True, name="totals")
    totals.write(f"files:{place}/out", name="out")
    hr.run(job, folder=str(place / "job"), master="local[2]", quiet=True).wait()
