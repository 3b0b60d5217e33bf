"""Bolts that ack by hand: which tuples wait for an ack, and what is emitted for them meanwhile.

A call counts as a whole or not at all. What it emits anchored to its tuple is emitted when the
tuple is acked, in this call or in a later one, and never if it fails; what is not anchored is
emitted with the epoch, also if the tuple fails. All here is by call, in memory: what still waits
after the calls of an epoch is stored by `waiting.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.ops.topology.bolt import DEFAULT, Collector
from headrace.rows import table_of

Tables = list[tuple[str, pa.Table]]  # by stream


@dataclass(frozen=True, slots=True)
class Unacked:
    """A tuple of this epoch that is neither acked nor failed."""

    place: int
    held: Tables


class AckingCollector(Collector):
    """What a bolt with `acks = True` emits, acks and fails by."""

    __slots__ = ("_acked", "_anchored", "_longer", "_returned", "_schemas", "_theirs", "before",
                 "failed_here", "longer", "released", "repeated", "unacked")  # fmt: skip

    def __init__(self, *args: Any, schemas: dict[str, pa.Schema]) -> None:
        super().__init__(*args)
        self._schemas = schemas
        self._quick = None
        # of one call
        self._anchored: list[tuple[str, Any, frozenset[str]]] = []
        self._acked: set[str] = set()
        self._theirs: dict[str, str] = {}  # other tuples that the call failed, and why
        self._longer: set[str] = set()  # tuples whose time begins again
        self._returned: tuple[str | None, Tables] | None = None
        # of all calls
        self.unacked: dict[str, Unacked] = {}
        self.released: list[tuple[str, pa.Table, int]] = []
        self.failed_here: list[tuple[int, str, str]] = []  # place, id, reason
        # by tasks and ids of earlier epochs: None if acked, or why they failed; the first call
        # counts, and how many came after one
        self.before: dict[tuple[int, str], str | None] = {}
        self.repeated = 0
        self.longer: set[tuple[int, str]] = set()  # of earlier epochs, by tasks and ids

    def emit(self, values: Any, stream: str = DEFAULT, anchors: Any = None) -> None:
        """Emit a tuple, anchored to this one (`anchors=tup`), or to nothing."""
        if anchors is None:
            super().emit(values, stream)
            return
        out, sides = len(self._out), len(self.side_rows)
        super().emit(values, stream)
        ids = frozenset(map(self._id_of, _several(anchors)))
        for row in self._out[out:]:
            self._anchored.append((DEFAULT, row, ids))
        for name, row in self.side_rows[sides:]:
            self._anchored.append((name, row, ids))
        del self._out[out:], self.side_rows[sides:]

    def ack(self, tup: Any) -> None:
        """The tuple is processed: this one, or one that waits, by its id."""
        self._acked.add(self._id_of(tup))

    def fail(self, tup: Any, reason: str = "failed by its bolt") -> None:
        """This tuple, or one that waits, by its id, cannot be processed now."""
        id = self._id_of(tup)
        if self.place >= 0 and id == self.id:
            self._failed = str(reason)
        else:
            self._theirs[id] = str(reason)

    def reset_timeout(self, tup: Any) -> None:
        """The time within which a tuple must be acked begins again, with the epoch."""
        self._longer.add(self._id_of(tup))

    def _id_of(self, tup: Any) -> str:
        if isinstance(tup, str):
            return tup
        if tup is None or tup is not self._tup:
            raise ValueError(
                "only the tuple of this call is acked, failed or anchored to as such; for another "
                "one store collector.id while it is processed, and use that"
            )
        return self.id

    def taken(self) -> Any:
        """What the call emits now; raises if it failed its tuple."""
        rows = super().taken()
        own = self.id if self.place >= 0 else None
        held: dict[str, list[Any]] = {}
        for stream, row, ids in self._anchored:
            other = next(iter(sorted(ids - self._acked - {own})), None)
            if other is not None:
                raise ValueError(
                    f"a tuple is anchored to {other}, which this call neither processes nor acks"
                )
            if own in ids and own not in self._acked:
                held.setdefault(stream, []).append(row)
            elif stream == DEFAULT:
                rows.append(row)
            else:
                self.side_rows.append((stream, row))
        self._returned = own, [(s, table_of(r, self._schemas[s])) for s, r in held.items()]
        return rows

    def settle(self) -> None:
        if self._returned is None:
            return
        own, held = self._returned
        for id in sorted(self._acked - {own} - self._theirs.keys()):
            known = self.unacked.pop(id, None)
            if known is None:
                self._settle_before(id, None)
            else:
                self.released += [(stream, rows, known.place) for stream, rows in known.held]
        for id, reason in self._theirs.items():
            known = self.unacked.pop(id, None)
            if known is None:
                self._settle_before(id, reason)
            else:
                self.failed_here.append((known.place, id, reason))
        self.longer |= {(self.key, id) for id in self._longer if id not in self.unacked}
        self.longer.discard((self.key, own or ""))
        if own is not None and own not in self._acked:
            self.unacked[own] = Unacked(self.place, held)

    def _settle_before(self, id: str, reason: str | None) -> None:
        if (self.key, id) in self.before:
            self.repeated += 1
        else:
            self.before[self.key, id] = reason

    def rescued(self) -> tuple[list[Any], list[tuple[str, Any]]]:
        if self._failed is None:
            return [], []  # an exception: nothing of the call counts
        return list(self._out), list(self.side_rows)

    def clear(self) -> None:
        super().clear()
        self._anchored, self._acked, self._theirs, self._longer = [], set(), {}, set()
        self._returned = None


def _several(anchors: Any) -> Iterable[Any]:
    return anchors if isinstance(anchors, list | set | frozenset) else (anchors,)
