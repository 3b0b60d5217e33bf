"""The job of bank.py on Spark, as a program of its own, to be killed: PLACE BATCH CORES."""

from __future__ import annotations

import sys
from pathlib import Path

import headrace as hr
from tests.engine.bank import build

if __name__ == "__main__":
    place, batch, cores = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    run = hr.run(
        build(place), folder=str(place / "job"), until="end", max_batch=batch,
        master=f"local[{cores}]", quiet=True,
    )  # fmt: skip
    assert run.wait().state == "ended"
