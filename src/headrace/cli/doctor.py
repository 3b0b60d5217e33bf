"""`headrace doctor`: every file of a job, or of topics, looked at; and what can be, repaired."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.folders import job_at
from headrace.cli.jobs import AsJson, Folder, Name
from headrace.cli.loading import load_job
from headrace.errors import HeadraceError, RunError
from headrace.files import size
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.doctor.finding import Diagnosis

_EVERY = 1.0  # seconds between two lines of progress
_DAMAGED, _UNUSABLE = 1, 2


def doctor(
    place: Annotated[
        Path | None,
        typer.Argument(
            help="A job's folder, its name in .headrace/jobs, or its Python file; or the folder "
            "of a log or of a topic.",
            metavar="JOB_OR_LOG",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="A topic of the embedded log. Repeatable.", metavar="TOPIC"),
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(help="The log with the topics. Default: .headrace/log.", metavar="DIR"),
    ] = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Repair what is provably right; the job must be stopped."),
    ] = False,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Check every file of a job or of topics, and say what to do.

    Reads all that the job has stored and written, with the topics of the embedded log that it
    reads and writes, and names each file that is damaged or missing: which rows that affects,
    whether the job would start, and the way out: --repair, a file of a backup, or the newest
    epoch that is whole. Without --repair nothing is changed, and the job may run.

    Exit codes: 0 healthy, 1 damaged, 2 it could not be looked at.

    Example: [bold]headrace doctor fire-alarm[/bold]
    """
    try:
        report = _report(place, topic or [], log, repair, job, folder)
    except HeadraceError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(_UNUSABLE) from error
    typer.echo(json.dumps(report.json, indent=2) if as_json else report)
    if not report.healthy:
        raise typer.Exit(_DAMAGED)


def _report(
    place: Path | None,
    names: list[str],
    log: str | None,
    repair: bool,
    job: str | None,
    folder: str | None,
) -> Diagnosis:
    from headrace.doctor import examine  # slow to import, and help needs none of it

    tell = _progress()
    topics = _topics(place, names, log)
    if topics:
        work = examine.repair_topics if repair else examine.examine_topics
        return work(topics, tell)
    if place is None:
        raise RunError(
            "HR-DOCTOR-002",
            "there is nothing named to look at",
            "Pass a job (its folder, name or Python file), the folder of a log, or --topic TOPIC.",
        )
    program = load_job(place, job) if place.suffix == ".py" and place.is_file() else None
    file = str(place) if program is not None else None
    look = examine.repair_job if repair else examine.examine_job
    return look(_job_folder(place, job, folder), program, file, tell)


def _job_folder(place: Path, job: str | None, folder: str | None) -> Path:
    """As for other commands; the folder of a job whose own file is damaged is one, too."""
    for path in (place, Path(Settings.load().jobs) / place):
        if (path / "epochs").is_dir() or (path / "job.json").exists():
            return path
    return job_at(place, job, folder).log.folder


def _topics(place: Path | None, names: list[str], log: str | None) -> list[Path]:
    """The folders of the topics that are meant; none if a job is."""
    from headrace.log.verify import is_topic, topics_in

    if names or log is not None:
        root = Path(Settings.load(log=log).log)
        known = {path.name: path for path in topics_in(root)}
        for name in names:
            if name not in known:
                raise RunError(
                    "HR-DOCTOR-002",
                    f"the log {str(root)!r} has no topic {name!r}",
                    f"It has: {', '.join(known) or 'none'}. --log names another log.",
                )
        return [known[name] for name in names] or list(known.values())
    if place is None or not place.is_dir() or (place / "epochs").is_dir():
        return []
    return [place.absolute()] if is_topic(place) else topics_in(place.absolute())


def _progress() -> Callable[[int, int], None] | None:
    """Tells on a terminal how far it is, when there is much."""
    if not sys.stderr.isatty():
        return None
    last = time.monotonic()

    def tell(files: int, read: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            typer.echo(f"{files:,} files read, {size(read)} ...", err=True)

    return tell
