"""`headrace state`: the state of a job's steps, as of its last epoch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.folders import print_cells
from headrace.cli.jobs import AsJson, File, Folder, Name
from headrace.cli.loading import load_job
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import RunError, StateError

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.inspect.step_state import StepState
    from headrace.plan.program import Program
    from headrace.state.epochs import EpochLog

app = typer.Typer(
    help="The state of a job's steps, while it runs or after.\n\n"
    "What you see is the state after the last complete batch.",
    epilog="Try:\n\n[bold]headrace state ls job.py[/bold]\n"
    "[bold]headrace state get job.py STEP --limit 5[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Step = Annotated[
    str, typer.Argument(help="The step, as `headrace state ls` names it.", metavar="STEP")
]
Limit = Annotated[int, typer.Option(help="Rows to show at most.", metavar="ROWS")]


@app.command("ls")
def list_steps(
    file: File, job: Name = None, folder: Folder = None, as_json: AsJson = False
) -> None:
    """List the steps that have state: key, rows and columns of each.

    Example: [bold]headrace state ls examples/fire_alarm.py[/bold]
    """
    program, log = _opened(file, job, folder)
    names = _names(program)
    if as_json:
        typer.echo(json.dumps({"steps": list(_facts(program, log))}, indent=2))
        return
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
            help='Or "COLUMN is null"; once for each column of the key. Default: all keys.',
            metavar="COLUMN=VALUE",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help='Windows from this time on: "21:00", "2026-03-01 21:00".', metavar="TIME"
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="Windows up to this time.", metavar="TIME")
    ] = None,
    top: Annotated[
        str | None,
        typer.Option(help="Sort by this column, largest value first.", metavar="COLUMN"),
    ] = None,
    limit: Limit = 20,
    job: Name = None,
    folder: Folder = None,
) -> None:
    """Show the state of a step, one JSON object a line.

    A window is state until the watermark passes its end; then its result is in the output.
    Times are in UTC.

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
    if not rows.num_rows:
        typer.echo(_nothing(state, key), err=True)


@app.command("export")
def export(
    file: File,
    step: Step,
    to: Annotated[Path, typer.Argument(help="A .parquet, .csv or .jsonl file.", metavar="TO")],
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
    query: Annotated[str, typer.Argument(help="One SELECT of DuckDB's SQL.", metavar="QUERY")],
    limit: Limit = 20,
    job: Name = None,
    folder: Folder = None,
    as_json: AsJson = False,
    whole: Annotated[
        bool,
        typer.Option("--whole", help="As one JSON object: columns, rows and the epoch."),
    ] = False,
) -> None:
    """Query the state with SQL; each step is a table of that name.

    Example: [bold]headrace state sql job.py 'SELECT area, mean FROM averages'[/bold]
    """
    from headrace.inspect.step_state import ask, ask_some

    program, log = _opened(file, job, folder)
    states = {n: _state(program, log, n) for n in _names(program)}
    tables = {n: state.to_arrow() for n, state in states.items()}
    if whole:  # for a server: in bounded memory
        rows, more = ask_some(query, tables, max(0, limit))
        epoch = max((state.snapshot.epoch for state in states.values()), default=0)
        columns = [column.to_pylist() for column in rows.columns]  # two may have one name
        values = [list(row) for row in zip(*columns, strict=True)]
        facts = {"columns": rows.column_names, "rows": values, "epoch": epoch}
        typer.echo(_line({**facts, "more": more}))
        return
    rows = ask(query, tables)
    if as_json:
        _show(rows, limit)
    else:
        _show_table(rows, limit)


def _facts(program: Program, log: EpochLog) -> Iterator[dict[str, Any]]:
    from headrace.inspect.progress import progress_of

    latest = log.latest()
    held = {} if latest is None else progress_of(latest, {}).held_bytes
    for name in _names(program):
        state = _state(program, log, name)
        rows = state.to_arrow()
        yield {
            "name": name, "kind": state.node.what.kind, "key": list(state.key.names),
            "rows": rows.num_rows, "bytes": held.get(name), "columns": rows.column_names,
        }  # fmt: skip


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
                f"The key of {state.name!r} is: {', '.join(schema.names)}."
                if schema.names
                else f"{state.name!r} has no key: leave --key out, or ask with headrace state sql.",
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


def _nothing(state: StepState, key: list[str] | None) -> str:
    """Why no rows are shown: of a window, mostly because it is closed."""
    from headrace.inspect.progress import moment

    nothing = f"{state.name!r} has no state{' for that key' if key else ''}"
    watermark, sliced = state.snapshot.watermark, (state.since, state.until) != (MIN_TIME, MAX_TIME)
    if state.node.what.kind not in ("window", "cogroup") or watermark == MIN_TIME:
        return nothing
    if watermark == MAX_TIME:
        return f"{nothing}: its input has ended, every window is closed and its result emitted"
    return (
        f"{nothing}{' in that time' if sliced else ''}: its watermark is {moment(watermark)}; "
        "windows that end by then are closed, and their results emitted"
    )


def _show(rows: pa.Table, limit: int) -> None:
    for row in rows.slice(0, limit).to_pylist():
        typer.echo(_line(row))
    _say_more(rows, limit)


def _show_table(rows: pa.Table, limit: int) -> None:
    """Rows in columns, numbers to the right."""
    import pyarrow as pa

    numbers = [
        any(
            test(f.type)
            for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        )
        for f in rows.schema
    ]
    columns = [[_cell(value) for value in c.to_pylist()] for c in rows.slice(0, limit).columns]
    print_cells(rows.column_names, [list(line) for line in zip(*columns, strict=True)], numbers)
    _say_more(rows, limit)


def _say_more(rows: pa.Table, limit: int) -> None:
    if rows.num_rows > limit:
        typer.echo(f"... {rows.num_rows - limit:,} more; --limit shows them", err=True)


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value if isinstance(value, str) else _line(value).strip('"')


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
    return json.dumps(value, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A decimal as a number where that is exact (a sum of integers is a decimal to DuckDB)."""
    if isinstance(value, Decimal):
        number = int(value) if value == value.to_integral_value() else float(value)
        return number if Decimal(repr(number)) == value else f"{value:f}"
    return str(value)


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
