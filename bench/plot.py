"""The picture in the documentation: each ratio against its target, and how it has moved.

To the right of the line is better: a ratio that should be small is drawn as its inverse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.data import ROOT
from bench.rows import AT_LEAST, Row

PICTURE = ROOT / "docs" / "benchmarks.png"
_MET, _MISSED = "#2a7f62", "#c8553d"


def draw(rows: Sequence[Row], about: dict[str, Any], runs: Sequence[dict[str, Any]]) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [r for r in rows if r.met is not None]
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(12, 0.42 * len(shown) + 1.8), width_ratios=(3, 2), layout="constrained"
    )
    _bars(left, shown)
    _lines(right, shown, [r for r in runs if not r.get("quick")])
    figure.suptitle(
        f"Headrace against hand-written PySpark, one run of {about['at'][:10]} "
        f"({about['cores']} cores, load up to {about['load']})", fontsize=10,
    )  # fmt: skip
    figure.savefig(PICTURE, dpi=110)
    pyplot.close(figure)
    return PICTURE


def margin(ratio: float, target: float, sense: str) -> float:
    """How far the target is met: 1 is just so, more is better."""
    return ratio / target if sense == AT_LEAST else target / max(ratio, 1e-9)


def _bars(axes: Any, rows: Sequence[Row]) -> None:
    names = [f"{r.job}: {r.ratio:.2f} {r.unit} ({r.sense} {r.target:g})" for r in rows]
    values = [margin(r.ratio or 0.0, r.target or 1.0, r.sense) for r in rows]
    colours = [_MET if r.met else _MISSED for r in rows]
    axes.barh(names, values, color=colours)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.invert_yaxis()
    axes.set_xlabel("target met so many times")


def _lines(axes: Any, rows: Sequence[Row], runs: Sequence[dict[str, Any]]) -> None:
    for row in rows:
        if row.job.startswith("M "):
            continue
        points = [
            (i, margin(r["rows"][row.job][0], row.target or 1.0, row.sense))
            for i, r in enumerate(runs)
            if r["rows"].get(row.job, [None])[0] is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), marker=".", linewidth=1, label=row.job)
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_yscale("log", base=2)
    axes.set_xlabel("run, oldest first")
    if axes.has_data():
        axes.legend(fontsize=6, ncols=2)
