"""The command line: parse, call, print. What it does, the other rooms do.

An error is printed as its text and its hint, never as a traceback. Exit codes: 0 done or
stopped as asked, while it runs or starts; 1 the program or its data is wrong, 2 the command line.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import headrace
from headrace.cli import dead, folders, jobs, state, topic, why
from headrace.errors import HeadraceError

HELP = """Stream processing for Python on Apache Spark.

A job is a Python file that makes a [bold]hr.Job[/bold]; the commands about jobs take that file,
or the folder where the job has run.
"""
EPILOG = """Try:

[bold]headrace explain job.py[/bold]: how it will run; reads nothing, needs no Spark

[bold]headrace run job.py --until end[/bold]: over what its inputs hold now, then end

[bold]headrace run job.py[/bold]: for ever; Ctrl-C finishes the batch in hand

[bold]headrace plan job.py[/bold]: after a change, what becomes of the state

[bold]headrace jobs[/bold]: which jobs run here, and how far they are

[bold]headrace why job.py[/bold]: why there is no output, and what it waits for

[bold]headrace state get job.py STEP[/bold]: the state of a step, while the job runs
"""


class _Commands(TyperGroup):
    """Every command, with errors as a user should read them."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            typer.echo(str(error), err=True)
            for note in getattr(error, "__notes__", ()):
                typer.echo(note, err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    cls=_Commands,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run", rich_help_panel="Jobs")(jobs.run)
app.command("explain", rich_help_panel="Jobs")(jobs.explain)
app.command("plan", rich_help_panel="Jobs")(jobs.plan)
app.command("jobs", rich_help_panel="Jobs")(folders.jobs)
app.command("status", rich_help_panel="Jobs")(folders.status)
app.command("history", rich_help_panel="Jobs")(folders.history)
app.command("stop", rich_help_panel="Jobs")(folders.stop)
app.command("why", rich_help_panel="Jobs")(why.why)
app.add_typer(dead.app, name="dead", rich_help_panel="Jobs")
app.add_typer(state.app, name="state", rich_help_panel="Jobs")
app.command("warm", rich_help_panel="Installation")(jobs.warm)
app.add_typer(topic.app, name="topic", rich_help_panel="Stream storage")


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"headrace {headrace.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What holds for every command."""


def main() -> None:
    app()


if __name__ == "__main__":
    main()
