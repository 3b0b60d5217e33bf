"""`headrace dead`: the dead letters in a job's folder, counted, listed, shown, and sent again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.folders import Place, job_at, print_table
from headrace.cli.jobs import AsJson, Folder, Name
from headrace.cli.loading import load_job
from headrace.errors import RunError

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(
    help="The dead letters of a job: rows that failed, with the reason.\n\n"
    "See what failed (count, ls), look at one with its record and traceback (show), correct the "
    "program, and replay: the rows enter the step that failed on them once more, and go on from "
    "there to the outputs, exactly once.",
    epilog="Try:\n\n[bold]headrace dead count job.py[/bold]\n"
    "[bold]headrace dead show job.py[/bold]\n"
    "[bold]headrace dead replay job.py --dry-run[/bold]",
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
    letters = _open_letters(place, job, folder, None)
    steps, errors = letters.column("step").to_pylist(), letters.column("error").to_pylist()
    kinds = Counter((step, _kind(error)) for step, error in zip(steps, errors, strict=True))
    rows = [{"step": s, "error": e, "letters": n} for (s, e), n in kinds.most_common()]
    _show(rows, ("letters", "step", "error"), as_json)


@app.command("ls")
def list_letters(
    place: Place,
    step: Step = None,
    limit: Annotated[int, typer.Option(help="Letters to list at most.", metavar="N")] = 20,
    error: Annotated[
        str | None, typer.Option(help="Only those whose error contains this.", metavar="TEXT")
    ] = None,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
    groups: Annotated[
        bool,
        typer.Option("--groups", help="As JSON, with how many there are of each step and error."),
    ] = False,
) -> None:
    """List the newest dead letters, the newest last.

    Of each its number, the epoch, the step that failed, the place in the input, and the error.
    Letters that were replayed are left out; those that wait for the job to replay them say so.

    Example: [bold]headrace dead ls fire-alarm --step parse[/bold]
    """
    letters = _open_letters(place, job, folder, step, times=groups)
    if groups:
        counted = list(_groups(letters))
    letters = letters if error is None else letters.filter(_containing(letters, error))
    rows = [_row(letters, number) for number in _newest(letters, limit)]
    if groups:
        _show_groups(counted, letters.num_rows, rows)
        return
    if not as_json:
        rows = [{**row, "error": _line(row["error"])} for row in rows]
    waiting = ("replay",) if any(row["replay"] for row in rows) else ()
    _show(rows, ("number", "epoch", "step", "place", "error", *waiting), as_json)


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
    letters = _open_letters(place, job, folder, step, every=True)
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
    if row["replay"]:
        typer.echo(f"replay    {row['replay']}")
    typer.echo(f"record    {row['record']}")
    if row["traceback"]:
        typer.echo(row["traceback"].rstrip())


@app.command("replay")
def replay(
    place: Place,
    step: Step = None,
    error: Annotated[
        str | None, typer.Option(help="Only those whose error contains this.", metavar="TEXT")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only those that failed then or later.", metavar="TIME"),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Only those that failed before.", metavar="TIME")
    ] = None,
    epoch: Annotated[
        str | None, typer.Option(help="Only those of an epoch, or of several.", metavar="N[-N]")
    ] = None,
    number: Annotated[
        list[int] | None,
        typer.Option(help="Only this one, as `dead ls` numbers them. Repeatable.", metavar="N"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be replayed; ask for nothing.")
    ] = False,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Send dead letters again, into the step that failed on them.

    Correct the program first. A job that runs takes them in with its next batch, if it runs the
    corrected program; otherwise the next start does. Each goes through the rest of the program
    once, whatever crashes; what fails again is a new dead letter. Without options all letters are
    meant; those that cannot be replayed are listed with the reason. With the job's Python file in
    place of its folder, it is also seen whether the program still has their steps.

    Example: [bold]headrace dead replay fire_alarm.py --step parse --dry-run[/bold]
    """
    from headrace.clock import SystemClock, moment_millis
    from headrace.driver.dead_replay import Choice, ask

    at, now = job_at(place, job, folder), SystemClock().now()
    is_program = place.suffix == ".py" and place.is_file()
    choice = Choice(
        step,
        error,
        None if since is None else moment_millis(since, now),
        None if until is None else moment_millis(until, now),
        None if epoch is None else _epochs(epoch),
        None if number is None else frozenset(number),
    )
    program = load_job(place, job).program() if is_program else None
    found = ask(at.log, choice, program, dry_run=dry_run)
    typer.echo(json.dumps(found.json, indent=2) if as_json else str(found))


def _epochs(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    try:
        return int(first), int(last if dash else first)
    except ValueError:
        raise RunError(
            "HR-CLI-023", f"--epoch {text!r} names no epochs", "Pass a number, or two: 12-15."
        ) from None


def _containing(letters: pa.Table, error: str) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    return pc.match_substring(letters.column("error"), error)


def _groups(letters: pa.Table) -> Iterator[dict[str, Any]]:
    """By step and kind of error: how many, and when the first and the last was; most first."""
    found: dict[tuple[str, str], list[int | None]] = {}
    columns = (letters.column(name).to_pylist() for name in ("step", "error", "at"))
    for step, error, at in zip(*columns, strict=True):
        found.setdefault((step, _kind(error)), []).append(at)
    for (step, error), times in sorted(found.items(), key=lambda group: -len(group[1])):
        known = [at for at in times if at is not None]  # earlier versions did not note it
        yield {
            "step": step, "error": error, "count": len(times), "first": min(known, default=None),
            "last": max(known, default=None),
        }  # fmt: skip


def _show_groups(groups: list[dict[str, Any]], total: int, rows: list[dict[str, Any]]) -> None:
    letters = [{**row, "time": row.pop("at")} for row in reversed(rows)]
    typer.echo(json.dumps({"total": total, "groups": groups, "letters": letters}))


def _letters(place: Path, job: str | None, folder: str | None) -> tuple[pa.Table, list[str]]:
    """The letters of the job, each with its number and what is known of its replay."""
    from headrace.driver.dead_replay import ASKED, letters_of

    found = letters_of(job_at(place, job, folder).log)
    states = [
        f"replayed in epoch {found.replayed[id]}"
        if id in found.replayed
        else (ASKED if id in found.asked else "")
        for id in found.rows.column("id").to_pylist()
    ]
    return found.rows.drop_columns(["id", "enters", "port", "row"]), states


def _open_letters(
    place: Path,
    job: str | None,
    folder: str | None,
    step: str | None,
    *,
    every: bool = False,
    times: bool = False,
) -> pa.Table:
    """The letters of a step, or of all; without those that were replayed, unless `every`; with
    the times at which they were written, if asked for."""
    import pyarrow as pa
    import pyarrow.compute as pc

    letters, states = _letters(place, job, folder)
    letters = letters if times else letters.drop_columns(["at"])
    letters = letters.append_column("replay", pa.array(states, pa.string()))
    if not every:
        letters = letters.filter(pa.array([not s.startswith("replayed") for s in states], "bool"))
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
