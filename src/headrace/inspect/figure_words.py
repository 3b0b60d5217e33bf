"""Single figures in a few characters, for a terminal, a notebook, a list; what is not known is -.

Of the plain JSON of a job's figures, as `Figures.to_json` and a server give it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.inspect.progress import short, span

NONE = "-"


def plotted(figures: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Of each figure that is plotted: its title, its value, the name of its series."""
    latency = figures.get("latency") or {}
    what = "event" if _known(figures, "event") else "ingest"
    of = {"event": "event time", "ingest": "arrival"}[what]
    lag = number(figures.get("lag_rows"))
    behind = figures.get("lag_seconds")
    return [
        ("rows/s in", number(figures.get("rate_in")), "rate_in"),
        ("rows/s out", number(figures.get("rate_out")), "rate_out"),
        ("lag", f"{lag} ({seconds(behind)})" if behind else lag, "lag_rows"),
        (
            f"latency p95, from {of}",
            ms((latency.get(what) or {}).get("p95")),
            f"latency.{what}.p95",
        ),
        ("watermark", seconds(figures.get("watermark_delay"), "-"), "watermark_delay"),
        ("at work", share(figures.get("capacity")), "capacity"),
    ]


def _known(figures: Mapping[str, Any], what: str) -> bool:
    """Also of a job that rests, whose last minute is over."""
    return bool(((figures.get("latencies") or {}).get(what) or {}).get("count"))


def account(figures: Mapping[str, Any]) -> str:
    """Where all records went."""
    totals = figures.get("totals") or {}
    fates = [f"{fate} {short(n)}" for fate, n in totals.items() if fate != "read"]
    return f"read {short(totals.get('read', 0))} = {' + '.join(fates)}"


def number(value: float | None) -> str:
    return NONE if value is None else short(value)


def ms(value: float | None) -> str:
    if value is None:
        return NONE
    if abs(value) < 9.5:
        return f"{short(value)}ms"
    return f"{value:.0f}ms" if abs(value) < 1_000 else span(round(value))


def seconds(value: float | None, sign: str = "") -> str:
    return NONE if value is None else f"{sign}{ms(value * 1_000)}"


def share(value: float | None) -> str:
    if value is None:
        return NONE
    return "<1%" if 0 < value < 0.005 else f"{value:.0%}"
