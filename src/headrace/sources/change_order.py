"""The changes of a transaction in an order in which no key is taken before it is free.

Where the primary key is deferred, rows may exchange their keys: 1 becomes 2 before 2 becomes 1.
Whoever applies the deletions and insertions of that by the key, one after the other, would delete
the row that has just come. What happens to the former row of a key goes before the row that takes
it; everything else stays as it came.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headrace.connect.pgoutput import DELETE, INSERT, Values


class RowChange(NamedTuple):
    op: str
    row: Values
    before: Values | None = None  # the whole row that is replaced or deleted, if it is known


def ordered_by_key(changes: Iterable[RowChange], key: Iterable[str]) -> list[RowChange]:
    names, came = sorted(key), list[tuple[int, int, int, RowChange]]()
    taken: dict[tuple[str | None, ...], tuple[int, Values]] = {}  # by key: since when, and its row
    for at, change in enumerate(changes):
        place, held = (at, 1), taken.get(value := tuple(change.row.get(n) for n in names))
        if change.op == INSERT:
            taken[value] = at, change.row
        elif held is not None and change.before not in (None, held[1]):
            place = held[0], 0  # it is the former row of the key
        elif held is not None and change.op == DELETE:
            del taken[value]
        elif held is not None:
            taken[value] = held[0], change.row
        came.append((*place, at, change))
    return [change for *_, change in sorted(came, key=lambda c: c[:3])]
