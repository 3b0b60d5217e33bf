"""`headrace savepoint` and `headrace rewind`: named epochs of a job, and the way back to one."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headrace.cli.folders import Place, job_at, print_table
from headrace.cli.jobs import AsJson, Drop, File, Folder, Name
from headrace.cli.loading import load_job

app = typer.Typer(
    help="Epochs of a job that you have named: kept until you delete them.\n\n"
    "A savepoint keeps the state and the offsets of an epoch, whatever the job does after. The job "
    "can go back to it (headrace rewind), or another job can begin with it (restore).",
    epilog="Try:\n\n[bold]headrace savepoint create shop sale[/bold]\n"
    "[bold]headrace savepoint restore shop sale --as shop-2[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Savepoint = Annotated[
    str, typer.Argument(help="The savepoint.", metavar="NAME", show_default=False)
]


@app.command("create")
def create(
    place: Place,
    name: Savepoint,
    epoch: Annotated[
        int | None,
        typer.Option(help="An epoch that is still kept. Default: the newest.", metavar="N"),
    ] = None,
    job: Name = None,
    folder: Folder = None,
) -> None:
    """Name an epoch of a job, and keep what it needs.

    The job may run meanwhile: nothing is copied. Until the savepoint is deleted, files
    of state and stored rows that only the savepoint needs take space.

    Example: [bold]headrace savepoint create shop sale[/bold]
    """
    from headrace.driver.savepoints import create_savepoint

    typer.echo(create_savepoint(job_at(place, job, folder).log.folder, name, epoch))


@app.command("list")
def list_all(
    place: Place, job: Name = None, folder: Folder = None, as_json: AsJson = False
) -> None:
    """List the savepoints of a job: epoch, time and size of each.

    Example: [bold]headrace savepoint list shop[/bold]
    """
    from headrace.driver.savepoints import list_savepoints
    from headrace.files import size
    from headrace.inspect.progress import moment

    at = job_at(place, job, folder)
    rows = list[dict[str, Any]]()
    for one in list_savepoints(at.log.folder):
        if isinstance(one, tuple):
            rows.append({"savepoint": one[0], "note": str(one[1]).splitlines()[0]})
            continue
        manifest = one.savepoint.manifest
        rows.append(
            {
                "savepoint": one.savepoint.name,
                "epoch": manifest.epoch,
                "committed": moment(manifest.wall),
                "created": moment(one.savepoint.created),
                "state": size(one.bytes),
                "note": "",
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif rows:
        print_table(rows, ("savepoint", "epoch", "committed", "created", "state", "note"))
    else:
        typer.echo(f"job {at.name!r} has no savepoint")


@app.command("show")
def show(
    place: Place,
    name: Savepoint,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Show what a savepoint holds: steps, inputs, outputs.

    Example: [bold]headrace savepoint show shop sale[/bold]
    """
    from headrace.driver.savepoints import show_savepoint

    facts = show_savepoint(job_at(place, job, folder).log.folder, name)
    typer.echo(json.dumps(facts.json, indent=2) if as_json else facts)


@app.command("restore")
def restore(
    place: Place,
    name: Savepoint,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as", help="The name of the job that begins there. Default: its own.", metavar="JOB"
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(help="Its folder. Default: .headrace/jobs/JOB.", metavar="DIR"),
    ] = None,
    job: Name = None,
    folder: Folder = None,
) -> None:
    """Begin another job with the state and the offsets of a savepoint.

    Makes a folder for it; the job that the savepoint is of is not touched, and may run. The new
    job may have another number of tasks, another master and a changed program: `headrace plan`
    shows what happens to its state. Its outputs begin empty, so they need places of their own,
    or mode="append".

    Example: [bold]headrace savepoint restore shop sale --as shop-2[/bold]
    """
    from headrace.driver.savepoints import restore_savepoint

    at = job_at(place, job, folder)
    made = restore_savepoint(at.log.folder, name, job=as_, to=to)
    typer.echo(f"job {as_ or at.name!r} begins with savepoint {name!r}, in {made}")
    typer.echo("what happens to its state when it starts: headrace plan", err=True)


@app.command("delete")
def delete(place: Place, name: Savepoint, job: Name = None, folder: Folder = None) -> None:
    """Delete a savepoint.

    What it alone has kept is removed when the job next tidies up, after some epochs.

    Example: [bold]headrace savepoint delete shop sale[/bold]
    """
    from headrace.driver.savepoints import delete_savepoint

    delete_savepoint(job_at(place, job, folder).log.folder, name)
    typer.echo(f"savepoint {name!r} is deleted")


def rewind(
    file: File,
    to_epoch: Annotated[
        int | None, typer.Option(help="An epoch, of `headrace history`.", metavar="N")
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            help='The last epoch committed by then, in UTC: "21:00", "2026-03-01 21:00".',
            metavar="TIME",
        ),
    ] = None,
    to_savepoint: Annotated[
        str | None, typer.Option(help="The epoch of a savepoint.", metavar="NAME")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            help="An output that keeps its rows, which then come twice. Repeatable.",
            metavar="OUTPUT",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without, only say what happens.")] = (
        False
    ),
    drop: Drop = None,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Take a stopped job back to an earlier epoch of its own.

    Its next start goes on from there. Without --yes it only shows what happens: how many rows of
    each input are read again and whether they are still there, and what each output does. Files
    and collected rows are taken back. What topics, tables and lakes have got stays, and comes
    twice: it must be said with --keep. The program may have changed: --drop is as that of `run`.

    Example: [bold]headrace rewind examples/fire_alarm.py --to-epoch 120[/bold]
    """
    from headrace.driver.rewind import plan_rewind

    plan = plan_rewind(
        load_job(file, job),
        to_epoch=to_epoch,
        to_time=to_time,
        to_savepoint=to_savepoint,
        keep=keep or (),
        drop=drop or (),
        folder=folder,
    )
    if as_json:
        typer.echo(json.dumps(plan.json, indent=2))
    else:
        typer.echo(plan)
    if not yes:
        if plan.refused:
            raise typer.Exit(1)
        typer.echo("nothing was changed; --yes does it", err=True)
        return
    for note in plan.apply():
        typer.echo(note)
    typer.echo(f"job {plan.job} goes on from epoch {plan.epoch} when it is started")
