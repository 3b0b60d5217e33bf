"""`headrace server`: jobs as a service; run it, install it, stop it."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import headrace
from headrace.cli.jobs import AsJson
from headrace.clock import millis
from headrace.engine.interrupts import acting
from headrace.errors import RunError, ServerError
from headrace.server.home import Home
from headrace.server.refusals import missing
from headrace.settings import Settings

if TYPE_CHECKING:
    from headrace.server.daemon import Daemon
    from headrace.server.http import HttpServer

app = typer.Typer(
    help="Jobs as a service.\n\n"
    "Starts and watches jobs, starts them again when they fail, and shows them on a page. Jobs are "
    "processes of their own: they go on when the server ends, and the next one finds them.",
    epilog="Try:\n\n[bold]headrace server --programs jobs[/bold]\n"
    "[bold]headrace server install --user --programs jobs[/bold]",
    rich_markup_mode="rich",
)
PORT = 8780
_PATIENCE = 30.0  # seconds for a server to end
_LOOK = 0.1
HomeDir = Annotated[
    Path | None,
    typer.Option(
        "--home", help="The server's own folder. Default: .headrace/server.", metavar="DIR"
    ),
]
Host = Annotated[
    str, typer.Option(help="Where to listen; others than this machine's own want TLS.")
]
Port = Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)]
ProgramDirs = Annotated[
    list[Path] | None,
    typer.Option(
        "--programs",
        help="A folder whose programs may be submitted. Repeatable. Default: none.",
        metavar="DIR",
    ),
]
Cert = Annotated[
    Path | None, typer.Option("--tls-cert", help="A certificate, for https.", metavar="FILE")
]
Key = Annotated[Path | None, typer.Option("--tls-key", help="Its key.", metavar="FILE")]
PlainHttp = Annotated[
    bool, typer.Option("--plain-http", help="Allow other hosts than this machine without TLS.")
]
Hanging = Annotated[
    str,
    typer.Option(
        "--restart-hanging",
        help='A job that hangs is killed and started again after this time; "never".',
        metavar="TIME",
    ),
]
HostNames = Annotated[
    list[str] | None,
    typer.Option("--name", help="A further name that this machine is reached by. Repeatable."),
]


@app.callback(invoke_without_command=True)
def server(
    ctx: typer.Context,
    home: HomeDir = None,
    programs: ProgramDirs = None,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    cert: Cert = None,
    key: Key = None,
    plain_http: PlainHttp = False,
    name: HostNames = None,
    restart_hanging: Hanging = "10m",
) -> None:
    """Run the server here, until Ctrl-C or SIGTERM. Jobs go on without it.

    Jobs run in this folder, as with `headrace run`. Programs can be submitted from the folders
    that --programs allows; without it from none.

    Example: [bold]headrace server --programs jobs[/bold]
    """
    if ctx.invoked_subcommand is not None:
        _refuse_misplaced(ctx)
        return
    for module in ("uvicorn", "starlette", "prometheus_client"):
        if find_spec(module) is None:
            raise missing(module)
    over = threading.Event()
    with acting(lambda number: over.set()):
        from headrace.server.daemon import Daemon
        from headrace.server.http import serve
        from headrace.server.supervisor import Policy

        settings = Settings.load()
        policy = Policy(stall_after=settings.stall_after, restart_hanging=_hanging(restart_hanging))
        place = home or Path(settings.server)
        with (
            Daemon(
                place, programs or [], version=headrace.__version__, policy=policy
            ) as daemon,
            serve(
                daemon.service, host, port, tokens=daemon.tokens, cert=cert, key=key,
                names=name or (), plain_http=plain_http, ended=daemon.home.ended_sessions,
            ) as http,
        ):  # fmt: skip
            _run(daemon, http, over)


def _refuse_misplaced(ctx: typer.Context) -> None:
    """Options before a subcommand would be those of `headrace server`, and mean nothing to it."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if source is not None and source.name == "COMMANDLINE":
            option = parameter.opts[0]
            raise typer.BadParameter(
                f"{option}: write it after {ctx.invoked_subcommand!r}, if that has it", ctx
            )


def _run(daemon: Daemon, http: HttpServer, over: threading.Event) -> None:
    daemon.home.say_address(http.url, daemon.started)
    if not daemon.parts.programs.allowed:
        typer.echo("no program can be submitted: allow a folder with --programs DIR", err=True)
    if daemon.forgotten:
        typer.echo(f"WARNING: {daemon.forgotten}", err=True)
    jobs = len(daemon.service.jobs())
    typer.echo(f"headrace server: {jobs} jobs, in {daemon.home.path}", err=True)
    token = f"/#token={daemon.tokens['operate']}" if sys.stdout.isatty() else ""  # never in a log
    typer.echo(http.url + token)
    if not token:
        typer.echo("its token: headrace server token --show", err=True)
    sys.stdout.flush()
    while not over.wait(_LOOK):
        if not http.alive:
            raise RunError(
                "HR-SERVER-029",
                f"the interface at {http.url} has ended: {http.failed}",
                "Start the server again; jobs have gone on.",
            )
    typer.echo("headrace server: ends; jobs go on", err=True)


@app.command("status")
def status(home: HomeDir = None, as_json: AsJson = False) -> None:
    """Show whether a server runs here, and where.

    The exit code is 1 if there is none.

    Example: [bold]headrace server status[/bold]
    """
    place = _home(home)
    running = place.is_held()
    facts = {"running": running, "home": str(place.path), **(_address(place) if running else {})}
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
    elif not running:
        typer.echo(f"no server runs in {place.path}")
    else:
        typer.echo(
            f"a server runs in {place.path}: {facts.get('url', 'it is starting')}, process "
            f"{facts.get('pid', 'unknown')}"
        )
    if not running:
        raise typer.Exit(1)


@app.command("stop")
def stop(home: HomeDir = None) -> None:
    """End the server; jobs go on.

    Example: [bold]headrace server stop[/bold]
    """
    place = _home(home)
    if not place.is_held():
        typer.echo(f"no server runs in {place.path}")
        return
    pid = _address(place).get("pid")
    if pid is None:
        raise ServerError(
            "HR-SERVER-030",
            f"the server in {str(place.path)!r} has not said yet who it is",
            "It is starting: try again.",
        )
    with suppress(ProcessLookupError):
        os.kill(int(pid), signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while place.is_held():
        if time.monotonic() > deadline:
            raise ServerError(
                "HR-SERVER-031",
                f"the server has not ended within {_PATIENCE:g} s: process {pid}",
                "Ask again; or kill it, and jobs go on all the same.",
            )
        time.sleep(_LOOK)
    typer.echo("the server has ended; jobs go on")


@app.command("token")
def token(
    home: HomeDir = None,
    role: Annotated[str, typer.Option(help="read or operate.", metavar="ROLE")] = "operate",
    show: Annotated[bool, typer.Option("--show", help="Print the token itself.")] = False,
) -> None:
    """Say where the tokens are; with --show, print one.

    Example: [bold]headrace server token --show --role read[/bold]
    """
    from headrace.server.tokens import read_tokens

    place = _home(home)
    if not show:
        typer.echo(str(place.tokens_file))
        return
    if not place.tokens_file.exists():
        raise ServerError(
            "HR-SERVER-034",
            f"there are no tokens in {str(place.path)!r}: no server has run here yet",
            "Start one: two tokens are generated then. Of another folder: --home DIR.",
        )
    tokens = read_tokens(place.tokens_file)
    if role not in tokens:
        raise ServerError(
            "HR-SERVER-032",
            f"there is no token of a role {role!r}",
            f"The roles are: {', '.join(tokens)}.",
        )
    typer.echo(tokens[role])


@app.command("install")
def install(
    home: HomeDir = None,
    programs: ProgramDirs = None,
    host: Host = "127.0.0.1",
    port: Port = PORT,
    cert: Cert = None,
    key: Key = None,
    plain_http: PlainHttp = False,
    name: HostNames = None,
    restart_hanging: Hanging = "10m",
    system: Annotated[
        bool, typer.Option("--system/--user", help="For this machine, or for you alone.")
    ] = False,
    user: Annotated[
        str | None,
        typer.Option("--run-as", help="With --system: who it runs as.", metavar="USER"),
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print", help="Print the unit; install nothing.")
    ] = False,
) -> None:
    """Install the server as a service of systemd.

    It then starts with the machine, and runs in this folder with these options. A restart of
    the service does not touch jobs.

    Example: [bold]headrace server install --user --programs jobs[/bold]
    """
    from headrace.server.http import require_safe
    from headrace.server.programs import Programs
    from headrace.server.systemd import NAME, ServiceUnit

    Programs(programs or [], Path.cwd())  # refused here, and not by a service that starts in vain
    words = [*_command(), "server", "--home", str(_home(home).path)]
    for folder in programs or []:
        words += ["--programs", str(folder.resolve())]
    words += ["--host", host, "--port", str(port)]
    words += ["--tls-cert", str(cert.resolve())] if cert is not None else []
    words += ["--tls-key", str(key.resolve())] if key is not None else []
    words += ["--plain-http"] if plain_http else []
    for known in name or []:
        words += ["--name", known]
    words += ["--restart-hanging", restart_hanging] if restart_hanging != "10m" else []
    require_safe(host, cert, key, plain_http)
    _hanging(restart_hanging)
    scope = "system" if system else "user"
    unit = ServiceUnit(words, Path.cwd(), scope, user or os.environ.get("USER"))
    if print_only:
        typer.echo(unit.text, nl=False)
        return
    path = unit.write()
    control = "systemctl" if system else "systemctl --user"
    typer.echo(f"wrote {path}")
    typer.echo(f"start it: {control} daemon-reload && {control} enable --now {NAME}", err=True)
    if not system:
        typer.echo("for it to run without you being logged in: loginctl enable-linger", err=True)


def _hanging(text: str) -> int | None:
    return None if text == "never" else millis(text)


def _command() -> list[str]:
    """How this very Headrace is started."""
    script = Path(sys.executable).with_name("headrace")
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "headrace_command"]


def _home(home: Path | None) -> Home:
    return Home(home or Path(Settings.load().server))


def _address(home: Home) -> dict[str, Any]:
    return home.address() or {}
