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
from headrace.chunk import TIME
from headrace.ops.agg import named
from headrace.ops.contract import EpochStep, Place
from headrace.ops.sketch.bloom import memory
from headrace.ops.sketch.library import theta_estimate
from headrace.ops.stream.first_seen import FILTERS, FirstSeen
from headrace.state.table import KeyedTable

ROWS, STREAMS = 20_000, 24
BLUE, ORANGE = "#3182bd", "#e6550d"
DISTINCT = (0.2, 0.1, 0.05, 0.02, 0.01)
RANKS = (0.1, 0.05, 0.02, 0.01, 0.005)
SETS = (0.2, 0.1, 0.05, 0.02)
SEEN = (0.2, 0.1, 0.05, 0.02, 0.01)
BATCHES = 20  # of a stream, because keys are judged by what came in batches before theirs


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


def set_errors(error: float, values: Any) -> list[float]:
    exact = [len(np.unique(stream)) for stream in values]
    found = measured(hr.theta("v", error=error), values)
    counts = [theta_estimate(sketch)[0] for sketch in found]
    return [abs(a - b) / b for a, b in zip(counts, exact, strict=True)]


def seen_errors(error: float, values: Any) -> list[float]:
    """The share of new keys that `first_seen` drops."""
    return [1 - _passed(error, stream) / len(np.unique(stream)) for stream in values]


def _passed(error: float, stream: Any) -> int:
    schema = pa.schema([("v", pa.int64())])
    step = FirstSeen(10**9, error, ROWS).operator(Place((("v",),), (schema,), schema, timed=True))
    table, passed = KeyedTable(step.tables()[0]), 0
    for part in np.array_split(stream, BATCHES):
        rows = pa.table({"v": part, TIME: np.zeros(len(part), np.int64)})
        epoch = EpochStep([step.prepare(0, rows)], {FILTERS: table}, 0, 0, 0, 1, homes=[0])
        step.step(epoch)
        passed += sum(out.num_rows for out in epoch.out)
    return passed


def sketch_size(make: Any) -> Any:
    return lambda error: make("v", error=error).sketch.memory()


def draw(folder: Path) -> None:
    plt.rcParams["svg.hashsalt"] = "headrace"  # the same file for the same data
    rng = np.random.default_rng(1)
    whole, doubles = rng.integers(0, 2**40, (STREAMS, ROWS)), rng.normal(size=(STREAMS, ROWS))
    figure, panels = plt.subplots(2, 2, figsize=(9, 6.4), sharey=True)
    jobs = (
        ("approx_count_distinct", DISTINCT, distinct_errors, whole,
         sketch_size(hr.approx_count_distinct)),
        ("theta, a set", SETS, set_errors, whole, sketch_size(hr.theta)),
        ("approx_quantile, the median", RANKS, rank_errors, doubles,
         sketch_size(lambda v, error: hr.approx_quantile(v, 0.5, error=error))),
        (f"first_seen, {ROWS:,} keys in a period", SEEN, seen_errors, whole,
         lambda error: memory(error, ROWS)),
    )  # fmt: skip
    for panel, (title, errors, errors_of, values, size_of) in zip(panels.flat, jobs, strict=True):
        size = [size_of(e) / 1024 for e in errors]
        panel.plot(size, [100 * e for e in errors], "o-", color=ORANGE, label="error=")
        for place, error in zip(size, errors, strict=True):
            found = [100 * max(e, 1e-5) for e in errors_of(error, values)]
            panel.plot([place] * STREAMS, found, ".", color=BLUE, alpha=0.25, ms=4)
        panel.plot([], [], ".", color=BLUE, label=f"{STREAMS} streams of {ROWS:,} rows")
        panel.set(xscale="log", yscale="log", title=title, xlabel="memory of a key, KB")
        panel.set_ylim(0.005, 30)
        panel.set_xticks(size, [f"{s:.2g}" if s < 100 else f"{s:.0f}" for s in size])
        panel.minorticks_off()
        panel.grid(True, which="major", alpha=0.3)
    panels[1, 1].set_xlabel("memory of a period, KB")
    for panel in panels[:, 0]:
        panel.set_ylabel("error, %")
    panels[0, 1].legend(frameon=False, loc="lower left")
    figure.tight_layout()
    figure.savefig(folder / "approximate.svg", metadata={"Date": None})
    plt.close(figure)


def main(folder: Path) -> None:
    draw(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
