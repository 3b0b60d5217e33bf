"""Stored values under a changed declaration: wider types, fields added, dropped or renamed.

`fits` says what becomes of each part and what is impossible; `refitted` converts a column.
Both go by types alone, so what the one accepts the other can do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PlanError, call_site
from headrace.records import bare, element_of, may_be_none, parts_of, starts_of
from headrace.rows import pylist, table_of
from headrace.schema import ddl_type

NEW, RENAMED, DROPPED, WIDENED, REFUSED = "new", "renamed", "dropped", "widened", "refused"
CHANGED = "changed"  # a setting of it, over what is stored as it is
UNKNOWN = "unknown"  # refused, because its name before is not known
_WIDTH = {"int8": 1, "int16": 2, "int32": 3, "int64": 4, "float": 5, "double": 6}


class MigratedPart(NamedTuple):
    """What becomes of a value, or of a field inside it."""

    path: str
    verdict: str
    because: str = ""


def fits(
    old: pa.DataType, new: pa.DataType, path: str, kind: Any, was: Names
) -> Iterator[MigratedPart]:
    """How values of the type `old` become values of the type `new`; nothing if they are equal.

    `kind` is the Python type, which knows what fields start with; `was`: what they were called.
    """
    if old == new:
        return
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        yield from _fields(old, new, path, kind, was)
    elif pa.types.is_list(old) and pa.types.is_list(new):
        yield from fits(old.value_type, new.value_type, path, element_of(kind), was)
    elif pa.types.is_map(old) and pa.types.is_map(new):
        yield from fits(old.key_type, new.key_type, path, None, {})
        yield from fits(old.item_type, new.item_type, path, element_of(kind), was)
    elif widens(old, new):
        yield MigratedPart(path, WIDENED, f"from {ddl_type(old)} to {ddl_type(new)}")
    else:
        lost = ", which may not hold what is there" if widens(new, old) else ""
        yield MigratedPart(path, REFUSED, f"was {ddl_type(old)} and is {ddl_type(new)}{lost}")


def _fields(
    old: pa.DataType, new: pa.DataType, path: str, kind: Any, was: Names
) -> Iterator[MigratedPart]:
    before, parts, used = {f.name: f.type for f in old}, parts_of(bare(kind)), set[str]()
    for field in new:
        name, inner, part = field.name, f"{path}.{field.name}", parts.get(field.name)
        old_name = source(name, was, before)
        if old_name is None:
            yield _added(name, inner, kind, part, was.get(name), list(before))
            continue
        used.add(old_name)
        if old_name != name:
            yield MigratedPart(inner, RENAMED, f"from {old_name}")
        yield from fits(before[old_name], field.type, inner, part, below(was, name))
    yield from (MigratedPart(f"{path}.{n}", DROPPED) for n in before if n not in used)


def _added(
    name: str, path: str, kind: Any, part: Any, was: str | None, stored: list[str]
) -> MigratedPart:
    """A new field of a record: what is stored already needs something for it."""
    if was is not None:
        names = ", ".join(map(repr, stored))
        return MigratedPart(path, UNKNOWN, f"says it was {was!r}, but what is stored has {names}")
    if name in starts_of(bare(kind)) or may_be_none(part):
        return MigratedPart(path, NEW)
    return MigratedPart(
        path, REFUSED, "is new, and has neither a default in its class nor a type with None"
    )


def widens(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether every value of the one is exactly one of the other."""
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        whole = new.precision - new.scale >= old.precision - old.scale
        return bool(whole and new.scale >= old.scale)
    a, b = _WIDTH.get(str(old), 0), _WIDTH.get(str(new), 0)
    exact = not (b == 5 and a > 2) and not (b == 6 and a == 4)  # digits of a float, a double
    return bool(a and b and a < b and exact)


def start_column(default: Any, kind: pa.DataType, count: int) -> pa.Array:
    """A column of `count` start values."""
    one = table_of([(default,)], pa.schema([("value", kind)])).column(0)[0]
    return pa.repeat(one, count) if one.is_valid else pa.nulls(count, kind)


def refitted(column: pa.Array, new: pa.DataType, kind: Any, was: Names) -> pa.Array:
    """The column as the type `new`; `kind` is the Python type, which knows what fields start
    with; `was`: what they were called."""
    old = column.type
    if old == new:
        return column
    if pa.types.is_struct(old):
        return _struct(column, new, kind, was)
    if pa.types.is_nested(old):
        values = pylist(pa.chunked_array([column]))
        return pa.array([_value(v, new, kind, was) for v in values], new)
    return column.cast(new)


def _struct(column: pa.Array, new: pa.DataType, kind: Any, was: Names) -> pa.Array:
    stored, kind = [f.name for f in column.type], bare(kind)
    parts, starts = parts_of(kind), starts_of(kind)

    def filled(field: pa.Field) -> pa.Array:
        name, old = field.name, source(field.name, was, stored)
        if old is None:
            return start_column(starts.get(name), field.type, len(column))
        inner = pc.struct_field(column, old)
        return refitted(inner, field.type, parts.get(name), below(was, name))

    arrays = [filled(field) for field in new]
    return pa.StructArray.from_arrays(arrays, fields=list(new), mask=column.is_null())


def _value(value: Any, new: pa.DataType, kind: Any, was: Names) -> Any:
    """One value inside a list or a map, with the fields that it should have."""
    if value is None:
        return None
    if pa.types.is_list(new):
        return [_value(v, new.value_type, element_of(kind), was) for v in value]
    if pa.types.is_map(new):
        return {k: _value(v, new.item_type, element_of(kind), was) for k, v in value.items()}
    if pa.types.is_struct(new):
        return _record(value, new, bare(kind), was)
    return value


def _record(record: dict[str, Any], new: pa.DataType, kind: Any, was: Names) -> dict[str, Any]:
    parts, starts, values = parts_of(kind), starts_of(kind), dict[str, Any]()
    for field in new:
        name, old = field.name, source(field.name, was, record)
        values[name] = (
            starts.get(name)
            if old is None
            else _value(record[old], field.type, parts.get(name), below(was, name))
        )
    return values


# Fields of stored values that had other names in an earlier version of the program.
#
# `{"place.lat": "latitude"}`: a field as it is now, by dots from the value on, and the name that it
# had in the same record. Lists and maps on the way are not named: they hold one type of record.


Names = Mapping[str, str]


def below(was: Names, field: str) -> dict[str, str]:
    """The former names of the fields inside one field."""
    inside = f"{field}."
    return {p.removeprefix(inside): old for p, old in was.items() if p.startswith(inside)}


def source(field: str, was: Names, stored: Collection[str]) -> str | None:
    """The name of a field among the stored ones; None for a new one."""
    if field in stored:
        return field
    old = was.get(field)
    return old if old in stored else None


def checked(was: Any, column: pa.DataType) -> dict[str, str]:
    """The names in `was_fields`; refused if they do not fit the type."""
    if was is None:
        return {}
    if not isinstance(was, Mapping):
        raise _refused(f"was_fields is {was!r}, not a dict")
    claimed = dict[tuple[str, str], str]()
    for path, old in was.items():
        if not isinstance(path, str) or not isinstance(old, str):
            raise _refused(f"was_fields says {path!r}: {old!r}, which are not two names")
        outer, _, name = path.rpartition(".")
        fields = _field_names(column, outer.split(".") if outer else [])
        if name not in fields:
            raise _refused(
                f"was_fields names {path!r}, which is not a field of the stored value",
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


def _field_names(kind: pa.DataType, path: Sequence[str]) -> list[str]:
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
    return [] if at < 0 else _field_names(kind.field(at).type, path[1:])


def _refused(fact: str, more: str = "") -> PlanError:
    hint = 'Say which name now had which name before: was_fields={"celsius": "temp"}.'
    return PlanError("HR-PLAN-039", fact, f"{more} {hint}".strip(), site=call_site())
