"""What a changed list of aggregates means for what a step has stored of them.

An aggregate is found by its name, or by the one it says it had (`was_fields=`). It may be gone,
which needs consent, wider, in another place, or new: then the program must say from when it counts:
from this start on (`since="restart"`), so that windows and keys that are open lack the rows before,
or from the beginning of the inputs, whose past rows are read again (`recomputation.py`).
What is stored is rewritten by `driver/aggregate_migration.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.ddl import read_type
from headrace.ops.process.migration import (
    DROPPED,
    NEW,
    REFUSED,
    RENAMED,
    UNKNOWN,
    WIDENED,
    MigratedPart,
    fits,
)
from headrace.plan.nodes import Stateful
from headrace.plan.recomputation import BEGINNING, inputs_of, why_not
from headrace.plan.shapes import ORDER_OF

AGGREGATES = "aggregates"
RESTART = "restart"
_OF_VALUES = (  # what they store are values as they are, or lists of them
    "min", "max", "first", "last", "min_by", "max_by", "collect", "count_distinct", "percentile",
)  # fmt: skip
_NOT_OF_PAST = "cannot be computed of past rows"
_LACKING = "counts from this start on: what is open now lacks the rows before"
_THE = "the aggregate "

Shape = Mapping[str, Any]
Entry = Sequence[Any]  # kind, columns of the partial and, of some, settings


def entries(shape: Shape) -> dict[str, Entry]:
    """What a shape says of each aggregate, by name."""
    return {name: rest for name, *rest in shape.get(AGGREGATES, ())}


def aggregate_sources(node: Stateful, old: Shape) -> dict[str, str | None]:
    """For each aggregate now: its name in what is stored; None for a new one."""
    stored, sources = entries(old), dict[str, str | None]()
    for name, _ in node.what.aggregates:
        was = node.was_fields.get(name)
        sources[name] = name if name in stored else was if was in stored else None
    return sources


def aggregate_parts(node: Stateful, old: Shape, new: Shape) -> Iterator[MigratedPart]:
    """What becomes of each aggregate that changes; `old` is the shape in a manifest."""
    was, now, sources = entries(old), entries(new), aggregate_sources(node, old)
    for name, entry in now.items():
        source = sources[name]
        if source is not None:
            yield from _continued(node, name, source, was, entry)
        elif name in node.was_fields:
            names = ", ".join(map(repr, was)) or "no aggregate"
            earlier = node.was_fields[name]
            because = f"says it was {earlier!r}, but what is stored has {names}"
            yield MigratedPart(name, UNKNOWN, because)
        else:
            yield _added(node, name, sources)
    used = {*sources.values()}
    yield from (MigratedPart(name, DROPPED) for name in was if name not in used)


def _continued(
    node: Stateful, name: str, source: str, was: Mapping[str, Entry], entry: Entry
) -> Iterator[MigratedPart]:
    if (earlier := node.was_fields.get(name)) in was and source == name:
        because = f"says it was {earlier!r}, but what is stored has {name!r} as well"
        yield MigratedPart(name, UNKNOWN, because)
        return
    if source != name:
        fixed = _fixed(node)
        verdict, because = (REFUSED, f"was {source!r}, and {fixed}") if fixed else (RENAMED, "")
        yield MigratedPart(name, verdict, because or f"from {source}")
    kind, columns, *settings = was[source]
    if [kind, *settings] != [entry[0], *entry[2:]]:
        yield MigratedPart(name, REFUSED, f"was {words(was[source])} and is {words(entry)}")
        return
    before = {_part(column): kind for column, kind in columns}
    after = {_part(column): kind for column, kind in entry[1]}
    if before != after:
        yield _wider(name, kind, before, after, f"was {words(was[source])} and is {words(entry)}")


def _wider(
    name: str, kind: str, before: Mapping[str, str], after: Mapping[str, str], refused: str
) -> MigratedPart:
    if kind not in _OF_VALUES or before.keys() != after.keys():
        return MigratedPart(name, REFUSED, refused)
    found = [
        part
        for column, type_ in after.items()
        for part in fits(read_type(before[column]), read_type(type_), name, None, {})
    ]
    if all(part.verdict == WIDENED for part in found):
        return MigratedPart(name, WIDENED, found[0].because)
    return MigratedPart(name, REFUSED, refused)


def _added(node: Stateful, name: str, sources: Mapping[str, str | None]) -> MigratedPart:
    fixed = _fixed(node)
    if fixed:
        return MigratedPart(name, REFUSED, f"is new, and {fixed}")
    if node.since == BEGINNING:
        if because := why_not(node, sources):
            return MigratedPart(name, REFUSED, f"is new, and {_NOT_OF_PAST}: {because}")
        inputs = " and ".join(repr(read.name) for read in inputs_of(node))
        return MigratedPart(name, NEW, f"and computed of all rows, {inputs} read again")
    if node.since != RESTART:
        return MigratedPart(name, REFUSED, "is new")
    return MigratedPart(name, NEW, f"and {_LACKING}")


def _fixed(node: Stateful) -> str:
    """Why what is stored can neither get another aggregate nor have one under another name."""
    if not node.what.stores_partials:
        return "its windows store rows, of the columns that its aggregates had"
    if node.what.remembered(node.place):
        return 'with mode="retract" what was emitted is stored, to be taken back as it was'
    return ""


def aggregate_refusals(parts: Sequence[MigratedPart]) -> list[str]:
    refused = (p for p in parts if p.verdict in (REFUSED, UNKNOWN))
    return [f"{_THE}{p.path!r} {p.because}" for p in refused]


def not_of_past(node: Stateful, parts: Sequence[MigratedPart]) -> bool:
    """Whether all that is wrong is that new aggregates cannot be computed of past rows."""
    refused = [p for p in parts if p.verdict in (REFUSED, UNKNOWN)]
    return bool(refused) and all(_NOT_OF_PAST in p.because for p in refused)


def lacks_since(node: Stateful, parts: Sequence[MigratedPart]) -> bool:
    """Whether all that is wrong is that nobody has said from when new aggregates count."""
    refused = [p for p in parts if p.verdict in (REFUSED, UNKNOWN)]
    return bool(refused) and not _fixed(node) and all(p.because == "is new" for p in refused)


def to_recompute(node: Stateful, old: Shape) -> list[str]:
    """The aggregates that are new, and are to be computed of past rows, too."""
    if node.since != BEGINNING or not entries(old):
        return []
    return [name for name, source in aggregate_sources(node, old).items() if source is None]


def unsure_aggregates(node: Stateful, old: Shape, new: Shape) -> str:
    """Why a step that goes by its place may be another one than that whose aggregates these are."""
    if [*entries(old)] == [*entries(new)] or not node.what.aggregates:
        return ""
    return "it has no name of its own, and its aggregates are others, or in another order"


def under_names_now(origin: Shape, sources: Mapping[str, str | None]) -> dict[str, Any]:
    """Where the columns of the stored aggregates come from, by their names now."""
    names = {was: now for now, was in sources.items() if was is not None}
    known = {
        f"{before}{_THE}{was!r}": f"{before}{_THE}{now!r}"
        for was, now in names.items()
        for before in ("", ORDER_OF)
    }
    renamed = {"columns": known, "hashed": names, "remembered": names}
    moved = {
        part: {now.get(name, name): said for name, said in origin[part].items()}
        for part, now in renamed.items()
        if part in origin
    }
    return {**origin, **moved}


def _part(column: str) -> str:
    return column.rpartition("__")[2]


def words(value: Any) -> str:
    """A part of a shape, in one line."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return " ".join(f"{name}={setting}" for name, setting in value.items())
    return " ".join(words(v) for v in value or ()) or "nothing"
