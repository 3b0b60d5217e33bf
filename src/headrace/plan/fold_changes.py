"""What a changed record means for the values that a fold, or the rows that a reduce, has stored.

A field is found by its name. It may be new, and then starts as in the fold's zero, or is null in
the row of a reduce; gone, which needs consent; or wider. What is stored is rewritten by
`driver/setting_migration.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.ddl import read_type
from headrace.ops.fold import FoldSpec
from headrace.ops.process.migration import DROPPED, NEW, WIDENED, MigratedPart, fits
from headrace.plan.nodes import Stateful

Shape = Mapping[str, Any]
VALUES, VALUE = "values", "value"


def fold_parts(node: Stateful, old: Shape, new: Shape) -> list[MigratedPart]:
    """What becomes of each field that changes; none where the value is more than another record."""
    before, after = old.get(VALUES), new.get(VALUES)
    if before == after or before is None or after is None or not isinstance(node.what, FoldSpec):
        return []
    if not _alike(old, new):
        return []
    was, now, found = dict(before), dict(after), list[MigratedPart]()
    folds = node.what.folding.zero is not None
    alone = [VALUE in one and len(one) == 1 for one in (was, now)]  # a value that is no record
    if folds and alone[0] != alone[1]:
        return []
    start = "and starts as in the zero of the fold" if folds else "and null in what is stored"
    for name, kind in now.items():
        if name not in was:
            found.append(MigratedPart(name, NEW, start))
        elif kind != was[name]:
            parts = [*fits(read_type(was[name]), read_type(kind), name, None, {})]
            if any(part.verdict != WIDENED for part in parts):
                return []
            found += parts
    return found + [MigratedPart(name, DROPPED) for name in was if name not in now]


def is_other_fold(node: Stateful, old: Shape, new: Shape) -> bool:
    """Whether its record is another, in fields or their order, over which it goes on."""
    before, after = old.get(VALUES), new.get(VALUES)
    if before == after or not isinstance(node.what, FoldSpec) or not _alike(old, new):
        return False
    moved = sorted(before or ()) == sorted(after or ())
    return moved or bool(fold_parts(node, old, new))


def _alike(old: Shape, new: Shape) -> bool:
    """Values that slide are taken out of one another: they must be alike."""
    same = old.get("folds") == new.get("folds") and old.get("kind") == new.get("kind")
    return same and "slides" not in {**old, **new}
