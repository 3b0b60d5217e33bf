"""One contender of one job, in a process of its own: `python -m bench.child JOB WHO PLACE`.

What it is to do lies in PLACE/params.json, what it measured goes to PLACE/figures.json and
its output to PLACE/out. So sessions, memory and warm caches of contenders never mix.
"""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path


def main(job: str, who: str, place: Path) -> None:
    params = json.loads((place / "params.json").read_text())
    contender = getattr(import_module(f"bench.jobs.{job}"), who)
    began = time.time()
    figures = contender(params, place)
    figures["seconds"] = time.time() - began
    (place / "figures.json").write_text(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
