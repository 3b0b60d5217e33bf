"""What all changes of a program are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evolution.draw import Drawer
from evolution.spec import Input, Version

Change = Callable[[Drawer, Version], Version | None]


def with_(version: Version, index: int, **changed: Any) -> Version:
    branches = list(version.branches)
    branches[index] = replace(branches[index], **changed)
    return replace(version, branches=tuple(branches))


def anyone(d: Drawer, version: Version, *, named: bool = False) -> int | None:
    fit = [n for n, b in enumerate(version.branches) if not named or b.step.name is not None]
    return d.random.choice(fit) if fit else None


def restep(d: Drawer, version: Version, named: bool = False, **changed: Any) -> Version | None:
    n = anyone(d, version, named=named)
    if n is None or not version.branches[n].step.of.state:
        return None
    return with_(version, n, step=replace(version.branches[n].step, **changed))


def reinput(version: Version, old: Input, new: Input) -> Version:
    inputs = tuple(new if i is old else i for i in version.inputs)
    moved = {old.name: new.name}
    branches = tuple(
        replace(b, step=replace(b.step, inputs=tuple(moved.get(i, i) for i in b.step.inputs)))
        for b in version.branches
    )
    return replace(version, inputs=inputs, branches=branches)


def consented(version: Version, *names: str | None) -> Version:
    had = version.drop
    if isinstance(had, bool):
        return version
    return replace(version, drop=(*had, *(n for n in names if n is not None)))
