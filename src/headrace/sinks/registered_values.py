"""Values of records with a schema from a registry: which schema, under which subject and number.

The schema is what the program writes as text, the newest one of the subject, or, for Avro and JSON
Schema, one that is made of the columns. It is registered when the job starts, so tasks ask nobody.
Columns that the schema does not have, or the other way round, are refused before that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from headrace.connect.avro_columns import avro_schema
from headrace.connect.schema_registry import RegisteredSchema, SchemaRegistry
from headrace.connect.wire_formats import KINDS, WireEncoder, framed
from headrace.errors import LogError, OutputError
from headrace.log.kafka import referred
from headrace.sinks.formats import json_values

OPTIONS = ("registry", "subject", "value_schema", "message")
LATEST = "latest"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class NumberedSchema:
    """A schema with its number in the registry: what tasks need to write values."""

    uri: str
    format: str
    id: int
    schema: RegisteredSchema
    message: str | None

    def values(self, rows: pa.Table) -> pa.Array:
        """One value for each row; OutputError if the schema cannot hold one of them."""
        try:
            encoder = _encoder(self.format, self.schema, rows.schema, self.message)
            if self.format == "json":
                contents = encoder.checked(json_values(rows))
            else:
                contents = encoder.encoded(rows)
        except ValueError as cause:
            raise OutputError(
                "HR-KAFKA-054",
                f"{self.uri!r}: a row does not fit schema {self.id}: {cause}",
                "Correct the value (where, coalesce, cast), or write with another schema; nothing "
                "of this batch is committed.",
            ) from cause
        return framed(self.id, contents)


@lru_cache(maxsize=32)
def _encoder(
    format: str, schema: RegisteredSchema, columns: pa.Schema, message: str | None
) -> WireEncoder:
    return WireEncoder(format, schema, columns, message)


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """Which schema an output writes its values with."""

    uri: str
    format: str
    registry: SchemaRegistry
    subject: str
    text: str | None = None  # LATEST, or None for one that is made of the columns
    message: str | None = None

    def check(self, columns: pa.Schema) -> None:
        """Raise an error if the columns cannot be written so; registers nothing."""
        self._fit(self._found(columns)[1], columns)

    def registered(self, columns: pa.Schema) -> NumberedSchema:
        """The schema, which is in the registry then."""
        id, schema = self._found(columns)
        self._fit(schema, columns)
        if id is None:
            id = self.registry.register(self.subject, schema.kind, schema.text)
        return NumberedSchema(self.uri, self.format, id, schema, self.message)

    def _found(self, columns: pa.Schema) -> tuple[int | None, RegisteredSchema]:
        if self.text == LATEST:
            found = self.registry.latest(self.subject)
            if found is None:
                raise LogError(
                    "HR-KAFKA-053",
                    f"{self.uri!r}: subject {self.subject!r} has no schema in the registry "
                    f"{self.registry.place}",
                    "Register one there, pass its text as value_schema=, or name another subject=.",
                )
            return found
        text = self.text or _made(self.format, columns, self.uri)
        return None, RegisteredSchema(KINDS[self.format], text)

    def _fit(self, schema: RegisteredSchema, columns: pa.Schema) -> None:
        try:
            _encoder(self.format, schema, columns, self.message)
        except ValueError as cause:
            raise LogError(
                "HR-KAFKA-054",
                f"{self.uri!r}: the columns do not go with the schema of subject "
                f"{self.subject!r}: {cause}",
                "Select the columns that it has (value=[...]), or correct value_schema=.",
            ) from cause


def value_schema_of(
    uri: str, topic: str, format: str, options: Mapping[str, Any]
) -> ValueSchema | None:
    """What the options say; None without a registry. OutputError if one of them is wrong."""
    place = options.get("registry")
    if place is None:
        lost = [n for n in (*OPTIONS, "registry_auth") if options.get(n) is not None]
        if lost or format in ("avro", "protobuf"):
            named = f"{lost[0]}={options[lost[0]]!r}" if lost else f"format={format!r}"
            shown = "registry_auth" if lost == ["registry_auth"] else named
            raise _bad(uri, shown, 'It needs a schema registry: registry="http://host:8081".')
        return None
    if format not in KINDS:
        hint = f"With a schema registry, format= is one of: {', '.join(KINDS)}."
        raise _bad(uri, f"format={format!r}", hint)
    for name in ("registry", "subject", "value_schema", "message"):
        value = options.get(name)
        if value is not None and (not isinstance(value, str) or not value):
            raise _bad(uri, f"{name}={value!r}", "Give a text.")
    text, message = options.get("value_schema"), options.get("message")
    if format == "protobuf" and text is None:
        hint = 'Pass the text of a .proto file, or value_schema="latest": numbers of fields must '
        raise _bad(uri, "no value_schema=", f"{hint}stay the same, so columns do not give them.")
    if message is not None and format != "protobuf":
        raise _bad(uri, f"message={message!r}", 'Only format="protobuf" has messages.')
    try:
        auth = referred("registry_auth", options.get("registry_auth"), repr(uri))
        registry = SchemaRegistry(place, auth)
        registry.check()
    except LogError as cause:
        raise OutputError(cause.code, cause.message, cause.hint) from cause
    subject = options.get("subject") or f"{topic}-value"
    return ValueSchema(uri, format, registry, subject, text, message)


def _bad(uri: str, what: str, hint: str) -> OutputError:
    return OutputError("HR-OUTPUT-008", f"{uri!r} has {what}", hint)


# Schemas that are made of columns.


def _made(format: str, columns: pa.Schema, uri: str) -> str:
    try:
        if format == "json":
            return json.dumps({"$schema": "http://json-schema.org/draft-07/schema#",
                               **_json_object(columns)})  # fmt: skip
        name = re.sub(r"[^A-Za-z0-9_]", "_", uri.rpartition("/")[2])
        name = name if _NAME.fullmatch(name) else f"_{name}"
        return json.dumps(_named(avro_schema(columns), name))
    except ValueError as cause:
        raise LogError(
            "HR-KAFKA-054",
            f"{uri!r}: no {KINDS[format]} schema can be made of the columns: {cause}",
            "Rename or cast the column, leave it out with value=[...], or pass value_schema=.",
        ) from cause


def _named(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The record under another name; what may be null is null if it is missing, so that columns
    can be added."""
    fields = [
        {**f, "default": None} if isinstance(f["type"], list) else f for f in schema["fields"]
    ]
    return {**schema, "name": name, "fields": fields}


def _json_object(columns: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {c.name: _json_type(c.type, c.nullable) for c in columns},
        "required": [c.name for c in columns if not c.nullable],
    }


def _json_type(kind: pa.DataType, nullable: bool = True) -> dict[str, Any]:
    """As `json_values` writes it."""
    if pa.types.is_struct(kind):
        found = _json_object(kind)
    elif pa.types.is_list(kind):
        found = {"type": "array", "items": _json_type(kind.value_type)}
    elif pa.types.is_map(kind):
        found = {"type": "object", "additionalProperties": _json_type(kind.item_type)}
    elif pa.types.is_floating(kind):
        odd = {"enum": ["NaN", "Infinity", "-Infinity"]}
        nothing = [{"type": "null"}] if nullable else []
        return {"anyOf": [{"type": "number"}, odd, *nothing]}
    elif pa.types.is_integer(kind):
        found = {"type": "integer"}
    elif pa.types.is_boolean(kind):
        found = {"type": "boolean"}
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        found = {"type": "string", "format": "date" if pa.types.is_date(kind) else "date-time"}
    else:
        found = {"type": "string"}  # text, bytes in base64, decimals
    return {**found, "type": [found["type"], "null"]} if nullable else found
