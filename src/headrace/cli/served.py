"""Where the commands about jobs find a job: on a server, or in a folder of this machine.

A server is that of --server, of HEADRACE_SERVER_URL, or the one that runs in this folder. A
path is always a folder or a program of this machine; a name is a job of the server if it has one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headrace.errors import RunError, ServerError
from headrace.server.client import ServedJob, ServerConnection, connect_server
from headrace.server.connection import URL_VARIABLE
from headrace.server.home import Home
from headrace.settings import Settings

ServerUrl = Annotated[
    str | None,
    typer.Option(
        "--server",
        help="The server's address. Default: HEADRACE_SERVER_URL, or the one that runs here.",
        metavar="URL",
    ),
]
JobName = Annotated[
    str,
    typer.Argument(
        help="A job of the server; or without one its name in .headrace/jobs, its folder, or its "
        "Python file.",
        metavar="JOB",
        show_default=False,
    ),
]
ServedName = Annotated[
    str, typer.Argument(help="A job of the server.", metavar="JOB", show_default=False)
]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once, not when it is done.")]
Timeout = Annotated[float, typer.Option(help="How long to wait for it.", metavar="SECONDS")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def server_here(url: str | None) -> ServerConnection | None:
    """The server that is asked, None if none is known."""
    if not is_elsewhere(url) and not Home(Settings.load().server).is_held():
        return None
    return connect_server(url)


def is_elsewhere(url: str | None) -> bool:
    """Whether the server was named: it may be of another machine."""
    return url is not None or URL_VARIABLE in os.environ


def served(name: str, url: str | None) -> ServedJob | None:
    """The job on the server; None if it is one of this machine's folders."""
    is_path = "/" in name or name.endswith(".py")
    server = None if is_path and url is None else server_here(url)
    if server is None:
        return None
    try:
        return server.job(name)
    except ServerError as error:
        if error.code == "HR-SERVER-001" and url is None and _is_folder(name):
            return None
        raise


def needs_server(url: str | None, instead: str) -> ServerConnection:
    """The server; without one an error that says what to do `instead`."""
    server = server_here(url)
    if server is None:
        raise RunError(
            "HR-CLI-024",
            "this needs a server, and none is known here",
            f"Start one with `headrace server --programs DIR`, or name one with --server URL. "
            f"{instead}",
        )
    return server


def _is_folder(name: str) -> bool:
    return (Path(Settings.load().jobs) / name / "job.json").is_file()
