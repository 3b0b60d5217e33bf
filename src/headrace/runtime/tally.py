"""Accounting: every record read is used, filtered, late or dead, exactly once.

A record that meets several fates on several branches counts by the worst: dead before
late, late before used; one that reached nothing was filtered. Where a record can reach
only one place, counting rows is enough; elsewhere its offset is followed.
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
        self.counts.update(self._rows)
        self.counts["read"] += read
        self.counts["filtered"] += read - sum(self._rows.values())
        self._rows.clear()


def filtered_below(
    program: Program, step: str, rows: pa.Table, epoch: Epoch
) -> dict[str, Counter[str]]:
    """Corrections by input for records that counted as used until `step` left them out.

    Only where a record leads to one row, and that row nowhere else: otherwise it was used.
    """
    aside = any(program.consumers_of(step, port) for port in program.nodes[step].sides)
    if SOURCE not in rows.column_names or aside:
        return {}
    inputs = {s.id: s.input for s in epoch.splits}
    ids, counts = np.unique(rows.column(SOURCE).to_numpy(), return_counts=True)
    found: dict[str, Counter[str]] = {}
    for split, count in zip(ids.tolist(), counts.tolist(), strict=True):
        name = inputs.get(split)
        if name is not None and _leads_only_to(program, name, step):
            found.setdefault(name, Counter()).update({"used": -count, "filtered": count})
    return found


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
        if isinstance(node, Stateful | Write):
            return name == step


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
