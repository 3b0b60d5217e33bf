"""The demo's terminal: areas with their averages, alarms, and how the run is doing."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.inspect.progress import Meter, status_line

_CELL = 25  # characters of an area: its name, a temperature, a bar of ten
_EVERY = 5.0  # seconds between plain lines


class Screen:
    """What is known so far, drawn as it changes; plain lines where nobody watches."""

    def __init__(self, areas: list[str], console: Console) -> None:
        self._areas, self._console = areas, console
        self._celsius: dict[str, float] = {}
        self._burning: set[str] = set()
        self._alarms: list[str] = []
        self._meter, self._last = Meter(), None
        self._live: Live | None = None
        self._shown = 0.0

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console, get_renderable=self._draw, refresh_per_second=4
            )
            self._live.start()
        else:
            self._console.print("fire-alarm: starting Spark")
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live is not None:
            self._live.stop()

    def averages(self, rows: list[dict[str, Any]]) -> None:
        """Averages in the order they were made."""
        for row in rows:
            self._celsius[row["area"]] = row["celsius"]

    def alarm(self, row: dict[str, Any]) -> None:
        verb = "ALARM    " if row["alarm"] else "all clear"
        line = f"{_clock(row['at'])}  {row['area']}  {verb}  {row['celsius']:.1f} °C"
        self._alarms.append(f"{line}, smoke {row['density']:.2f}")
        (self._burning.add if row["alarm"] else self._burning.discard)(row["area"])
        if self._live is None:
            self._console.print(f"  {self._alarms[-1]}", highlight=False)

    def progress(self, progress: Any) -> None:
        """An epoch has been committed."""
        self._meter.add(progress)
        self._last = progress
        if self._live is None and time.monotonic() - self._shown >= _EVERY:
            self._shown = time.monotonic()
            self._console.print(f"fire-alarm: {self._status()}", highlight=False, soft_wrap=True)

    def _status(self, width: int | None = None) -> str:
        if self._last is None:
            return "starting Spark"
        now = time.time_ns() // 1_000_000
        return status_line(self._last, self._meter.rate(now), now, width)

    def _draw(self) -> Group:
        """A frame that fits: no line is broken or reaches the last column, where some terminals
        begin a new one; so the next frame covers all of this one."""
        width = self._console.width - 1
        columns = max(1, min(4, (width + 2) // (_CELL + 2)))
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(columns):
            table.add_column(width=_CELL, no_wrap=True)
        cells = [self._cell(area) for area in self._areas]
        for i in range(0, len(cells), columns):
            table.add_row(*cells[i : i + columns])
        title, alarms = (
            Text(t, "italic") for t in ("average of the last minute, by area", "alarms")
        )
        recent = [Text(line) for line in self._alarms[-6:]] or [Text("no alarm yet", style="dim")]
        status = Text(self._status(width), style="dim")
        return Group(title, table, alarms, *recent, status)

    def _cell(self, area: str) -> Text:
        celsius = self._celsius.get(area)
        if celsius is None:
            return Text(f"{area}      -", style="dim")
        style = "bold white on red" if area in self._burning else "yellow" if celsius > 40 else ""
        bar = "▇" * max(0, min(10, round((celsius - 15) / 7)))
        return Text(f"{area} {celsius:6.1f} {bar}", style=style)


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S")
