"""Play the fire alarm: sensors in a process of their own, the job on Spark, a live screen."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

import headrace as hr
from examples.demo.screen import Screen
from examples.demo.sensors import AREAS, FIRES, MINUTES, SPEED
from headrace.cli.loading import load_job
from headrace.cli.status import account

AVERAGES = ".headrace/fire-alarm/averages"
JOB = Path(__file__).parent.parent / "fire_alarm.py"


def main(
    folder: Path = typer.Option(Path(".headrace/demo"), help="Where everything of the demo lies."),
    minutes: float = typer.Option(MINUTES, help="Minutes of event time to play."),
    speed: float = typer.Option(SPEED, help="Seconds of event time per second."),
) -> None:
    """The fire alarm: 20 areas, 60 s averages every 5 s, a state machine per area."""
    console = Console()
    place = folder.absolute() / datetime.now().strftime("%Y%m%d-%H%M%S")
    place.mkdir(parents=True)
    os.chdir(place)
    os.environ["HEADRACE_LOG"] = str(place / "log")
    log = hr.EmbeddedLog(str(place / "log"))
    for topic in ("temperature", "smoke"):
        log.create(topic)
    job = load_job(JOB)
    with Screen(AREAS, console) as screen:
        run = hr.run(job, target_batch="500ms", on_progress=screen.progress)
        begin = time.time() - minutes * 60
        sensors = _sensors(place, begin, minutes, speed)
        try:
            _watch(run, sensors, log, screen)
        finally:
            sensors.terminate()
    _tell(console, run, place, job, log)


def _sensors(place: Path, begin: float, minutes: float, speed: float) -> subprocess.Popen[str]:
    root = str(Path(__file__).parent.parent.parent)
    command = [sys.executable, "-m", "examples.demo.sensors", str(place / "log")]
    command += [str(begin), str(minutes), str(speed)]
    return subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)


def _watch(run: hr.Run, sensors: subprocess.Popen[str], log: hr.EmbeddedLog, screen: Screen) -> None:
    """Show what the job gives until the sensors are done and all they sent is used."""
    alarms, draining = 0, False
    while run.status.state == "running":
        run.wait(timeout=0.2)
        alarms = _new_alarms(log, alarms, screen)
        screen.averages(_averages())
        if sensors.poll() is not None and not draining:
            draining = True
            run.drain()
    run.wait()
    _new_alarms(log, alarms, screen)


def _new_alarms(log: hr.EmbeddedLog, seen: int, screen: Screen) -> int:
    if "alarms" not in log.topics():
        return seen
    for _, rows in log.read("alarms", 0, seen):
        for row in rows.to_pylist():
            screen.alarm(row)
        seen += rows.num_rows
    return seen


def _averages() -> list[dict[str, Any]]:
    try:
        return list(hr.read_output(AVERAGES).to_pylist())
    except hr.OutputError:  # nothing written yet
        return []


def _tell(console: Console, run: hr.Run, place: Path, job: hr.Job, log: hr.EmbeddedLog) -> None:
    """What happened, and where everything lies."""
    averages = _averages()
    alarms = [r for _, rows in log.read("alarms", 0, 0) for r in rows.to_pylist()]
    raised = {a["area"] for a in alarms if a["alarm"]}
    console.print(f"\n{len(averages):,} averages, {len(alarms)} alarms raised or cleared")
    found = sorted(f.area for f in FIRES if f.area in raised)
    false = sorted(raised - {f.area for f in FIRES})
    console.print(f"fires set: {', '.join(f.area for f in FIRES)}; found: {', '.join(found)}"
                  f"; false alarms: {', '.join(false) or 'none'}")  # fmt: skip
    for line in account(run.progress):
        console.print(f"  {line}", highlight=False)
    (place / "plan.txt").write_text(job.explain().text)
    console.print("\nwhere things lie:")
    console.print(f"  alarms      headrace topic consume alarms --from-beginning --log {place / 'log'}")
    console.print(f"  averages    {place / AVERAGES}")
    console.print(f"  dead        {run.folder}/dead")
    console.print(f"  plan        {place / 'plan.txt'}")
    try:
        from examples.demo.picture import draw
    except ImportError:
        console.print("  picture     needs matplotlib: pip install 'headrace[plot]'")
        return
    draw(averages, alarms, datetime.now(UTC), str(place / "fire-alarm.png"))
    console.print(f"  picture     {place / 'fire-alarm.png'}")


if __name__ == "__main__":
    typer.run(main)
