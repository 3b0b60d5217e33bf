"""The pictures of windows: which rows are in which. `triggers.py` draws when they show results.

    python docs/pictures/windows.py [folder]

Windows are not drawn by hand: small data goes through Headrace, in this process, and what
comes out is drawn. So the pictures cannot say anything else than the program does.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import headrace as hr
from headrace.testing import Harness

SCHEMA = "number bigint, value double, gap bigint, at timestamp"
BARS = ["#9ecae1", "#fdd0a2", "#a1d99b", "#dadaeb", "#fcbba1", "#d9d9d9"]
DARK, GREY = "#08306b", "#636363"
SPRING = 1_711_756_800  # 2024-03-30 00:00 UTC: clocks go forward in Berlin the night after


class Row(NamedTuple):
    at: float  # seconds
    value: float = 0.0


class Bar(NamedTuple):
    """A window that came out: its bounds, if it has any, and the numbers of its rows."""

    start: float | None
    end: float | None
    rows: list[int]


@dataclass(frozen=True)
class Panel:
    """One axis of a picture: a window, said as the user says it, over some rows."""

    code: str
    window: Any
    rows: Sequence[Row]
    values: bool = False  # whether the rows stand at their value
    days: bool = False  # whether time is a calendar's


class Visits(hr.WindowAssigner):
    """Visits as long as their first row says; one that begins in another is part of it."""

    def assign(self, time: int, row: Any) -> list[tuple[int, int]]:
        return [(time, time + int(1_000 * row.value))]

    def merge(self, first: Any, second: Any) -> tuple[int, int] | None:
        return (first.start, max(first.end, second.end)) if second.start < first.end else None


EVEN = [Row(s) for s in (1, 4, 6, 9, 12, 13, 17, 18.5, 24, 27)]
BUSY = [Row(s, gap) for s, gap in [(1, 2), (2.5, 2), (4, 6), (9, 2), (14, 2), (15, 2), (22, 2)]]
DRIFT = [Row(s, v) for s, v in zip(range(1, 28, 3), [1, 3, 4, 5, 7, 8, 12, 11, 6], strict=True)]
MARKS = [Row(s, v) for s, v in zip(range(1, 28, 3), [0, 0, 1, 0, 0, 0, 1, 0, 0], strict=True)]
HOURS = [Row(SPRING + 3_600 * h) for h in (2, 9, 15, 22, 25, 33, 44, 46, 50, 60, 68)]

PICTURES: dict[str, list[Panel]] = {
    "tumbling": [
        Panel('hr.tumbling("10s")', hr.tumbling("10s"), EVEN),
        Panel('hr.tumbling("10s", offset="3s")', hr.tumbling("10s", offset="3s"), EVEN),
    ],
    "sliding": [
        Panel('hr.sliding("10s", every="5s")', hr.sliding("10s", every="5s"), EVEN),
    ],
    "cumulating": [
        Panel('hr.cumulating("15s", every="5s")', hr.cumulating("15s", every="5s"), EVEN),
    ],
    "calendar": [
        Panel(
            'hr.calendar("day", zone="Europe/Berlin"): 24 hours, then 23, then 24',
            hr.calendar("day", zone="Europe/Berlin"),
            HOURS,
            days=True,
        ),
    ],
    "session": [
        Panel('hr.session("3s")', hr.session("3s"), BUSY),
        Panel(
            'hr.session(hr.col("gap")): the third row says 6 s, the others 2 s',
            hr.session(hr.col("gap")),
            BUSY,
        ),
    ],
    "everything": [Panel("hr.everything()", hr.everything(), EVEN)],
    "rows": [
        Panel("hr.tumbling(rows=3)", hr.tumbling(rows=3), EVEN),
        Panel("hr.sliding(rows=4, every_rows=2)", hr.sliding(rows=4, every_rows=2), EVEN),
    ],
    "mixed": [
        Panel('hr.sliding(rows=3, every="10s")', hr.sliding(rows=3, every="10s"), EVEN),
        Panel('hr.sliding("10s", every_rows=3)', hr.sliding("10s", every_rows=3), EVEN),
    ],
    "delta": [
        Panel('hr.delta("value", 3)', hr.delta("value", 3), DRIFT, values=True),
        Panel(
            'hr.delta("value", 3, since="previous")',
            hr.delta("value", 3, since="previous"),
            DRIFT,
            values=True,
        ),
    ],
    "until": [
        Panel('hr.until("value = 1")', hr.until("value = 1"), MARKS, values=True),
        Panel(
            'hr.until("value = 1", inside=False)',
            hr.until("value = 1", inside=False),
            MARKS,
            values=True,
        ),
    ],
    "own": [Panel("an assigner of one's own, with merge", Visits(), BUSY)],
}


# what comes out


def windows_of(panel: Panel) -> list[Bar]:
    job = hr.Job("picture")
    read = job.read("log:rows", schema=SCHEMA, time="at", delay="1h", name="rows")
    read.window(panel.window).agg(rows=hr.collect("number")).write("collect:", name="out")
    with Harness(job) as harness:
        harness.send("rows", [_sent(i, row) for i, row in enumerate(panel.rows, 1)])
        harness.end()
        found = [
            Bar(_seconds(r["window_start"]), _seconds(r["window_end"]), r["rows"])
            for r in harness.output()
        ]
    return sorted(found, key=lambda bar: (bar.start or 0, bar.end or 0))


def _sent(number: int, row: Row) -> dict[str, Any]:
    gap = round(row.value * 1_000)
    return {"number": number, "value": row.value, "gap": gap, "at": round(row.at * 1_000)}


def _seconds(time: Any) -> float | None:
    return None if time is None else time.timestamp()


# rows and windows


def draw(name: str, panels: list[Panel], folder: Path) -> None:
    found = [windows_of(panel) for panel in panels]
    lanes = [max(_lanes(bars)) + 1 for bars in found]
    heights = [n + (3.0 if p.values else 2.0) for n, p in zip(lanes, panels, strict=True)]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(9, 0.45 * sum(heights)), layout="constrained",
        gridspec_kw={"height_ratios": heights}, squeeze=False,
    )  # fmt: skip
    for axis, panel, bars in zip(axes[:, 0], panels, found, strict=True):
        _panel(axis, panel, bars)
    figure.savefig(folder / f"{name}.png", dpi=100)
    plt.close(figure)


def _lanes(bars: list[Bar]) -> list[int]:
    """The first line in which each bar has room."""
    ends: list[float] = []
    chosen = []
    for bar in bars:
        start, end = bar.start or 0.0, bar.end or float("inf")
        lane = next((i for i, e in enumerate(ends) if e <= start), len(ends))
        ends[lane:] = [end, *ends[lane + 1 :]]
        chosen.append(lane)
    return chosen


def _panel(axis: Any, panel: Panel, bars: list[Bar]) -> None:
    times = [row.at for row in panel.rows]
    low, high = _span(times, bars)
    for i, (bar, lane) in enumerate(zip(bars, _lanes(bars), strict=True)):
        start = low if bar.start is None else bar.start
        end = high if bar.end is None else bar.end
        middle, width = (start + end) / 2, max(end - start, 0.025 * (high - low))
        axis.barh(
            -lane, width, 0.8, middle - width / 2, color=BARS[i % len(BARS)], ec="white", lw=2
        )
        text = " ".join(map(str, bar.rows))
        axis.text(middle, -lane, text, ha="center", va="center", fontsize=9)
    ys = _heights(panel)
    axis.scatter(times, ys, s=170, color=DARK, zorder=3)
    for number, (x, y) in enumerate(zip(times, ys, strict=True), 1):
        axis.text(x, y, str(number), ha="center", va="center_baseline", color="white", fontsize=8,
                  zorder=4)  # fmt: skip
    axis.set_title(panel.code, loc="left", fontsize=10, family="monospace")
    axis.set(xlim=(low, high), ylim=(-max(_lanes(bars)) - 0.6, max(ys) + 0.7), yticks=[])
    axis.spines[["top", "left", "right"]].set_visible(False)
    _ticks(axis, panel, bars)


def _span(times: list[float], bars: list[Bar]) -> tuple[float, float]:
    bounds = [b for bar in bars for b in (bar.start, bar.end) if b is not None]
    low, high = min([*times, *bounds]), max([*times, *bounds])
    return low - 0.02 * (high - low), high + 0.02 * (high - low)


def _heights(panel: Panel) -> list[float]:
    """Where rows stand above the windows: in a line, or at their value."""
    values = [row.value for row in panel.rows]
    most = max(values) or 1.0
    return [1.0 + 1.2 * v / most if panel.values else 1.0 for v in values]


def _ticks(axis: Any, panel: Panel, bars: list[Bar]) -> None:
    if not panel.days:
        axis.set_xlabel("seconds", fontsize=8, color=GREY, loc="right")
        axis.tick_params(labelsize=8, colors=GREY)
        return
    midnights = [t for b in bars for t in (b.start, b.end) if t is not None]
    hours = sorted({(m, f"{(m - SPRING) / 3_600:.0f}") for m in midnights})
    axis.set_xticks([h[0] for h in hours], [h[1] for h in hours], fontsize=8, color=GREY)
    axis.set_xlabel("hours after 2024-03-30 00:00 UTC", fontsize=8, color=GREY, loc="right")


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, panels in PICTURES.items():
        draw(name, panels, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
