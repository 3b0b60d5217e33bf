"""The picture of approximate answers: error against the memory of a key, measured and promised.

python docs/pictures/approximate.py [folder]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pyarrow as pa

import headrace as hr
from headrace.ops.agg import named

ROWS, STREAMS = 20_000, 40
BLUE, ORANGE = "#3182bd", "#e6550d"
DISTINCT = (0.2, 0.1, 0.05, 0.02, 0.01)
RANKS = (0.1, 0.05, 0.02, 0.01, 0.005)


def measured(aggregate: Any, values: Any) -> list[Any]:
    """The result for each of the streams, which are groups of one table."""
    group = np.repeat(np.arange(STREAMS), ROWS)
    rows, aggs = pa.table({"g": group, "v": values.reshape(-1)}), {"x": aggregate}
    return named.result(named.partial(rows, ["g"], aggs), aggs).sort_by("g")["x"].to_pylist()


def distinct_errors(error: float, values: Any) -> list[float]:
    exact = [len(np.unique(stream)) for stream in values]
    found = measured(hr.approx_count_distinct("v", error=error), values)
    return [abs(a - b) / b for a, b in zip(found, exact, strict=True)]


def rank_errors(error: float, values: Any) -> list[float]:
    found = measured(hr.approx_quantile("v", 0.5, error=error), values)
    return [abs(float((s <= v).mean()) - 0.5) for v, s in zip(found, values, strict=True)]


def draw(folder: Path) -> None:
    rng = np.random.default_rng(1)
    whole, doubles = rng.integers(0, 2**40, (STREAMS, ROWS)), rng.normal(size=(STREAMS, ROWS))
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
    jobs = (
        ("approx_count_distinct", DISTINCT, distinct_errors, whole, hr.approx_count_distinct),
        ("approx_quantile, the median", RANKS, rank_errors, doubles,
         lambda v, error: hr.approx_quantile(v, 0.5, error=error)),
    )  # fmt: skip
    for panel, (title, errors, errors_of, values, make) in zip(panels, jobs, strict=True):
        size = [make("v", error=e).sketch.memory() / 1024 for e in errors]
        panel.plot(size, [100 * e for e in errors], "o-", color=ORANGE, label="error=")
        for place, error in zip(size, errors, strict=True):
            found = [100 * max(e, 1e-5) for e in errors_of(error, values)]
            panel.plot([place] * STREAMS, found, ".", color=BLUE, alpha=0.25, ms=4)
        panel.plot([], [], ".", color=BLUE, label=f"{STREAMS} streams of {ROWS:,} rows")
        panel.set(xscale="log", yscale="log", title=title, xlabel="memory of a key, KB")
        panel.set_ylim(0.005, 30)
        panel.set_xticks(size, [f"{s:.2g}" for s in size])
        panel.minorticks_off()
        panel.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel("error, %")
    panels[1].legend(frameon=False, loc="upper right")
    figure.tight_layout()
    figure.savefig(folder / "approximate.png", dpi=110)
    plt.close(figure)


def main(folder: Path) -> None:
    draw(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
