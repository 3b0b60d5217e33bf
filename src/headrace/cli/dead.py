"""`headrace dead`: the dead letters in a job's folder, counted, listed and shown whole."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.folders import Place, job_at, print_table
from headrace.cli.jobs import AsJson, Folder, Name
from headrace.errors import RunError

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(
    help="The dead letters of a job: rows that failed, with the reason.",
    epilog="Try:\n\n[bold]headrace dead count job.py[/bold]\n"
    "[bold]headrace dead show job.py[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
Step = Annotated[str | None, typer.Option(help="Only those of this step.", metavar="STEP")]
_SHORT = 60  # characters of an error in a line


@app.command("count")
def count(place: Place, job: Name = None, folder: Folder = None, as_json: AsJson = False) -> None:
    """Count dead letters by the step that failed and the kind of error.

    Example: [bold]headrace dead count fire-alarm[/bold]
    """
    letters = _letters(place, job, folder, None)
    steps, errors = letters.column("step").to_pylist(), letters.column("error").to_pylist()
    kinds = Counter((step, _kind(error)) for step, error in zip(steps, errors, strict=True))
    rows = [{"step": s, "error": e, "letters": n} for (s, e), n in kinds.most_common()]
    _show(rows, ("letters", "step", "error"), as_json)


@app.command("ls")
def list_letters(
    place: Place,
    step: Step = None,
    limit: Annotated[int, typer.Option(help="Letters to list at most.", metavar="N")] = 20,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """List the newest dead letters, the newest last.

    Of each its number, the epoch, the step that failed, the place in the input, and the error.

    Example: [bold]headrace dead ls fire-alarm --step parse[/bold]
    """
    letters = _letters(place, job, folder, step)
    rows = [_row(letters, number) for number in _newest(letters, limit)]
    if not as_json:
        rows = [{**row, "error": _line(row["error"])} for row in rows]
    _show(rows, ("number", "epoch", "step", "place", "error"), as_json)


@app.command("show")
def show(
    place: Place,
    number: Annotated[
        int | None,
        typer.Argument(help="As `dead ls` shows it. Default: the newest.", metavar="NUMBER"),
    ] = None,
    step: Step = None,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter with its record and traceback.

    Example: [bold]headrace dead show fire-alarm 3[/bold]
    """
    letters = _letters(place, job, folder, step)
    chosen = [n for n in _newest(letters, letters.num_rows) if number in (None, n)][-1:]
    if not chosen:
        raise RunError(
            "HR-CLI-010",
            f"there is no dead letter {number}" if number is not None else "there are none",
            "`headrace dead ls` lists them with their numbers.",
        )
    row = _row(letters, chosen[0])
    if as_json:
        typer.echo(json.dumps(row, indent=2))
        return
    for name in ("number", "epoch", "input", "split", "offset", "place", "step", "error"):
        typer.echo(f"{name:<9} {row[name]}")
    typer.echo(f"record    {row['record']}")
    if row["traceback"]:
        typer.echo(row["traceback"].rstrip())


def _letters(place: Path, job: str | None, folder: str | None, step: str | None) -> pa.Table:
    """The letters of the job, each with its number: by epoch, then as they were stored."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from headrace.epoch.bundle import DEAD
    from headrace.inspect.progress import progress_of
    from headrace.plan.nodes import DEAD_SCHEMA
    from headrace.sinks import read_output

    at = job_at(place, job, folder)
    where, manifest = at.log.folder / DEAD, at.log.latest()
    stored = where.is_dir() and any(where.iterdir())
    if manifest is not None and progress_of(manifest, {}).dead and not stored:
        raise RunError(
            "HR-CLI-009",
            f"job {at.name!r} writes its dead letters to an output of its own",
            "Look there: the program uses job.dead.",
        )
    letters = read_output(where) if stored else DEAD_SCHEMA.empty_table()
    letters = letters.append_column("number", pa.array(np.arange(1, letters.num_rows + 1)))
    return letters if step is None else letters.filter(pc.equal(letters.column("step"), step))


def _newest(letters: pa.Table, limit: int) -> list[int]:
    numbers: list[int] = letters.column("number").to_pylist()
    return numbers[-limit:] if limit > 0 else []


def _row(letters: pa.Table, number: int) -> dict[str, Any]:
    """A letter as plain values; a record that is not text is shown as Python writes bytes."""
    at = letters.column("number").to_pylist().index(number)
    row: dict[str, Any] = letters.slice(at, 1).to_pylist()[0]
    try:
        row["record"] = row["record"].decode()
    except UnicodeDecodeError:
        row["record"] = repr(row["record"])
    return row


def _kind(error: str) -> str:
    """An error without what differs from row to row: the class, or the text up to a value."""
    name, colon, _ = error.partition(":")
    return name if colon else _line(error)


def _line(error: str) -> str:
    first = error.splitlines()[0] if error else ""
    return first if len(first) <= _SHORT else f"{first[: _SHORT - 1]}…"


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        print_table(rows, columns)
    else:
        typer.echo("there are no dead letters")
