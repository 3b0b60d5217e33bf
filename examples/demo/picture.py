"""The demo's picture: temperatures over time, with the alarms that were raised."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.dates as dates
import matplotlib.pyplot as plt


def draw(
    averages: list[dict[str, Any]], alarms: list[dict[str, Any]], end: datetime, path: str
) -> None:
    """Averages per area as lines, coloured where the alarm was on; written to `path`."""
    figure, axes = plt.subplots(figsize=(11, 5), layout="constrained")
    burning = sorted({a["area"] for a in alarms if a["alarm"]})
    colours = dict(zip(burning, plt.cm.tab10.colors, strict=False))
    for area in sorted({r["area"] for r in averages}):
        rows = sorted((r for r in averages if r["area"] == area), key=lambda r: r["window_end"])
        colour = colours.get(area, "0.8")
        label = area if area in colours else None
        times, values = [r["window_end"] for r in rows], [r["celsius"] for r in rows]
        axes.plot(times, values, color=colour, lw=1.6 if label else 0.7, label=label)
    for area, start, stop in spans(alarms, end):
        axes.axvspan(start, stop, color=colours[area], alpha=0.15, lw=0)
    axes.axhline(40, color="0.4", ls="--", lw=0.8, label="hot")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set(title="Fire alarm: average of the last minute by area; shaded while the alarm is on",
             ylabel="°C")  # fmt: skip
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    if burning:
        axes.legend(loc="upper left", frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def spans(alarms: list[dict[str, Any]], end: datetime) -> list[tuple[str, datetime, datetime]]:
    """From each alarm to its all-clear, or to the end."""
    found, on = [], {}
    for row in sorted(alarms, key=lambda a: a["at"]):
        if row["alarm"]:
            on[row["area"]] = row["at"]
        elif row["area"] in on:
            found.append((row["area"], on.pop(row["area"]), row["at"]))
    return found + [(area, start, end) for area, start in on.items()]
