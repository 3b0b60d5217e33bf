"""`headrace state`: the state of a job's steps, as of its last epoch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.jobs import File, Folder, Name
from headrace.cli.loading import load_job
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import RunError, StateError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.inspect.step_state import StepState
    from headrace.plan.program import Program
    from headrace.state.epochs import EpochLog

app = typer.Typer(
    help="The state of a job's steps, as of its last epoch: while it runs, or after.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Step = Annotated[str, typer.Argument(help="The step, as `headrace state ls` names it.")]
Limit = Annotated[int, typer.Option(help="Rows to show at most.", metavar="ROWS")]


@app.command("ls")
def list_steps(file: File, job: Name = None, folder: Folder = None) -> None:
    """List the steps with state: their key, how many rows, and their columns.

    Example: [bold]headrace state ls examples/fire_alarm.py[/bold]
    """
    program, log = _opened(file, job, folder)
    names = _names(program)
    for name in names:
        state = _state(program, log, name)
        rows, by = state.to_arrow(), ", ".join(state.key.names) or "no key"
        typer.echo(f"{name}: {rows.num_rows:,} rows by {by}; {', '.join(rows.column_names)}")
    if not names:
        typer.echo(f"no step of {program.name!r} has state")


@app.command("get")
def get(
    file: File,
    step: Step,
    key: Annotated[
        list[str] | None,
        typer.Option(
            help='COLUMN=VALUE or "COLUMN is null", once for each column of the key. '
            "All keys if left out."
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help='For windows: from this time, "21:00" or a date with it.')
    ] = None,
    until: Annotated[str | None, typer.Option(help="For windows: up to this time.")] = None,
    top: Annotated[
        str | None, typer.Option(help="Those with the largest value of this column first.")
    ] = None,
    limit: Limit = 20,
    job: Name = None,
    folder: Folder = None,
) -> None:
    """Show the state of a step, one JSON object a line.

    Example: [bold]headrace state get job.py averages --key area=area-1[/bold]

    Example: [bold]headrace state get job.py counts --since 21:00 --until 21:05 --top n[/bold]
    """
    state = _state(*_opened(file, job, folder), step)
    if since or until:
        state = state.slice(since or MIN_TIME, until or MAX_TIME)
    if key:
        rows = state.get(**_parsed(state, key))
    else:
        rows = state.top(limit, top) if top else state.to_arrow()
    _show(rows, limit)


@app.command("export")
def export(
    file: File,
    step: Step,
    to: Annotated[Path, typer.Argument(help="A file: .parquet, .csv or .jsonl.")],
    job: Name = None,
    folder: Folder = None,
) -> None:
    """Write the whole state of a step to a file.

    Example: [bold]headrace state export job.py averages averages.parquet[/bold]
    """
    rows = _state(*_opened(file, job, folder), step).to_arrow()
    _write(rows, to)
    typer.echo(f"wrote {rows.num_rows:,} rows to {to}", err=True)


@app.command("sql")
def sql(
    file: File,
    query: Annotated[str, typer.Argument(help="SQL; every step with state is a table.")],
    limit: Limit = 20,
    job: Name = None,
    folder: Folder = None,
) -> None:
    """Query the state in SQL; each step is a table of its name.

    Example: [bold]headrace state sql job.py 'SELECT area, mean FROM averages'[/bold]
    """
    from headrace.inspect.step_state import ask

    program, log = _opened(file, job, folder)
    _show(ask(query, {n: _state(program, log, n).to_arrow() for n in _names(program)}), limit)


def _opened(file: Path, job: str | None, folder: str | None) -> tuple[Program, EpochLog]:
    from headrace.inspect.step_state import opened  # slow to import, and help needs none of it

    return opened(load_job(file, job), folder)


def _names(program: Program) -> list[str]:
    from headrace.inspect.step_state import names_of

    return list(names_of(program))


def _state(program: Program, log: EpochLog, step: str) -> StepState:
    from headrace.inspect.step_state import state_of

    return state_of(program, log, step)


def _parsed(state: StepState, texts: list[str]) -> dict[str, Any]:
    """Keys as text, read as the types of their columns."""
    import pyarrow as pa

    schema = state.key
    values: dict[str, Any] = {}
    for text in texts:
        unset = text.removesuffix(" is null")
        if unset != text and unset in schema.names:
            values[unset] = None
            continue
        name, equals, value = text.partition("=")
        if not equals or name not in schema.names:
            raise RunError(
                "HR-CLI-020",
                f"{text!r} is not COLUMN=VALUE of a key",
                f"The key of {state.name!r} is: {', '.join(schema.names)}.",
            )
        try:
            values[name] = pa.scalar(value).cast(schema.field(name).type).as_py()
        except pa.ArrowInvalid as error:
            raise RunError(
                "HR-CLI-020",
                f"{value!r} is no {schema.field(name).type}",
                f"That is the type of the key column {name!r}.",
            ) from error
    return values


def _show(rows: pa.Table, limit: int) -> None:
    for row in rows.slice(0, limit).to_pylist():
        typer.echo(_line(row))
    if rows.num_rows > limit:
        typer.echo(f"... {rows.num_rows - limit:,} more; --limit shows them", err=True)


def _flat(rows: pa.Table) -> pa.Table:
    """Lists, maps and records as JSON: a field of a CSV file is a text."""
    import pyarrow as pa

    from headrace.rows import pylist

    for i, field in enumerate(rows.schema):
        if pa.types.is_nested(field.type):
            values = (None if v is None else _line(v) for v in pylist(rows.column(i)))
            rows = rows.set_column(i, field.name, pa.array(values, pa.string()))
    return rows


def _line(value: Any) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)


def _write(rows: pa.Table, to: Path) -> None:
    import pyarrow.csv
    import pyarrow.parquet

    try:
        if to.suffix == ".parquet":
            pyarrow.parquet.write_table(rows, to)
        elif to.suffix == ".csv":
            pyarrow.csv.write_csv(_flat(rows), to)
        elif to.suffix == ".jsonl":
            lines = map(_line, rows.to_pylist())
            to.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        else:
            raise RunError(
                "HR-CLI-021",
                f"{to.name!r} ends in {to.suffix or 'nothing'!r}",
                "Name a file that ends in .parquet, .csv or .jsonl.",
            )
    except OSError as error:
        raise StateError(
            "HR-CLI-022",
            f"{str(to)!r} cannot be written: {error.strerror}",
            "Choose a folder that exists and that you may write to.",
        ) from error
