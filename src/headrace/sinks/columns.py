"""The columns of an output's files: a sealed file in `_commits` for each set of them.

Readers need them even when there is no row, and types that JSON has not. A file is named after
a digest of its content and never changed: every output file is read with the columns it was
written with.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from headrace.errors import OutputError
from headrace.sinks.commits import OutputFile
from headrace.sinks.durable import folder_for, named
from headrace.sinks.formats import without_dictionaries
from headrace.state.sealed import corrupt, create_sealed, read_sealed

KIND = "output-columns"


def packed(schema: pa.Schema) -> str:
    """A schema as text."""
    return base64.b64encode(schema.serialize()).decode()


def unpacked(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def digest_of(schema: pa.Schema) -> str:
    return _digest(packed(schema))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def store(folder: Path, chain: str, schema: pa.Schema) -> None:
    path = folder / f"{chain}.{digest_of(schema)}.schema"
    if not path.exists():
        folder_for(folder)
        with named(path):
            create_sealed(path, KIND, {"schema": packed(schema)})


def stored(folder: Path) -> dict[tuple[str, str], pa.Schema]:
    """All columns that outputs have had in a folder, plain, by chain and digest."""
    schemas = {}
    for path in sorted(folder.glob("*.schema")):
        chain, _, digest = path.stem.partition(".")
        schema = check(path)
        schemas[chain, digest] = without_dictionaries(schema).with_metadata(schema.metadata)
    return schemas


def check(path: Path) -> pa.Schema:
    """The columns that a file holds; OutputError unless they are those that it is named after."""
    with named(path):
        text = read_sealed(path, KIND)["schema"]
        if _digest(text) != path.stem.partition(".")[2]:
            raise corrupt(path, "it holds the columns of another output")
    return unpacked(text)


def of_file(
    part: OutputFile, folder: Path, chain: str, schemas: Mapping[tuple[str, str], pa.Schema]
) -> pa.Schema:
    """The columns of a file, of those stored in `folder`; OutputError if they are missing."""
    schema = schemas.get((chain, part.schema))
    if schema is None:
        raise OutputError(
            "HR-OUTPUT-005",
            f"the columns of {part.file!r} are missing in {str(folder)!r}",
            f"Restore {chain}.{part.schema}.schema there from a backup.",
        )
    return schema


def unified(place: Path, schemas: list[pa.Schema]) -> pa.Schema:
    """One set of columns for rows of several; OutputError if two types do not go together."""
    plain = [without_dictionaries(schema) for schema in schemas]
    fields: dict[str, pa.Field] = {}
    for field in (f for schema in plain for f in schema):
        kind = fields.setdefault(field.name, field).type
        common = _common_type(kind, field.type)
        if common is None:
            raise OutputError(
                "HR-OUTPUT-006",
                f"{str(place)!r} holds rows in which {field.name!r} is {kind}, and others in "
                f"which it is {field.type}",
                "Cast the column to the type that the rows there have, or write to another folder.",
            )
        nullable = field.nullable or fields[field.name].nullable
        fields[field.name] = field.with_type(common).with_nullable(nullable)
    return pa.schema(list(fields.values()))


def holds(wide: pa.DataType, narrow: pa.DataType) -> bool:
    """Whether a column of the one type has every value of the other, as it is."""
    return bool(_common_type(wide, narrow) == wide)


def _common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds every value of both as it is; None if there is none."""
    pair = [pa.schema([("x", left)]), pa.schema([("x", right)])]
    try:
        common = pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None
    if pa.types.is_floating(common) and not all(_fits(kind, common) for kind in (left, right)):
        return None
    return common


def _fits(kind: pa.DataType, floating: pa.DataType) -> bool:
    """Whether a floating type has every value of `kind`."""
    if pa.types.is_integer(kind):
        return bool(kind.bit_width <= floating.bit_width // 2)
    return not pa.types.is_decimal(kind)
