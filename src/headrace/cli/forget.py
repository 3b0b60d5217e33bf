"""`headrace forget`: one key, erased from all that is a job's own."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headrace.cli.folders import Place, job_at
from headrace.cli.jobs import AsJson, Folder, Name

LEFT, NOTHING = 1, 3  # how it ends if the value is still somewhere, or was nowhere


def forget(
    place: Place,
    key: Annotated[
        list[str],
        typer.Option(
            help="COLUMN=VALUE; several are one key of several columns. A value alone is one of "
            "the job's only key column.",
            metavar="KEY",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be erased.")
    ] = False,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Erase one key, one person, from a stopped job.

    From the state of all steps keyed by the column, in every epoch and savepoint that is kept; from
    its outputs of files, embedded topics and dead letters, as far as they have the column. Then
    scans every file. Prints what was erased, where the value still occurs, and what is to be done
    in places that are not the job's. Ends with 1 if the value still occurs, with 3 if it was found
    nowhere.

    Example: [bold]headrace forget shop --key customer=c-17[/bold]
    """
    from headrace.driver.forget import forget as forget_key

    named = dict(one.split("=", 1) for one in key if "=" in one)
    if len(named) < len(key) and len(key) > 1:
        raise typer.BadParameter("of several, each is COLUMN=VALUE", param_hint="--key")
    wanted = named or key[0]
    report = forget_key(job_at(place, job, folder).log.folder, wanted, dry_run=dry_run)
    typer.echo(json.dumps(report.json, indent=2) if as_json else report)
    if report.remaining:
        raise typer.Exit(LEFT)
    if not report.count:
        raise typer.Exit(NOTHING)
