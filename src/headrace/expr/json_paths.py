"""Paths into JSON documents, as Spark's get_json_object reads them: $.a.b[0], $['a'], $.a[*].

A step is a name, a position from 0, or `ALL` for every element of an array. Paths that Spark
takes for something else (blanks, stars and quotes in names, negative positions) are refused.
"""

from __future__ import annotations

import re
from functools import lru_cache

from headrace.errors import PlanError

ALL = None
Step = str | int | None
_STEP = re.compile(r"\.([^.\['\"\]*?]+)|\['([^'?*]+)'\]|\[([0-9]+)\]|\[(\*)\]")


@lru_cache(maxsize=256)
def json_path(text: str) -> tuple[Step, ...]:
    """The steps of a path; HR-EXPR-003 if it is none."""
    steps: list[Step] = []
    place = 1 if text.startswith("$") else len(text) + 1
    while found := _STEP.match(text, place):
        name = found[1] or found[2]
        if name is not None and name != name.strip():
            break
        steps.append(name if name is not None else int(found[3]) if found[3] else ALL)
        place = found.end()
    if place != len(text):
        raise PlanError(
            "HR-EXPR-003",
            f"{text!r} is no path into a document",
            "Write it as $.name, $['a name'], $.names[0] or $.names[*].",
        )
    return tuple(steps)
