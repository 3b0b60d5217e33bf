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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import OutputError
from headrace.files import remote_scheme
from headrace.guarantees import AT_LEAST_ONCE
from headrace.schemes import meant_as_output
from headrace.secrets import exposed, without_secrets
from headrace.sinks import columns
from headrace.sinks.catalog_table import CATALOG
from headrace.sinks.columns import unpacked
from headrace.sinks.commits import FOLDER, Commits, Name, OutputFile, in_force, parts_of, retried
from headrace.sinks.console import CONSOLE
from headrace.sinks.contract import Description, OutputRequest, Sink
from headrace.sinks.delta import DELTA
from headrace.sinks.durable import check_bytes, damaged
from headrace.sinks.file_formats import format_of
from headrace.sinks.file_options import COLLECT, FILES, collect_folder
from headrace.sinks.formats import without_dictionaries
from headrace.sinks.iceberg import ICEBERG
from headrace.sinks.kafka import KAFKA
from headrace.sinks.log import LOG
from headrace.sinks.loop import LOOP, SCHEME
from headrace.sinks.mqtt import MQTT
from headrace.sinks.on_driver import TABLE, ForEachBatch
from headrace.sinks.own import FIELDS, MADE, OWN, Output, check_own
from headrace.sinks.own import SCHEME as OWN_SCHEME
from headrace.sinks.ownership import find
from headrace.sinks.partitions import file_columns, with_values
from headrace.sinks.sql import SQL
from headrace.sinks.webhook import WEBHOOK
from headrace.state.epochs import EpochLog

KINDS = {
    "files": FILES, "log": LOG, "console": CONSOLE, "collect": COLLECT, "sql": SQL, "kafka": KAFKA,
    "delta": DELTA, "iceberg": ICEBERG, "webhook": WEBHOOK, "mqtt": MQTT,
    TABLE: CATALOG,
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
    if isinstance(uri, str):
        _refuse_exposed(without_secrets(uri, {})[0])
    return _open(uri, schema, options, folder, name, key)


def _open(
    uri: str | Output,
    schema: pa.Schema,
    options: Mapping[str, Any] | None,
    folder: str,
    name: str,
    key: str | None,
) -> Sink:
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


def with_guarantee(
    uri: str | Output, options: Mapping[str, Any], asked: str | None
) -> dict[str, Any]:
    """The options of an output of a job that is asked for this: at least once may cost less."""
    kind = KINDS.get(uri.partition(":")[0]) if isinstance(uri, str) else None
    if asked == AT_LEAST_ONCE and kind is not None and kind.chooses:
        return {"guarantee": AT_LEAST_ONCE, **options}
    return dict(options)


def reopen_sink(description: Description, folder: str, name: str, key: str | None = None) -> Sink:
    """The sink that `describe` has described, to publish what was staged under it."""
    kind = description["kind"]
    if FIELDS in description and kind not in KINDS:
        kind = OWN_SCHEME
    if kind not in _MADE:
        check_kind(f"{kind}:{description['place']}")  # another version may have written it
    rest, options = (KINDS | _MADE)[kind].reopen(description)
    schema = unpacked(description["schema"])
    return _open(f"{kind}:{rest}", schema, options, folder, name, key)


def check_output(uri: str | Output, options: Mapping[str, Any]) -> None:
    """Refuse an output that cannot be opened anywhere; looks at the texts only."""
    if isinstance(uri, Output):
        own = () if isinstance(uri, ForEachBatch) else (ForEachBatch.kind,)
        return check_own(uri, options, taken=(*KINDS, *_MADE, *own))
    place, options = without_secrets(uri, options)
    _refuse_exposed(place)
    check_kind(place)
    scheme, _, rest = place.partition(":")
    KINDS[scheme].check(OutputRequest(place, rest, pa.schema([]), dict(options), "", "", ""))


def _refuse_exposed(place: str) -> None:
    if secret := exposed(place):
        raise OutputError(
            "HR-OUTPUT-001",
            f"the address of an output holds {secret}, which would be stored and shown",
            "Leave it out: pass the option that the kind of output has for it (password=, "
            "token_env=, headers_env=, sasl_password=, storage_options=), or let the library find "
            "it in its environment. Within a password, write / as %2F, ? as %3F, @ as %40.",
        )


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
        start = (meant_as_output(scheme) if colon else None) or start
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
    return retried(target, lambda: [find(target, p) for _, p in _parts(target)])


@dataclass(frozen=True, slots=True)
class OutputPart:
    """A file of an output, and the chain of records that names it."""

    chain: str
    file: OutputFile


def output_parts(path: str | Path) -> list[OutputPart]:
    """The files that hold the output now, in order of epoch."""
    target = Path(path)
    return retried(target, lambda: [OutputPart(*part) for part in _parts(target)])


def output_schema(path: str | Path) -> pa.Schema:
    """The columns of the output at `path`."""
    target = Path(path)
    _refuse_other(target)
    return columns.unified(target, list(columns.stored(target / FOLDER).values()))


def read_part(path: str | Path, part: OutputPart, schema: pa.Schema) -> pa.Table:
    """The rows of one file, with these columns; it may have been merged into another since."""
    target = Path(path)
    rows = _table(target, part.file, columns.stored(target / FOLDER), part.chain)
    missing = [f for f in schema if f.name not in rows.column_names]
    for field in missing:
        rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names).cast(schema)


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


def _refuse_other(target: Path) -> None:
    if not (target / FOLDER).is_dir():
        raise OutputError(
            "HR-OUTPUT-009",
            f"{str(target)!r} is not an output",
            'Give the folder that a job writes with .write("files:...").',
        )


def _read(target: Path) -> pa.Table:
    _refuse_other(target)
    schemas = columns.stored(target / FOLDER)
    tables = [_table(target, part, schemas, chain) for chain, part in _parts(target)]
    unified = columns.unified(target, list(schemas.values()))
    return pa.concat_tables([unified.empty_table(), *tables], promote_options="permissive")


def _table(
    target: Path, part: OutputFile, schemas: dict[tuple[str, str], pa.Schema], chain: str
) -> pa.Table:
    schema = columns.of_file(part, target / FOLDER, chain, schemas)
    path = find(target, part)
    check_bytes(path, part.bytes, part.crc)
    tables = list(format_of(part.file).batches(path, file_columns(schema)))
    plain = [t.cast(without_dictionaries(t.schema)) for t in tables]
    rows = sum(t.num_rows for t in plain)
    if rows != part.rows:
        raise damaged(path, f"it has {rows} rows, not {part.rows}")
    if not plain:
        return schema.empty_table()
    try:
        return with_values(pa.concat_tables(plain), part.folder, schema)
    except ValueError as cause:
        raise damaged(path, f"its folder is another, {cause}") from cause
