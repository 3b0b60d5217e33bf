"""The job of tests/runtime/crashing.py on Spark, as a program of its own, to be killed."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr
from tests.runtime.crashing import build

if __name__ == "__main__":
    place = Path(sys.argv[1])
    run = hr.run(
        build(place), folder=str(place / "job"), until="end", max_batch=40, master="local[2]"
    )
    run.wait()
