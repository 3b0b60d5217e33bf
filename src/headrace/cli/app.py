"""The command line: parse, call, print. What it does, the other rooms do.

An error is printed as its text and its hint, never as a traceback. Exit codes: 0 done or
stopped as asked, while it runs or starts; 1 the program or its data is wrong, 2 the command line;
75 `run` failed of something that may pass.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import headrace
from headrace.cli import (
    dead,
    doctor,
    folders,
    forget,
    jobs,
    moves,
    savepoint,
    server,
    state,
    top,
    topic,
    views,
    why,
)
from headrace.cli.error_note import note_error, take_place
from headrace.errors import HeadraceError
from headrace.restarts import MAY_PASS, PASSING

HELP = """Stream processing for Python on Apache Spark.

A job is a Python file that makes an [bold]hr.Job[/bold]. The commands about jobs take
that file, or, where the program is not needed, the job's name or folder. Where a server runs
([bold]headrace server[/bold]), a name is that of a job of the server.
"""
EPILOG = """Try:

[bold]headrace explain job.py[/bold]          how it will run; needs no Spark
[bold]headrace run job.py --until end[/bold]  process what its inputs hold now, then end
[bold]headrace run job.py[/bold]              run until Ctrl-C, which finishes the batch
[bold]headrace plan job.py[/bold]             after a change: what happens to the state
[bold]headrace list[/bold]                    which jobs there are, and how far they are
[bold]headrace top[/bold]                     what they are doing, on a live screen
[bold]headrace why job.py[/bold]              why there is no output yet
[bold]headrace dead ls job.py[/bold]          rows that failed, and why
[bold]headrace doctor job.py[/bold]           every file checked, and what to do
[bold]headrace state get job.py STEP[/bold]   the state of a step, while the job runs
[bold]headrace server --programs .[/bold]     jobs as a service, then:
[bold]headrace submit job.py[/bold]           have it run, watched and restarted
"""


SERVED = "Jobs as a service"
RENAMED = {"jobs": "list", "status": "describe", "stop": "deactivate"}


class _Commands(TyperGroup):
    """Every command, with help and errors as a user should read them."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _unwrap(self)

    def invoke(self, ctx: Any) -> Any:
        place = take_place()
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            note_error(place, error)
            typer.echo(str(error), err=True)
            for note in getattr(error, "__notes__", ()):
                typer.echo(note, err=True)
            passing = ctx.invoked_subcommand == "run" and error.code in PASSING
            raise typer.Exit(MAY_PASS if passing else 1) from error

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """What is a command of a group, as in `headrace groups`, is named with it."""
        if args[0] in RENAMED:
            ctx.fail(f"No such command {args[0]!r}. It is called '{RENAMED[args[0]]}' now.")
        for name, group in self.commands.items():
            if args[0] not in self.commands and args[0] in getattr(group, "commands", {}):
                ctx.fail(f"No such command {args[0]!r}. Did you mean '{name} {args[0]}'?")
        return super().resolve_command(ctx, args)


def _unwrap(command: Any) -> None:
    """Each paragraph of help as one line: the terminal's width breaks it, not the source's."""
    command.help = re.sub(r"(?<=\S)\n[ ]*(?=\S)", " ", command.help or "")
    for inner in getattr(command, "commands", {}).values():
        _unwrap(inner)


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
app.command("list", rich_help_panel="Jobs")(views.list_jobs)
app.command("describe", rich_help_panel="Jobs")(views.describe)
app.command("top", rich_help_panel="Jobs")(top.top)
app.command("events", rich_help_panel="Jobs")(views.events)
app.command("history", rich_help_panel="Jobs")(folders.history)
app.command("outputs", rich_help_panel="Jobs")(folders.outputs)
app.command("deactivate", rich_help_panel="Jobs")(moves.deactivate)
app.command("drain", rich_help_panel="Jobs")(moves.drain)
app.command("kill", rich_help_panel="Jobs")(moves.kill)
app.command("why", rich_help_panel="Jobs")(why.why)
app.add_typer(dead.app, name="dead", rich_help_panel="Jobs")
app.add_typer(savepoint.app, name="savepoint", rich_help_panel="Jobs")
app.command("rewind", rich_help_panel="Jobs")(savepoint.rewind)
app.command("doctor", rich_help_panel="Jobs")(doctor.doctor)
app.command("forget", rich_help_panel="Jobs")(forget.forget)
app.add_typer(state.app, name="state", rich_help_panel="Jobs")
app.add_typer(server.app, name="server", rich_help_panel=SERVED)
app.command("submit", rich_help_panel=SERVED)(moves.submit)
app.command("activate", rich_help_panel=SERVED)(moves.activate)
app.command("restart", rich_help_panel=SERVED)(moves.restart)
app.command("rebalance", rich_help_panel=SERVED)(moves.rebalance)
app.command("upgrade", rich_help_panel=SERVED)(moves.upgrade)
app.command("logs", rich_help_panel=SERVED)(views.logs)
app.command("remove", rich_help_panel=SERVED)(moves.remove)
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
