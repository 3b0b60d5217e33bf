"""Consumer groups on the console: `headrace topic groups`, `lag`, `reset-offsets`, ..."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headrace.cli.jobs import AsJson
from headrace.cli.topic_text import Folder, count, moment_of, table
from headrace.errors import LogError
from headrace.log import EmbeddedLog, GroupInfo, TopicPartition

Group = Annotated[
    str, typer.Argument(help="The consumer group.", show_default=False, metavar="GROUP")
]


def groups(log: Folder = None, as_json: AsJson = False) -> None:
    """List the consumer groups, and how far behind they are.

    A group is made by its first consumer: [bold]headrace topic consume words --group g[/bold], or
    hr.Consumer("words", group="g") in a program. Every group sees all records.

    Example: [bold]headrace topic groups[/bold]
    """
    store = EmbeddedLog(log)
    infos = [store.group(name) for name in store.groups()]
    if as_json:
        typer.echo(json.dumps([_fields(info) for info in infos]))
        return
    if not infos:
        typer.echo(
            f"no consumer groups in '{store.root}'; make one: "
            "headrace topic consume TOPIC --group NAME",
            err=True,
        )
        return
    rows = [
        (
            i.name,
            ", ".join(sorted({place.topic for place in i.committed})) or "none",
            str(len(i.members)),
            f"{sum(i.lag.values()):,}",
        )
        for i in infos
    ]
    table(("group", "topics", "members", "lag"), rows)


def lag(group: Group, log: Folder = None, as_json: AsJson = False) -> None:
    """Show how far a group is behind, by partition.

    The lag is how many records follow what the group has committed.

    Example: [bold]headrace topic lag alarms[/bold]
    """
    store = EmbeddedLog(log)
    info = store.group(group)
    if as_json:
        typer.echo(json.dumps(_fields(info)))
        return
    readers = _readers(info)
    rows = [
        (
            place.topic,
            str(place.partition),
            f"{offset:,}",
            f"{offset + info.lag[place]:,}",
            f"{info.lag[place]:,}",
            readers.get(place, "nobody"),
        )
        for place, offset in info.committed.items()
    ]
    table(("topic", "partition", "committed", "latest", "lag", "read by"), rows)


def reset_offsets(
    group: Group,
    topic: Annotated[str, typer.Argument(help="The topic.", show_default=False, metavar="TOPIC")],
    to: Annotated[
        str,
        typer.Option(
            help="earliest, latest, an offset (17), or a time: 10m ago, 2026-03-01T12:00.",
            metavar="WHERE",
            show_default=False,
        ),
    ],
    partition: Annotated[
        int | None, typer.Option(help="Of this one only.", metavar="N", show_default=False)
    ] = None,
    log: Folder = None,
) -> None:
    """Set where a group goes on with a topic: back, or forward.

    Refused while a consumer of the group runs. A group that is not there is made, and that is said.

    Example: [bold]headrace topic reset-offsets alarms temps --to earliest[/bold]

    Example: [bold]headrace topic reset-offsets alarms temps --to "2h ago"[/bold]

    Example: [bold]headrace topic reset-offsets alarms temps --to 1200 --partition 0[/bold]
    """
    store = EmbeddedLog(log)
    there = group in store.groups()
    before = store.group(group).committed if there else {}
    wanted = _where(store, topic, to, partition)
    done = store.reset_offsets(group, topic, wanted)
    rows = [
        (p.topic, str(p.partition), f"{before[p]:,}" if p in before else "none", f"{offset:,}")
        for p, offset in done.items()
    ]
    if not there:
        typer.echo(f"created group '{group}'")
    table(("topic", "partition", "before", "now"), rows)


def delete_group(
    group: Group,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    log: Folder = None,
) -> None:
    """Delete a group and what it has committed.

    Refused while a consumer of the group runs.

    Example: [bold]headrace topic delete-group alarms --yes[/bold]
    """
    store = EmbeddedLog(log)
    info = store.group(group)
    if not yes:
        what = count(len(info.committed), "committed offset")
        typer.confirm(f"delete group '{group}' with {what}?", abort=True)
    store.delete_group(group)
    typer.echo(f"deleted group '{group}'")


def _where(store: EmbeddedLog, topic: str, to: str, partition: int | None) -> dict[int, int]:
    """The offsets that a text means, by partition."""
    info = store.describe(topic)
    chosen = range(info.partitions) if partition is None else [partition]
    if partition is not None and not 0 <= partition < info.partitions:
        raise LogError(
            "HR-LOG-005",
            f"topic '{topic}' has no partition {partition}",
            f"It has partitions 0 to {info.partitions - 1}.",
        )
    if to in ("earliest", "latest"):
        offsets = info.earliest if to == "earliest" else info.latest
        return {p: offsets[p] for p in chosen}
    if to.isdecimal():
        return dict.fromkeys(chosen, int(to))
    ms = moment_of(to)
    return {p: store.offset_for_time(topic, p, ms) for p in chosen}


def _readers(info: GroupInfo) -> dict[TopicPartition, str]:
    return {
        place: f"process {member.pid} on {member.host}"
        for member in info.members
        for place in member.partitions
    }


def _fields(info: GroupInfo) -> dict[str, object]:
    readers = _readers(info)
    return {
        "name": info.name,
        "generation": info.generation,
        "members": [{"id": m.id, "pid": m.pid, "host": m.host} for m in info.members],
        "partitions": [
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed": offset,
                "lag": info.lag[place],
                "reader": readers.get(place),
            }
            for place, offset in info.committed.items()
        ],
    }
