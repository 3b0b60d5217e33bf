"""What the fire alarm found: read from its outputs, as anybody could."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from examples.demo.screen import Screen
from examples.demo.sensors import FIRES
from rich.console import Console

import headrace as hr
from headrace.inspect.progress import account

AVERAGES = ".headrace/fire-alarm/averages"
ALARMS = "alarms"
SHOW_ALARMS = f"headrace topic consume {ALARMS} --from-beginning --no-follow"
_RECENT = 400  # averages looked at again and again


class Findings:
    """The alarms and averages so far. `place` is that of the topics."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.alarms: list[dict[str, Any]] = []
        self._consumer: hr.Consumer | None = None

    def show(self, screen: Screen) -> None:
        """Show what is new on the screen."""
        for row in self._new_alarms():
            screen.alarm(row)
        table = self.averages()
        screen.averages(table.slice(max(0, table.num_rows - _RECENT)).to_pylist())

    def averages(self) -> pa.Table:
        try:
            return hr.read_output(AVERAGES)
        except hr.OutputError:  # nothing written yet
            return pa.table({})

    def _new_alarms(self) -> list[dict[str, Any]]:
        if self._consumer is None:
            try:
                self._consumer = hr.Consumer(ALARMS, log=self.place)
            except hr.LogError:  # the job has not made it yet
                return []
        fresh = []
        while (batch := self._consumer.poll("10ms")) is not None:
            fresh += [_alarm(record.value) for record in batch.records()]
        self.alarms += fresh
        return sorted(fresh, key=lambda row: row["at"])

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()


def _alarm(value: Any) -> dict[str, Any]:
    """A row of a typed topic, or its JSON."""
    row = value if isinstance(value, dict) else json.loads(value)
    return {**row, "at": row["at"] if value is row else datetime.fromisoformat(row["at"])}


def report(console: Console, run: hr.Run, job: hr.Job, found: Findings, place: Path) -> None:
    """What happened, and where everything is."""
    averages, alarms = found.averages(), found.alarms
    raised = {a["area"] for a in alarms if a["alarm"]}
    fires = {f.area for f in FIRES}
    say = [
        "",
        f"fires set     {_list(fires)}",
        f"found         {_list(fires & raised)}",
        f"false alarms  {_list(raised - fires)}",
        "",
        "where every record went",
        *(f"  {line}" for line in (account(run.progress) if run.progress else [])),
        "",
        "where things are",
        f"  alarms    {_alarms_of(found.place)}",
        f"  averages  {place / AVERAGES}",
        f"  dead      {run.folder}/dead",
        f"  plan      {_plan(job, place)}",
        f"  picture   {_picture(averages, alarms, place)}",
    ]
    for line in say:
        console.print(line, highlight=False, soft_wrap=True)


def _alarms_of(place: str) -> str:
    if place.startswith("kafka:"):
        return f"topic {ALARMS} of the broker, which ends with the demo; its data are beside"
    return f"{SHOW_ALARMS} --log {place}"


def _list(areas: set[str]) -> str:
    return ", ".join(sorted(areas)) or "none"


def _plan(job: hr.Job, place: Path) -> Path:
    (place / "plan.txt").write_text(f"{job.explain()}\n")
    return place / "plan.txt"


def _picture(averages: pa.Table, alarms: list[dict[str, Any]], place: Path) -> str:
    try:
        from examples.demo.picture import draw
    except ImportError:
        return "needs matplotlib: pip install 'headrace[plot]'"
    draw(averages.to_pylist(), alarms, datetime.now(UTC), str(place / "fire-alarm.png"))
    return str(place / "fire-alarm.png")
