"""What the commands of `headrace topic` share: options, sizes and times as people write them.

Pure text: nothing here reads a topic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from headrace.clock import SystemClock, millis, millis_from, pretty
from headrace.errors import HeadraceError, LogError
from headrace.files import size
from headrace.log import TopicInfo
from headrace.schema import ddl_of

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
    if info.compacted:
        return "the newest record of each key stays"
    waits = ["waits for consumer groups"] if info.retention_groups else []
    return ", ".join(by_time + by_size + waits) or "none: everything is kept"


def table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        typer.echo("  ".join(cells).rstrip())


def moment_of(text: str) -> int:
    """Milliseconds of a time, or of so long ago."""
    try:
        return millis_from(datetime.fromisoformat(text))
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
