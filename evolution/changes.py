"""Changes of a program: one to three at once, of which some must be refused."""

from __future__ import annotations

from dataclasses import replace

from evolution.changes_aggregates import AGGREGATES
from evolution.changes_edges import EDGES
from evolution.changing import Change, anyone, consented, restep, with_
from evolution.draw import Drawer
from evolution.kinds import KINDS, PROCESS, STATEFUL, VALUED, hows
from evolution.spec import KEYS, WHERES, Branch, Version


def change(d: Drawer, version: Version) -> Version:
    changed = version
    for _ in range(d.random.choice((0, 1, 1, 1, 2, 3))):
        how = d.random.choice(CHANGES)
        found = how(d, changed)
        if found is not None:
            changed = replace(found, changes=(*changed.changes, how.__name__))
    return changed


def add_branch(d: Drawer, version: Version) -> Version:
    at = d.random.randrange(len(version.branches) + 1)
    made = d.branch(version.inputs)
    branches = (*version.branches[:at], made, *version.branches[at:])
    return replace(version, branches=branches)


def twin_branch(d: Drawer, version: Version) -> Version | None:
    """A step like one that is there, before it, with another condition and without a name."""
    n = anyone(d, version)
    if n is None:
        return None
    like = version.branches[n].step
    others = [w for w in WHERES if w != like.where]  # with the same it would be that step
    step = replace(like, name=None, was=None, where=d.random.choice(others))
    made = Branch(d.fresh("L"), step, d.output())
    return replace(version, branches=(*version.branches[:n], made, *version.branches[n:]))


def remove_branch(d: Drawer, version: Version) -> Version | None:
    if len(version.branches) < 2:
        return None
    n = d.random.randrange(len(version.branches))
    gone = version.branches[n].step
    left = replace(version, branches=version.branches[:n] + version.branches[n + 1 :])
    if not gone.of.state or d.random.random() < 0.3:
        return left
    if gone.name is None:
        return replace(left, drop=True)
    return consented(left, gone.name)


def restart_branch(d: Drawer, version: Version) -> Version | None:
    """Another step in the place of one, under another name."""
    n = anyone(d, version, named=True)
    if n is None:
        return None
    gone, made = version.branches[n], d.branch(version.inputs)
    changed = with_(version, n, step=made.step, label=made.label)
    return consented(changed, gone.step.name) if d.random.random() < 0.7 else changed


def exchange_branches(d: Drawer, version: Version) -> Version:
    branches = list(version.branches)
    d.random.shuffle(branches)
    return replace(version, branches=tuple(branches))


def rename_step(d: Drawer, version: Version) -> Version | None:
    n = anyone(d, version, named=True)
    if n is None:
        return None
    step, how = version.branches[n].step, d.random.random()
    new = replace(step, name=d.fresh("s"), was=step.name)
    if how < 0.6:
        return with_(version, n, step=new)
    if how < 0.75:
        return with_(version, n, step=replace(new, was=f"{step.name}x"))
    fresh = with_(version, n, step=replace(new, was=None), label=d.fresh("L"))
    return consented(fresh, step.name) if how < 0.9 else fresh


def other_key(d: Drawer, version: Version) -> Version | None:
    return restep(d, version, keys=d.random.choice(KEYS))


def other_column(d: Drawer, version: Version) -> Version | None:
    return restep(d, version, column=d.random.choice("xy"))


def other_length(d: Drawer, version: Version) -> Version | None:
    return restep(d, version, length=d.random.choice((3, 5)))


def other_lateness(d: Drawer, version: Version) -> Version | None:
    """Windows wait longer, or not as long, or not at all: then they fire once."""
    fit = [n for n, b in enumerate(version.branches) if b.step.of.waits]
    if not fit:
        return None
    n = d.random.choice(fit)
    step = replace(version.branches[n].step, late=d.random.choice((0, 0, 1, 2, 3)))
    return with_(version, n, step=step)


def other_numbers(d: Drawer, version: Version) -> Version:
    """A part of keys becomes wider, or narrower."""
    return replace(version, narrow=not version.narrow)


def other_kind(d: Drawer, version: Version) -> Version | None:
    n = anyone(d, version)
    if n is None or not (old := version.branches[n].step).of.state or old.of.sides > 1:
        return None
    kinds = [k for k in STATEFUL if KINDS[k].sides == 1 and not {k, old.kind} <= {*PROCESS}]
    kind = d.random.choice(kinds)
    return with_(version, n, step=replace(old, kind=kind, how=d.random.choice(hows(kind))))


def other_how(d: Drawer, version: Version) -> Version | None:
    fit = [n for n, b in enumerate(version.branches) if b.step.of.how]
    if not fit:
        return None
    n = d.random.choice(fit)
    old = version.branches[n].step
    return with_(version, n, step=replace(old, how=d.random.choice(hows(old.kind))))


def other_values(d: Drawer, version: Version) -> Version | None:
    """A value of a process function, or a field of a fold, comes or goes."""
    fit = [n for n, b in enumerate(version.branches) if b.step.kind in VALUED]
    if not fit:
        return None
    n = d.random.choice(fit)
    old = version.branches[n].step
    changed = with_(version, n, step=replace(old, more=not old.more))
    if not old.more or old.name is None or d.random.random() < 0.3:
        return changed
    return consented(changed, f"{old.name}.m")


def other_condition(d: Drawer, version: Version) -> Version | None:
    n = anyone(d, version)
    if n is None:
        return None
    return with_(version, n, step=replace(version.branches[n].step, where=d.random.choice(WHERES)))


def swap_sides(d: Drawer, version: Version) -> Version | None:
    joins = [n for n, b in enumerate(version.branches) if len(b.step.inputs) > 1]
    if not joins:
        return None
    step = version.branches[joins[0]].step
    return with_(version, joins[0], step=replace(step, inputs=step.inputs[::-1]))


def stray_consent(d: Drawer, version: Version) -> Version:
    names = [b.step.name for b in version.branches] + [i.name for i in version.inputs] + ["zz"]
    return consented(version, d.random.choice(names))


def unname_step(d: Drawer, version: Version) -> Version | None:
    n = anyone(d, version, named=True)
    if n is None:
        return None
    gone = version.branches[n].step
    changed = with_(version, n, step=replace(gone, name=None, was=None), label=d.fresh("L"))
    return consented(changed, gone.name) if d.random.random() < 0.7 else changed


CHANGES: list[Change] = [
    *EDGES, *AGGREGATES, add_branch, twin_branch, remove_branch,
    restart_branch, exchange_branches, rename_step,
    other_key, other_column, other_length, other_kind, other_condition, swap_sides, stray_consent,
    unname_step, other_how, other_values, other_lateness, other_lateness, other_numbers,
]  # fmt: skip
