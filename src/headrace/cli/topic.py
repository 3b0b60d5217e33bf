"""`headrace topic`: make, show, fill, read and delete topics of the embedded log."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from headrace.cli.jobs import AsJson
from headrace.cli.topic_lines import LineAppender, lines_of
from headrace.clock import SystemClock, millis, pretty
from headrace.errors import HeadraceError, LogError
from headrace.files import size
from headrace.log import EmbeddedLog, Log, TopicInfo
from headrace.schema import ddl_of

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Topics of the embedded log: create, fill, read and delete them.\n\n"
    "A topic is a set of partitions, each a sequence of records that is only appended to.",
    epilog="Try:\n\n[bold]headrace topic create words[/bold]\n"
    "[bold]echo hello | headrace topic produce words[/bold]\n"
    "[bold]headrace topic consume words --from-beginning --no-follow[/bold]",
)

Name = Annotated[str, typer.Argument(help="The topic.", show_default=False, metavar="NAME")]
Folder = Annotated[
    str | None,
    typer.Option(
        "--log",
        envvar="HEADRACE_LOG",
        metavar="DIR",
        show_default=False,
        help="The log's folder. Default: .headrace/log.",
    ),
]


@app.command()
def create(
    name: Name,
    partitions: Annotated[
        int, typer.Option(help="How many can be read in parallel.", metavar="N")
    ] = 1,
    schema: Annotated[
        str | None,
        typer.Option(help='Columns: "area string, at timestamp". Default: bytes.', metavar="DDL"),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(help="Rows with the same value share a partition.", metavar="COLUMN"),
    ] = None,
    retention: Annotated[
        str | None, typer.Option(help="Delete records older than this: 7d, 12h.", metavar="TIME")
    ] = None,
    retention_bytes: Annotated[
        str | None, typer.Option(help="Size to keep of each partition: 1GB, 500MB.", metavar="SIZE")
    ] = None,
    log: Folder = None,
) -> None:
    """Create a topic: of typed columns with --schema, else of bytes.

    Example: [bold]headrace topic create words[/bold]

    Example: [bold]headrace topic create temps --schema "area string, c double"[/bold]
    """
    limit = None if retention_bytes is None else bytes_of(retention_bytes)
    info = EmbeddedLog(log).create(name, partitions, schema, key, retention, limit)
    typer.echo(f"created topic '{name}': {columns(info)}, {count(info.partitions, 'partition')}")


@app.command("list")
def list_topics(log: Folder = None, as_json: AsJson = False) -> None:
    """List the topics: partitions, records and size of each.

    Example: [bold]headrace topic list --log /data/log[/bold]
    """
    store = EmbeddedLog(log)
    infos = [store.describe(name) for name in store.topics()]
    if as_json:
        typer.echo(json.dumps([_fields(info) for info in infos]))
        return
    if not infos:
        typer.echo(f"no topics in '{store.root}'; make one: headrace topic create NAME", err=True)
        return
    rows = [
        (i.name, str(i.partitions), f"{i.records:,}", size(sum(i.bytes)), columns(i)) for i in infos
    ]
    table(("topic", "partitions", "records", "size", "columns"), rows)


@app.command()
def describe(name: Name, log: Folder = None, as_json: AsJson = False) -> None:
    """Show a topic's settings, and its partitions: offsets and sizes.

    Example: [bold]headrace topic describe temps[/bold]
    """
    info = EmbeddedLog(log).describe(name)
    if as_json:
        typer.echo(json.dumps(_fields(info)))
        return
    typer.echo(f"topic      {info.name}\ncolumns    {columns(info)}")
    typer.echo(f"key        {info.key or 'none: records go to the partitions in turn'}")
    typer.echo(f"retention  {retention_of(info)}\n")
    rows = [
        (str(p), f"{first:,}", f"{end:,}", f"{end - first:,}", size(used))
        for p, (first, end, used) in enumerate(
            zip(info.earliest, info.latest, info.bytes, strict=True)
        )
    ]
    table(("partition", "earliest", "latest", "records", "size"), rows)


@app.command()
def produce(
    name: Name,
    key: Annotated[
        str | None,
        typer.Option(
            help="The column that chooses the partition; of a byte topic, a JSON field.",
            metavar="FIELD",
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(help="Append to this one only.", metavar="N")
    ] = None,
    log: Folder = None,
) -> None:
    """Append the lines of standard input to a topic.

    Of a typed topic each line is a JSON object, of another any text.

    Example: [bold]echo '{"area": "a", "c": 21.5}' | headrace topic produce temps[/bold]
    """
    store = EmbeddedLog(log)
    producer = LineAppender(store, store.describe(name), key, partition)
    if sys.stdin.isatty():
        typer.echo("one record per line; Ctrl-D ends", err=True)
    try:
        producer.run(sys.stdin.buffer)
    finally:
        typer.echo(f"appended {count(producer.appended, 'record')} to '{name}'", err=True)


@app.command()
def consume(
    name: Name,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the earliest record.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="Start with what was appended since: 10m ago, 2026-03-01T12:00.", metavar="TIME"
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", help="Stop after this many records.", metavar="N", min=0)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more, until Ctrl-C.")
    ] = True,
    partition: Annotated[int | None, typer.Option(help="Read this one only.", metavar="N")] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Of a byte topic: key, tab, value.")] = False,
    log: Folder = None,
) -> None:
    """Print the records of a topic, and wait for more.

    Those of a typed topic are printed as JSON, those of another as text.

    Example: [bold]headrace topic consume temps --from-beginning --no-follow --max 10[/bold]
    """
    consumer = TopicPrinter(EmbeddedLog(log), name, partition, keys)
    consumer.seek(from_beginning, since)
    if not follow and not from_beginning and since is None:
        typer.echo("starting at the end: add --from-beginning to see what is there", err=True)
    try:
        consumer.run(most, follow)
    except KeyboardInterrupt:
        return
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    log: Folder = None,
) -> None:
    """Delete a topic and all its records; this cannot be undone.

    Example: [bold]headrace topic delete temps --yes[/bold]
    """
    store = EmbeddedLog(log)
    info = store.describe(name)
    if not yes:
        typer.confirm(f"delete '{name}' with {count(info.records, 'record')}?", abort=True)
    store.delete(name)
    typer.echo(f"deleted topic '{name}'")


# Topics as a person reads them: sizes, settings, tables of plain text.


_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """A number of bytes: 1000000, 500MB, 1.5 GiB."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise LogError("HR-LOG-004", f"{text!r} is not a size", 'Write "500MB", "1GB" or bytes.')
    unit = " kmgt".index(match[2].lower() or " ")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * float(base**unit))


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def columns(info: TopicInfo) -> str:
    return "bytes" if info.schema is None else ddl_of(info.schema)


def retention_of(info: TopicInfo) -> str:
    by_time = [] if info.retention_ms is None else [pretty(info.retention_ms)]
    by_size = [] if info.retention_bytes is None else [f"{size(info.retention_bytes)} a partition"]
    return ", ".join(by_time + by_size) or "none: everything is kept"


def _fields(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name,
        "partitions": info.partitions,
        "key": info.key,
        "schema": None if info.schema is None else ddl_of(info.schema),
        "retention_ms": info.retention_ms,
        "retention_bytes": info.retention_bytes,
        "earliest": info.earliest,
        "latest": info.latest,
        "bytes": info.bytes,
    }


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


# Reading a topic for the console: from where, how much, and whether to wait for more.


_POLL = 0.02  # seconds between looks at the end of the topic


class TopicPrinter:
    """Reads some partitions of a topic from given offsets on."""

    def __init__(self, log: Log, name: str, partition: int | None, keys: bool) -> None:
        self.log, self.name, self.keys = log, name, keys
        self.typed = log.describe(name).schema is not None
        self.at = log.latest(name)
        if partition is not None:
            log.offset_for_time(name, partition, 0)  # refuses a partition that is not there
            self.at = {partition: self.at[partition]}

    def seek(self, from_beginning: bool, since: str | None) -> None:
        if since is not None:
            ms = _moment(since)
            self.at = {p: self.log.offset_for_time(self.name, p, ms) for p in self.at}
        elif from_beginning:
            earliest = self.log.earliest(self.name)
            self.at = {p: earliest[p] for p in self.at}

    def run(self, most: int | None, follow: bool) -> None:
        left = most
        while left is None or left > 0:
            printed = self._poll(left)
            left = None if left is None else left - printed
            if not printed and not follow:
                return
            if not printed:
                time.sleep(_POLL)

    def _poll(self, most: int | None) -> int:
        """Print what is there, at most `most` records; how many."""
        printed = 0
        for partition, end in self.log.latest(self.name).items():
            if partition in self.at and (most is None or printed < most):
                limit = None if most is None else most - printed
                printed += self._print(partition, end, limit)
        return printed

    def _print(self, partition: int, end: int, limit: int | None) -> int:
        start = max(self.at[partition], self.log.earliest(self.name)[partition])
        if start > self.at[partition]:
            typer.echo(
                f"partition {partition}: records {self.at[partition]} to {start - 1} are gone",
                err=True,
            )
        for first, table in self.log.read(self.name, partition, start, end, limit):
            typer.echo("\n".join(lines_of(table, self.typed, self.keys)))
            self.at[partition] = first + table.num_rows
        return self.at[partition] - start


def _moment(text: str) -> int:
    """Milliseconds of a time, or of so long ago."""
    try:
        at = datetime.fromisoformat(text)
        return round(at.astimezone().timestamp() * 1_000)
    except ValueError:
        pass
    try:
        return SystemClock().now() - millis(text.removesuffix("ago"))
    except HeadraceError as error:
        raise LogError(
            "HR-LOG-004",
            f"{text!r} is neither a time nor a duration",
            'Write "10m" for ten minutes ago, or a time such as 2026-03-01T12:00.',
        ) from error
