"""The door to fastavro: single records of Avro, each by the schema it was written with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from headrace.connect.extras import needed


def record_reader(schema: str) -> Callable[[bytes], Any]:
    """A function that decodes one record; it raises ValueError for bytes that are none.

    ValueError, too, if `schema` is not the text of an Avro schema.
    """
    fastavro = needed("fastavro", "avro", "Avro")
    try:
        parsed = fastavro.parse_schema(json.loads(schema))
    except Exception as cause:  # the library has many
        raise ValueError(f"not an Avro schema: {cause}") from cause
    read = fastavro.schemaless_reader

    def decode(record: bytes) -> Any:
        stream = io.BytesIO(record)
        try:
            value = read(stream, parsed)
        except Exception as cause:
            raise ValueError(
                f"not a record of its schema: {cause or type(cause).__name__}"
            ) from cause
        if stream.tell() != len(record):
            raise ValueError("there are more bytes than its schema describes")
        return value

    return decode
