"""Small plots of a figure over time: as one line of text, and as SVG for a page without scripts.

Values are given with their times and need not be equally far apart; None is what was not known, and
leaves a gap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Value = float | None
_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = " "


def as_text(times: Sequence[int], values: Sequence[Value], width: int, past: int) -> str:
    """The last `past` milliseconds in `width` characters; the largest of each counts."""
    columns: dict[int, Value] = {}
    last: dict[int, Value] = {}
    end = times[-1] if times else 0
    for time, value in zip(times, values, strict=True):
        at = width - 1 - (end - time) * width // max(1, past)
        if at >= 0:
            last[at] = value if value is not None and _known(value) else None
            before, now = columns.get(at), last[at]
            columns[at] = now if before is None else max(before, now or 0.0)
    highest = max((v for v in columns.values() if v is not None), default=0.0)
    shown = _held(columns, last, width)
    return "".join(_GAP if v is None else _block(v, highest) for v in shown)


def _held(columns: dict[int, Value], last: dict[int, Value], width: int) -> list[Value]:
    """A column in which nobody has looked shows what was seen last, or that it was not known."""
    shown: list[Value] = []
    held: Value = None
    for at in range(width):
        shown.append(columns.get(at, held))
        held = last.get(at, held)
    return shown


def _block(value: float, highest: float) -> str:
    if highest <= 0 or value <= 0:
        return _BLOCKS[0]
    return _BLOCKS[min(len(_BLOCKS) - 1, int(value / highest * (len(_BLOCKS) - 1) + 0.5))]


def as_svg(
    times: Sequence[int],
    values: Sequence[Value],
    past: int,
    width: int = 120,
    height: int = 28,
) -> str:
    """The last `past` milliseconds as a line over an area, in the colour of the text around it."""
    highest = max((v for v in values if v is not None and _known(v)), default=0.0) or 1.0
    end = times[-1] if times else 0
    pieces: list[list[tuple[float, float]]] = [[]]
    for time, value in zip(times, values, strict=True):
        if value is None or not _known(value):
            pieces.append([])
        elif end - time <= past:
            x = width - (end - time) * width / max(1, past)
            y = height - 1 - max(0.0, value) / highest * (height - 2)
            pieces[-1].append((x, y))
    drawn = "".join(_piece(piece, height) for piece in pieces if piece)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' aria-hidden='true' style='display: block'>{drawn}</svg>"
    )


def _piece(points: list[tuple[float, float]], height: int) -> str:
    if len(points) == 1:
        ((x, y),) = points
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='1.2' fill='currentColor'/>"
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{height} {line} {points[-1][0]:.1f},{height}"
    return (
        f"<polygon points='{area}' fill='currentColor' opacity='0.15'/>"
        f"<polyline points='{line}' fill='none' stroke='currentColor' stroke-width='1.2'/>"
    )


def _known(value: Value) -> bool:
    return value is not None and math.isfinite(value)
