"""From a URI to a source: "log:topic", "files:path", "socket:host:port", or a made one.

The one list of what can be read. Nothing is opened or checked beyond what is needed to know
the schema; `check` does that.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.errors import InputError, LogError
from headrace.log import EmbeddedLog
from headrace.settings import Settings
from headrace.sources import formats
from headrace.sources.contract import Source
from headrace.sources.files import FilesSource
from headrace.sources.generate import GenerateSource
from headrace.sources.layout import FileLayout
from headrace.sources.lines import Lines
from headrace.sources.log import LogSource
from headrace.sources.memory import MemorySource
from headrace.sources.parquet import Parquet, own_schema
from headrace.sources.place import place
from headrace.sources.scan import format_of, pattern_of
from headrace.sources.sockets import SocketSource, address_of
from headrace.uris import remote_scheme


@dataclass(frozen=True, slots=True)
class InputRequest:
    """All that is known when an input is opened."""

    uri: str
    rest: str
    schema: pa.Schema | None
    format: str | None
    options: Mapping[str, Any]
    home: Path | None  # what the input must remember is stored there
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
    key: str | None = None,
    until: str | None = None,
    clock: Clock | None = None,
) -> Source:
    """The source that `uri` names.

    `folder` is the job's, where the input stores what it must remember under its `key`, which
    stays when the input is renamed (if there is none: under its `name`). `until="end"` reads
    what is there at the start and ends. Nothing is made by opening.
    """
    clock = clock or SystemClock()
    home = place(folder, name if key is None else key) if folder else None
    if not isinstance(uri, str):
        return _placed(uri, schema, home, name, clock, until)
    check_input(uri)
    scheme, _, rest = uri.partition(":")
    if format is not None and format not in formats.FORMATS:
        raise formats.unknown_format(format)
    return _OPENERS[scheme](
        InputRequest(uri, rest, schema, format, dict(options or {}), home, until == "end", clock)
    )


def check_input(uri: str) -> None:
    """Refuse what is no kind of input; needs nothing but the text."""
    scheme, colon, rest = uri.partition(":")
    if scheme == "files" and (elsewhere := remote_scheme(rest)):
        raise InputError(
            "HR-INPUT-001",
            f"{uri!r}: files cannot be read from {elsewhere!r}",
            f"{elsewhere} is not a folder of this machine. Give a path, as in "
            '"files:readings"; storage elsewhere must be mounted as a folder.',
        )
    if not colon or scheme not in _OPENERS:
        start = f'There is no input "{scheme}:"' if colon else f'Write "files:{uri}" for files'
        raise InputError(
            "HR-INPUT-001",
            f"{uri!r} is not an input",
            f"{start}; known are: {', '.join(_OPENERS)}.",
        )


def _placed(
    source: Source,
    schema: pa.Schema | None,
    home: Path | None,
    name: str,
    clock: Clock,
    until: str | None,
) -> Source:
    """A source that the program made, as an input of this job."""
    if until == "end" and not source.bounded:
        raise InputError(
            "HR-INPUT-013",
            f"input {name!r} has no end to run to",
            'Give it a total, or run without until="end".',
        )
    if isinstance(source, MemorySource):
        return source.placed(home)
    if isinstance(source, GenerateSource):
        return source.placed(home, name, clock, schema)
    return source


def _files(o: InputRequest) -> Source:
    known = ("header", "delimiter")
    refuse_unknown(o, known)
    pattern = pattern_of(o.rest, o.uri, o.format, o.bounded)
    format = o.format or format_of(pattern)
    if format is None:
        pattern.check()
        found = pattern.scan()  # says what is compressed
        fact = "the file names in {!r} do not say" if found else "there are no files in {!r} to say"
        raise InputError(
            "HR-INPUT-004",
            f"{fact.format(o.uri)} which format they have",
            f'Pass format="json"; known: {", ".join(formats.FORMATS)}.',
        )
    own = own_schema(pattern) if format == "parquet" and o.schema is None else None
    schema = own if own is not None else needed_schema(o, format)
    formats.check_schema(format, schema)
    layout: FileLayout = (
        Parquet(schema) if format == "parquet" else Lines(format, schema, **o.options)
    )
    return FilesSource(pattern, layout, schema, o.clock, bounded=o.bounded, home=o.home)


def _log(o: InputRequest) -> Source:
    refuse_unknown(o, ("log", "start"))
    where = o.options.get("start", "earliest")
    if where not in ("earliest", "latest"):
        raise InputError(
            "HR-INPUT-013", f"{o.uri!r} has start={where!r}", 'Pass start="earliest" or "latest".'
        )
    log = EmbeddedLog(Settings.load(log=o.options.get("log")).log, o.clock)
    try:
        topic = log.describe(o.rest)
    except LogError as cause:
        raise InputError("HR-INPUT-010", cause.message, cause.hint) from cause
    schema, format = _topic_schema(o, topic.schema)
    return LogSource(
        log,
        o.rest,
        topic.id,
        schema,
        format=format,
        bounded=o.bounded,
        from_latest=where == "latest",
    )


def _topic_schema(o: InputRequest, known: pa.Schema | None) -> tuple[pa.Schema, str | None]:
    """The schema of what a topic gives, and the format if its records are bytes."""
    if known is not None:
        return (known if o.schema is None else o.schema), None
    format = o.format or ("bytes" if o.schema is None else "json")
    if format == "parquet":
        raise formats.unknown_format(format)
    return needed_schema(o, format), format


def _socket(o: InputRequest) -> Source:
    refuse_unknown(o, ("delimiter",))
    host, port = address_of(o.rest, o.uri)
    format = o.format or ("text" if o.schema is None else "json")
    if format not in ("json", "csv", "text"):
        raise InputError(
            "HR-INPUT-004",
            f"{o.uri!r} cannot have format {format!r}",
            'Lines are "text", "json" or "csv".',
        )
    schema = needed_schema(o, format)
    formats.check_schema(format, schema)
    return SocketSource(
        host, port, schema, format=format, bounded=o.bounded, home=o.home, **o.options
    )


def needed_schema(o: InputRequest, format: str) -> pa.Schema:
    schema = o.schema if o.schema is not None else formats.default_schema(format)
    if schema is None:
        raise InputError(
            "HR-INPUT-012",
            f"{o.uri!r} has no schema",
            'Pass schema="area string, celsius double", or give a dataclass.',
        )
    return schema


def refuse_unknown(o: InputRequest, known: tuple[str, ...]) -> None:
    for option in o.options:
        if option not in known:
            close = difflib.get_close_matches(option, known, 1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise InputError(
                "HR-INPUT-013",
                f"{o.uri!r} has no option {option!r}",
                f"{hint}Known: {', '.join(known) or 'none'}.",
            )


_OPENERS: dict[str, Callable[[InputRequest], Source]] = {
    "files": _files, "log": _log, "socket": _socket,
}  # fmt: skip
