"""`headrace topic`: make, show, fill, read and delete topics of the embedded log."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from headrace.cli import topic_groups
from headrace.cli.jobs import AsJson
from headrace.cli.topic_lines import LineAppender
from headrace.cli.topic_printing import GroupPrinter, TopicPrinter
from headrace.cli.topic_text import (
    Folder,
    Name,
    bytes_of,
    columns,
    count,
    retention_of,
    table,
)
from headrace.errors import LogError
from headrace.files import size
from headrace.log import EmbeddedLog, TopicInfo
from headrace.schema import ddl_of

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Topics of the embedded log: create, fill, read and delete them.\n\n"
    "A topic is a set of partitions, each a sequence of records that is only appended to. "
    "Consumers of a group share its partitions; the log remembers how far each group is.",
    epilog="Try:\n\n[bold]headrace topic create words[/bold]\n"
    "[bold]echo hello | headrace topic produce words[/bold]\n"
    "[bold]headrace topic consume words --from-beginning --no-follow[/bold]",
)


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
    retention_groups: Annotated[
        bool,
        typer.Option("--retention-groups", help="Retention waits for every consumer group."),
    ] = False,
    compact: Annotated[
        bool,
        typer.Option("--compact", help="Only the newest record of each key stays, for ever."),
    ] = False,
    log: Folder = None,
) -> None:
    """Create a topic: typed columns with --schema, else bytes.

    Example: [bold]headrace topic create words[/bold]

    Example: [bold]headrace topic create temps --schema "area string, c double"[/bold]
    """
    limit = None if retention_bytes is None else bytes_of(retention_bytes)
    info = EmbeddedLog(log).create(
        name,
        partitions,
        schema,
        key,
        retention,
        limit,
        retention_groups=retention_groups,
        compact=compact,
    )
    typer.echo(f"created topic '{name}': {columns(info)}, {count(info.partitions, 'partition')}")


@app.command()
def alter(
    name: Name,
    schema: Annotated[
        str,
        typer.Option(
            help="All columns, with the new ones: they are null in what is stored.",
            metavar="DDL",
            show_default=False,
        ),
    ],
    log: Folder = None,
) -> None:
    """Add columns to a typed topic.

    Programs that read or write it need not be stopped; what they leave out is null.

    Example: [bold]headrace topic alter temps --schema "area string, c double, ok int"[/bold]
    """
    info = EmbeddedLog(log).alter(name, schema)
    typer.echo(f"topic '{name}' has the columns {columns(info)}")


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
    """Show a topic's settings, and offsets by partition.

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
    group: Annotated[
        str | None,
        typer.Option(help="Go on where this consumer group is, and commit.", metavar="GROUP"),
    ] = None,
    log: Folder = None,
) -> None:
    """Print the records of a topic, and wait for more.

    Those of a typed topic are printed as JSON, those of another as text.

    With --group the records are shared among all who read as that group, in any process, and
    reading goes on where the group has stopped. A new group starts at the end, or with
    --from-beginning at the beginning; an old one is moved by reset-offsets.

    Example: [bold]headrace topic consume temps --from-beginning --no-follow --max 10[/bold]

    Example: [bold]headrace topic consume temps --from-beginning --group alarms[/bold]
    """
    consumer = _printer(EmbeddedLog(log), name, from_beginning, since, partition, keys, group)
    if not follow and not from_beginning and since is None and group is None:
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
    """Delete a topic and all its records, for good.

    Example: [bold]headrace topic delete temps --yes[/bold]
    """
    store = EmbeddedLog(log)
    info = store.describe(name)
    if not yes:
        typer.confirm(f"delete '{name}' with {count(info.records, 'record')}?", abort=True)
    store.delete(name)
    typer.echo(f"deleted topic '{name}'")


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


def _printer(
    log: EmbeddedLog,
    name: str,
    from_beginning: bool,
    since: str | None,
    partition: int | None,
    keys: bool,
    group: str | None,
) -> TopicPrinter | GroupPrinter:
    if group is None:
        printer = TopicPrinter(log, name, partition, keys)
        printer.seek(from_beginning, since)
        return printer
    if since is not None or partition is not None:
        option = "--since" if since is not None else "--partition"
        raise LogError(
            "HR-LOG-019",
            f"cannot use {option} with --group",
            "A group reads all partitions from where it is; move it with headrace topic "
            "reset-offsets.",
        )
    return GroupPrinter(log, name, group, "earliest" if from_beginning else "latest", keys)


app.command("groups")(topic_groups.groups)
app.command("lag")(topic_groups.lag)
app.command("reset-offsets")(topic_groups.reset_offsets)
app.command("delete-group")(topic_groups.delete_group)
