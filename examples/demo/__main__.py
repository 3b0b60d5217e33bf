"""Play the fire alarm: sensors in a process of their own, the job on Spark, a live screen."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from examples.demo.findings import ALARMS, Findings, report
from examples.demo.page import page
from examples.demo.screen import Screen
from examples.demo.sensors import AREAS, MINUTES, SPEED, TOPICS, records, send
from rich.console import Console

import headrace as hr
from headrace.cli.loading import load_job

ROOT = Path(__file__).resolve().parents[2]


def main(
    folder: Annotated[Path, typer.Option(help="The folder of all that the demo writes.")] = Path(
        ".headrace/demo"
    ),
    minutes: Annotated[float, typer.Option(help="Minutes of event time to play.")] = MINUTES,
    speed: Annotated[float, typer.Option(help="Seconds of event time per second.")] = SPEED,
    kafka: Annotated[bool, typer.Option("--kafka", help="On a Kafka broker of its own.")] = False,
) -> None:
    """The fire alarm: 20 areas, 60 s averages every 5 s, a state machine per area."""
    console = Console()
    place = folder.absolute() / datetime.now().strftime("%Y%m%d-%H%M%S")
    place.mkdir(parents=True)
    os.chdir(place)  # the job's paths are relative
    try:
        with _kafka(place) if kafka else _embedded(place) as topics, ExitStack() as at_end:
            program = ROOT / "examples" / "fire_alarm.py"
            job = load_job(program)
            address = at_end.enter_context(page(job, program, place / "job", place))
            _say_where(console, address)
            found = Findings(topics)
            at_end.callback(found.close)
            with Screen(AREAS, console) as screen:
                run = hr.run(
                    job, folder="job", target_batch="500ms", quiet=True, on_progress=screen.progress
                )
                begin = time.time() - minutes * 60  # so that the last readings are of now
                _first_batch(run, topics, begin)
                with _sensors(topics, begin, minutes, speed) as sensors:
                    _watch(run, sensors, found, screen)
    except hr.HeadraceError as error:
        console.print(str(error), highlight=False, markup=False)
        raise typer.Exit(1) from error
    report(console, run, job, found, place)


def _say_where(console: Console, address: str | None) -> None:
    """Where to look, besides here."""
    no = "no page: it needs the extra `server` (pip install 'headrace[server]')"
    line = no if address is None else f"the page, while this runs: {address}"
    console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _embedded(place: Path) -> Iterator[str]:
    """The embedded log with the topics of the sensors."""
    os.environ["HEADRACE_LOG"] = str(place / "log")
    log = hr.EmbeddedLog()
    for topic in TOPICS:
        log.create(topic)
    yield str(log.root)


@contextmanager
def _kafka(place: Path) -> Iterator[str]:
    """A broker with all topics, as long as the demo runs."""
    from tools.kafka.broker import Broker

    with Broker(place / "kafka") as broker:
        broker.make_topics(dict.fromkeys((*TOPICS, ALARMS), 1))
        topics = f"kafka://{broker.address}"
        os.environ["FIRE_ALARM_TOPICS"] = f"{topics}/"
        yield topics


def _first_batch(run: hr.Run, topics: str, begin: float) -> None:
    """Give Spark something to warm up with, so that the sensors are watched from the start."""
    with hr.Producer(topics) as producer:
        send(producer, list(records(random.Random(0), begin, 0)))
    while run.wait(timeout=0.25).state == "running" and run.progress is None:
        pass


def _sensors(topics: str, begin: float, minutes: float, speed: float) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "examples.demo.sensors", topics]
    return subprocess.Popen([*command, *map(str, (begin, minutes, speed))], cwd=ROOT)


def _watch(run: hr.Run, sensors: subprocess.Popen[bytes], found: Findings, screen: Screen) -> None:
    """Show what the job gives until the sensors are done and all they sent is used."""
    draining = False
    try:
        while run.wait(timeout=0.25).state == "running":
            found.show(screen)
            if sensors.poll() is not None and not draining:
                draining = True
                run.drain()
    finally:
        sensors.terminate()
    found.show(screen)
    if sensors.returncode:
        raise hr.RunError("HR-RUN-000", "the sensors failed", "What they printed above says why.")


if __name__ == "__main__":
    typer.run(main)
