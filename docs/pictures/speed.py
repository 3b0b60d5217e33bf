"""The README's picture of speed: how many times faster than the same work by hand, job by job.

Drawn from `bench/history.jsonl`, the newest whole run of each job; nothing is measured here.

python docs/pictures/speed.py [folder]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

HISTORY = Path(__file__).resolve().parents[2] / "bench" / "history.jsonl"
SPARK, BYTEWAX = "#3182bd", "#e6550d"
TIMES = "\N{MULTIPLICATION SIGN}"
JOBS = {  # in words; its row in the history, and the one against Bytewax
    "windows of 100 rows per key: sum and maximum": ("B sum", None),
    "windows of 100 rows per key: a Python function": ("B python", "B bytewax"),
    "mean over sliding windows, 10 M events a batch": ("A 10,000 k", None),
    "mean over sliding windows, 1 M events a batch": ("A 1,000 k", None),
    "process function in Python, row by row": ("D", "D bytewax"),
    "running reduce per key, in Python": ("R", None),
    "session windows: count and mean": ("E", None),
    "join of two streams within 10 s": ("F", None),
    "duplicates of the last hour dropped": ("G", None),
    "JSON lines: decode, filter, project": ("C", None),
    "a Python function for each row": ("P", None),
}


class Measured(NamedTuple):
    ratio: float
    day: str
    machine: str


def newest() -> dict[str, Measured]:
    """Of each row of the table, the newest run at full size."""
    found = {}
    for line in HISTORY.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        machine = f"{run['cores']} cores, {run['machine']}"
        if not run["quick"]:
            for job, (ratio, *_) in run["rows"].items():
                if ratio is not None:
                    found[job] = Measured(ratio, run["at"][:10], machine)
    return found


def draw(found: dict[str, Measured], folder: Path) -> None:
    known = (words for words in JOBS if JOBS[words][0] in found)
    shown = {words: JOBS[words] for words in sorted(known, key=lambda w: -found[JOBS[w][0]].ratio)}
    used = [found[job] for row in shown.values() for job in row if job in found]
    days = sorted({measured.day for measured in used})
    figure, axis = plt.subplots(figsize=(9.5, 0.42 * len(shown) + 1.3), layout="constrained")
    for y, (job, other) in enumerate(shown.values()):
        both = other in found
        _bar(axis, y - 0.2 * both, 0.36 if both else 0.6, found[job], SPARK, days)
        if other in found:
            _bar(axis, y + 0.2, 0.36, found[other], BYTEWAX, days)
    axis.set_yticks(range(len(shown)), list(shown))
    axis.invert_yaxis()
    axis.set_xscale("log", base=2)
    axis.set_xlim(1, 1.3 * max(measured.ratio for measured in used))
    axis.set_xticks([1, 2, 4, 8, 16, 32], ["as fast", *(f"{n}{TIMES}" for n in (2, 4, 8, 16, 32))])
    axis.spines[["top", "right"]].set_visible(False)
    axis.bar(0, 0, color=SPARK, label="than hand-written PySpark")
    axis.bar(0, 0, color=BYTEWAX, label="than Bytewax, where measured")
    axis.legend(frameon=False, fontsize=8, loc="lower right", title="times faster")
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machine = ", ".join(sorted({measured.machine for measured in used}))
    figure.suptitle(
        f"Rows a second, compared with the same work by hand ({when}; {machine})", fontsize=10
    )
    figure.savefig(folder / "speed.png", dpi=110)
    plt.close(figure)


def _bar(axis: Any, y: float, height: float, it: Measured, colour: str, days: list[str]) -> None:
    axis.barh(y, it.ratio - 1, height, left=1, color=colour)
    when = f"  ({it.day})" if it.day != days[-1] else ""
    axis.text(it.ratio * 1.03, y, f"{it.ratio:.1f}{TIMES}{when}", va="center", fontsize=8)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draw(newest(), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
