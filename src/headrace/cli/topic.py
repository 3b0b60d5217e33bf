"""`headrace topic`: make, show, fill, read and delete topics of the embedded log."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from headrace.cli.topic_lines import Producer
from headrace.cli.topic_read import Consumer
from headrace.cli.topic_show import as_json, columns, count, retention_of, table
from headrace.log import EmbeddedLog
from headrace.sizes import bytes_of, size

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Topics of the embedded log: make, show, fill, read and delete them.\n\n"
    "A topic is a set of partitions, each a sequence of records that is only appended to.",
    epilog="Try:\n\n[bold]headrace topic create words[/bold]\n\n"
    "[bold]echo hello | headrace topic produce words[/bold]\n\n"
    "[bold]headrace topic consume words --from-beginning --no-follow[/bold]",
)

Name = Annotated[str, typer.Argument(help="The topic.", show_default=False, metavar="NAME")]
Folder = Annotated[
    str | None,
    typer.Option(
        "--log", envvar="HEADRACE_LOG", metavar="DIR", show_default=False,
        help="The log's folder. Else .headrace/log here.",
    ),
]  # fmt: skip
Json = Annotated[bool, typer.Option("--json", help="As JSON, for machines.")]


@app.command()
def create(
    name: Name,
    partitions: Annotated[int, typer.Option(help="How many may be read in parallel.")] = 1,
    schema: Annotated[
        str | None,
        typer.Option(help='Columns: "area string, at timestamp". Without: bytes.', metavar="DDL"),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="Equal values here share a partition.", metavar="COLUMN")
    ] = None,
    retention: Annotated[
        str | None, typer.Option(help="Forget records older than 7d, 12h.", metavar="TIME")
    ] = None,
    retention_bytes: Annotated[
        str | None, typer.Option(help="Keep about 1GB, 500MB a partition.", metavar="SIZE")
    ] = None,
    log: Folder = None,
) -> None:
    """Make a topic: typed columns with --schema, else records of bytes.

    Example: [bold]headrace topic create readings --schema "area string, celsius double"
    --key area --partitions 4 --retention 7d[/bold]
    """
    limit = None if retention_bytes is None else bytes_of(retention_bytes)
    info = EmbeddedLog(log).create(name, partitions, schema, key, retention, limit)
    typer.echo(f"created topic '{name}': {columns(info)}, {count(info.partitions, 'partition')}")


@app.command("list")
def list_topics(log: Folder = None, machine: Json = False) -> None:
    """List the topics with what they hold.

    Example: [bold]headrace topic list --log /data/log[/bold]
    """
    store = EmbeddedLog(log)
    infos = [store.describe(name) for name in store.topics()]
    if machine:
        typer.echo(json.dumps([as_json(info) for info in infos]))
        return
    if not infos:
        typer.echo(f"no topics in '{store.root}'; make one: headrace topic create NAME", err=True)
        return
    rows = [(i.name, str(i.partitions), f"{i.records:,}", size(sum(i.bytes)), columns(i))
            for i in infos]  # fmt: skip
    table(("topic", "partitions", "records", "size", "columns"), rows)


@app.command()
def describe(name: Name, log: Folder = None, machine: Json = False) -> None:
    """Show a topic's settings, and the offsets and size of each partition.

    Example: [bold]headrace topic describe readings[/bold]
    """
    info = EmbeddedLog(log).describe(name)
    if machine:
        typer.echo(json.dumps(as_json(info)))
        return
    typer.echo(f"topic      {info.name}\ncolumns    {columns(info)}")
    typer.echo(f"key        {info.key or 'none: records go to the partitions in turn'}")
    typer.echo(f"retention  {retention_of(info)}\n")
    rows = [
        (str(p), f"{first:,}", f"{end:,}", f"{end - first:,}", size(held))
        for p, (first, end, held) in enumerate(
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
            help="Column whose value chooses the partition; for a byte topic, a JSON field.",
            metavar="FIELD",
        ),
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Append to this one only.")] = None,
    log: Folder = None,
) -> None:
    """Append lines from standard input: JSON objects to a typed topic, text to another.

    Example: [bold]echo '{"area": "a", "celsius": 21.5}' | headrace topic produce readings[/bold]
    """
    store = EmbeddedLog(log)
    producer = Producer(store, store.describe(name), key, partition)
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
        bool, typer.Option("--from-beginning", help="From the earliest record kept.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="From what was appended since: 10m ago, or 2026-03-01T12:00.", metavar="TIME"
        ),
    ] = None,
    most: Annotated[
        int | None, typer.Option("--max", help="Stop after so many.", metavar="N", min=0)
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more, until Ctrl-C.")
    ] = True,
    partition: Annotated[int | None, typer.Option(help="Read this one only.")] = None,
    keys: Annotated[bool, typer.Option("--keys", help="Of a byte topic: key, tab, value.")] = False,
    log: Folder = None,
) -> None:
    """Print records: JSON lines of a typed topic, the text of another.

    Example: [bold]headrace topic consume readings --from-beginning --no-follow --max 10[/bold]
    """
    consumer = Consumer(EmbeddedLog(log), name, partition, keys)
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
    """Delete a topic and all its records. There is no way back.

    Example: [bold]headrace topic delete readings --yes[/bold]
    """
    store = EmbeddedLog(log)
    info = store.describe(name)
    if not yes:
        typer.confirm(f"delete '{name}' with {count(info.records, 'record')}?", abort=True)
    store.delete(name)
    typer.echo(f"deleted topic '{name}'")
