"""What changed about where a step's columns and rows come from, as far as state depends on it.

Compared by input: one that is new, or gone, says nothing about the rows of the others. What
was renamed is compared under its name now. Plain JSON from `shapes.py` on both sides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.clock import pretty
from headrace.plan.nodes import Node
from headrace.plan.shapes import FROM, ORDER_OF

_QUOTED = re.compile(r"`(\w+)`")
Origin = Mapping[str, Any]
Renames = Mapping[str, str]  # name before -> name now
Sides = Mapping[str, set[str]]  # the inputs that reach each


def origin_differences(old: Origin, new: Origin, renames: Renames) -> Iterator[str]:
    """Each difference that gives the state another meaning, in a few words."""
    yield from _keys(old, new)
    was = old.get("columns", {})
    for what, now in new.get("columns", {}).items():
        yield from _columns(what, _renamed(was.get(what, {}), renames), now)
    yield from _orders(was, new.get("columns", {}))
    for name, family in new.get("hashed", {}).items():
        before = old.get("hashed", {}).get(name, family)  # not recorded: as it is
        if family != before:
            yield f"the aggregate {name!r} stores hashes of {before}, and its column has {family}"
    for name, kind in new.get("remembered", {}).items():
        before = old.get("remembered", {}).get(name, kind)
        if kind != before:
            yield f"the result {name!r}, which may be retracted, was {before} and is {kind}"
    if "times" in old and "times" in new:
        yield from _times(_by_input(old, renames), _by_input(new, {}))
    for name, length in new.get("lengths", {}).items():
        before = old.get("lengths", {}).get(name, length)
        if length > before:
            yield (
                f"its {name} was {pretty(before)} and is {pretty(length)}: what was over by the "
                "shorter time is gone"
            )
    for before, now in zip(old.get("filled", ()), new.get("filled", ()), strict=False):
        names = [name for name in now if name not in before]
        yield from (f"the column {n!r} may be null in what is stored, and not now" for n in names)
    if "sides" in old and "sides" in new:
        yield from _sides(old, new, renames)


def _orders(was: Origin, now: Origin) -> Iterator[str]:
    """The aggregates that have got an order, or a weight, or have none any more."""
    for what in sorted(was.keys() ^ now.keys()):
        aggregate = what.removeprefix(ORDER_OF)
        if aggregate != what and aggregate in was and aggregate in now:
            yield f"{what} is new" if what in now else f"{what} is gone"


def chain_difference(old: Origin, new: Origin, renames: Renames) -> str:
    """For a step without a name of its own: what it reads from, if that is not the same."""
    if "inputs" not in old:
        return "it has no name of its own, and what it read from was not recorded"
    if "chains" not in old:
        return "it had a name of its own and has none now"
    was = [_moved(chain, renames) for chain in old["chains"]]
    if was == new["chains"]:
        return ""
    return (
        f"it has no name of its own and reads from ({chains_text(new['chains'])}), but the step "
        f"whose state is there read from ({chains_text(was)})"
    )


def chains_text(chains: Sequence[Any]) -> str:
    return " and ".join(_chain_text(chain) for chain in chains)


def _chain_text(chain: Any) -> str:
    if isinstance(chain, str):
        return _text([chain])
    if chain and chain[0] == "union":
        return f"the union of ({'; '.join(map(_chain_text, chain[1:]))})"
    first, *rest = chain
    name = repr(first) if isinstance(first, str) else _chain_text(first)
    return ", ".join([name, *map(_chain_text, rest)])


def _keys(old: Origin, new: Origin) -> Iterator[str]:
    """The key columns of each input of a step that has, or may have, several."""
    was, now = old.get("keys", {}), new.get("keys", {})
    common = [label for label in now if label in was]
    pairs = [(was[label], now[label]) for label in common]
    if not common:
        pairs = list(zip(was.values(), now.values(), strict=False))
    for before, after in dict.fromkeys((tuple(b), tuple(a)) for b, a in pairs if b != a):
        yield f"its key was {', '.join(before) or 'none'} and is {', '.join(after) or 'none'}"


def _columns(what: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    changed = [(was[name], now[name]) for name in now if name in was and was[name] != now[name]]
    for before, after in dict.fromkeys((tuple(b), tuple(a)) for b, a in changed):
        yield f"{what} was {_text(before)} and is {_text(after)}"


def _text(exprs: Sequence[str]) -> str:
    return _QUOTED.sub(r"\1", " or ".join(exprs))


def _times(was: Mapping[str, set[str]], now: Mapping[str, set[str]]) -> Iterator[str]:
    for name in now:
        if name in was and was[name] != now[name]:
            before, after = (" or ".join(sorted(t)) or "none" for t in (was[name], now[name]))
            yield f"the event time of rows of {name!r} was {before} and is {after}"


def _by_input(origin: Origin, renames: Renames) -> dict[str, set[str]]:
    times: dict[str, set[str]] = {
        renames.get(name, name): set() for names in origin["inputs"] for name in names
    }
    for side in origin["times"]:
        for name, texts in _renamed(side, renames).items():
            times.setdefault(name, set()).update(texts)
    return times


def _sides(old: Origin, new: Origin, renames: Renames) -> Iterator[str]:
    """Which stream is which side: what is stored of one must not meet as the other.

    A side of another name is another one, or the same under its new name: its step knows.
    """
    was = {label: [label, _rows_of(rows, renames), code] for label, rows, code in old["sides"]}
    now = {side[0]: side for side in new["sides"]}
    before = {
        label: {renames.get(n, n) for n in names}
        for label, names in zip(was, old["inputs"], strict=True)
    }
    after = {label: set(names) for label, names in zip(now, new["inputs"], strict=True)}
    moved = sorted(_exchanged(before, after))
    if moved:
        yield "; ".join(moved)
    elif was.keys() == now.keys() and (_overlap(before) or _overlap(after)):
        yield from _unclear([was[label] for label in now], list(now.values()))


def _rows_of(side: Sequence[Any], renames: Renames) -> list[Any]:
    chain, columns = side
    return [_moved(chain, renames), {n: _renamed(of, renames) for n, of in columns.items()}]


def _exchanged(before: Sides, after: Sides) -> Iterator[str]:
    for label in (name for name in before if name in after):
        for other in (name for name in after if name != label):
            moved = (before[label] & after[other]) - after[label] - before.get(other, set())
            yield from (f"{n!r} was its {label} and is its {other}" for n in moved)


def _overlap(sides: Sides) -> bool:
    names = [name for side in sides.values() for name in side]
    return len(names) > len(set(names))


def _unclear(was: Sequence[Any], now: Sequence[Any]) -> Iterator[str]:
    """Sides of the same input: with one of two unchanged, the other is sure."""
    texts = [json.dumps(side[1], sort_keys=True) for side in now]
    alike = len(set(texts)) < len(texts)  # only functions tell them apart
    changed = [b[0] for a, b in zip(was, now, strict=True) if a[1] != b[1] or (alike and a != b)]
    if len(changed) > 1 or (changed and alike):
        sides = "; ".join(
            f"{b[0]} of {_side_text(a[1])} is of {_side_text(b[1])}"
            for a, b in zip(was, now, strict=True)
            if b[0] in changed
        )
        yield f"which side is which is not certain: {sides}"


def _side_text(side: Sequence[Any]) -> str:
    """The rows of a side: the chain they come by, and what its columns are computed from."""
    chain, origins = side
    columns = {
        n: " or ".join(sorted({t for s in of.values() for t in s})) for n, of in origins.items()
    }
    also = "".join(f", {name} = {_text([text])}" for name, text in sorted(columns.items()))
    return _chain_text(chain) + also


def _renamed(origin: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    return {renames.get(name, name): value for name, value in origin.items()}


def _moved(chain: Any, renames: Renames) -> Any:
    """A chain, with the names now of what it begins with."""
    first, *rest = chain
    if isinstance(first, str):
        return [renames.get(first, first), *rest]
    return [["union", *(_moved(part, renames) for part in first[1:])], *rest]


# Steps without a name of their own that differ only in a function.
#
# They get numbered names by their order ("orders.fold", "orders.fold-2"), so one that is put in,
# taken out or moved gives the others another name. Where digests of the functions do not show
# that each is where it was, the state is refused: names tell them apart for good.


Facts = Mapping[str, Any]


def confusable(new: Facts, now: Iterable[Facts], old: Facts, before: Iterable[Facts]) -> str:
    """Why a step may have taken the place of another; empty if it cannot."""
    group, was = _like(new, now), _like(old, before)
    if len(group) < 2 and len(was) < 2:
        return ""
    own = _functions(new)
    several = group.count(own) > 1 or was.count(own) > 1
    if own == _functions(old) and not (several and len(group) != len(was)):
        return ""
    return (
        f"it is one of {max(len(group), len(was))} steps without a name of their own that differ "
        "only in their functions, and these, or their number or order, have changed"
    )


def unnamed_hint(node: Node) -> str:
    name = node.name
    return (
        f"If it is still the same step, say so: name={name!r}. If it is another, give it another "
        f"name=, and name={name!r} to the step whose state that is, or consent to losing it."
    )


def _like(step: Facts, steps: Iterable[Facts]) -> list[str]:
    """The functions of each step that could get the name of `step`."""
    return [_functions(s) for s in steps if "shape" in s and _place(s) == _place(step)]


def _place(step: Facts) -> str:
    """All that identifies an unnamed step but its functions."""
    shape = dict(step["shape"])
    origin = {k: v for k, v in shape.get(FROM, {}).items() if k != "functions"}
    if "unnamed" not in origin:
        return ""
    return json.dumps({**shape, FROM: origin}, sort_keys=True)


def _functions(step: Facts) -> str:
    return json.dumps(step["shape"].get(FROM, {}).get("functions"))
