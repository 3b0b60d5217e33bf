"""Accounting: every record read is used, filtered, late or dead, exactly once.

A record that meets several fates on several branches counts by the worst: dead before
late, late before used; one that reached nothing was filtered. Where a record can reach
only one place, counting rows is enough; elsewhere its offset is followed.

A record is used where something is made of it: at an output, or at an operator. Operators that
only pass rows on (`passes`: lookups, deduplication and the like) make nothing of them, so what
becomes of such a row behind them corrects what the source has counted.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from headrace.chunk import OFFSET, SOURCE
from headrace.plan.nodes import (
    OUT,
    Apply,
    Chunks,
    Node,
    Python,
    PythonChain,
    Stateful,
    Write,
    late_port,
)
from headrace.plan.program import Program
from headrace.runtime.epoch import Epoch

FATES = ("read", "used", "filtered", "late", "dead")


class Tally:
    """Counts the records of one input in one task."""

    def __init__(self, tracked: bool) -> None:
        self._tracked = tracked
        self.counts: Counter[str] = Counter({fate: 0 for fate in FATES})
        self._offsets = np.zeros(0, dtype=np.int64)
        self._marks: dict[str, np.ndarray] = {}
        self._rows: Counter[str] = Counter()
        self.several: list[tuple[str, int, int]] = []  # fate, first and last offset

    def begin(self, offsets: np.ndarray) -> None:
        """A chunk with these offsets has been read."""
        self._offsets = offsets
        self._rows.clear()
        if self._tracked:
            self._marks = {f: np.zeros(len(offsets), dtype=bool) for f in ("used", "late", "dead")}

    def mark(self, fate: str, rows: pa.Table) -> None:
        if not self._tracked:
            self._rows[fate] += rows.num_rows
        elif OFFSET in rows.column_names and rows.num_rows:
            self.mark_offsets(fate, rows.column(OFFSET).to_numpy())

    def mark_offsets(self, fate: str, offsets: np.ndarray) -> None:
        if not self._tracked:
            self._rows[fate] += len(offsets)
        else:
            self._marks[fate][np.searchsorted(self._offsets, offsets)] = True

    def end(self) -> None:
        """The chunk has gone through the program as far as this task takes it."""
        read = len(self._offsets)
        if self._tracked:
            dead = self._marks["dead"]
            late = self._marks["late"] & ~dead
            used = self._marks["used"] & ~dead & ~late
            fates = {"dead": dead.sum(), "late": late.sum(), "used": used.sum()}
            self._rows.update({fate: int(n) for fate, n in fates.items()})
            for fate, rows in (("dead", dead), ("late", late)):
                self._note(fate, rows & self._marks["used"])
        self.counts.update(self._rows)
        self.counts["read"] += read
        self.counts["filtered"] += read - sum(self._rows.values())
        self._rows.clear()

    def _note(self, fate: str, rows: np.ndarray) -> None:
        """Records with this fate that were used as well, and so may fail at an operator yet."""
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
        self._rows = _places(rows)
        self._met: dict[str, list[np.ndarray]] = {fate: [] for fate in ("used", "late", "dead")}

    def mark(self, fate: str, rows: pa.Table) -> None:
        if SOURCE in rows.column_names:
            self._met[fate].append(_places(rows))

    def fates(self) -> dict[str, Counter[int]]:
        """By split, how many records are late or filtered: of each record once."""
        met = {fate: np.concatenate([_NOWHERE, *rows]) for fate, rows in self._met.items()}
        if not self._tracked:
            by = {fate: _by_split(rows) for fate, rows in met.items()}
            rest = _by_split(self._rows)
            rest.subtract(by["used"] + by["late"] + by["dead"])
            return {"late": by["late"], "filtered": rest}
        left, late = np.unique(self._rows), Counter[int]()
        for fate in ("dead", "late", "used"):
            there = np.isin(left, met[fate])
            late = _by_split(left[there]) if fate == "late" else late
            left = left[~there]
        return {"late": late, "filtered": _by_split(left)}


def _by_split(places: np.ndarray) -> Counter[int]:
    ids, counts = np.unique(places["split"], return_counts=True)
    return Counter(dict(zip(ids.tolist(), counts.tolist(), strict=True)))


_NOWHERE = np.zeros(0, dtype=[("split", np.int32), ("offset", np.int64)])


def _places(rows: pa.Table) -> np.ndarray:
    """Where each row comes from."""
    found = np.zeros(rows.num_rows, _NOWHERE.dtype)
    found["split"] = rows.column(SOURCE).to_numpy()
    found["offset"] = rows.column(OFFSET).to_numpy()
    return found


def passes_on(node: object) -> bool:
    """Whether the step gives the rows it got, at most once each, and makes nothing else of them."""
    return isinstance(node, Apply) and bool(getattr(node.what, "passes", False))


def may_be_dropped(program: Program, step: str) -> bool:
    """Whether rows that `step` passes on can be left out, or be late, before they are used."""
    if not passes_on(program.nodes[step]):
        return False
    consumers = [program.nodes[consumer] for consumer, _ in program.consumers_of(step, OUT)]
    return not consumers or not all(isinstance(node, Write) for node in consumers)


def corrections(
    program: Program, step: str, splits: Counter[int], fate: str, epoch: Epoch
) -> dict[str, Counter[str]]:
    """By input, for records that counted as used until `step` got them, or passed them on.

    Only where a record leads to one row, and that row nowhere else: otherwise it was used.
    """
    inputs = {s.id: s.input for s in epoch.splits}
    found: dict[str, Counter[str]] = {}
    for split, count in splits.items():
        name = inputs.get(split) if count else None
        if name is not None and _leads_only_to(program, name, step):
            found.setdefault(name, Counter()).update({"used": -count, fate: count})
    return found


def filtered_below(
    program: Program, step: str, rows: pa.Table, epoch: Epoch
) -> dict[str, Counter[str]]:
    """Corrections by input for records that counted as used until `step` left them out."""
    aside = any(program.consumers_of(step, port) for port in program.nodes[step].sides)
    if SOURCE not in rows.column_names or aside:
        return {}
    return corrections(program, step, _by_split(_places(rows)), "filtered", epoch)


def _leads_only_to(program: Program, name: str, step: str) -> bool:
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
        return bool(getattr(node.what, "several", False))
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
