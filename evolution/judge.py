"""Whether a changed program must start, must be refused, or may do either, by the guide.

Only the rules of docs/guide/evolution.md, on plain values. OPEN is where the guide leaves it to
the product to tell two things apart: then it may refuse, but what it accepts must be right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from evolution.spec import JOINED, ORDERED, STATEFUL, TIMED, Branch, Input, Output, Step, Version

STARTS, REFUSED, OPEN = "starts", "refused", "open"
SUMMED = ("agg", "tumbling", "sliding", "session", "changes", "top")  # go by `column`
WINDOWS = ("tumbling", "sliding", "session")


def judge(
    before: Version, after: Version, places: set[tuple[str, str]], stored: set[str]
) -> tuple[str, str]:
    """The verdict, and the rule.

    `places` are the outputs' places that hold rows already; `stored` are the labels of branches
    that surely have state: a step that has not yet taken part in an epoch has none.
    """
    found = [
        *_inputs(before, after),
        *_steps(before, after, stored),
        *_unnamed(before, after),
        *_outputs(before, after, places),
        *_consents(before, after, stored),
    ]
    for verdict in (REFUSED, OPEN):
        for said, why in found:
            if said == verdict:
                return said, why
    return STARTS, ""


def renames(before: Version, after: Version) -> dict[str, str]:
    """The name before of each input that goes on."""
    known = {i.name for i in before.inputs}
    found = {}
    for i in after.inputs:
        old = i.name if i.name in known else i.was
        if old in known:
            found[i.name] = str(old)
    return found


def _inputs(before: Version, after: Version) -> Iterator[tuple[str, str]]:
    moves = renames(before, after)
    for i in after.inputs:
        if i.name not in moves:
            if i.was is not None:
                yield REFUSED, f"input {i.name}: unknown was="
            continue
        old = before.input(moves[i.name])
        if (old.kind, old.place) != (i.kind, i.place):
            yield REFUSED, f"input {i.name}: other place"
    fresh = [i for i in after.inputs if i.name not in moves]
    for old in before.inputs:
        if old.name in moves.values():
            continue
        again = any(_same_thing(i, old) for i in fresh)
        if not _dropped(old.name, after) or (after.drop is True and again):
            yield REFUSED, f"input {old.name}: gone without consent"


def _same_thing(one: Input, other: Input) -> bool:
    return one.kind == other.kind and (one.place == other.place or one.kind == "rows")


def _dropped(name: str, after: Version) -> bool:
    return after.drop is True or (after.drop is not False and name in after.drop)


def named(version: Version) -> dict[str, Branch]:
    return {b.step.name: b for b in version.branches if b.step.name and b.step.kind in STATEFUL}


def _steps(before: Version, after: Version, stored: set[str]) -> Iterator[tuple[str, str]]:
    olds, used, moves = named(before), set[str](), renames(before, after)
    sure = {name: REFUSED if b.label in stored else OPEN for name, b in olds.items()}
    for name, b in named(after).items():
        old = name if name in olds else b.step.was
        if old is None:
            continue
        if old not in olds:
            yield REFUSED, f"step {name}: unknown was="
            continue
        used.add(old)
        if old != name and sure[old] == OPEN:
            yield OPEN, f"step {name}: was= of a step that may have no state"
        for said, why in _alike(before, olds[old].step, after, b.step, moves):
            yield (sure[old] if said == REFUSED else said), why
    for old in olds:
        if old not in used and not _dropped(old, after):
            yield sure[old], f"step {old}: gone without consent"


def identity(step: Step) -> tuple[object, ...]:
    """What no step with state can change."""
    return step.kind, step.keys, step.column if step.kind in SUMMED else ""


def _alike(
    before: Version, old: Step, after: Version, new: Step, moves: dict[str, str]
) -> Iterator[tuple[str, str]]:
    if old.kind != new.kind:
        yield REFUSED, f"step {new.name}: kind"
        return
    if old.keys != new.keys:
        yield REFUSED, f"step {new.name}: key"
    if old.kind in SUMMED and old.column != new.column:
        yield REFUSED, f"step {new.name}: column"
    if old.kind in TIMED and old.length != new.length:
        yield (REFUSED if old.kind in WINDOWS else OPEN), f"step {new.name}: length"
    now = tuple(moves.get(i, "") for i in new.inputs)
    if now != old.inputs:
        swapped = old.kind == JOINED and now == old.inputs[::-1] and now[0] != now[1]
        yield (REFUSED if swapped else OPEN), f"step {new.name}: inputs"
    elif new.kind in ORDERED:
        for i in new.inputs:
            if after.input(i).time != before.input(moves[i]).time:
                yield REFUSED, f"step {new.name}: time"


def _unnamed(before: Version, after: Version) -> Iterator[tuple[str, str]]:
    if unnamed(before) != unnamed(after):
        yield OPEN, "unnamed steps"


def unnamed(version: Version) -> list[tuple[Step, tuple[str, ...]]]:
    """The steps without a name, in their order, with what they read from."""
    return [
        (replace(b.step, was=None), tuple(version.input(i).time for i in b.step.inputs))
        for b in version.branches
        if b.step.name is None and b.step.kind in STATEFUL
    ]


def _outputs(
    before: Version, after: Version, places: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    olds = {b.output.name: b.output for b in before.branches}
    for b in after.branches:
        o = b.output
        old = o.name if o.name in olds else o.was
        if old is None:
            if (o.kind, o.place) in places:
                yield OPEN, f"output {o.name}: at a place that holds rows"
        elif old not in olds:
            yield REFUSED, f"output {o.name}: unknown was="
        elif where(olds[old]) != where(o):
            yield REFUSED, f"output {o.name}: moved"


def where(o: Output) -> tuple[str, ...]:
    if o.kind == "collect":
        return (o.kind,)
    return (o.kind, o.place, o.format) if o.kind == "files" else (o.kind, o.place)


def _consents(before: Version, after: Version, stored: set[str]) -> Iterator[tuple[str, str]]:
    if isinstance(after.drop, bool):
        return
    moves, steps = renames(before, after), named(after)
    for name in after.drop:
        gone = [i.name for i in before.inputs if i.name not in moves.values()]
        kept = {b.step.was for b in steps.values()} | set(steps)
        gone += [n for n in named(before) if n not in kept]
        if name not in gone:
            yield REFUSED, f"drop {name}: is not gone"
        elif name in named(before) and named(before)[name].label not in stored:
            yield OPEN, f"drop {name}: may have no state"
