"""`headrace list`, `describe`, `events` and `logs`: jobs of a server, or of folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import folders
from headrace.cli.folders import job_at, print_table
from headrace.cli.jobs import AsJson, Folder, Name
from headrace.cli.served import JobName, ServerUrl, is_elsewhere, needs_server, served, server_here
from headrace.clock import SystemClock
from headrace.errors import RunError
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.server.client import ServedJob
    from headrace.server.values import Event, JobDetails, JobView

Last = Annotated[int, typer.Option(help="How many at most.", metavar="N", min=1, max=1_000)]


def list_jobs(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Of the jobs in this folder, without a server. Default: .headrace/jobs.",
            metavar="DIR",
        ),
    ] = None,
    server: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """List jobs: which run, and how far each is.

    Those of the server, and those of this folder that it does not run.

    Example: [bold]headrace list[/bold]
    """
    at = None if folder is not None else server_here(server)
    views = at.jobs() if at is not None else []
    rows = [{"job": view.name, **view.json, "server": at.url} for view in views if at is not None]
    if not is_elsewhere(server):
        known = {Path(view.folder).resolve() for view in views}
        root = folder or Path(Settings.load().jobs)
        paths = sorted(path.parent for path in root.glob("*/job.json"))
        rows += [folders.row_of(path) for path in paths if path.resolve() not in known]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not rows:
        where = f"on the server at {at.url}" if at is not None else f"in {_shown(folder)!r}"
        typer.echo(f"there are no jobs {where}")
    elif at is None:
        shed = ("shed",) if any("shed" in row for row in rows) else ()
        fates = ("read", "late", "dead", *shed)
        print_table(rows, ("job", "state", "epoch", "committed", *fates, "folder"))
    else:
        columns = ("job", "state", "epoch", "committed", "rows/s", "lag", "late", "dead", "run by")
        print_table([_line(row) for row in rows], columns)


def _line(row: dict[str, Any]) -> dict[str, Any]:
    """A job in the table of a server; one that it does not run has fewer figures."""
    from headrace.inspect.progress import moment

    if "server" not in row:
        return {**row, "run by": "headrace run"}
    rate, committed = row["rate_in"], row["committed"]
    return {
        **row,
        "committed": None if committed is None else moment(committed),
        "rows/s": None if rate is None else round(rate, 1 if rate < 9.95 else None),
        "lag": row["lag_rows"],
        "run by": "the server",
    }


def _shown(folder: Path | None) -> str:
    return folders.short_path(folder or Path(Settings.load().jobs))


def describe(
    job: JobName,
    name: Name = None,
    folder: Folder = None,
    server: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show whether a job runs, its last batch, where records went.

    On a server also its versions, and what may be done with it.

    Example: [bold]headrace describe fire-alarm[/bold]
    """
    found = served(job, server)
    if found is None:
        return folders.describe_folder(Path(job), name, folder, as_json)
    details = found.details()
    if as_json:
        typer.echo(json.dumps(details.json, indent=2))
        return
    for line in _described(details, SystemClock().now()):
        typer.echo(line)


def _described(details: JobDetails, now: int) -> list[str]:
    from headrace.inspect.progress import span

    job, figures = details.job, details.figures or {}
    process = f", process {job.pid}" if job.pid is not None else ""
    lines = [f"{job.name}: {job.state} for {span(max(0, now - job.since))}{process}"]
    if job.reason:
        lines.append(f"  reason   {job.reason}")
    lines += [f"  program  version {job.version} of {job.program}", f"  folder   {job.folder}"]
    options = ", ".join(f"{k} {v}" for k, v in details.options.items() if v is not None)
    lines += [f"  options  {options}"] if options else []
    lines += [f"  batch    {_batch(job, now)}"] if job.epoch else []
    for one in figures.get("inputs") or ():
        fates = ("used", "filtered", "late", "dead", "shed")
        parts = " + ".join(f"{fate} {one[fate]}" for fate in fates if one.get(fate) is not None)
        lines.append(f"  input    {one['name']}: read {one.get('read', 0)} = {parts}")
    lines += [f"  output   {o['name']}: wrote {o['rows']}" for o in figures.get("outputs") or ()]
    if (slow := figures.get("bottleneck")) is not None:
        lines.append(f"  slowest  {slow['step']}: {slow['why']}")
    lines += [f"  WARNING: {text}" for text in job.warnings]
    if len(details.versions) > 1:
        for one in details.versions:
            about = f" ({one.note})" if one.note else ""
            lines.append(f"  version  {one.version}: {one.outcome}, by {one.by}{about}")
    lines.append(f"  possible {', '.join(details.verbs)}")
    return lines


def _batch(job: JobView, now: int) -> str:
    from headrace.inspect.progress import short, span

    parts = [f"epoch {job.epoch}"]
    if job.committed is not None:
        parts.append(f"{span(max(0, now - job.committed))} ago")
    if job.rate_in is not None:
        parts.append(f"{short(job.rate_in)} rows/s")
    if job.lag_rows is not None:
        parts.append(f"lag {short(job.lag_rows)}")
    if job.latency_p95 is not None:
        parts.append(f"p95 {job.latency_p95:.0f} ms")
    return "  ".join(parts)


def events(
    job: Annotated[
        str | None,
        typer.Argument(
            help="A job of the server, or of this machine. Default: everything on the server.",
            metavar="JOB",
            show_default=False,
        ),
    ] = None,
    last: Last = 20,
    name: Name = None,
    folder: Folder = None,
    server: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what happened to a job: started, stopped, failed.

    Without a server: its last batches, as headrace history does.

    Example: [bold]headrace events shop[/bold]
    """
    if job is None:
        at = needs_server(server, "Or name a job of this machine: its batches are listed.")
        return _print_events(at.events(limit=last), as_json)
    found = served(job, server)
    if found is None:
        return folders.history(Path(job), last, name, folder, as_json)
    _print_events(found.events(limit=last), as_json)


def _print_events(found: list[Event], as_json: bool) -> None:
    from headrace.inspect.progress import moment

    if as_json:
        typer.echo(json.dumps([event.json for event in found], indent=2))
    elif not found:
        typer.echo("nothing has happened yet")
    else:
        rows = [{**e.json, "time": moment(e.time), "event": e.kind} for e in found]
        print_table(rows, ("time", "job", "event", "by", "text"))


def logs(
    job: JobName,
    run: Annotated[
        int | None, typer.Option(help="Which start of it. Default: the last.", metavar="N")
    ] = None,
    last: Last = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is printed from now on.")
    ] = False,
    server: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show what a job on a server has printed.

    Example: [bold]headrace logs shop --follow[/bold]
    """
    found = served(job, server)
    if found is None:
        at = job_at(Path(job))
        raise RunError(
            "HR-CLI-028",
            f"nobody has kept what job {at.name!r} printed: it was run without a server",
            "It is on the terminal of `headrace run`, or where that was redirected to. "
            "`headrace history` lists its batches, `headrace dead ls` rows that failed.",
        )
    if follow:
        return _follow(found, run, last, as_json)
    part = found.logs(run=run, limit=last)
    if as_json:
        typer.echo(json.dumps(part.json, indent=2))
        return
    for line in part.lines:
        typer.echo(line)


def _follow(job: ServedJob, run: int | None, last: int, as_json: bool) -> None:
    try:
        for line in job.follow_logs(run=run, limit=last):
            typer.echo(json.dumps(line) if as_json else line)
    except KeyboardInterrupt:  # it is how one ends this
        return
