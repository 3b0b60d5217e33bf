"""DuckDB's run-time errors in the user's words: lower case, one line, our names of types."""

from __future__ import annotations

import re

from headrace.expr.types import UNREAD

_TYPES = {
    "INT8": "tinyint", "INT16": "smallint", "INT32": "int", "INT64": "bigint",
    "BOOL": "boolean", "DOUBLE": "double", "FLOAT": "float", "VARCHAR": "string",
    "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "int", "BIGINT": "bigint",
}  # fmt: skip
_RULES = [
    (r"^Python exception occurred while executing the UDF: \w+: ", ""),
    (r"^Could not convert string ['\"](.*)['\"] to ([A-Z0-9(), ]+)$", r"'\1' is not \2"),
    (r"^invalid (date|timestamp) field format: \"(.*?)\".*$", r"'\2' is not \1"),
    (r"^(date|timestamp) field value out of range: \"(.*?)\".*$", r"'\2' is not \1"),
    (r"^Type \w+ with value (\S+) can't be cast .* destination type (\w+).*$",
     r"\1 does not fit \2"),
    (r"^Overflow in (\w+) of \S+ \((.*)\).*$", r"overflow: \2"),
    (r"^Overflow (?:on|in) (.*)$", r"overflow: \1"),
]  # fmt: skip


def plain(error: Exception) -> str:
    """What went wrong, as one line for people."""
    text = str(error).split("\n")[0]
    if UNREAD * 2 in text:  # our own message
        return text.split(UNREAD * 2)[1].rpartition("' to ")[0]
    text = text.replace(UNREAD, "")
    text = re.sub(r"^[A-Z][A-Za-z ]*Error: ", "", text).rstrip("!. ")
    for pattern, replacement in _RULES:
        text = re.sub(pattern, replacement, text)
    for theirs, ours in _TYPES.items():
        text = re.sub(rf"\b{theirs}\b", ours, text)
    return text[:1].lower() + text[1:]
