"""The picture of triggers: what one window shows, batch by batch, in every mode.

    python docs/pictures/triggers.py [folder]

As with the other pictures, the rows go through Headrace and what comes out is drawn.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import headrace as hr
from headrace import triggers as t
from headrace.testing import Harness

SCHEMA = "value double, at timestamp"
DARK, GREY = "#08306b", "#636363"
TIMINGS = {"early": "#fdd0a2", "on time": "#a1d99b", "late": "#fcbba1"}
MODES = ("replace", "delta", "retract")
STEPS: list[tuple[str, Any]] = [
    ("send", (2, 1)), ("send", (4, 2)), ("send", (7, 4)), ("watermark", 10),
    ("send", (5, 8)), ("watermark", 15), ("send", (8, 16)),
]  # fmt: skip


class Happened(NamedTuple):
    """A batch: what it brought, how far the watermark is after it, what each mode shows."""

    row: tuple[float, float] | None  # seconds, value
    watermark: float
    shown: dict[str, list[dict[str, Any]]]
    late: bool

    def __str__(self) -> str:
        return f"watermark {self.watermark}" if self.row is None else f"a row, {self.row[1]}"


def job() -> hr.Job:
    made = hr.Job("picture")
    read = made.read("log:rows", schema=SCHEMA, time="at", delay="1h", name="rows")
    trigger = t.at_watermark(early=t.after_rows(2))
    for mode in MODES:
        windows = read.window(hr.tumbling("10s"), trigger=trigger, lateness="5s", mode=mode)
        windows.agg(total=hr.sum("value"), name=f"{mode} sum").write("collect:", name=mode)
    return made


def happened() -> list[Happened]:
    found = []
    watermark = 0.0
    with Harness(job()) as harness:
        for verb, said in STEPS:
            if verb == "send":
                harness.send("rows", [{"at": said[0] * 1_000, "value": said[1]}])
            else:
                harness.watermark("rows", f"{said}s")
                watermark = said
            shown = {mode: harness.output(mode) for mode in MODES}
            late = bool(harness.late("replace sum"))
            found.append(Happened(said if verb == "send" else None, watermark, shown, late))
    return found


def draw(folder: Path) -> None:
    steps = happened()
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(9, 5.6), layout="constrained", sharex=True,
        gridspec_kw={"height_ratios": [3, 2]},
    )  # fmt: skip
    _arrivals(above, steps)
    _firings(below, steps)
    figure.savefig(folder / "triggers.png", dpi=100)
    plt.close(figure)


def _arrivals(axis: Any, steps: list[Happened]) -> None:
    axis.axhspan(0, 10, color="#deebf7", lw=0)
    axis.axhspan(10, 15, color="#f2f7fc", lw=0)
    axis.text(0.55, 0.4, "the window [0, 10)", color=GREY, fontsize=8)
    axis.text(0.55, 10.4, "its lateness, until 15", color=GREY, fontsize=8)
    marks = [0.0, *(s.watermark for s in steps)]
    axis.step(range(len(marks)), marks, where="post", color=GREY, ls="--", label="watermark")
    for x, step in enumerate(steps, 1):
        if step.row is not None:
            _row(axis, x, *step.row, step.late)
    axis.set(xlim=(0.5, len(steps) + 0.6), ylim=(0, 16.5), ylabel="event time, seconds")
    axis.set_title(
        'hr.tumbling("10s"), lateness="5s", trigger=t.at_watermark(early=t.after_rows(2))',
        loc="left", fontsize=10, family="monospace",
    )  # fmt: skip
    axis.legend(loc="upper left", frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def _row(axis: Any, x: int, at: float, value: float, late: bool) -> None:
    inside, ink = ("white", DARK) if late else (DARK, "white")
    axis.scatter(x, at, s=230, color=inside, ec=DARK, zorder=3)
    axis.text(x, at, str(value), ha="center", va="center_baseline", fontsize=9, color=ink, zorder=4)
    if late:
        axis.text(x + 0.17, at, ".late", va="center", fontsize=9, color=DARK)


def _firings(axis: Any, steps: list[Happened]) -> None:
    for x, step in enumerate(steps, 1):
        for y, mode in enumerate(MODES):
            shown = step.shown[mode]
            if not shown:
                continue
            timing = shown[-1]["timing"]
            totals = "  ".join(f"{r.get('change', '')}{r['total']:g}" for r in shown)
            axis.barh(-y, 0.86, 0.8, x - 0.43, color=TIMINGS[timing])
            axis.text(x, -y, f"{totals}\n{timing}", ha="center", va="center", fontsize=8)
    axis.set_yticks([0, -1, -2], [f"sum,\n{mode}" for mode in MODES], fontsize=8)
    axis.set_xticks(range(1, len(steps) + 1), [str(s) for s in steps], fontsize=8)
    axis.set(ylim=(-2.6, 0.6), xlabel="batches")
    axis.spines[["top", "right"]].set_visible(False)


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    draw(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
