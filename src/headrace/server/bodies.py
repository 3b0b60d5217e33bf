"""What a request asks, read strictly: JSON bodies and query parameters against their schemas.

Only the words of JSON Schema that `schemas.py` uses are known. A field that is not known is
refused, so that a misspelt one is not taken for a default.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from headrace.errors import ServerError, did_you_mean
from headrace.server.schemas import Schema

_SHOWN = 80  # characters of a value in a message


def read_json(body: bytes) -> Any:
    """The document of a body; nothing that JSON does not have, and no key twice."""
    try:
        return json.loads(body.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise ServerError(
            "HR-SERVER-060", f"the body is not JSON: {reason}", "Send one JSON object, in UTF-8."
        ) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


def check(schema: Schema, value: Any, where: str = "the body") -> Any:
    """`value` if it is as `schema` says; a ServerError that names the field if not."""
    kinds = _KINDS[schema["type"]]
    if isinstance(value, float) and value.is_integer() and schema["type"] == "integer":
        value = int(value)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        _refuse(where, value, f"Give {_WORDS[schema['type']]}.")
    if isinstance(value, dict):
        return _object(schema, value, where)
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            _refuse(where, value, f"Give at most {schema['maxItems']} of them.")
        return [check(schema["items"], v, f"{where}[{i}]") for i, v in enumerate(value)]
    if isinstance(value, str):
        _text(schema, value, where)
    elif isinstance(value, int) and not isinstance(value, bool):
        low, high = schema.get("minimum", value), schema.get("maximum", value)
        if not low <= value <= high:
            _refuse(where, value, f"Give a number from {low} to {high}.")
    if value not in schema.get("enum", (value,)):
        _refuse(where, value, f"Give one of {', '.join(schema['enum'])}.")
    return value


def _object(schema: Schema, value: dict[str, Any], where: str) -> dict[str, Any]:
    fields = schema["properties"]
    for key in value:
        if key not in fields:
            known = f"The fields are {', '.join(fields)}." if fields else "It has no fields."
            raise ServerError(
                "HR-SERVER-061",
                f"{where} has no field {_short(key)}",
                f"{did_you_mean(key, fields)}{known}",
            )
    for key in schema.get("required", ()):
        if key not in value:
            raise ServerError(
                "HR-SERVER-062",
                f"{where} lacks the field {key!r}",
                fields[key].get("description") or f"Give {_WORDS[fields[key]['type']]}.",
            )
    return {key: check(fields[key], inner, f"the field {key!r}") for key, inner in value.items()}


def _text(schema: Schema, value: str, where: str) -> None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", len(value))
    if not least <= len(value) <= most:
        _refuse(where, value, f"Give a text of {least} to {most} characters.")
    if "\0" in value or re.search("[\ud800-\udfff]", value):
        _refuse(where, value, "A text has no NUL and no half characters.")


def query(
    schemas: dict[str, Schema], given: list[tuple[str, str]], what: str = "parameter"
) -> dict[str, Any]:
    """The parameters of an address, each once, as values of their schemas."""
    found = dict[str, Any]()
    for key, raw in given:
        if key in ("token", "access_token"):
            raise ServerError(
                "HR-SERVER-064",
                "a token does not belong in an address, which is written to logs",
                "Send it in the header Authorization: Bearer TOKEN. Change the token if the "
                "address was shown to anybody.",
            )
        if key not in schemas:
            raise ServerError(
                "HR-SERVER-061",
                f"there is no {what} {_short(key)}",
                f"{did_you_mean(key, schemas)}The parameters are {', '.join(schemas) or 'none'}.",
            )
        if key in found:
            _refuse(f"the {what} {key!r}", raw, "Give it once.")
        found[key] = check(schemas[key], _typed(schemas[key], raw), f"the {what} {key!r}")
    return found


_WHOLE = re.compile(r"-?[0-9]{1,18}")
_FLAGS = {"true": True, "false": False}


def _typed(schema: Schema, raw: str) -> object:
    if schema["type"] == "integer" and _WHOLE.fullmatch(raw):
        return int(raw)
    return _FLAGS.get(raw, raw) if schema["type"] == "boolean" else raw


def _refuse(where: str, value: object, hint: str) -> NoReturn:
    raise ServerError("HR-SERVER-063", f"{where} is {_short(value)}", hint)


def _short(value: object) -> str:
    shown = repr(value) if len(repr(value)) <= _SHOWN else repr(value)[:_SHOWN] + "…"
    return shown


_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
}
_WORDS = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "boolean": "true or false",
}
