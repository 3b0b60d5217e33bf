"""Which kinds of places can be read or written: judged by their text alone.

Nothing is opened or looked up, so a program can be built anywhere; whether a topic or folder
is there, a start finds out.
"""

from __future__ import annotations

from headrace.sinks import check_output
from headrace.sources import check_input


def check_kind(uri: object, method: str) -> None:
    """Refuse a text that names no kind of input (to "read") or output (to "write")."""
    if isinstance(uri, str):
        (check_input if method == "read" else check_output)(uri)
