"""Reading what a files output holds, exactly: whole epochs, each row once, at any moment.

Goes by the records in `_commits`, whatever is being published or merged meanwhile. A file that
does not hold what its record says is an error, never rows.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks import columns
from headrace.sinks.commits import FOLDER, Commits, Name, OutputFile, in_force, parts_of, retried
from headrace.sinks.durable import check_bytes, damaged
from headrace.sinks.formats import format_of, without_dictionaries
from headrace.sinks.ownership import find


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
