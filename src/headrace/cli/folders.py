"""`headrace history` and `outputs`, and the lines of other commands: jobs by their folders.

Nothing is changed; what they show is what manifests and outputs say, so it is the same for a
job that runs, has stopped, or was killed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from headrace.cli.jobs import AsJson, Folder, Name
from headrace.cli.loading import load_job
from headrace.clock import SystemClock
from headrace.errors import HeadraceError, RunError
from headrace.settings import Settings
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from headrace.state.sealed import read_sealed

if TYPE_CHECKING:
    from headrace.inspect.progress import Progress

Place = Annotated[
    Path,
    typer.Argument(
        help="A job's folder, its name in .headrace/jobs, or its Python file.",
        metavar="FOLDER_OR_FILE",
        show_default=False,
    ),
]


class JobFolder(NamedTuple):
    name: str
    log: EpochLog


def job_at(place: Path, job: str | None = None, folder: str | None = None) -> JobFolder:
    """The job that `place` names: its folder, its name, or its program."""
    for path in (place, Path(Settings.load().jobs) / place):
        if (path / "job.json").is_file():
            return JobFolder(read_sealed(path / "job.json", "job")["job"], EpochLog(path))
    if place.is_dir() or place.suffix != ".py":
        raise RunError(
            "HR-CLI-005",
            f"{str(place)!r} is not the folder of a job",
            "A job's folder has a file job.json; jobs are in .headrace/jobs by default, and "
            "`headrace list` lists them. Or pass the Python file that makes the job.",
        )
    from headrace.driver.start import folder_of  # slow to import, and help needs none of it

    program = load_job(place, job).program()
    log = EpochLog(folder_of(program, Settings.load(), folder))
    if log.look(program.name) is None:
        raise RunError(
            "HR-CLI-007",
            f"job {program.name!r} has not run yet: there is nothing in {str(log.folder)!r}",
            "Start it with `headrace run`, or pass --folder if it ran in another one.",
        )
    return JobFolder(program.name, log)


def describe_folder(place: Path, job: str | None, folder: str | None, as_json: bool) -> None:
    """A job of this machine: whether it runs, its last batch, where records went."""
    from headrace.inspect.figures import figures_of
    from headrace.inspect.figures_text import in_words
    from headrace.inspect.progress import account, progress_of, status_line

    at, now = job_at(place, job, folder), SystemClock().now()
    found = figures_of(at.log, now)
    if as_json:
        shown = None if found is None else found.to_json()
        typer.echo(json.dumps({**row_of(at.log.folder), "figures": shown}, indent=2))
        return
    manifest = at.log.latest()
    typer.echo(f"{at.name}: {_state(at.log, manifest)}, in {short_path(at.log.folder)}")
    if manifest is None or found is None:
        typer.echo("  no batch has been committed yet")
        return
    progress = progress_of(manifest, {})
    rate = progress.read * 1_000 / max(progress.took, 1)
    typer.echo(f"  last batch, {_ago(progress, now)}: {status_line(progress, rate, now)}")
    warnings = [f"WARNING: {text}" for text in progress.warnings]
    for line in [*in_words(found), *account(progress), *warnings]:
        typer.echo(f"  {line}")


def history(
    place: Place,
    last: Annotated[int, typer.Option(help="Batches to show at most.", metavar="N")] = 20,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """List the last batches of a job, the newest last.

    What each read and wrote, and how long it took. There are as many as manifests are stored:
    `keep_epochs`, by default 20.

    Example: [bold]headrace history fire-alarm --last 5[/bold]
    """
    log = job_at(place, job, folder).log
    rows: list[dict[str, Any]] = []
    before: Manifest | None = None
    for epoch in log.epochs()[-last - 1 :]:
        try:
            manifest = log.read(epoch)
        except HeadraceError:
            if epoch in log.epochs():  # else a job that runs has cleared it away
                raise
            continue
        if before is not None and before.timeline != manifest.timeline:
            before = None  # it was given up
        rows.append(_batch(manifest, before))
        before = manifest
    rows = rows[-last:]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        print_table(rows, max(map(tuple, rows), key=len))
    else:
        typer.echo("no batch has been committed yet")


def outputs(place: Place, job: Name = None, folder: Folder = None, as_json: AsJson = False) -> None:
    """Show which epochs each output of a job shows.

    Every place is asked. After a crash some outputs may be an epoch behind until the job is
    started again. Pass the job's Python file if outputs need passwords, or are of classes of
    your own.

    Example: [bold]headrace outputs fire_alarm.py[/bold]
    """
    from headrace.inspect.output_epochs import outputs as ask

    at = job_at(place, job, folder)
    is_program = place.suffix == ".py" and place.is_file()
    found = ask(at.log.folder, load_job(place, job) if is_program else None)
    if as_json:
        typer.echo(json.dumps(found.json, indent=2))
        return
    heading, *_ = found.lines
    typer.echo(f"{at.name}: {heading}")
    columns = ("name", "shows", "last", "holds", "place", "note")
    rows = [asdict(output) for output in found.outputs]
    print_table([{"output": row.pop("name"), **row} for row in rows], ("output", *columns[1:]))


def row_of(folder: Path) -> dict[str, Any]:
    """A job in a line; what is wrong with its folder in the place of what cannot be read."""
    from headrace.inspect.progress import moment, progress_of

    log, row = EpochLog(folder), {"job": folder.name, "folder": short_path(folder)}
    try:
        row["job"] = read_sealed(folder / "job.json", "job")["job"]
        manifest = log.latest()
        row["state"] = _state(log, manifest)
    except HeadraceError as error:
        return {**row, "state": str(error).splitlines()[0]}
    if manifest is None:
        return row
    total = progress_of(manifest, {}).total
    counts = {fate: total[fate] for fate in ("read", "late", "dead", "shed") if fate in total}
    return {**row, "epoch": manifest.epoch, "committed": moment(manifest.wall), **counts}


def _state(log: EpochLog, manifest: Manifest | None) -> str:
    driver = log.driver()
    if driver is not None:
        return f"running ({driver})"
    if manifest is not None and manifest.ended:
        return "ended"
    return "stopped" if log.taken() else "new"


def _batch(manifest: Manifest, before: Manifest | None) -> dict[str, Any]:
    from headrace.inspect.progress import moment, progress_of

    progress = progress_of(manifest, {})
    earlier = progress_of(before, {}) if before is not None else None
    fates = earlier.total if earlier is not None else dict.fromkeys(progress.total, 0)
    wrote = _written(progress) - (_written(earlier) if earlier else 0)
    known = earlier is not None or manifest.epoch == 1
    return {
        "epoch": manifest.epoch,
        "committed": moment(manifest.wall),
        "took_ms": progress.took,
        "read": progress.read,
        "wrote": wrote if known else None,
        "late": progress.total["late"] - fates["late"] if known else None,
        "dead": progress.total["dead"] - fates["dead"] if known else None,
        **_shed(progress, fates.get("shed", 0), known),
        "watermark": None if progress.watermark is None else moment(progress.watermark),
    }


def _shed(progress: Progress, before: int, known: bool) -> dict[str, int | None]:
    """What a batch has shed; nothing of a job that is not asked to."""
    if progress.shed is None:
        return {}
    return {"shed": progress.shed - before if known else None}


def _written(progress: Progress) -> int:
    """Rows written, without dead letters, which are counted as such."""
    from headrace.epoch.bundle import DEAD

    return sum(rows for name, rows in progress.outputs.items() if name != DEAD)


def short_path(path: Path) -> str:
    """A path as one would type it here."""
    path, here = path.absolute(), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _ago(progress: Progress, now: int) -> str:
    from headrace.inspect.progress import span

    return f"{span(max(0, now - progress.committed))} ago"


def print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """As a table: numbers to the right, and the last column as long as it is."""
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    numbers = [any(isinstance(row.get(column), int) for row in rows) for column in columns]
    print_cells(columns, cells, numbers)


def print_cells(heads: Sequence[str], cells: list[list[str]], numbers: list[bool]) -> None:
    """Texts in columns; those of numbers are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    for line in [list(heads), *cells]:
        parts = [
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, numbers, strict=True)
        ]
        typer.echo("  ".join(parts).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
