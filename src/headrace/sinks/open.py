"""From a URI to a sink ("files:path", "log:topic", "console:", "collect:"), and reading it back.

The one list of what can be written. Opening creates nothing. An output's key is what its files,
records and producer go by; it stays the same when the output is renamed.

A files output is read exactly (whole epochs, each row once, at any moment): by the records in
`_commits`, whatever is being published or merged meanwhile. A file that does not hold what its
record says is an error, never rows.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import LogError, OutputError
from headrace.files import file_name
from headrace.log import EmbeddedLog
from headrace.log.contract import check_name
from headrace.settings import Settings
from headrace.sinks import columns
from headrace.sinks.columns import unpacked
from headrace.sinks.commits import FOLDER, Commits, Name, OutputFile, in_force, parts_of, retried
from headrace.sinks.console import ConsoleSink
from headrace.sinks.contract import Description, Sink
from headrace.sinks.durable import check_bytes, damaged
from headrace.sinks.files import FilesSink
from headrace.sinks.formats import format_of, without_dictionaries
from headrace.sinks.log import LogSink
from headrace.sinks.ownership import Identity, find
from headrace.state.epochs import EpochLog
from headrace.uris import remote_scheme


@dataclass(frozen=True, slots=True)
class OutputRequest:
    """All that is known when an output is opened."""

    uri: str
    rest: str
    schema: pa.Schema
    options: Mapping[str, Any]
    folder: str
    name: str
    key: str


def open_sink(
    uri: str,
    schema: pa.Schema,
    options: Mapping[str, Any] | None,
    folder: str,
    name: str,
    key: str | None = None,
) -> Sink:
    """The sink that `uri` names, for output `name` of the job in `folder`."""
    check_output(uri)
    scheme, _, rest = uri.partition(":")
    given = dict(options or {})
    known = name if key is None else key
    return _OPENERS[scheme](OutputRequest(uri, rest, schema, given, folder, name, known))


def reopen_sink(description: Description, folder: str, name: str, key: str | None = None) -> Sink:
    """The sink that `describe` has described, to publish what was staged under it."""
    options = dict(description["options"])
    kind, place = description["kind"], description["place"]
    if kind == "log":
        options["log"], place = os.path.split(place)
        options["key"] = description["key"]
    elif kind in ("files", "console"):
        options["format"] = description["format"]
    uri = f"{kind}:{'' if kind in ('console', 'collect') else place}"
    if kind == "collect":
        uri = place
    return open_sink(uri, unpacked(description["schema"]), options, folder, name, key)


def check_output(uri: str) -> None:
    """Refuse what is no kind of output; needs nothing but the text."""
    scheme, colon, rest = uri.partition(":")
    if scheme == "files" and (elsewhere := remote_scheme(rest)):
        raise OutputError(
            "HR-OUTPUT-001",
            f"{uri!r}: files cannot be written to {elsewhere!r}",
            f"{elsewhere} is not a folder of this machine. Give a path, as in "
            '"files:out/orders"; storage elsewhere must be mounted as a folder.',
        )
    if scheme not in _OPENERS:
        start = f'There is no output "{scheme}:"' if colon else f'Write "files:{uri}" for files'
        raise OutputError(
            "HR-OUTPUT-001",
            f"{uri!r} is not an output",
            f"{start}; known are: {', '.join(_OPENERS)}.",
        )


def absolute(uri: str) -> str:
    """The same output however the working folder changes, as it may between tasks."""
    scheme, _, rest = uri.partition(":")
    known = scheme == "files" and rest
    return f"files:{os.path.abspath(os.path.expanduser(rest))}" if known else uri


def collected(folder: str, name: str) -> pa.Table:
    """What the collect output `name` of the job in `folder` holds so far."""
    return read_output(_collect_folder(folder, _key_of(folder, name)))


def _key_of(folder: str, name: str) -> str:
    """The key of an output, which stays when the output is renamed; its name if it has none."""
    log = EpochLog(folder)
    latest = log.latest() if (Path(folder) / "epochs").is_dir() else None
    known = latest.writes.get(name) if latest is not None else None
    return known.id if known is not None else name


def _files(o: OutputRequest) -> Sink:
    refuse_unknown(o, ("format", "target_file_mb", "merge", "mode"))
    if not o.rest:
        raise OutputError("HR-OUTPUT-001", f"{o.uri!r} names no folder", 'Write "files:folder".')
    options = dict(o.options)
    append = _mode(o, options)
    size = options.get("target_file_mb", 1)
    if options.get("format") not in (None, "parquet", "json"):
        raise _bad(o, "format", options["format"], 'Pass format="parquet" or "json".')
    if not isinstance(size, int | float) or size <= 0:
        raise _bad(o, "target_file_mb", size, "Give the size of a file in megabytes, above 0.")
    format = options.pop("format", None) or "parquet"
    target = Path(os.path.abspath(os.path.expanduser(o.rest)))
    described = {
        "kind": "files",
        "place": str(target),
        "format": format,
        "options": {n: v for n, v in o.options.items() if n != "format"},
    }
    return FilesSink(
        target,
        o.schema,
        Identity(o.folder),
        o.name,
        key=o.key,
        format=format,
        append=append,
        described=described,
        **options,
    )


def _collect(o: OutputRequest) -> Sink:
    refuse_unknown(o, ())
    place = o.rest or o.key
    target = _collect_folder(o.folder, place)
    described = {
        "kind": "collect",
        "place": f"collect:{place}",
        "format": "arrow",
        "options": {},
    }
    return FilesSink(
        target,
        o.schema,
        Identity(o.folder),
        o.name,
        key=o.key,
        format="arrow",
        described=described,
    )


def _log(o: OutputRequest) -> Sink:
    refuse_unknown(o, ("log", "key", "partitions", "mode"))
    options = dict(o.options)
    append = _mode(o, options)
    try:
        topic = check_name(o.rest)
    except LogError as cause:
        raise OutputError("HR-OUTPUT-001", cause.message, cause.hint) from cause
    log = EmbeddedLog(Settings.load(log=options.pop("log", None)).log)
    return LogSink(
        log,
        topic,
        o.schema,
        _staged(o),
        Identity(o.folder),
        o.name,
        id=o.key,
        append=append,
        **options,
    )


def _mode(o: OutputRequest, options: dict[str, Any]) -> bool:
    """Whether the output may be added to what others have written there."""
    mode = options.pop("mode", None)
    if mode not in (None, "append"):
        raise _bad(o, "mode", mode, 'Pass mode="append", or leave it out.')
    return mode is not None


def _console(o: OutputRequest) -> Sink:
    refuse_unknown(o, ("format", "rows", "stream"))
    if o.options.get("format") not in (None, "table", "lines", "json"):
        raise _bad(o, "format", o.options["format"], 'Pass format="table", "lines" or "json".')
    return ConsoleSink(o.schema, _staged(o), o.name, **o.options)


def _staged(o: OutputRequest) -> Path:
    return Path(o.folder) / "staged" / file_name(o.key)


def _collect_folder(folder: str, name: str) -> Path:
    return Path(folder) / "collect" / file_name(name)


def refuse_unknown(o: OutputRequest, known: tuple[str, ...]) -> None:
    for option in o.options:
        if option not in known:
            close = difflib.get_close_matches(option, known, 1)
            hint = f"Did you mean {close[0]!r}? " if close else ""
            raise OutputError(
                "HR-OUTPUT-008",
                f"{o.uri!r} has no option {option!r}",
                f"{hint}Known: {', '.join(known) or 'none'}.",
            )


def _bad(o: OutputRequest, option: str, value: object, hint: str) -> OutputError:
    return OutputError("HR-OUTPUT-008", f"{o.uri!r} has {option}={value!r}", hint)


_OPENERS: dict[str, Callable[[OutputRequest], Sink]] = {
    "files": _files, "log": _log, "console": _console, "collect": _collect,
}  # fmt: skip


# Reading a files output.


def read_output(path: str | Path) -> pa.Table:
    """All rows of the files output at `path`, in order of epoch."""
    target = Path(path)
    return retried(target, lambda: _read(target))


def output_files(path: str | Path) -> list[Path]:
    """The files that hold the output now."""
    target = Path(path)
    return retried(target, lambda: [find(target, p.file) for _, p in _parts(target)])


def _parts(target: Path) -> list[tuple[str, OutputFile]]:
    """The files of all chains in force, in order of epoch, each with its chain."""
    commits = Commits(target)
    chains: dict[str, list[Name]] = {}
    for name in commits.names():
        chains.setdefault(name.chain, []).append(name)
    found = [
        (chain, part)
        for chain, names in chains.items()
        for part in parts_of(commits.force(in_force(names)))
    ]
    return sorted(found, key=lambda f: (f[1].epoch, f[1].file))


def _read(target: Path) -> pa.Table:
    if not (target / FOLDER).is_dir():
        raise OutputError(
            "HR-OUTPUT-009",
            f"{str(target)!r} is not an output",
            'Give the folder that a job writes with .write("files:...").',
        )
    schemas = columns.stored(target / FOLDER)
    found = [_table(target, part, schemas, chain) for chain, part in _parts(target)]
    whole = columns.unified(target, list(schemas.values()))
    return pa.concat_tables([whole.empty_table(), *found], promote_options="permissive")


def _table(
    target: Path, part: OutputFile, schemas: dict[tuple[str, str], pa.Schema], chain: str
) -> pa.Table:
    schema = schemas.get((chain, part.schema))
    if schema is None:
        raise OutputError(
            "HR-OUTPUT-005",
            f"the columns of {part.file!r} are missing in {str(target / FOLDER)!r}",
            f"Restore {chain}.{part.schema}.schema there from a backup.",
        )
    path = find(target, part.file)
    check_bytes(path, part.bytes, part.crc)
    tables = list(format_of(part.file).batches(path, schema))
    plain = [t.cast(without_dictionaries(t.schema)) for t in tables]
    rows = sum(t.num_rows for t in plain)
    if rows != part.rows:
        raise damaged(path, f"it has {rows} rows, not {part.rows}")
    return pa.concat_tables(plain) if plain else schema.empty_table()
