"""Accounting: every record read is used, filtered, late, dead or shed, exactly once.

A record that meets several fates on several branches counts by the worst: dead before
late, late before used; one that reached nothing was filtered. Where a record can reach
only one place, counting rows is enough; elsewhere its offset is followed.

A record is used where something is made of it: at an output, or at an operator. Operators that
only pass rows on (`passes`: lookups, deduplication and the like) make nothing of them, so what
becomes of such a row behind them corrects what the source has counted: by number where it can
take no other branch, and else by name (`branched_records.py`).
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from headrace.chunk import OFFSET, SOURCE
from headrace.plan.nodes import (
    OUT,
    Chunks,
    Node,
    Python,
    PythonChain,
    Stateful,
    Write,
    late_port,
)
from headrace.plan.program import Program

FATES = ("read", "used", "filtered", "late", "dead")
SHED = "shed"  # dropped before any step got it; counted only for inputs that are asked to shed
PASSED = "passed"  # a step got it that only passes rows on: used, unless it is dropped behind it


class Tally:
    """Counts the records of one input in one task.

    Where they are `followed`, it also gathers the offsets of those counted as used that a step
    got which passes rows on: `open` if nothing else has used them, otherwise `sure`.
    """

    def __init__(self, tracked: bool, followed: bool = False, *, sparse: bool = False) -> None:
        """`sparse`: there may be other records between those of a chunk."""
        self._tracked, self._followed = tracked or followed, followed
        self._sparse = sparse
        self.counts: Counter[str] = Counter({fate: 0 for fate in FATES})
        self._offsets = np.zeros(0, dtype=np.int64)
        self._marks: dict[str, np.ndarray] = {}
        self._rows: Counter[str] = Counter()
        self._shed = 0  # of the chunk
        self.several: list[tuple[str, int, int]] = []  # fate, first and last offset
        self.open: list[np.ndarray] = []
        self.sure: list[np.ndarray] = []

    def begin(self, offsets: np.ndarray) -> None:
        """A chunk with these offsets has been read."""
        self._offsets = offsets
        self._shed = 0
        self._rows.clear()
        if self._tracked:
            fates = ("used", PASSED, "late", "dead")
            self._marks = {fate: np.zeros(len(offsets), dtype=bool) for fate in fates}

    def mark(self, fate: str, rows: pa.Table) -> None:
        if fate == PASSED and not self._followed:
            fate = "used"
        if not self._tracked:
            self._rows[fate] += rows.num_rows
        elif OFFSET in rows.column_names and rows.num_rows:
            self.mark_offsets(fate, rows.column(OFFSET).to_numpy())

    def mark_offsets(self, fate: str, offsets: np.ndarray) -> None:
        if not self._tracked:
            self._rows[fate] += len(offsets)
        else:
            self._marks[fate][np.searchsorted(self._offsets, offsets)] = True

    def shed(self, records: int) -> None:
        """So many records were dropped before a chunk began."""
        self.counts["read"] += records
        self.counts[SHED] += records

    def shed_of_chunk(self, records: int) -> None:
        """So many records of the chunk were dropped, of which nothing else has become."""
        self._shed += records

    def end(self) -> None:
        """The chunk has gone through the program as far as this task takes it."""
        read = len(self._offsets)
        if self._tracked:
            sure, passed, dead = self._marks["used"], self._marks[PASSED], self._marks["dead"]
            late = self._marks["late"] & ~dead
            used = (sure | passed) & ~dead & ~late
            fates = {"dead": dead.sum(), "late": late.sum(), "used": used.sum()}
            self._rows.update({fate: int(n) for fate, n in fates.items()})
            for fate, rows in (("dead", dead), ("late", late)):
                self._note(fate, rows & (sure | passed))
            if self._followed:
                self.open.append(self._offsets[used & ~sure])
                self.sure.append(self._offsets[used & sure & passed])
        self.counts.update(self._rows)
        self.counts["read"] += read
        self.counts["filtered"] += read - sum(self._rows.values()) - self._shed
        if self._shed:
            self.counts[SHED] += self._shed
        self._rows.clear()

    def _note(self, fate: str, rows: np.ndarray) -> None:
        """Records with this fate that were used as well, and so may fail at an operator yet."""
        if self._sparse:
            self.several += [(fate, at, at) for at in self._offsets[rows].tolist()]
            return
        steps = np.diff(rows.astype(np.int8), prepend=0, append=0)
        first, last = np.flatnonzero(steps == 1), np.flatnonzero(steps == -1) - 1
        places = zip(self._offsets[first].tolist(), self._offsets[last].tolist(), strict=True)
        self.several += [(fate, a, b) for a, b in places]


class Passed:
    """What became of the rows that a step passed on, as far as one task takes them.

    Like `Tally`, it counts rows where each can reach one place only, and else follows them.
    """

    def __init__(self, rows: pa.Table, tracked: bool) -> None:
        self._tracked = tracked
        self._rows = places(rows)
        fates = ("used", PASSED, "late", "dead")
        self._met: dict[str, list[np.ndarray]] = {fate: [] for fate in fates}

    def mark(self, fate: str, rows: pa.Table) -> None:
        if SOURCE in rows.column_names:
            self._met[fate].append(places(rows))

    def met(self, *fates: str) -> np.ndarray:
        """The places of the rows that met one of these fates."""
        return np.concatenate([NOWHERE, *(rows for fate in fates for rows in self._met[fate])])

    def fates(self) -> dict[str, Counter[int]]:
        """By split, how many records are late or filtered: of each record once."""
        met = {"used": self.met("used", PASSED), "late": self.met("late"), "dead": self.met("dead")}
        if not self._tracked:
            by = {fate: by_split(rows) for fate, rows in met.items()}
            rest = by_split(self._rows)
            rest.subtract(by["used"] + by["late"] + by["dead"])
            return {"late": by["late"], "filtered": rest}
        left, late = np.unique(self._rows), Counter[int]()
        for fate in ("dead", "late", "used"):
            matching = np.isin(left, met[fate])
            late = by_split(left[matching]) if fate == "late" else late
            left = left[~matching]
        return {"late": late, "filtered": by_split(left)}


def by_split(places: np.ndarray) -> Counter[int]:
    ids, counts = np.unique(places["split"], return_counts=True)
    return Counter(dict(zip(ids.tolist(), counts.tolist(), strict=True)))


NOWHERE = np.zeros(0, dtype=[("split", np.int32), ("offset", np.int64)])


def places(rows: pa.Table) -> np.ndarray:
    """Where each row comes from."""
    origins = np.zeros(rows.num_rows, NOWHERE.dtype)
    origins["split"] = rows.column(SOURCE).to_numpy()
    origins["offset"] = rows.column(OFFSET).to_numpy()
    return origins


def passes_on(node: object) -> bool:
    """Whether the step emits the rows it received, at most once each, and nothing else."""
    return isinstance(node, Stateful) and node.what.passes


def leads_only_to(program: Program, name: str, step: str) -> bool:
    """Whether a record of input `name` becomes at most one row, which only `step` gets."""
    while True:
        consumers = program.consumers_of(name, OUT)
        if len(consumers) != 1:
            return False
        name = consumers[0][0]
        node = program.nodes[name]
        if _makes_several(node):
            return False
        if isinstance(node, Write) or name == step:
            return name == step
        if isinstance(node, Stateful) and not passes_on(node):
            return False


def _makes_several(node: Node) -> bool:
    """Whether a row may become several rows in this step."""
    if isinstance(node, Chunks):
        return node.what.several
    steps = node.steps if isinstance(node, PythonChain) else (node,)
    return any(isinstance(s, Python) and s.kind in ("flat_map", "batches") for s in steps)


def needs_tracking(program: Program, name: str) -> bool:
    """Whether a record of input `name` can reach more than one place from the source."""
    pending, places = [name], 0
    while pending:
        consumers = program.consumers_of(pending.pop(), OUT)
        if len(consumers) > 1:
            return True
        for consumer, index in consumers:
            node = program.nodes[consumer]
            if _makes_several(node):
                return True
            if program.consumers_of(node.name, late_port(index)):
                return True
            if isinstance(node, Stateful | Write):
                places += 1
            else:
                pending.append(consumer)
    return places > 1
