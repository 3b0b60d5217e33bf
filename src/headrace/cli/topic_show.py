"""Topics as a person reads them: sizes, settings, tables of plain text."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from headrace.clock import pretty
from headrace.log import TopicInfo
from headrace.schema import ddl_of
from headrace.sizes import size


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def columns(info: TopicInfo) -> str:
    return "bytes" if info.schema is None else ddl_of(info.schema)


def retention_of(info: TopicInfo) -> str:
    by_time = [] if info.retention_ms is None else [pretty(info.retention_ms)]
    by_size = [] if info.retention_bytes is None else [f"{size(info.retention_bytes)} a partition"]
    return ", ".join(by_time + by_size) or "none: everything is kept"


def as_json(info: TopicInfo) -> dict[str, object]:
    return {
        "name": info.name, "partitions": info.partitions, "key": info.key,
        "schema": None if info.schema is None else ddl_of(info.schema),
        "retention_ms": info.retention_ms, "retention_bytes": info.retention_bytes,
        "earliest": info.earliest, "latest": info.latest, "bytes": info.bytes,
    }  # fmt: skip


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())
