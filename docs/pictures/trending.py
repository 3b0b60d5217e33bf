"""The picture of trending hashtags: what `examples/trending.py` finds in half an hour of posts.

python docs/pictures/trending.py [folder]
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import headrace as hr
from headrace.cli.loading import load_job
from headrace.clock import ManualClock
from headrace.testing import Driver

ROOT = Path(__file__).resolve().parents[2]
BEGIN = 1_700_000_010  # seconds
GREY = "#636363"


@contextlib.contextmanager
def somewhere() -> Iterator[Path]:
    """A folder to work in, which is gone afterwards."""
    before, log = Path.cwd(), os.environ.get("HEADRACE_LOG")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["HEADRACE_LOG"] = str(Path(folder) / "log")
        try:
            yield Path(folder)
        finally:
            os.chdir(before)
            os.environ.pop("HEADRACE_LOG")
            os.environ |= {} if log is None else {"HEADRACE_LOG": log}


def trends() -> list[dict[str, Any]]:
    """Everything the example writes, over everything its generator sends."""
    sys.path.insert(0, str(ROOT))
    from examples.posts import MINUTES, SEED, posts

    with somewhere() as folder, contextlib.redirect_stdout(io.StringIO()):
        log, rng = hr.EmbeddedLog(), random.Random(SEED)
        log.create("posts")
        for second in range(60 * MINUTES):
            log.append("posts", list(posts(rng, BEGIN, second)))
        clock = ManualClock((BEGIN + 60 * MINUTES) * 1_000)
        Driver(load_job(ROOT / "examples" / "trending.py"), folder / "job", clock=clock).drain()
        return hr.read_output(folder / ".headrace" / "trending" / "trends").to_pylist()


def draw(rows: list[dict[str, Any]], folder: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    tags = sorted({r["tag"] for r in rows if r["place"] == 1 and r["by"] == "count"})
    colours = dict(zip(tags, plt.cm.tab10.colors, strict=False))
    for tag in sorted({r["tag"] for r in rows}):
        seen = {_minute(r): r["n"] for r in rows if r["tag"] == tag}
        colour = colours.get(tag, "0.8")
        axes.plot([*seen], [*seen.values()], color=colour, label=tag if tag in colours else None)
    for by, marker in (("count", "s"), ("growth", "^")):
        first = [r for r in rows if r["by"] == by and r["place"] == 1 and r["growth"] > 0]
        first = [r for r in first if r["tag"] in colours]
        axes.scatter([_minute(r) for r in first], [r["n"] for r in first], marker=marker, s=26,
                     color=[colours[r["tag"]] for r in first], label=f"first by {by}")  # fmt: skip
    axes.set_title("Hashtags of the last 5 minutes, every 30 seconds", loc="left", fontsize=10)
    axes.set(xlabel="minutes", ylabel="posts", xlim=(0, None))
    axes.legend(frameon=False, fontsize=8, loc="upper right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "trending.png", dpi=100)
    plt.close(figure)


def _minute(row: dict[str, Any]) -> float:
    return (row["window_end"].timestamp() - BEGIN) / 60


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draw(trends(), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
