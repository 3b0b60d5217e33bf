"""Reading what a files output holds, exactly: whole epochs, each row once, at any moment.

Goes by the records in `_commits`, whatever is being published or merged meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks.commits import FOLDER, Commits, Name, Replaced, in_force, parts_of
from headrace.sinks.durable import named
from headrace.sinks.encode import FORMATS, without_dictionaries

TRIES = 20  # a merge takes files away a few times a minute; twenty in a row never


def read_output(path: str | Path) -> pa.Table:
    """All rows of the files output at `path`, in order of epoch."""
    target = Path(path)
    for _ in range(TRIES):
        try:
            return _read(target)
        except (Replaced, FileNotFoundError):
            continue  # merged away while we looked: newer records say where to
    raise OutputError(
        f"files of {str(path)!r} that its records name are gone", code="HR-OUTPUT-005",
        hint="Restore them from a backup; only the job itself may remove output files.",
    )  # fmt: skip


def output_files(path: str | Path) -> list[Path]:
    """The files that hold the output now."""
    target = Path(path)
    commits = Commits(target)
    chains: dict[str, list[Name]] = {}
    for name in commits.settled():
        chains.setdefault(name.chain, []).append(name)
    records = [commits.read(n) for names in chains.values() for n in in_force(names)]
    return [_find(target, part.file) for part in parts_of(records)]


def _read(target: Path) -> pa.Table:
    if not (target / FOLDER).is_dir():
        raise OutputError(
            f"{str(target)!r} is not an output", code="HR-OUTPUT-009",
            hint="Give the folder that a job writes with .write(\"files:...\").",
        )  # fmt: skip
    schemas = [without_dictionaries(schema) for schema in _schemas(target)]
    schema = pa.unify_schemas(schemas) if schemas else pa.schema([])
    found = (t for file in output_files(target) for t in _tables(file, schema))
    tables = [t.cast(without_dictionaries(t.schema)) for t in found]
    empty = [s.empty_table() for s in schemas]
    return pa.concat_tables([*empty, *tables], promote_options="permissive")


def _tables(file: Path, schema: pa.Schema) -> Iterator[pa.Table]:
    format = next(f for f in FORMATS.values() if f.suffix == file.suffix)
    yield from format.batches(file, schema)


def _schemas(target: Path) -> Iterator[pa.Schema]:
    for path in sorted((target / FOLDER).glob("*.schema")):
        with named(path):
            yield pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))


def _find(target: Path, name: str) -> Path:
    """A merged file is hidden until the files it replaces are gone."""
    places = [target / name, *target.glob(f"_staging/*/{name}"), target / name]
    found = next((p for p in places if p.exists()), None)
    if found is None:
        raise Replaced(name)
    return found
