"""Programs and changes of them, drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evolution.spec import (
    JOINED,
    KEYS,
    STATEFUL,
    WHERES,
    Branch,
    Input,
    Output,
    Step,
    Version,
)

PLACES = {"log": ("t1", "t2", "t3"), "files": ("f1", "f2"), "rows": ("r1",)}
KINDS = [(kind, place) for kind, places in PLACES.items() for place in places]


class Drawer:
    """Draws from one seed; `fresh` makes names that nobody has had."""

    def __init__(self, random: random.Random) -> None:
        self.random, self._made = random, 0
        self.lives: dict[str, int] = {}  # by place: how often it is read from its beginning
        self.outputs = list[Output]()  # all that were ever drawn

    def fresh(self, letter: str) -> str:
        self._made += 1
        return f"{letter}{self._made}"

    def first(self) -> Version:
        places = self.random.sample(KINDS, self.random.choice((1, 1, 2, 3)))
        inputs = tuple(self.input(*p) for p in places)
        count = self.random.choice((1, 2, 2, 3))
        return Version(inputs, tuple(self.branch(inputs) for _ in range(count)))

    def input(self, kind: str, place: str) -> Input:
        self.lives[place] = self.lives.get(place, 0) + 1
        return Input(self.fresh("i"), kind, place, life=self.lives[place])

    def branch(self, inputs: tuple[Input, ...]) -> Branch:
        return Branch(self.fresh("L"), self.step(inputs), self.output())

    def step(self, inputs: tuple[Input, ...]) -> Step:
        r = self.random
        kind = r.choice(("none", *STATEFUL, *STATEFUL))
        if kind == JOINED and len(inputs) < 2:
            kind = "agg"
        chosen = tuple(i.name for i in r.sample(inputs, 2 if kind == JOINED else 1))
        name = self.fresh("s") if kind != "none" and r.random() < 0.7 else None
        return Step(kind, name, chosen, r.choice(KEYS), r.choice("xy"), r.choice((3, 5)),
                    r.choice(WHERES))  # fmt: skip

    def output(self) -> Output:
        kind, name = self.random.choice(("log", "files", "collect")), self.fresh("o")
        format = self.random.choice(("parquet", "json")) if kind == "files" else ""
        made = Output(name, kind, name if kind == "collect" else f"p{name}", format)
        self.outputs.append(made)
        return made

    def change(self, version: Version) -> Version:
        """One to three changes, of which some must be refused."""
        changed = version
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            how = self.random.choice(CHANGES)
            found = how(self, changed)
            if found is not None:
                said = (*changed.changes, how.__name__)
                changed = replace(found, changes=said)
        return changed


Change = Callable[[Drawer, Version], Version | None]


def _with(version: Version, index: int, **changed: Any) -> Version:
    branches = list(version.branches)
    branches[index] = replace(branches[index], **changed)
    return replace(version, branches=tuple(branches))


def _any(d: Drawer, version: Version, *, named: bool = False) -> int | None:
    fit = [n for n, b in enumerate(version.branches) if not named or b.step.name is not None]
    return d.random.choice(fit) if fit else None


def _restep(d: Drawer, version: Version, named: bool = False, **changed: Any) -> Version | None:
    n = _any(d, version, named=named)
    if n is None or version.branches[n].step.kind == "none":
        return None
    return _with(version, n, step=replace(version.branches[n].step, **changed))


def _reinput(version: Version, old: Input, new: Input) -> Version:
    inputs = tuple(new if i is old else i for i in version.inputs)
    moved = {old.name: new.name}
    branches = tuple(
        replace(b, step=replace(b.step, inputs=tuple(moved.get(i, i) for i in b.step.inputs)))
        for b in version.branches
    )
    return replace(version, inputs=inputs, branches=branches)


def _consented(version: Version, *names: str | None) -> Version:
    had = version.drop
    if isinstance(had, bool):
        return version
    return replace(version, drop=(*had, *(n for n in names if n is not None)))


def add_branch(d: Drawer, version: Version) -> Version:
    at = d.random.randrange(len(version.branches) + 1)
    made = d.branch(version.inputs)
    branches = (*version.branches[:at], made, *version.branches[at:])
    return replace(version, branches=branches)


def twin_branch(d: Drawer, version: Version) -> Version | None:
    """A step like one that is there, before it, with another condition and without a name."""
    n = _any(d, version)
    if n is None:
        return None
    like = version.branches[n].step
    step = replace(like, name=None, was=None, where=d.random.choice(WHERES))
    made = Branch(d.fresh("L"), step, d.output())
    return replace(version, branches=(*version.branches[:n], made, *version.branches[n:]))


def remove_branch(d: Drawer, version: Version) -> Version | None:
    if len(version.branches) < 2:
        return None
    n = d.random.randrange(len(version.branches))
    gone = version.branches[n].step
    left = replace(version, branches=version.branches[:n] + version.branches[n + 1 :])
    if gone.kind == "none" or d.random.random() < 0.3:
        return left
    if gone.name is None:
        return replace(left, drop=True)
    return _consented(left, gone.name)


def restart_branch(d: Drawer, version: Version) -> Version | None:
    """Another step in the place of one, under another name."""
    n = _any(d, version, named=True)
    if n is None:
        return None
    gone, made = version.branches[n], d.branch(version.inputs)
    changed = _with(version, n, step=made.step, label=made.label)
    return _consented(changed, gone.step.name) if d.random.random() < 0.7 else changed


def exchange_branches(d: Drawer, version: Version) -> Version:
    branches = list(version.branches)
    d.random.shuffle(branches)
    return replace(version, branches=tuple(branches))


def rename_step(d: Drawer, version: Version) -> Version | None:
    n = _any(d, version, named=True)
    if n is None:
        return None
    step, how = version.branches[n].step, d.random.random()
    new = replace(step, name=d.fresh("s"), was=step.name)
    if how < 0.6:
        return _with(version, n, step=new)
    if how < 0.75:
        return _with(version, n, step=replace(new, was=f"{step.name}x"))
    fresh = _with(version, n, step=replace(new, was=None), label=d.fresh("L"))
    return _consented(fresh, step.name) if how < 0.9 else fresh


def other_key(d: Drawer, version: Version) -> Version | None:
    return _restep(d, version, keys=d.random.choice(KEYS))


def other_column(d: Drawer, version: Version) -> Version | None:
    return _restep(d, version, column=d.random.choice("xy"))


def other_length(d: Drawer, version: Version) -> Version | None:
    return _restep(d, version, length=d.random.choice((3, 5)))


def other_kind(d: Drawer, version: Version) -> Version | None:
    kinds = [k for k in STATEFUL if k != JOINED]
    n = _any(d, version)
    if n is None or version.branches[n].step.kind in ("none", JOINED):
        return None
    return _with(version, n, step=replace(version.branches[n].step, kind=d.random.choice(kinds)))


def other_condition(d: Drawer, version: Version) -> Version | None:
    n = _any(d, version)
    if n is None:
        return None
    return _with(version, n, step=replace(version.branches[n].step, where=d.random.choice(WHERES)))


def swap_sides(d: Drawer, version: Version) -> Version | None:
    joins = [n for n, b in enumerate(version.branches) if b.step.kind == JOINED]
    if not joins:
        return None
    step = version.branches[joins[0]].step
    return _with(version, joins[0], step=replace(step, inputs=step.inputs[::-1]))


def rename_input(d: Drawer, version: Version) -> Version:
    old, how = d.random.choice(version.inputs), d.random.random()
    new = replace(old, name=d.fresh("i"), was=old.name)
    if how < 0.15:
        new = replace(new, was=f"{old.name}x")
    elif how < 0.4:
        new = replace(d.input(old.kind, old.place), time=old.time)
    changed = _reinput(version, old, new)
    return _consented(changed, old.name) if 0.25 < how < 0.4 else changed


def move_input(d: Drawer, version: Version) -> Version | None:
    used = {i.place for i in version.inputs}
    free = [(k, p) for k, p in KINDS if p not in used]
    if not free:
        return None
    old, how = d.random.choice(version.inputs), d.random.random()
    kind, place = d.random.choice(free)
    if how < 0.4:
        return _reinput(version, old, replace(old, kind=kind, place=place))
    changed = _reinput(version, old, d.input(kind, place))
    return _consented(changed, old.name) if how < 0.8 else changed


def add_input(d: Drawer, version: Version) -> Version | None:
    used = {i.place for i in version.inputs}
    free = [(k, p) for k, p in KINDS if p not in used]
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
    gone = [b.step for b in version.branches if b not in left and b.step.kind != "none"]
    inputs = tuple(i for i in version.inputs if i is not old)
    changed = replace(version, inputs=inputs, branches=left)
    if d.random.random() < 0.25:
        return changed
    if any(s.name is None for s in gone):
        return replace(changed, drop=True)
    return _consented(changed, old.name, *(s.name for s in gone))


def other_time(d: Drawer, version: Version) -> Version:
    old = d.random.choice(version.inputs)
    return _reinput(version, old, replace(old, time="made" if old.time == "at" else "at"))


def rename_output(d: Drawer, version: Version) -> Version:
    n, how = d.random.randrange(len(version.branches)), d.random.random()
    old = version.branches[n].output
    name = d.fresh("o")
    place = name if old.kind == "collect" and how >= 0.6 else old.place
    was = old.name if how < 0.6 else f"{old.name}x" if how < 0.75 else None
    return _with(version, n, output=replace(old, name=name, place=place, was=was))


def move_output(d: Drawer, version: Version) -> Version:
    n, made = d.random.randrange(len(version.branches)), d.output()
    if d.random.random() < 0.4:  # under the old name
        d.outputs.pop()
        old = version.branches[n].output
        made = replace(made, name=old.name)
        if made.kind == "collect":  # its name is its place: from one to another it stays there
            made = replace(made, place=old.place if old.kind == "collect" else old.name)
    return _with(version, n, output=made)


def put_back_output(d: Drawer, version: Version) -> Version | None:
    """An output that was there before takes the place of one."""
    used = {b.output.name for b in version.branches} | {b.output.place for b in version.branches}
    gone = [o for o in d.outputs if not {o.name, o.place} & used]
    if not gone:
        return None
    n = d.random.randrange(len(version.branches))
    return _with(version, n, output=d.random.choice(gone))


def other_format(d: Drawer, version: Version) -> Version | None:
    n = _any(d, version)
    if n is None or version.branches[n].output.kind != "files":
        return None
    old = version.branches[n].output
    return _with(
        version, n, output=replace(old, format="json" if old.format == "parquet" else "parquet")
    )


def other_option(d: Drawer, version: Version) -> Version | None:
    n = _any(d, version)
    if n is None or version.branches[n].output.kind != "files":
        return None
    old = version.branches[n].output
    return _with(version, n, output=replace(old, merge=not old.merge))


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
    return _with(_with(version, n, output=two), m, output=one)


def stray_consent(d: Drawer, version: Version) -> Version:
    names = [b.step.name for b in version.branches] + [i.name for i in version.inputs] + ["zz"]
    return _consented(version, d.random.choice(names))


def unname_step(d: Drawer, version: Version) -> Version | None:
    n = _any(d, version, named=True)
    if n is None:
        return None
    gone = version.branches[n].step
    changed = _with(version, n, step=replace(gone, name=None), label=d.fresh("L"))
    return _consented(changed, gone.name) if d.random.random() < 0.7 else changed


CHANGES: list[Change] = [
    add_branch, twin_branch, remove_branch, restart_branch, exchange_branches, rename_step,
    other_key, other_column, other_length, other_kind, other_condition, swap_sides, rename_input,
    move_input, add_input, drop_input, other_time, rename_output, move_output, put_back_output,
    other_format, other_option, exchange_outputs, stray_consent, unname_step,
]  # fmt: skip
