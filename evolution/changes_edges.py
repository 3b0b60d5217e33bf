"""Changes of inputs and outputs."""

from __future__ import annotations

from dataclasses import replace

from evolution.changing import Change, anyone, consented, reinput, with_
from evolution.draw import Drawer
from evolution.places import ALL
from evolution.spec import Version


def rename_input(d: Drawer, version: Version) -> Version:
    old, how = d.random.choice(version.inputs), d.random.random()
    new = replace(old, name=d.fresh("i"), was=old.name)
    if how < 0.15:
        new = replace(new, was=f"{old.name}x")
    elif how < 0.4:
        new = replace(d.input(old.kind, old.place), time=old.time)
    changed = reinput(version, old, new)
    return consented(changed, old.name) if 0.25 < how < 0.4 else changed


def move_input(d: Drawer, version: Version) -> Version | None:
    used = {i.place for i in version.inputs}
    free = [(k, p) for k, p in ALL if p not in used]
    if not free:
        return None
    old, how = d.random.choice(version.inputs), d.random.random()
    kind, place = d.random.choice(free)
    if how < 0.4:
        return reinput(version, old, replace(old, kind=kind, place=place))
    changed = reinput(version, old, d.input(kind, place))
    return consented(changed, old.name) if how < 0.8 else changed


def add_input(d: Drawer, version: Version) -> Version | None:
    used = {i.place for i in version.inputs}
    free = [(k, p) for k, p in ALL if p not in used]
    if not free:
        return None
    made = d.input(*d.random.choice(free))
    branch = d.branch((made,))
    return replace(version, inputs=(*version.inputs, made), branches=(*version.branches, branch))


def drop_input(d: Drawer, version: Version) -> Version | None:
    """An input goes, and with it all that reads from it."""
    old = d.random.choice(version.inputs)
    left = tuple(b for b in version.branches if old.name not in b.step.inputs)
    if not left:
        return None
    gone = [b.step for b in version.branches if b not in left and b.step.of.state]
    inputs = tuple(i for i in version.inputs if i is not old)
    changed = replace(version, inputs=inputs, branches=left)
    if d.random.random() < 0.25:
        return changed
    if any(s.name is None for s in gone):
        return replace(changed, drop=True)
    return consented(changed, old.name, *(s.name for s in gone))


def other_time(d: Drawer, version: Version) -> Version:
    old = d.random.choice(version.inputs)
    return reinput(version, old, replace(old, time="made" if old.time == "at" else "at"))


def rename_output(d: Drawer, version: Version) -> Version:
    n, how = d.random.randrange(len(version.branches)), d.random.random()
    old = version.branches[n].output
    name = d.fresh("o")
    place = name if old.kind == "collect" and how >= 0.6 else old.place
    was = old.name if how < 0.6 else f"{old.name}x" if how < 0.75 else None
    return with_(version, n, output=replace(old, name=name, place=place, was=was))


def move_output(d: Drawer, version: Version) -> Version:
    n, made = d.random.randrange(len(version.branches)), d.output()
    if d.random.random() < 0.4:  # under the old name
        d.outputs.pop()
        old = version.branches[n].output
        made = replace(made, name=old.name)
        if made.kind == "collect":  # its name is its place: from one to another it stays there
            made = replace(made, place=old.place if old.kind == "collect" else old.name)
    return with_(version, n, output=made)


def put_back_output(d: Drawer, version: Version) -> Version | None:
    """An output that was there before takes the place of one."""
    used = {b.output.name for b in version.branches} | {b.output.place for b in version.branches}
    gone = [o for o in d.outputs if not {o.name, o.place} & used]
    if not gone:
        return None
    n = d.random.randrange(len(version.branches))
    return with_(version, n, output=d.random.choice(gone))


def other_format(d: Drawer, version: Version) -> Version | None:
    n = anyone(d, version)
    if n is None or version.branches[n].output.kind != "files":
        return None
    old = version.branches[n].output
    return with_(
        version, n, output=replace(old, format="json" if old.format == "parquet" else "parquet")
    )


def other_option(d: Drawer, version: Version) -> Version | None:
    n = anyone(d, version)
    if n is None or version.branches[n].output.kind != "files":
        return None
    old = version.branches[n].output
    return with_(version, n, output=replace(old, merge=not old.merge))


def exchange_outputs(d: Drawer, version: Version) -> Version | None:
    """Two outputs take each other's branch; or each other's place, under their names."""
    if len(version.branches) < 2:
        return None
    n, m = d.random.sample(range(len(version.branches)), 2)
    one, two = version.branches[n].output, version.branches[m].output
    if d.random.random() < 0.4:
        if "collect" in (one.kind, two.kind):
            return None
        one, two = replace(one, name=two.name), replace(two, name=one.name)
    return with_(with_(version, n, output=two), m, output=one)


EDGES: list[Change] = [
    rename_input, move_input, add_input, drop_input, other_time, rename_output, move_output,
    put_back_output, other_format, other_option, exchange_outputs,
]  # fmt: skip
