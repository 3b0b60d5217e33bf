"""What may be another over the same state: wider keys, a fold's record, settings that steps know.

What is stored is rewritten by `driver/setting_migration.py` where it has to be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.types as pt

from headrace.ddl import read_type
from headrace.ops.process.migration import CHANGED, WIDENED, MigratedPart, widens
from headrace.plan.fold_changes import VALUES, fold_parts, is_other_fold
from headrace.plan.nodes import Stateful

Shape = Mapping[str, Any]
KEY, SETTINGS = "key", "what"


def setting_parts(node: Stateful, old: Shape, new: Shape) -> Iterator[MigratedPart]:
    """What is another, and may be; all else that differs is left for its difference."""
    yield from wider_keys(node, old, new)
    yield from fold_parts(node, old, new)
    for name, because in changed_settings(node, old, new).items():
        yield MigratedPart(name, CHANGED, because)


def wider_keys(node: Stateful, old: Shape, new: Shape) -> list[MigratedPart]:
    """The columns of the key that are wider; none where a key is more than that."""
    was, now = old[KEY], new[KEY]
    if was == now or not node.what.widens_keys or len(was) != len(now) or len(node.inputs) > 1:
        return []
    found = []
    for name, before, after in zip(node.keys[0], was, now, strict=True):
        if before == after:
            continue
        types = [one[1] if node.what.keys_by_name else one for one in (before, after)]
        named = not node.what.keys_by_name or before[0] == after[0]
        a, b = map(read_type, types)
        if not (named and pt.is_integer(a) and pt.is_integer(b) and widens(a, b)):
            return []
        found.append(MigratedPart(name, WIDENED, f"from {types[0]} to {types[1]}"))
    return found


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
    if wider_keys(node, old, new):
        old = {**old, KEY: new[KEY]}
    if is_other_fold(node, old, new):
        old = {**old, VALUES: new[VALUES]}
    if changed := changed_settings(node, old, new):
        old = {**old, SETTINGS: {**old[SETTINGS], **{n: new[SETTINGS][n] for n in changed}}}
    return dict(old)
