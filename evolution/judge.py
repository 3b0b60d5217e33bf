"""Whether a changed program must start, must be refused, or may do either, by the guide.

Only the rules of docs/guide/evolution.md, on plain values. OPEN is where the guide leaves it to
the product to tell two things apart: then it may refuse, but what it accepts must be right.
"""

from __future__ import annotations

from collections.abc import Iterator

from evolution.kinds import ANY_LENGTH, JOINS, NARROWER, OPEN, REFUSED, SHORTER, VALUED
from evolution.places import BOUNDED
from evolution.spec import Branch, Input, Output, Step, Version

STARTS = "starts"


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
    return one.kind == other.kind and (one.place == other.place or one.kind in BOUNDED)


def _dropped(name: str, after: Version) -> bool:
    return after.drop is True or (after.drop is not False and name in after.drop)


def named(version: Version) -> dict[str, Branch]:
    return {b.step.name: b for b in version.branches if b.step.name and b.step.of.state}


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


def _alike(
    before: Version, old: Step, after: Version, new: Step, moves: dict[str, str]
) -> Iterator[tuple[str, str]]:
    if old.kind != new.kind:
        yield REFUSED, f"step {new.name}: kind"
        return
    if old.keys != new.keys:
        yield REFUSED, f"step {new.name}: key"
    if old.by_column and new.by_column and old.column != new.column and not _apart(old, new):
        yield REFUSED, f"step {new.name}: column"
    yield from _aggregates(old, new, after)
    if old.of.length and old.length != new.length:
        yield _other_length(old, new), f"step {new.name}: length"
    if old.of.waits and old.late != new.late:
        yield from _other_lateness(old, new)
    yield from _other_numbers(before, old, after, new)
    if old.of.how and old.how != new.how:
        yield _other_how(old, new), f"step {new.name}: how"
    if lost_value(old, new) and not _dropped(f"{new.name}.m", after):
        yield REFUSED, f"step {new.name}: value gone without consent"
    yield from _inputs_alike(before, old, after, new, moves)


def _apart(old: Step, new: Step) -> bool:
    """Whether it is only in aggregates that a column is used, and in other ones than before."""
    of = [{n for n, agg in step.aggregates.items() if agg != "count"} for step in (old, new)]
    return new.of.aggs and not new.of.column and not {was(new, n, old) for n in of[1]} & of[0]


def was(new: Step, name: str, old: Step) -> str:
    """Which aggregate of the step before one is; empty for a new one."""
    if name in old.aggregates:
        return name
    before = dict(new.was_names).get(name, "")
    return before if before in old.aggregates else ""


def _aggregates(old: Step, new: Step, after: Version) -> Iterator[tuple[str, str]]:
    for name, agg in new.aggregates.items():
        before = was(new, name, old)
        if before and old.aggregates[before] != agg:
            yield REFUSED, f"step {new.name}: {name} is another aggregate"
        if not before and (not new.since or name in dict(new.was_names)):
            yield REFUSED, f"step {new.name}: {name} is new"
        if not before and new.since == "beginning":
            yield OPEN, f"step {new.name}: {name} of past rows, if all is as it was"
        if before != name and new.of.stores_rows:
            yield REFUSED, f"step {new.name}: {name} of stored rows"
    for name in lost_aggregates(old, new):
        if not _dropped(f"{new.name}.{name}", after):
            yield REFUSED, f"step {new.name}: {name} gone without consent"


def lost_aggregates(old: Step, new: Step) -> set[str]:
    if old.kind != new.kind:
        return set()
    return {*old.aggregates} - {was(new, name, old) for name in new.aggregates}


def _inputs_alike(
    before: Version, old: Step, after: Version, new: Step, moves: dict[str, str]
) -> Iterator[tuple[str, str]]:
    now = tuple(moves.get(i, "") for i in new.inputs)
    if now != old.inputs:
        swapped = old.kind in JOINS and now == old.inputs[::-1] and len({*now}) > 1
        yield (REFUSED if swapped else OPEN), f"step {new.name}: inputs"
    elif new.timed and old.timed:
        for i in new.inputs:
            if after.input(i).time != before.input(moves[i]).time:
                yield REFUSED, f"step {new.name}: time"


def _other_lateness(old: Step, new: Step) -> Iterator[tuple[str, str]]:
    if old.aggregates != new.aggregates:
        yield OPEN, f"step {new.name}: lateness and aggregates at once"
    if old.kind == "hopping" and not old.late:
        yield OPEN, f"step {new.name}: lateness, where windows may still be stored whole"


def _other_numbers(
    before: Version, old: Step, after: Version, new: Step
) -> Iterator[tuple[str, str]]:
    """A wider key goes on, but not under windows that change as well."""
    if before.numbers == after.numbers:
        return
    if after.numbers == "int":
        yield REFUSED if "p" in new.keys else OPEN, f"step {new.name}: narrower"
    elif (old.length, old.late) != (new.length, new.late):
        yield OPEN, f"step {new.name}: wider, and another length or lateness"


def _other_length(old: Step, new: Step) -> str:
    if old.of.length == NARROWER and "semi" in (old.how, new.how):
        return REFUSED
    if old.of.length in (SHORTER, NARROWER):
        return STARTS if new.length < old.length else REFUSED
    return STARTS if old.of.length == ANY_LENGTH else old.of.length


def _other_how(old: Step, new: Step) -> str:
    """A join with the latest row may change it, but for whether versions come alone."""
    if old.kind != "latest":
        return old.of.how
    return REFUSED if "full" in (old.how, new.how) else STARTS


def lost_value(old: Step, new: Step) -> bool:
    return old.kind == new.kind and old.kind in VALUED and old.more and not new.more


def _unnamed(before: Version, after: Version) -> Iterator[tuple[str, str]]:
    if unnamed(before) != unnamed(after):
        yield OPEN, "unnamed steps"
    if unnamed(after) and (before.numbers, after.numbers) == ("bigint", "int"):
        yield OPEN, "unnamed steps, narrower"


def unnamed(version: Version) -> list[tuple[Step, tuple[str, ...]]]:
    """The steps without a name, in their order, with what they read from."""
    return [
        (b.step.settled(), tuple(version.input(i).time for i in b.step.inputs))
        for b in version.branches
        if b.step.name is None and b.step.of.state
    ]


def _outputs(
    before: Version, after: Version, places: set[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    olds = {b.output.name: b.output for b in before.branches}
    for b in after.branches:
        o = b.output
        old = o.name if o.name in olds else o.was
        if old is None:
            if o.kind != "console" and (o.kind, o.place) in places:
                yield OPEN, f"output {o.name}: at a place that holds rows"
        elif old not in olds:
            yield REFUSED, f"output {o.name}: unknown was="
        elif where(olds[old]) != where(o):
            yield REFUSED, f"output {o.name}: moved"


def where(o: Output) -> tuple[str, ...]:
    if o.kind in ("collect", "console"):
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
        gone += list(_lost_values(named(before), steps))
        if name not in gone:
            yield REFUSED, f"drop {name}: is not gone"
            continue
        old = named(before).get(name.partition(".")[0])
        if old is not None and old.label not in stored:
            yield OPEN, f"drop {name}: may have no state"


def _lost_values(olds: dict[str, Branch], steps: dict[str, Branch]) -> Iterator[str]:
    for name, b in steps.items():
        old = olds.get(name) or olds.get(b.step.was or "")
        if old is not None and lost_value(old.step, b.step):
            yield f"{name}.m"
        if old is not None:
            yield from (f"{name}.{lost}" for lost in lost_aggregates(old.step, b.step))
