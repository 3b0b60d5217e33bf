"""The job of tests/driver/crashing.py on Spark, as programs of their own, to be killed.

`kill_job PLACE BATCH [MASTER]` runs it to the end once. `kill_job each ROOT BATCH` does so for
every folder in ROOT that holds an order (a crash point), in one Spark: where the kill was not
survived, the run is started again. Prints the places and how many starts each took, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import headrace as hr
from tests.driver.crashing import build


def once(place: Path, batch: int, master: str = "local[2]") -> None:
    """Run the job to its end; raises what it fails with."""
    folder = str(place / "job")
    run = hr.run(
        build(place), folder=folder, until="end", max_batch=batch, master=master, quiet=True
    )
    assert run.wait().state == "ended"


def starts(place: Path, batch: int, master: str, crash: Path) -> int:
    """Start until it ends; how often that was."""
    crash.write_text((place / "order").read_text())
    Path(f"{crash}.passed").write_bytes(b"")
    for start in range(1, 4):
        try:
            once(place, batch, master)
            return start
        except hr.HeadraceError as error:
            print(place.name, error, file=sys.stderr)
    raise SystemExit(f"{place} does not end")


def each(root: Path, batch: int) -> None:
    crash = root / "crash"
    os.environ["HEADRACE_CRASH"] = f"@{crash}"
    found = {}
    for order in sorted(root.glob("*/order")):
        taken = starts(order.parent, batch, "local[2,2]", crash)  # a failed task is done again
        found[order.parent.name] = {"starts": taken, "killed": not crash.exists()}
    print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "each":
        each(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        once(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
