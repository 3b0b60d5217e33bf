"""The inputs and outputs of a changed program beside those that a manifest describes.

An input is what it reads: kind, place, and the identity of what is there. An output is where
it writes, and in which format. A name alone decides nothing: offsets mean something only in
the place they are of, and what is published stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.plan.comparison import (
    DROPPED,
    INPUT,
    NEW,
    OUTPUT,
    REFUSED,
    RENAMED,
    SAME,
    Change,
    consent,
)
from headrace.plan.evolving_names import Match, matches
from headrace.plan.nodes import Read, Write

Described = Mapping[str, Any]
Known = Mapping[str, Described]
URI = "uri"  # all that is known where there is no description
OURS = ("id", "last", "time")  # what a manifest notes about an input or output besides
PLACE = ("kind", "place", "format", URI)  # what says where an output writes


def described(known: Mapping[str, Any] | Iterable[str]) -> dict[str, Described]:
    """Descriptions by name; of older manifests and of tests there is a uri, or only a name."""
    if not isinstance(known, Mapping):
        return {name: {} for name in known}
    return {n: {URI: d} if isinstance(d, str) else d for n, d in known.items()}


def input_changes(
    reads: Iterable[Read], found: Mapping[str, Match], known: Known, now: Known
) -> Iterator[Change]:
    fresh = []
    for node in reads:
        match, mine = found[node.name], _now(node, now)
        if match.unknown:
            yield Change(node.name, INPUT, REFUSED, match.because, match.hint, "HR-EVOLVE-003")
        elif match.before is None:
            fresh.append(node)
            yield Change(node.name, INPUT, NEW)
        elif _identity(known[match.before], mine) != _identity(mine, known[match.before]):
            because = _other_thing(known[match.before], mine)
            yield Change(node.name, INPUT, REFUSED, because, _elsewhere(match.before))
        else:
            yield _gone_on(node.name, match.before, INPUT)
    used = {match.before for match in found.values()}
    for name in known:
        if name not in used:
            alike = [n.name for n in fresh if _alike(known[name], _now(n, now))]
            hint = _forgotten(name, alike)
            yield Change(name, INPUT, DROPPED, hint=hint, by_name=bool(alike))


def output_changes(writes: Iterable[Write], known: Known, now: Known) -> Iterator[Change]:
    found = matches(writes, known, OUTPUT)
    for node in writes:
        match, mine = found[node.name], _now(node, now)
        if match.unknown:
            yield Change(node.name, OUTPUT, REFUSED, match.because, match.hint, "HR-EVOLVE-003")
        elif match.before is None:
            yield Change(node.name, OUTPUT, NEW)
        elif moved := _moved(known[match.before], mine):
            hint = (
                "Undo the change, or give the output another name=: it begins there, and what "
                f"{match.before!r} has written stays where it is."
            )
            yield Change(node.name, OUTPUT, REFUSED, moved, hint)
        else:
            yield _gone_on(node.name, match.before, OUTPUT)
    used = {match.before for match in found.values()}
    yield from (Change(name, OUTPUT, DROPPED) for name in known if name not in used)


def _gone_on(name: str, before: str, role: str) -> Change:
    if name == before:
        return Change(name, role, SAME)
    return Change(name, role, RENAMED, f"from {before}")


def _now(node: Read | Write, now: Known) -> Described:
    """What is known of an input or output of the program; its uri beside its description."""
    uri = {URI: node.uri} if isinstance(node.uri, str) else {}
    return {**now.get(node.name, {}), **uri}


def _identity(one: Described, beside: Described) -> dict[str, Any]:
    """What identifies it, of what both descriptions tell; a uri only where there is no more."""
    common = {k: v for k, v in one.items() if k in beside and k not in OURS}
    if len(common) > 1:
        common.pop(URI, None)
    return common


def _alike(one: Described, other: Described) -> bool:
    mine = _identity(one, other)
    return bool(mine) and mine == _identity(other, one)


def _other_thing(old: Described, new: Described) -> str:
    if any(old.get(k) != new.get(k) for k in ("kind", "place", URI) if k in old and k in new):
        return f"it has read {_word(old)} and now reads {_word(new)}"
    return (
        f"what is at {_word(new)} is not what it has read: it was {old.get('thing')!r} and is "
        f"{new.get('thing')!r}"
    )


def _moved(old: Described, new: Described) -> str:
    changed = [k for k in PLACE if k in old and k in new and old[k] != new[k]]
    if changed == [URI] and "place" in old and "place" in new:
        return ""  # the same place, written otherwise
    if not changed:
        return ""
    return f"it has written {_word(old, 'format')} and now writes {_word(new, 'format')}"


def _word(said: Described, *more: str) -> str:
    """A place as its user would know it."""
    if "place" not in said:
        return str(said.get(URI, "another place"))
    place = ":".join(str(said[k]) for k in ("kind", "place") if said.get(k))
    extra = [str(said[k]) for k in more if said.get(k)]
    return f"{place} as {' '.join(extra)}" if extra else place


def _elsewhere(name: str) -> str:
    return (
        "Undo the change. To read the other place, give the input another name and consent to "
        f"forgetting how far {name!r} was read: {consent(name)}. The new input is read from its "
        "beginning, into the state that is there."
    )


def _forgotten(name: str, alike: list[str]) -> str:
    if alike:
        return (
            f"If {alike[0]!r} is the same input under a new name, say was={name!r} there. To read "
            f"it again from its beginning, into the state that is there, say {consent(name)}."
        )
    return f"Put it back, or consent to forgetting how far it was read: {consent(name)}."
