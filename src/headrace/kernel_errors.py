"""DuckDB's run-time errors in the user's words."""

from __future__ import annotations

import re


def plain(error: Exception) -> str:
    """One line, lower case, without DuckDB's own names and hints."""
    text = str(error).split("\n")[0]
    text = re.sub(r"^[A-Z][A-Za-z ]*Error: ", "", text).rstrip("!. ")
    return text[:1].lower() + text[1:]
