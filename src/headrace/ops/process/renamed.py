"""Fields of what is kept that had other names in an earlier version of the program.

`{"place.lat": "latitude"}`: a field as it is now, by dots from the value on, and the name that it
had in the same record. Lists and maps on the way are not named: they hold one type of record.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError, call_site

Names = Mapping[str, str]


def below(was: Names, field: str) -> dict[str, str]:
    """What is said of the fields inside one field."""
    inside = f"{field}."
    return {p.removeprefix(inside): old for p, old in was.items() if p.startswith(inside)}


def source(field: str, was: Names, known: Collection[str]) -> str | None:
    """The name under which a field lies among those that are known; None for a new one."""
    if field in known:
        return field
    old = was.get(field)
    return old if old in known else None


def checked(was: Any, column: pa.DataType) -> dict[str, str]:
    """What `was_fields` says, if it can be meant."""
    if was is None:
        return {}
    if not isinstance(was, Mapping):
        raise _refused(f"was_fields is {was!r}, not a dict")
    claimed = dict[tuple[str, str], str]()
    for path, old in was.items():
        if not isinstance(path, str) or not isinstance(old, str):
            raise _refused(f"was_fields says {path!r}: {old!r}, which are not two names")
        outer, _, name = path.rpartition(".")
        fields = _fields(column, outer.split(".") if outer else [])
        if name not in fields:
            raise _refused(
                f"was_fields names {path!r}, which is no field of what is kept",
                f"There is {', '.join(map(repr, fields)) or 'no field'}.",
            )
        if old in fields:
            raise _refused(f"the field {path!r} says it was {old!r}, which is still there")
        if (outer, old) in claimed:
            raise _refused(
                f"the fields {claimed[outer, old]!r} and {path!r} both say they were {old!r}"
            )
        claimed[outer, old] = path
    return dict(was)


def _fields(kind: pa.DataType, path: Sequence[str]) -> list[str]:
    """The fields of the record at a path; none where there is no record."""
    while not pa.types.is_struct(kind):
        if pa.types.is_list(kind):
            kind = kind.value_type
        elif pa.types.is_map(kind):
            kind = kind.item_type
        else:
            return []
    if not path:
        return [f.name for f in kind]
    at = kind.get_field_index(path[0])
    return [] if at < 0 else _fields(kind.field(at).type, path[1:])


def _refused(fact: str, more: str = "") -> PlanError:
    hint = 'Say which name now had which name before: was_fields={"celsius": "temp"}.'
    return PlanError("HR-PLAN-039", fact, f"{more} {hint}".strip(), site=call_site())
