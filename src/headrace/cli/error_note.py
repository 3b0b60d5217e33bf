"""An error for a program that has started the command: as JSON, in the file that it names.

People read standard error; the server of jobs reads this.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress

from headrace.errors import HeadraceError

VARIABLE = "HEADRACE_NOTE_ERROR"  # in the environment: the path of the file


def take_place() -> str | None:
    """Where an error is to be noted; what this process starts is not asked for it."""
    return os.environ.pop(VARIABLE, None)


def note_error(place: str | None, error: HeadraceError) -> None:
    if place is None:
        return
    facts = {
        "code": error.code, "fact": error.message, "hint": error.hint, "text": str(error),
        "site": None if error.site is None else str(error.site),
    }  # fmt: skip
    fresh = f"{place}.new"
    with suppress(OSError):  # it is printed all the same
        with open(fresh, "w", encoding="utf-8") as file:
            json.dump(facts, file)
        os.replace(fresh, place)
