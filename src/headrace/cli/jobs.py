"""`headrace run`, `explain` and `plan`: one job, from a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.loading import load_job
from headrace.cli.status import Reporter

File = Annotated[Path, typer.Argument(help="A Python file that makes a job.", show_default=False)]
Name = Annotated[str | None, typer.Option("--job", help="Which job, if the file makes several.")]
Folder = Annotated[str | None, typer.Option(help="The job's folder: its state and manifests.")]


def run(
    file: File,
    job: Name = None,
    until: Annotated[
        str | None, typer.Option(help='"end": read what is there, close every window, stop.')
    ] = None,
    master: Annotated[str | None, typer.Option(help="Spark master, as local[2].")] = None,
    folder: Folder = None,
    target_batch: Annotated[
        str | None, typer.Option(help="Batch time to aim at, as 500ms or 2s.")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(help="Rows a batch, for throughput instead of latency.")
    ] = None,
    parallelism: Annotated[int | None, typer.Option(help="Tasks per level.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(help="A step whose state may be dropped. Repeatable.")
    ] = None,
    drop_all: Annotated[bool, typer.Option(help="Let go of all state nobody uses.")] = False,
    debug: Annotated[bool, typer.Option(help="Show Spark's own text when it fails.")] = False,
) -> None:
    """Run the job in FILE until it ends or you press Ctrl-C (which finishes the batch in hand).

    Example: [bold]headrace run examples/fire_alarm.py --until end[/bold]
    """
    from headrace.engine.run import run as start  # noqa: PLC0415  pyspark is slow to import

    program = load_job(file, job)
    reporter = Reporter(program.name)
    with reporter:
        running = start(
            program, until=until, master=master, folder=folder, target_batch=target_batch,
            max_batch=max_batch, parallelism=parallelism, drop=drop or (), drop_all=drop_all,
            debug=debug, on_progress=reporter.progress,
        )  # fmt: skip
        reporter.started(running)
        try:
            running.wait()
        finally:
            reporter.finished(running)


def explain(
    file: File,
    job: Name = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Show how the job in FILE will run: logical and physical plan, and what is Python and why.

    Example: [bold]headrace explain examples/fire_alarm.py[/bold]
    """
    from headrace.runtime.start import describe_outputs  # noqa: PLC0415

    program = load_job(file, job)
    explanation = program.explain(describe_outputs(program.program()))
    typer.echo(json.dumps(explanation.json, indent=2) if as_json else explanation.text)


def plan(file: File, job: Name = None, folder: Folder = None) -> None:
    """Compare the job in FILE with its folder: what state is kept, new, dropped or refused.

    Nothing is changed. Exit code 1 if a start would be refused.
    """
    from headrace.runtime.start import review  # noqa: PLC0415

    program = load_job(file, job).program()
    comparison: Any = review(program, folder)
    if comparison is None:
        typer.echo(f"job {program.name!r} has not run yet: everything is new")
        return
    typer.echo(str(comparison))
    comparison.check()
