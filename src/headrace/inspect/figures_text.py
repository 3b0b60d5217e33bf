"""Figures in a few lines, for a terminal."""

from __future__ import annotations

from headrace.inspect.figure_values import Figures, Latency
from headrace.inspect.progress import span

_TOP = 3  # steps that are named
_FROM = {"event": "event time", "ingest": "arrival"}


def in_words(found: Figures) -> list[str]:
    """Latency, what the job is busy with, and what limits it, as far as it is known."""
    lines = []
    known = {_FROM[what]: latency for what, latency in found.latency.items() if latency}
    if known:
        said = "; ".join(f"from {what} {_latency(latency)}" for what, latency in known.items())
        lines.append(f"latency to the commit: {said}")
    busiest = sorted((s for s in found.steps if s.busy), key=lambda s: -(s.busy or 0))[:_TOP]
    if found.capacity is not None and busiest:
        steps = ", ".join(f"{s.name} {s.busy:.0%}" for s in busiest)
        lines.append(f"at work {found.capacity:.0%} of the time; busiest steps: {steps}")
    if found.bottleneck is not None:
        lines.append(f"bottleneck {found.bottleneck.step}: {found.bottleneck.why}")
    return lines


def _latency(latency: Latency) -> str:
    assert latency is not None
    return ", ".join(f"{name} {span(round(ms))}" for name, ms in latency.items())
