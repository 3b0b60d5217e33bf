"""One contender in a process of its own: `python -m bench.child WHO JOB PLACE [JOB PLACE ...]`.

What it is to do lies in PLACE/params.json, what it measured goes to PLACE/figures.json and
its output to PLACE/out. To measure, give one job, so that sessions, memory and warm caches
never mix; several share a process only where nothing is measured.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path


def run(who: str, job: str, place: Path) -> None:
    params = json.loads((place / "params.json").read_text())
    contender = getattr(import_module(f"bench.jobs.{job}"), who)
    began = time.time()
    figures = contender(params, place)
    figures["seconds"] = time.time() - began
    (place / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    for job, place in zip(sys.argv[2::2], sys.argv[3::2], strict=True):
        run(sys.argv[1], job, Path(place))
