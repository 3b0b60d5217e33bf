"""The table, and the files that keep it: the last run whole, every run in a line."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.data import CACHE, ROOT
from bench.measure import Lab
from bench.rows import Row

HISTORY = ROOT / "bench" / "history.jsonl"
LATEST = CACHE / "latest.json"


def show(rows: Sequence[Row], lab: Lab, console: Console | None = None) -> None:
    table = Table(title="Headrace against hand-written PySpark, in one run", title_justify="left")
    for heading, justify in (
        ("job", "left"), ("what", "left"), ("ours", "right"), ("theirs", "right"),
        ("ratio", "right"), ("target", "right"), ("", "left"), ("results", "left"),
    ):  # fmt: skip
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*_cells(row))
    out = console or Console(width=None if os.isatty(1) else 150)
    out.print(table)
    out.print(_surroundings(lab))


def _cells(row: Row) -> tuple[str, ...]:
    target = "" if row.target is None else f"{row.sense} {row.target:g}"
    mark = {True: "met", False: "missed", None: ""}[row.met]
    equal = {True: "equal", False: "DIFFER", None: ""}[row.equal]
    ratio = "" if row.ratio is None else f"{row.ratio:.2f} {row.unit}"
    return row.job, row.what, row.ours, row.theirs, ratio, target, mark, equal


def _surroundings(lab: Lab) -> str:
    samples = [s for found in lab.samples.values() for s in found]
    loads = [s.load for s in samples] or [0.0]
    others = [s.others for s in samples] or [0.0]
    text = (
        f"{lab.cores} cores; load average {min(loads):.1f} to {max(loads):.1f}; "
        f"others kept up to {max(others):.1f} cores busy"
    )
    noisy = max(others) > 0.3 * lab.cores
    return f"{text}: these figures are noise" if noisy else text


def keep(rows: Sequence[Row], lab: Lab) -> Path:
    """Write the run whole to the cache, and one line of it to the history."""
    about = about_run(lab)
    samples = {case: [s.to_json() for s in found] for case, found in lab.samples.items()}
    whole = {**about, "rows": [r.to_json() for r in rows], "samples": samples}
    LATEST.parent.mkdir(parents=True, exist_ok=True)
    LATEST.write_text(json.dumps(whole, indent=1))
    figures = {r.job: [_short(r.ratio), r.target, r.ours, r.theirs] for r in rows}
    line = {**about, "rows": figures}
    with HISTORY.open("a") as file:
        file.write(json.dumps(line) + "\n")
    return LATEST


def _short(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)


def about_run(lab: Lab) -> dict[str, Any]:
    samples = [s for found in lab.samples.values() for s in found]
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": _commit(),
        "quick": lab.quick,
        "cores": lab.cores,
        "machine": f"{platform.system()} {platform.machine()}",
        "load": round(max((s.load for s in samples), default=0.0), 1),
        "others": round(max((s.others for s in samples), default=0.0), 1),
    }


def _commit() -> str:
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except OSError:
        return ""
    return asked.stdout.strip()


def history() -> list[dict[str, Any]]:
    """All runs so far, oldest first."""
    if not HISTORY.exists():
        return []
    return [json.loads(line) for line in HISTORY.read_text().splitlines() if line.strip()]
