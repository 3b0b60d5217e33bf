"""`headrace run`, `explain` and `plan`: one job, from a file; `warm`: quicker starts of Spark."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer

import headrace as hr
from headrace.cli.loading import load_job
from headrace.cli.supervise import Supervisor
from headrace.driver.start import folder_of
from headrace.engine.interrupts import acting, say_stopped
from headrace.errors import RunError, StateError
from headrace.restarts import command_of
from headrace.settings import Settings
from headrace.state.epochs import EpochLog

File = Annotated[
    Path, typer.Argument(help="A Python file that makes a job.", metavar="FILE", show_default=False)
]
Name = Annotated[
    str | None, typer.Option("--job", help="Which job, if the file makes several.", metavar="NAME")
]
Folder = Annotated[
    str | None,
    typer.Option(
        help="The job's folder, with all its state. Default: .headrace/jobs/NAME.", metavar="DIR"
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(
        help="A step or input that the program no longer has and whose state may be dropped, or "
        "an output whose earlier rows may be lost. Repeatable.",
        metavar="NAME",
    ),
]
DropAll = Annotated[bool, typer.Option("--drop-all", help="Drop all state that no step uses.")]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Take the folder over from a running driver.")
]
GoBack = Annotated[
    bool, typer.Option("--go-back", help="Continue from a folder older than its outputs.")
]
ForGood = Annotated[
    bool,
    typer.Option(
        "--for-good",
        help="Allow --until end for a job that has run without it; closes its windows.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for machines.")]
PicturePath = Annotated[
    Path | None,
    typer.Option("--svg", help="Draw it into this file instead.", metavar="FILE", dir_okay=False,
                 writable=True),
]  # fmt: skip
Until = Annotated[
    Literal["now", "end"] | None,
    typer.Option(
        help="now: process what the inputs hold now, then stop; the next run continues. end: "
        "also close every window, and end for good."
    ),
]


def run(
    file: File,
    job: Name = None,
    until: Until = None,
    master: Annotated[
        str | None,
        typer.Option(
            help="Spark master: local[2], spark://host:7077. Default: local[*].", metavar="URL"
        ),
    ] = None,
    folder: Folder = None,
    target_batch: Annotated[
        str | None, typer.Option(help="Time that a batch should take: 500ms, 2s.", metavar="TIME")
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(help="Rows in a batch, instead of a time; for throughput.", metavar="ROWS"),
    ] = None,
    parallelism: Annotated[
        int | None, typer.Option(help="Tasks per level. Default: one per core.", metavar="TASKS")
    ] = None,
    drop: Drop = None,
    drop_all: DropAll = False,
    take_over: TakeOver = False,
    go_back: GoBack = False,
    for_good: ForGood = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="On failure, show Spark's own text as well.")
    ] = False,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Start it again when it is killed, or fails of something that may pass.",
        ),
    ] = False,
) -> None:
    """Run the job in FILE on Spark, until it ends or is stopped.

    Ctrl-C, SIGTERM and SIGHUP let the current batch finish; a second one does not wait for it.
    A job that was stopped or killed continues after its last complete batch.

    Example: [bold]headrace run examples/fire_alarm.py --until end[/bold]
    """
    with acting(lambda number: _leave(file.stem, number)):
        program = load_job(file, job, to_run=True)
        program.check()
    if restart:
        place = folder_of(program.program(), Settings.load(), folder)
        command = command_of([a for a in sys.argv[1:] if a != "--restart"])
        raise typer.Exit(Supervisor(program.name, command, lambda: _newest(place)).run())
    with acting(lambda number: _leave(program.name, number)):
        from headrace.engine.start_run import run as start  # pyspark is slow to import

        running = start(
            program,
            until=until,
            master=master,
            folder=folder,
            target_batch=target_batch,
            max_batch=max_batch,
            parallelism=parallelism,
            drop=drop or (),
            drop_all=drop_all,
            take_over=take_over,
            go_back=go_back,
            for_good=for_good,
            debug=debug,
        )
        running.wait()


def _newest(folder: str) -> int:
    """The epoch that was committed last; 0 if the job has not run."""
    return EpochLog(folder).newest() if os.path.isdir(os.path.join(folder, "epochs")) else 0


def _leave(name: str, number: int) -> None:
    """A signal while the job starts: end what has begun, and say so."""
    kill = getattr(sys.modules.get("headrace.engine.jvm"), "kill", None)
    if kill is not None:  # else nothing can have begun
        kill()
    say_stopped(name, number)
    with suppress(Exception):
        sys.stdout.flush()
    os._exit(0)


def explain(file: File, job: Name = None, as_json: AsJson = False, svg: PicturePath = None) -> None:
    """Show how the job in FILE will run, without running it.

    Which steps run together, where rows are sent between tasks, which steps run as Python and
    why, and what the job guarantees if it is killed. Reads no input and needs no Spark.

    --svg draws it instead: steps, their tasks, and how rows are dealt out to them.

    Example: [bold]headrace explain examples/fire_alarm.py --svg plan.svg[/bold]
    """
    from headrace.driver.start import guarantee_of

    program = load_job(file, job)
    explanation = program.explain(guarantee_of(program.program()))
    if svg is not None:
        try:
            svg.write_text(explanation.svg, encoding="utf-8")
        except OSError as error:
            raise StateError(
                "HR-CLI-022",
                f"{str(svg)!r} cannot be written: {error.strerror}",
                "Choose a folder that exists and that you may write to.",
            ) from error
        typer.echo(f"drawn: {svg}", err=True)
        return
    if as_json:
        place = folder_of(program.program(), Settings.load(), None)
        typer.echo(json.dumps({**explanation.json, "folder": place}, indent=2))
    else:
        typer.echo(explanation.text)


def plan(
    file: File,
    new: Annotated[
        Path | None,
        typer.Argument(
            help="Another version of the file: what its job would do with the state of FILE's, "
            "without any folder.",
            metavar="NEW",
            show_default=False,
        ),
    ] = None,
    job: Name = None,
    folder: Folder = None,
    until: Until = None,
    drop: Drop = None,
    drop_all: DropAll = False,
    take_over: TakeOver = False,
    go_back: GoBack = False,
    for_good: ForGood = False,
) -> None:
    """Show what happens to the state if the job in FILE starts now.

    Compares the program with the job's folder: each step, input and output is the same, new,
    renamed, dropped or refused. Makes every check that a start makes, and changes nothing.
    The exit code is 1 if a start with the same options would be refused.

    With NEW, compares two files instead, FILE as it ran and NEW as it shall: the programs alone,
    before there is a folder, and whatever the inputs and outputs hold.

    Example: [bold]headrace plan examples/fire_alarm.py[/bold]
    """  # fmt: skip
    from headrace.driver.start import checked, review
    from headrace.driver.start_checks import Consent

    if new is not None:
        if folder is not None or until is not None or take_over or go_back or for_good:
            hint = (
                "Leave the options out that are about a folder; --job, --drop and --drop-all stay."
            )
            raise RunError("HR-EVOLVE-006", "plan FILE NEW compares two programs, no folder", hint)
        _plan_between(file, new, job, drop_all or drop or ())
        return
    program = load_job(file, job).program()
    reviewed = review(program, folder, until=until)
    everything = f"job {program.name!r} has not run yet: everything is new"
    typer.echo(everything if reviewed.comparison is None else str(reviewed.comparison))
    consent = Consent(drop_all or drop or (), take_over, go_back, for_good)
    checked(lambda: review(program, folder, until=until), consent)


def _plan_between(
    file: Path, new: Path, job: str | None, drop: list[str] | tuple[()] | bool
) -> None:
    from headrace.plan.evolution import compare_programs

    before, after = (load_job(one, job).program() for one in (file, new))
    if before.name != after.name:
        raise RunError(
            "HR-EVOLVE-007",
            f"{str(file)!r} makes the job {before.name!r}, and {str(new)!r} the job {after.name!r}",
            "A folder belongs to one job: give the job its old name.",
        )
    found = compare_programs(before, after)
    typer.echo(str(found))
    found.check(drop)


def warm() -> None:
    """Make every later start of Spark faster; once per installation.

    Writes a class archive for Spark's JVM, which halves the time of a start. Takes about half a
    minute, and 170 MB beside the installed package or, where that cannot be written, in your
    cache. Repeat it after an upgrade of Java or PySpark.

    Example: [bold]headrace warm[/bold]
    """
    from headrace.engine.archive import record

    typer.echo("making a class archive for Spark (about half a minute)", err=True)
    typer.echo(f"made {record(_tiny_job)}")


def _tiny_job() -> None:
    job = hr.Job("warm")
    source = hr.rows([{"k": "a", "at": 0}], "k string, at bigint")
    rows = job.read(source, time="at", delay="1s", name="rows")
    counts = rows.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count())
    counts.write("collect:", name="counts")
    with TemporaryDirectory() as folder:
        hr.run(job, folder=folder, until="end", master="local[2]", quiet=True).wait()
