"""The command line: parse, call, print. What it does, the other rooms do.

An error is printed as its text and its hint, never as a traceback; exit codes: 0 done,
1 the program or its data is wrong, 2 the command line is wrong, 130 interrupted twice.
"""

from __future__ import annotations

import sys

import typer

from headrace.cli import jobs, topic
from headrace.errors import HeadraceError

app = typer.Typer(
    help="Stream processing for Python on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("run")(jobs.run)
app.command("explain")(jobs.explain)
app.command("plan")(jobs.plan)
app.add_typer(topic.app, name="topic")


def main() -> None:
    try:
        app()
    except HeadraceError as error:
        typer.echo(str(error), err=True)
        for note in getattr(error, "__notes__", ()):
            typer.echo(note, err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
