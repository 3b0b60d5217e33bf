"""DDL: column types and lists of fields as text, read and written.

The text is Spark's: "area string, at timestamp not null, tags array<string>". What is
written is read back as the same types, as far as DDL distinguishes them. Nothing here
knows Python's types (`schema.py`) or data.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa

from headrace.errors import PlanError

TIMESTAMP = pa.timestamp("us", tz="UTC")
DECIMAL = pa.decimal128(38, 18)  # of Python's Decimal
_DECIMAL = pa.decimal128(10, 0)  # of DDL without digits, as in Spark

_DDL: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "bool": pa.bool_(),
    "tinyint": pa.int8(),
    "byte": pa.int8(),
    "smallint": pa.int16(),
    "short": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "real": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "text": pa.string(),
    "varchar": pa.string(),
    "binary": pa.binary(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}

_NAME = r"`(?:[^`]|``)+`|\w+"


def read_fields(text: str) -> list[pa.Field]:
    """The fields that "name type, name type" lists."""
    return [_field(part.strip(), text) for part in _split(text) if part.strip()]


def _field(field: str, whole: str) -> pa.Field:
    match = re.match(rf"^({_NAME})(?:\s*:\s*|\s+)(.+?)(\s+not\s+null)?$", field, re.DOTALL | re.I)
    if match is None:
        raise PlanError(
            "HR-SCHEMA-003",
            f"cannot read the field {field!r} in the schema {whole!r}",
            'Write "name type, name type", for example "area string, celsius double".',
        )
    name = match[1][1:-1].replace("``", "`") if match[1].startswith("`") else match[1]
    return pa.field(name, read_type(match[2]), nullable=not match[3])


def read_type(text: str) -> pa.DataType:
    """The type that a DDL type name describes."""
    name = text.strip().lower()
    kind = _DDL.get(name) or _nested_type(text.strip()) or _sized_type(name)
    if kind is None:
        raise PlanError(
            "HR-SCHEMA-002",
            f"{text!r} is not a column type",
            f"Known types: {', '.join(sorted(_DDL))}, decimal(p,s) up to 38 digits, "
            "array<...>, map<..., ...>, struct<...>.",
        )
    return kind


def _nested_type(text: str) -> pa.DataType | None:
    match = re.match(r"^(\w+)\s*<(.*)>$", text, re.DOTALL)
    kind, inner = (match[1].lower(), match[2]) if match else ("", "")
    if kind == "array":
        return pa.list_(read_type(inner))
    if kind == "map" and len(parts := _split(inner)) == 2:
        return pa.map_(read_type(parts[0]), read_type(parts[1]))
    if kind == "struct" and inner.strip():
        return struct_of(read_fields(inner), text)
    return None


def _sized_type(name: str) -> pa.DataType | None:
    if name in ("decimal", "dec", "numeric"):
        return _DECIMAL
    if re.match(r"^(varchar|char)\s*\(\s*\d+\s*\)$", name):
        return pa.string()
    number = re.match(r"^(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)$", name)
    precision, scale = (int(number[1]), int(number[2] or 0)) if number else (0, 0)
    return pa.decimal128(precision, scale) if scale <= precision and 0 < precision <= 38 else None


def _split(text: str) -> list[str]:
    """Split at commas that are not inside <>, () or backticks."""
    parts, depth, start, quoted = [], 0, 0, False
    for i, char in enumerate(text):
        quoted ^= char == "`"
        depth += 0 if quoted else (char in "<(") - (char in ">)")
        if char == "," and depth == 0 and not quoted:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def ddl_of(schema: pa.Schema) -> str:
    """The schema as DDL; `schema_of` reads back the types that DDL has."""
    return _ddl_list(schema)


def _ddl_list(fields: Iterable[pa.Field]) -> str:
    return ", ".join(
        f"{_quoted(f.name)} {ddl_type(f.type)}{'' if f.nullable else ' not null'}" for f in fields
    )


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"\w+", name) else "`" + name.replace("`", "``") + "`"


def ddl_type(kind: pa.DataType) -> str:
    """The DDL name of an Arrow type; of the nearest one where Arrow distinguishes more."""
    for name, candidate in _DDL.items():
        if candidate == kind:
            return name
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return ddl_type(kind.value_type)
    if is_a.is_timestamp(kind):
        return "timestamp"
    if is_a.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind):
        return f"array<{ddl_type(kind.value_type)}>"
    if is_a.is_map(kind):
        return f"map<{ddl_type(kind.key_type)}, {ddl_type(kind.item_type)}>"
    if is_a.is_struct(kind):
        return f"struct<{_ddl_list(kind)}>"
    if is_a.is_large_string(kind) or is_a.is_string_view(kind):
        return "string"
    if is_a.is_large_binary(kind) or is_a.is_fixed_size_binary(kind):
        return "binary"
    return str(kind)


def struct_of(fields: list[pa.Field], what: str) -> pa.DataType:
    """A struct of these fields; `what` names it when two of them are called the same."""
    refuse_same_names([f.name for f in fields], what)
    return pa.struct(fields)


def refuse_same_names(names: list[str], what: str) -> None:
    """Names that differ only in case count as the same: SQL would take them for one."""
    times = Counter(name.lower() for name in names)
    twice = [name for name in names if times[name.lower()] > 1]
    if len(set(twice)) == 1:
        raise unfit(f"{what} names {twice[0]!r} twice", "Rename a column.")
    if twice:
        listed = ", ".join(map(repr, dict.fromkeys(twice)))
        raise unfit(
            f"{what} has names that are one without regard to case: {listed}",
            "Rename a column: SQL does not distinguish upper from lower case.",
        )


def unfit(fact: str, hint: str) -> PlanError:
    return PlanError("HR-SCHEMA-004", fact, hint)
