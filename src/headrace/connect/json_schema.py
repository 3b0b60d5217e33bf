"""The door to jsonschema-rs: documents that are checked by a JSON Schema, of any draft.

What a schema refers to comes from the registry; nothing is fetched from anywhere else.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin

from headrace.connect.extras import needed
from headrace.connect.schema_registry import RegisteredSchema

_BASE = "json-schema:///"  # of a schema that does not say what it is called
_SHOWN = 200  # characters of a reason


def document_checker(schema: RegisteredSchema) -> Callable[[bytes], str | None]:
    """A function that says why a document does not fit; None if it does.

    ValueError if `schema` is not the text of a JSON Schema.
    """
    library = needed("jsonschema_rs", "jsonschema", "JSON Schema")
    try:
        document = json.loads(schema.text)
        base = (document.get("$id") if isinstance(document, dict) else None) or _BASE
        others = {n: json.loads(s.text) for n, s in schema.everything().items()}
        named = [(urljoin(base, name), other) for name, other in others.items()]
        registry = library.Registry(named, retriever=_nowhere) if named else None
        checker = library.validator_for(
            document, registry=registry, retriever=_nowhere, base_uri=base
        )
    except Exception as cause:  # the library has several
        raise ValueError(f"not a JSON Schema: {str(cause).splitlines()[0]}") from cause

    def check(content: bytes) -> str | None:
        try:
            found = json.loads(content, object_pairs_hook=_once, parse_constant=_no_number)
        except (ValueError, RecursionError) as cause:
            return f"not a JSON document: {cause}"
        try:
            error = next(iter(checker.iter_errors(found)), None)
        except Exception as cause:  # what it cannot take: half a character, numbers of any size
            return f"it cannot be checked: {cause}"[:_SHOWN]
        if error is None:
            return None
        where = "".join(f".{p}" if isinstance(p, str) else f"[{p}]" for p in error.instance_path)
        return f"{where.lstrip('.') or 'the document'}: {error.message}"[:_SHOWN]

    return check


def _nowhere(uri: str) -> Any:
    raise ValueError(f"it refers to {uri}, which is none of its references in the registry")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice in an object")
    return found


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number of JSON")
