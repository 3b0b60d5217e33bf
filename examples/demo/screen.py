"""The demo's terminal: areas with their averages, alarms, and how the run is doing."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli.status import status_line


class Screen:
    """What is known so far, drawn when it changes; plain lines where nobody watches."""

    def __init__(self, areas: list[str], console: Console) -> None:
        self._areas, self._console = areas, console
        self._celsius: dict[str, float] = {}
        self._burning: set[str] = set()
        self._alarms: list[str] = []
        self._status = "starting Spark"
        self._live: Live | None = None
        self._rate, self._last = 0.0, None

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(self._draw(), console=self._console, refresh_per_second=8)
            self._live.start()
        else:
            self._console.print(self._status)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live is not None:
            self._live.update(self._draw())
            self._live.stop()

    def averages(self, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            self._celsius[row["area"]] = row["celsius"]
        self._show()

    def alarm(self, row: dict[str, Any]) -> None:
        verb = "ALARM" if row["alarm"] else "all clear"
        line = f"{_clock(row['at'])}  {row['area']}  {verb}  {row['celsius']:.1f} °C"
        self._alarms.append(f"{line}, smoke {row['density']:.2f}")
        (self._burning.add if row["alarm"] else self._burning.discard)(row["area"])
        if self._live is None:
            self._console.print(f"  {self._alarms[-1]}", highlight=False)
        self._show()

    def progress(self, p: Any) -> None:
        since = p.committed - (self._last.committed if self._last else p.clock)
        self._rate = 0.7 * self._rate + 0.3 * p.read * 1_000 / max(since, 1)
        self._last = p
        self._status = status_line("fire-alarm", p, self._rate)
        if self._live is None and p.epoch % 10 == 1:
            self._console.print(self._status, highlight=False, soft_wrap=True)
        self._show()

    def _show(self) -> None:
        if self._live is not None:
            self._live.update(self._draw())

    def _draw(self) -> Group:
        table = Table(title="average of the last minute, by area", title_justify="left", box=None)
        for _ in range(4):
            table.add_column(width=28)
        cells = [self._cell(area) for area in self._areas]
        for i in range(0, len(cells), 4):
            table.add_row(*cells[i : i + 4])
        recent = [Text(line) for line in self._alarms[-6:]] or [Text("no alarm yet", style="dim")]
        return Group(table, Text("alarms", style="italic"), *recent, Text(self._status, style="dim"))

    def _cell(self, area: str) -> Text:
        celsius = self._celsius.get(area)
        if celsius is None:
            return Text(f"{area}      -", style="dim")
        style = "bold white on red" if area in self._burning else "yellow" if celsius > 45 else ""
        bar = "▇" * max(0, min(10, round((celsius - 15) / 7)))
        return Text(f"{area} {celsius:6.1f} {bar}", style=style)


def _clock(at: datetime) -> str:
    return at.strftime("%H:%M:%S")
