"""Names of folders that hold the rows of one value of a column: `day=2026-01-01/area=a`, as Hive's.

Encoded is what Spark and Hive encode, so they read a value back as it was, and so do DuckDB and
pyarrow. Null is a word of theirs. A value that is that word, or empty text, which they read as
null, has no name here, and neither has a value whose name would be too long for a file system.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa

from headrace.kernel.text_cast import cast_text

NULL = "__HIVE_DEFAULT_PARTITION__"
LONGEST = 255  # bytes of a name, in all common file systems
_ENCODED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
_COLUMN = re.compile(r"[^._\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^][^\x00-\x1f\x7f\"#%'*/:=?\\{\[\]^]*")


def is_column(name: str) -> bool:
    """Whether a column of that name can be part of a folder's name."""
    return bool(_COLUMN.fullmatch(name))


def can_partition(kind: pa.DataType) -> bool:
    """Whether values of a type come back as they were, whoever reads the names."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (
        pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean,
        pa.types.is_date32,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def folder_of(name: str, value: str | None) -> str:
    """The folder of a value, spelt as text; ValueError if it cannot have one."""
    if value is None:
        return f"{name}={NULL}"
    if value in ("", NULL):
        raise ValueError(f"{value!r}, and others would read null from the name of its folder")
    folder = f"{name}={_ENCODED.sub(lambda c: f'%{ord(c[0]):02X}', value)}"
    if len(folder.encode()) > LONGEST:
        shown = f"{value[:20]!r}..."
        raise ValueError(f"{shown}, which is too long for the name of a folder")
    return folder


def value_of(folder: str) -> tuple[str, str | None]:
    """The column of a folder, and the value, spelt as text."""
    name, equals, value = folder.partition("=")
    if not equals:
        raise ValueError(f"{folder!r} is not the folder of a value")
    return name, None if value == NULL else unquote(value, errors="strict")


def values_of(folders: str) -> Iterator[tuple[str, str | None]]:
    """Of nested folders, `day=2026-01-01/area=a`."""
    return map(value_of, folders.split("/"))


def column_of(value: str | None, kind: pa.DataType, rows: int) -> pa.Array:
    """A column that has the value, spelt as text, in every row; ValueError if it is of another
    type."""
    if value is None:
        return pa.nulls(rows, kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.repeat(pa.scalar(value, kind), rows)
    typed, bad = cast_text(pa.array([value.encode()], pa.binary()), kind)
    if bad or typed[0].as_py() is None:
        raise ValueError(f"{value!r} is not {kind}")
    return pa.repeat(typed[0], rows)
