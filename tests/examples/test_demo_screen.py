"""The demo's screen: a frame fits the terminal, so that the next one covers all of it."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from examples.demo.screen import Screen
from examples.demo.sensors import AREAS
from rich.console import Console

from headrace.inspect.progress import Progress

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FATES = {"read": 123_456, "used": 123_000, "filtered": 56, "late": 400, "dead": 0}
PROGRESS = Progress(
    epoch=1_234, clock=0, committed=512, read=12_345, lag=67_890, watermark=1_772_366_400_000,
    counts={"temperature": FATES}, steps={"averages": {"late": 400}}, outputs={"averages": 1_000},
    held={"averages": 12_345}, held_bytes={"averages": 1_000_000},
    timing={"source": 123.0, "level 1": 456.0, "level 2": 78.0}, ended=False,
)  # fmt: skip


def frame(width: int, celsius: float | None = None, alarms: int = 0) -> list[str]:
    screen = Screen(AREAS, Console(width=width, height=40, file=io.StringIO()))
    if celsius is not None:
        screen.averages([{"area": area, "celsius": celsius} for area in AREAS])
        screen.progress(PROGRESS)
    for _ in range(alarms):
        screen.alarm({"alarm": True, "at": AT, "area": AREAS[3], "celsius": 61.2, "density": 0.44})
    console = Console(width=width, file=io.StringIO(), force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(screen._draw())
    return captured.get().splitlines()


@pytest.mark.parametrize("width", [80, 90, 100, 110, 120, 200])
@pytest.mark.parametrize("celsius", [None, 20.0, 85.0, -273.0])
def test_no_line_reaches_the_last_column_and_no_cell_is_broken(width, celsius):
    lines = frame(width, celsius, alarms=6 if celsius else 0)
    assert max(map(len, lines)) < width
    cells = [line for line in lines[1:] if line.startswith("area-")]
    assert [name for line in cells for name in line.split() if name.startswith("area-")] == AREAS
    assert lines[len(cells) + 1].startswith("alarms")  # the line after them: none is broken


@pytest.mark.parametrize("width", [80, 100, 110])
def test_heat_makes_a_frame_no_taller(width):
    assert len(frame(width, 20.0)) == len(frame(width, 85.0))
