"""Changes of the aggregates of a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evolution.changing import Change, consented, with_
from evolution.draw import Drawer
from evolution.kinds import AGGREGATES as KINDS
from evolution.kinds import SINCE
from evolution.spec import Version


def _with_aggregates(d: Drawer, version: Version, least: int = 1) -> int | None:
    fit = [n for n, b in enumerate(version.branches) if len(b.step.aggregates) >= least]
    return d.random.choice(fit) if fit else None


def _changed(version: Version, n: int, aggregates: dict[str, str], **said: Any) -> Version:
    names, aggs = tuple(aggregates), tuple(aggregates.values())
    old = version.branches[n].step
    said.setdefault("was_names", tuple(pair for pair in old.was_names if pair[0] in aggregates))
    step = replace(old, names=names, aggs=aggs, **said)
    return with_(version, n, step=step)


def other_aggregates(d: Drawer, version: Version) -> Version | None:
    """Others under the same names, or one fewer without consent."""
    n = _with_aggregates(d, version)
    if n is None:
        return None
    old = version.branches[n].step.aggregates
    found = d.random.choice((tuple(old.values())[::-1], tuple(old.values())[:1], d.aggs()))
    return _changed(version, n, dict(zip(("m1", "m2"), found, strict=False)))


def add_aggregate(d: Drawer, version: Version) -> Version | None:
    """One more, or one instead of another; mostly it is said from when it counts."""
    n = _with_aggregates(d, version)
    if n is None:
        return None
    step = version.branches[n].step
    had, how = list(step.aggregates.items()), d.random.random()
    gone = [had.pop(d.random.randrange(2))] if len(had) > 1 else []
    had.insert(d.random.randrange(2), (d.fresh("m"), d.random.choice(KINDS)))
    since = d.random.choice(SINCE) if how > 0.15 else ""
    changed = _changed(version, n, dict(had), since=since)
    return (
        consented(changed, *(f"{step.name}.{name}" for name, _ in gone)) if how < 0.9 else changed
    )


def drop_aggregate(d: Drawer, version: Version) -> Version | None:
    n = _with_aggregates(d, version, 2)
    if n is None:
        return None
    step = version.branches[n].step
    gone = d.random.choice([*step.aggregates])
    left = {name: agg for name, agg in step.aggregates.items() if name != gone}
    changed = _changed(version, n, left)
    return consented(changed, f"{step.name}.{gone}") if d.random.random() < 0.8 else changed


def rename_aggregate(d: Drawer, version: Version) -> Version | None:
    n = _with_aggregates(d, version)
    if n is None:
        return None
    had, how, new = version.branches[n].step.aggregates, d.random.random(), d.fresh("m")
    old = d.random.choice([*had])
    said = ((new, old if how < 0.8 else f"{old}x"),) if how < 0.9 else ()
    names = {new if name == old else name: agg for name, agg in had.items()}
    return _changed(
        version, n, names, was_names=said, since=d.random.choice(SINCE) if how > 0.7 else ""
    )


def exchange_aggregates(d: Drawer, version: Version) -> Version | None:
    """In another order, each under its name."""
    n = _with_aggregates(d, version, 2)
    if n is None:
        return None
    return _changed(version, n, dict([*version.branches[n].step.aggregates.items()][::-1]))


AGGREGATES: list[Change] = [
    other_aggregates, add_aggregate, add_aggregate, drop_aggregate, rename_aggregate,
    exchange_aggregates,
]  # fmt: skip
