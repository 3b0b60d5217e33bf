"""The door to fastavro: records of Avro, each by the schema it was written with, and files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import IO, Any

from headrace.connect.avro_times import as_stored, to_moments
from headrace.connect.extras import needed
from headrace.connect.schema_registry import RegisteredSchema


def record_reader(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    """A function that decodes one record; it raises ValueError for bytes that are none.

    ValueError, too, if `schema` is not the text of an Avro schema.
    """
    read, parsed = _library().schemaless_reader, _parsed(schema, stored=True)
    types = dict[str, Any]()
    convert = to_moments(_parsed(schema, types=types), types)

    def decode(record: bytes) -> Any:
        stream = io.BytesIO(record)
        try:
            value = read(stream, parsed)
        except Exception as cause:
            raise ValueError(
                f"not a record of its schema: {str(cause) or type(cause).__name__}"
            ) from cause
        if stream.tell() != len(record):
            raise ValueError("there are more bytes than its schema describes")
        return value if convert is None else convert(value)

    return decode


def record_writer(schema: RegisteredSchema) -> Callable[[Any], bytes]:
    """A function that encodes one row; ValueError for one that the schema cannot hold."""
    write, parsed = _library().schemaless_writer, _parsed(schema)

    def encode(row: Any) -> bytes:
        stream = io.BytesIO()
        try:
            write(stream, parsed, row, strict_allow_default=True)
        except Exception as cause:
            raise ValueError(
                f"not a record of its schema: {str(cause) or type(cause).__name__}"
            ) from cause
        return stream.getvalue()

    return encode


def field_names(schema: RegisteredSchema) -> list[str]:
    """The fields of the record that the schema describes; ValueError if it is of another kind."""
    parsed = _parsed(schema)
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise ValueError("not the schema of a record")
    return [field["name"] for field in parsed["fields"]]


def whole_schema(schema: RegisteredSchema) -> Any:
    """The schema with every type written out that it names, those of its references among them."""
    return _parsed(schema, expand=True)


def _parsed(
    schema: RegisteredSchema,
    *,
    expand: bool = False,
    stored: bool = False,
    types: dict[str, Any] | None = None,
) -> Any:
    """Types that it refers to by name are those of the schemas that it refers to, and are put
    among the `types`; with `stored`, times and the like are what they are stored as."""
    parse, named = _library().parse_schema, {} if types is None else types

    def read(text: str) -> Any:
        avro = json.loads(text)
        return as_stored(avro, unions=False) if stored else avro

    try:
        for other in schema.everything().values():
            parse(read(other.text), named_schemas=named, expand=expand)
        return parse(read(schema.text), named_schemas=named, expand=expand)
    except Exception as cause:  # the library has many
        raise ValueError(f"not an Avro schema: {cause}") from cause


def _library() -> Any:
    return needed("fastavro", "avro", "Avro")


# Object container files; `avro_files.py` knows their blocks.


def read_container(data: bytes) -> list[Any]:
    """The rows of a container file; ValueError if it is none."""
    try:
        return list(_library().reader(io.BytesIO(data)))
    except Exception as cause:  # the library has many
        raise ValueError(f"{str(cause) or type(cause).__name__}") from cause


def expanded(schema: Any) -> Any:
    """The schema with every named type written out where it is used."""
    library = needed("fastavro.schema", "avro", "Avro")
    try:
        return library.expand_schema(schema)
    except Exception as cause:
        raise ValueError(f"its schema is not one of Avro: {cause}") from cause


def container_writer(
    file: IO[bytes], schema: Any, codec: str
) -> tuple[Callable[[list[Any]], None], Callable[[], None]]:
    """A function that writes rows to a container file, and one that ends it."""
    writer = needed("fastavro.write", "avro", "Avro").Writer(file, schema, codec=codec)

    def write(rows: list[Any]) -> None:
        for row in rows:
            writer.write(row)

    return write, writer.flush
