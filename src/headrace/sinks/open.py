"""From a URI to a sink ("files:path", "log:topic", "kafka://host/topic" ...), and reading it back.

The one list of what can be written. Opening creates nothing. An output's key is what its files,
records and producer go by; it stays the same when the output is renamed.

A files output is read exactly (whole epochs, each row once, at any moment): by the records in
`_commits`, whatever is being published or merged meanwhile. A file that does not hold what its
record says is an error, never rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import OutputError
from headrace.files import remote_scheme
from headrace.secrets import without_secrets
from headrace.sinks import columns
from headrace.sinks.columns import unpacked
from headrace.sinks.commits import FOLDER, Commits, Name, OutputFile, in_force, parts_of, retried
from headrace.sinks.console import CONSOLE
from headrace.sinks.contract import Description, OutputRequest, Sink
from headrace.sinks.delta import DELTA
from headrace.sinks.durable import check_bytes, damaged
from headrace.sinks.files import COLLECT, FILES, collect_folder
from headrace.sinks.formats import format_of, without_dictionaries
from headrace.sinks.iceberg import ICEBERG
from headrace.sinks.kafka import KAFKA
from headrace.sinks.log import LOG
from headrace.sinks.loop import LOOP, SCHEME
from headrace.sinks.mqtt import MQTT
from headrace.sinks.own import FIELDS, MADE, OWN, Output, check_own
from headrace.sinks.own import SCHEME as OWN_SCHEME
from headrace.sinks.ownership import find
from headrace.sinks.sql import SQL
from headrace.sinks.webhook import WEBHOOK
from headrace.state.epochs import EpochLog

KINDS = {
    "files": FILES, "log": LOG, "console": CONSOLE, "collect": COLLECT, "sql": SQL, "kafka": KAFKA,
    "delta": DELTA, "iceberg": ICEBERG, "webhook": WEBHOOK, "mqtt": MQTT,
}  # fmt: skip
_MADE = {SCHEME: LOOP, OWN_SCHEME: OWN}  # by a topology, or of a user's object; never of a text


def open_sink(
    uri: str | Output,
    schema: pa.Schema,
    options: Mapping[str, Any] | None,
    folder: str,
    name: str,
    key: str | None = None,
) -> Sink:
    """The sink that `uri` names, or is, for output `name` of the job in `folder`."""
    if isinstance(uri, Output):
        options, uri = {**(options or {}), MADE: uri}, f"{OWN_SCHEME}:{uri.kind}"
    place, options = without_secrets(uri, options or {})
    scheme, _, rest = place.partition(":")
    if scheme not in _MADE:
        check_kind(place)
    key = name if key is None else key
    request = OutputRequest(place, rest, schema, options, folder, name, key)
    kind = (KINDS | _MADE)[scheme]
    kind.check(request)
    return kind.open(request)


def reopen_sink(description: Description, folder: str, name: str, key: str | None = None) -> Sink:
    """The sink that `describe` has described, to publish what was staged under it."""
    kind = OWN_SCHEME if FIELDS in description else description["kind"]
    if kind not in _MADE:
        check_kind(f"{kind}:{description['place']}")  # another version may have written it
    rest, options = (KINDS | _MADE)[kind].reopen(description)
    schema = unpacked(description["schema"])
    return open_sink(f"{kind}:{rest}", schema, options, folder, name, key)


def check_output(uri: str | Output, options: Mapping[str, Any]) -> None:
    """Refuse an output that cannot be opened anywhere; looks at the texts only."""
    if isinstance(uri, Output):
        return check_own(uri, options, taken=(*KINDS, *_MADE))
    place, options = without_secrets(uri, options)
    check_kind(place)
    scheme, _, rest = place.partition(":")
    KINDS[scheme].check(OutputRequest(place, rest, pa.schema([]), dict(options), "", "", ""))


def check_kind(uri: str) -> None:
    """Refuse a URI that names no kind of output."""
    scheme, colon, rest = uri.partition(":")
    if scheme == "files" and (elsewhere := remote_scheme(rest)):
        raise OutputError(
            "HR-OUTPUT-001",
            f"{uri!r}: files cannot be written to {elsewhere!r}",
            f"{elsewhere} is not a folder of this machine. Give a path, as in "
            '"files:out/orders"; storage elsewhere must be mounted as a folder.',
        )
    if scheme not in KINDS:
        start = f'There is no output "{scheme}:"' if colon else f'Write "files:{uri}" for files'
        raise OutputError(
            "HR-OUTPUT-001",
            f"{uri!r} is not an output",
            f"{start}; known are: {', '.join(KINDS)}.",
        )


def absolute(uri: str) -> str:
    """The same output however the working folder changes, as it may between tasks."""
    scheme, _, rest = uri.partition(":")
    has_path = rest and (scheme == "files" or (scheme == "delta" and not remote_scheme(rest)))
    return f"{scheme}:{os.path.abspath(os.path.expanduser(rest))}" if has_path else uri


def collected(folder: str, name: str) -> pa.Table:
    """What the collect output `name` of the job in `folder` holds so far."""
    return read_output(collect_folder(folder, _key_of(folder, name)))


def _key_of(folder: str, name: str) -> str:
    """The key of an output, which stays when the output is renamed; its name if it has none."""
    log = EpochLog(folder)
    latest = log.latest() if (Path(folder) / "epochs").is_dir() else None
    output = latest.writes.get(name) if latest is not None else None
    return output.id if output is not None else name


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
    files = [
        (chain, part)
        for chain, names in chains.items()
        for part in parts_of(commits.read_chain(in_force(names)))
    ]
    return sorted(files, key=lambda f: (f[1].epoch, f[1].file))


def _read(target: Path) -> pa.Table:
    if not (target / FOLDER).is_dir():
        raise OutputError(
            "HR-OUTPUT-009",
            f"{str(target)!r} is not an output",
            'Give the folder that a job writes with .write("files:...").',
        )
    schemas = columns.stored(target / FOLDER)
    tables = [_table(target, part, schemas, chain) for chain, part in _parts(target)]
    unified = columns.unified(target, list(schemas.values()))
    return pa.concat_tables([unified.empty_table(), *tables], promote_options="permissive")


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
