"""What may be another over the same state: wider columns, a fold's record, some settings.

What is stored is rewritten by `driver/setting_migration.py` where it has to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.clock import pretty
from headrace.ops.process.migration import CHANGED, MigratedPart
from headrace.plan.fold_changes import VALUES, fold_parts, is_other_fold
from headrace.plan.nodes import Stateful
from headrace.plan.wider_columns import as_wide_now, wider_columns

Shape = Mapping[str, Any]
SETTINGS = "what"


def setting_parts(node: Stateful, old: Shape, new: Shape) -> Iterator[MigratedPart]:
    """What is another, and may be; all else that differs is left for its difference."""
    yield from wider_columns(node, old, new)
    yield from fold_parts(node, old, new)
    for name, because in changed_settings(node, old, new).items():
        yield MigratedPart(name, CHANGED, because)


def changed_settings(node: Stateful, old: Shape, new: Shape) -> dict[str, str]:
    """The settings that differ and may, each with what is said of it."""
    was, now = old.get(SETTINGS), new.get(SETTINGS)
    if was is None or now is None or was == now or old.get("kind") != new.get("kind"):
        return {}
    if not {*was} >= {*now}:
        return {}
    goes_on = node.what.goes_on(was)
    return {name: said for name, said in goes_on.items() if was[name] != now[name]}


def unsure_settings(node: Stateful, old: Shape, new: Shape) -> str:
    """Why a step that goes by its place may be another one than that whose settings these are."""
    if changed_settings(node, old, new) or is_other_fold(node, old, new):
        return "it has no name of its own, and its settings are others"
    return ""


def as_now(node: Stateful, old: Shape, new: Shape) -> dict[str, Any]:
    """The shape in a manifest, as it would be if all that may be another had always been so."""
    old = as_wide_now(node, old, new)
    if is_other_fold(node, old, new):
        old = {**old, VALUES: new[VALUES]}
    if changed := changed_settings(node, old, new):
        old = {**old, SETTINGS: {**old[SETTINGS], **{n: new[SETTINGS][n] for n in changed}}}
    return dict(old)


def why_no_setting(kind: str, name: str, was: Shape, now: Shape) -> str:
    """Why what is stored by one setting cannot go on by another; empty where that is plain."""
    if name in ("per", "period") and None not in (was.get(name), now.get(name)):
        old, new = (pretty(s[name]) if isinstance(s[name], int) else s[name] for s in (was, now))
        return (
            f": what is stored is counted by {old}, and cannot be parted or put together by {new}"
        )
    if (kind, name) == ("top", "rows"):
        if was[name] < now[name]:
            return f": of each key only the {was[name]} best are stored"
        return ": rows that are not among the best any more would have to be taken back"
    if (kind, name) == ("sample", "rows"):
        return ": the sample of a period that is not over was drawn by it"
    if kind == "top" and name in ("by", "largest", "each"):
        return ": what is stored are the best rows by that"
    if (kind, name) == ("match", "patterns"):
        return ": partial matches are stored by their place in the pattern that there was"
    if (kind, name) == ("join", "within") and now.get("how") == "semi":
        return ": which partner of a row is the first was decided by the bounds that there were"
    return ""
