"""What a changed process function means for the values that the one before has kept.

A value is found by its name, or by the one it says it had (`was=`), and so are the fields of
a record (`was_fields=`). It may be new, renamed, wider, have other fields, or be gone, which
needs consent; it cannot be another kind of thing. All here is comparison of values;
`driver/state_migration.py` does what is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.ddl import read_type
from headrace.ops.process.kept import Kept
from headrace.ops.process.refit import DROPPED, NEW, REFUSED, RENAMED, UNKNOWN, Part, fits
from headrace.ops.process.spec import ProcessSpec, life_of
from headrace.schema import ddl_type

CHANGED = "changed"
_LIVES = {"": "no ttl", "event": "a ttl by event time", "clock": "a ttl by the clock"}
ON_TIMER = "on_timer"


class Was(NamedTuple):
    """One value as a manifest tells it."""

    name: str
    type: str
    word: str
    life: str  # by which time it is forgotten: "", "event", "clock"


def sources(kept: Mapping[str, Kept], known: Mapping[str, Was]) -> dict[str, Was | None]:
    """For each value now, what it was; None for a new one."""
    return {
        name: known.get(name) or (known.get(declared.was) if declared.was else None)
        for name, declared in kept.items()
    }


def known_values(shape: Mapping[str, Any]) -> dict[str, Was]:
    return {entry[0]: Was(*entry) for entry in shape["values"]}


def value_parts(what: ProcessSpec, old: Mapping[str, Any]) -> Iterator[Part]:
    """What becomes of each value that changes; `old` is the shape in a manifest."""
    kind, known = type(what.function), known_values(old)
    found = sources(kind._kept, known)
    for name, was in found.items():
        said = kind._kept[name].was
        if was is not None:
            yield from _one(name, kind._kept[name], was)
        elif said is None:
            yield Part(name, NEW)
        else:
            there = ", ".join(map(repr, known)) or "no value"
            yield Part(name, UNKNOWN, f"says it was {said!r}, but what is kept has {there}")
    used = {was.name for was in found.values() if was is not None}
    yield from (Part(name, DROPPED) for name in known if name not in used)
    if old["timers"] and not kind.timed():
        yield Part(ON_TIMER, DROPPED)


def _one(name: str, kept: Kept, was: Was) -> Iterator[Part]:
    if was.name != name:
        yield Part(name, RENAMED, f"from {was.name}")
    if was.word != kept.word:
        yield Part(name, REFUSED, f"was a {was.word} and is a {kept.word}")
    elif was.type != ddl_type(kept.type):
        yield from fits(read_type(was.type), kept.type, name, kept.whole, kept.was_fields)
    if was.life != life_of(kept):
        yield Part(name, CHANGED, f"from {_LIVES[was.life]} to {_LIVES[life_of(kept)]}")


def misnamed(parts: Sequence[Part]) -> bool:
    """Whether nothing is wrong but a name before, which is not known."""
    refused = {p.verdict for p in parts} & {REFUSED, UNKNOWN}
    return refused == {UNKNOWN}


def correction(parts: Sequence[Part]) -> str:
    """What to do about names before that are not known: of values, or of fields in them."""
    fields = any("." in p.path for p in parts if p.verdict == UNKNOWN)
    if fields:
        return "Correct was_fields=, or leave this field out of it."
    return "Correct was=, or leave it out: the value is then new."


def refusals(parts: Sequence[Part]) -> str:
    refused = (p for p in parts if p.verdict in (REFUSED, UNKNOWN))
    return "; ".join(f"the value {p.path!r} {p.because}" for p in refused)
