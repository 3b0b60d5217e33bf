"""From a URI to a source: "log:topic", "files:path", "socket:host:port", or a made one.

The one list of what can be read. Nothing is opened or checked beyond what is needed to know
the schema; `check` does that.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.errors import InputError
from headrace.sources import formats
from headrace.sources.contract import Source
from headrace.sources.files import FilesSource
from headrace.sources.layout import Layout
from headrace.sources.lines import Lines
from headrace.sources.memory import MemorySource
from headrace.sources.parquet import Parquet
from headrace.sources.scan import format_of, pattern_of


@dataclass(frozen=True, slots=True)
class Opening:
    """All that is known when an input is opened."""

    uri: str
    rest: str
    schema: pa.Schema | None
    format: str | None
    options: Mapping[str, Any]
    folder: str | None
    name: str
    bounded: bool
    clock: Clock


def open_source(
    uri: str | Source,
    schema: pa.Schema | None = None,
    format: str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    folder: str | None = None,
    name: str = "input",
    until: str | None = None,
    clock: Clock | None = None,
) -> Source:
    """The source that `uri` names. `folder` is the job's, for what the input must remember;
    `until="end"` reads what is there at the start and ends."""
    clock = clock or SystemClock()
    if not isinstance(uri, str):
        return _made(uri, schema, folder, name, clock)
    scheme, colon, rest = uri.partition(":")
    opener = _OPENERS.get(scheme)
    if not colon or opener is None:
        raise InputError(
            f"{uri!r} is not an input", code="HR-INPUT-001",
            hint=f'Write "files:{uri}" for files; known are: {", ".join(_OPENERS)}.',
        )  # fmt: skip
    if format is not None and format not in formats.FORMATS:
        raise formats.unknown_format(format)
    return opener(
        Opening(uri, rest, schema, format, dict(options or {}), folder, name, until == "end", clock)
    )


def _made(
    source: Source, schema: pa.Schema | None, folder: str | None, name: str, clock: Clock
) -> Source:
    if isinstance(source, MemorySource):
        return source.placed(folder, name)
    return source


def _files(o: Opening) -> Source:
    known = ("header", "delimiter")
    refuse_unknown(o, known)
    pattern = pattern_of(o.rest, o.uri, o.format, o.bounded)
    format = o.format or format_of(pattern)
    if format is None:
        pattern.check()
        raise InputError(
            f"the file names in {o.uri!r} do not say which format they have",
            code="HR-INPUT-004", hint=f'Say format="json"; known: {", ".join(formats.FORMATS)}.',
        )  # fmt: skip
    schema = needed_schema(o, format)
    formats.check_schema(format, schema)
    layout: Layout = Parquet(schema) if format == "parquet" else Lines(format, schema, **o.options)
    return FilesSource(
        pattern, layout, schema, o.clock, bounded=o.bounded, folder=o.folder, name=o.name
    )


def needed_schema(o: Opening, format: str) -> pa.Schema:
    schema = o.schema if o.schema is not None else formats.default_schema(format)
    if schema is None:
        raise InputError(
            f"{o.uri!r} has no schema", code="HR-INPUT-012",
            hint='Say schema="area string, celsius double", or give a dataclass.',
        )  # fmt: skip
    return schema


def refuse_unknown(o: Opening, known: tuple[str, ...]) -> None:
    for option in o.options:
        if option not in known:
            close = difflib.get_close_matches(option, known, 1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise InputError(
                f"{o.uri!r} has no option {option!r}", code="HR-INPUT-013",
                hint=f"{hint}Known: {', '.join(known) or 'none'}.",
            )  # fmt: skip


_OPENERS: dict[str, Callable[[Opening], Source]] = {"files": _files}
