"""`headrace why`: why a job gives no output, from what its folder remembers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from headrace.cli.folders import Place, job_at
from headrace.cli.jobs import AsJson, Folder, Name
from headrace.cli.loading import load_job
from headrace.clock import SystemClock
from headrace.settings import Settings
from headrace.state.epochs import EpochLog

if TYPE_CHECKING:
    from headrace.inspect.why_answer import Why


def why(place: Place, job: Name = None, folder: Folder = None, as_json: AsJson = False) -> None:
    """Explain why a job has no output, the likeliest reason first.

    A window emits its result when the watermark passes its end, and the watermark is as slow
    as the slowest split. So an empty output is mostly one of these: an input without rows, a
    filter that lets nothing through, rows that are all late, a split that is silent but not
    idle yet, a window that is not over. Each is named with its step, its split and its time.

    Works whether the job is running or not, and changes nothing.

    Example: [bold]headrace why examples/fire_alarm.py[/bold]

    Example: [bold]headrace why .headrace/jobs/fire-alarm --json[/bold]
    """
    is_program = place.suffix == ".py" and not place.is_dir()
    answer = _of_file(place, job, folder) if is_program else _of_folder(place)
    typer.echo(json.dumps(answer.json, indent=2) if as_json else answer.text)


def _of_file(file: Path, job: str | None, folder: str | None) -> Why:
    from headrace.driver.start import folder_of
    from headrace.inspect import stall  # slow to import, and help needs none of it
    from headrace.inspect.why_answer import answer_why

    program = load_job(file, job).program()
    log = EpochLog(folder_of(program, Settings.load(), folder))
    if not (log.folder / "job.json").exists():
        return answer_why(program.name, program, None, SystemClock().now())
    log.open(program.name, 1)  # refuses the folder of another job
    stalled = stall.reason(program.name, log.folder)
    return answer_why(
        program.name, program, log.latest(), SystemClock().now(), _before(log), stalled
    )


def _of_folder(folder: Path) -> Why:
    from headrace.inspect import stall
    from headrace.inspect.why_answer import answer_why

    name, log = job_at(folder)
    stalled = stall.reason(name, log.folder)
    return answer_why(name, None, log.latest(), SystemClock().now(), _before(log), stalled)


def _before(log: EpochLog) -> str:
    """How far a job is that has no manifest yet: a run takes the fence when it starts."""
    from headrace.inspect.why import NEW, STARTED

    return STARTED if log.taken() else NEW
