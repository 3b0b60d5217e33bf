"""Degrees of vertices in growing graphs, and how many vertices have each degree.

An edge counts once, however often it comes, so every distinct edge is state; a loop makes its
vertex known and adds nothing to its degree. A batch looks up its edges and the vertices of those
that are new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, flat, integers
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.graph.edges import VERTEX, EdgeBatch, GraphOperator, GraphSpec, some
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

DEGREE, VERTICES = "degree", "vertices"
DEGREES, EDGES, DISTRIBUTION = "degrees", "edges", "distribution"
_COUNT = "count"


@dataclass(frozen=True)
class Degrees(GraphSpec):
    src: str
    dst: str
    vertex: str

    kind = "degrees"

    def __str__(self) -> str:
        return f"of the vertices {self.src} and {self.dst}, as changes"

    def operator(self, place: Place) -> Operator:
        return _DegreesOperator(self, place)


@dataclass(frozen=True)
class DegreeDistribution(GraphSpec):
    src: str
    dst: str
    vertex: str

    kind = "degree_distribution"

    def __str__(self) -> str:
        return f"how many of {self.src} and {self.dst} have each degree, as changes"

    def operator(self, place: Place) -> Operator:
        return _DistributionOperator(self, place)


class _DegreesOperator(GraphOperator):
    def tables(self) -> tuple[TableSpec, ...]:
        return (
            self.table(DEGREES, ["v"], [(_COUNT, pa.int64())]),
            self.table(EDGES, ["a", "b"]),
            self.newest(),
        )

    def step(self, step: EpochStep) -> None:
        if step.arrived is None:
            return
        batch = self.batch(step.arrived, step)
        more = self._new_edges(batch, step)
        stored, present = step.tables[DEGREES].get(batch.vertices)
        before = integers(stored.column(_COUNT))
        changed = ~present | (more > 0)
        vertices, after = some(batch.vertices, changed), (before + more)[changed]
        step.tables[DEGREES].put(vertices.append_column(_COUNT, pa.array(after)))
        old = np.where(present, before, -1)[changed]
        self._changed(vertices, old, after, batch.latest[changed], step)

    def _new_edges(self, batch: EdgeBatch, step: EpochStep) -> Index:
        """By how much the degree of each vertex grows."""
        rows = batch.first_of_each()
        ends = [batch.vertices.take(pa.array(end[rows])) for end in (batch.u, batch.v)]
        named = {n: flat(end.column("v")) for n, end in zip("ab", ends, strict=True)}
        edges = self.under(ends[0], named)
        _, known = step.tables[EDGES].get(edges)
        step.tables[EDGES].put(some(edges, ~known))
        new, count = rows[~known], batch.vertices.num_rows
        return np.bincount(batch.u[new], minlength=count) + np.bincount(
            batch.v[new], minlength=count
        )

    def _changed(
        self, vertices: pa.Table, before: Index, after: Index, times: Index, step: EpochStep
    ) -> None:
        """Emit the changes; -1 is the degree of a vertex that was not known."""
        vertices = vertices.rename_columns([*self.keys.identity, VERTEX])
        known = before >= 0
        old = some(vertices.append_column(DEGREE, pa.array(before)), known)
        self.emit(old, times[known], step, "-")
        self.emit(vertices.append_column(DEGREE, pa.array(after)), times, step, "+")

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The degree of each vertex."""
        return self.shown(tables[DEGREES].scan(), {"v": VERTEX, _COUNT: DEGREE})

    def side_views(self) -> Mapping[str, Sequence[str]]:
        return {VERTICES: (*self.keys.columns, VERTEX)}

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        return _DegreesOperator.view(self, tables, 0, 0)


class _DistributionOperator(_DegreesOperator):
    def tables(self) -> tuple[TableSpec, ...]:
        key = pa.schema([*self.keys.schema, ("degree", pa.int64())])
        value = pa.schema([(_COUNT, pa.int64())])
        return (TableSpec(DISTRIBUTION, key, value, by_part=True), *super().tables())

    def _changed(
        self, vertices: pa.Table, before: Index, after: Index, times: Index, step: EpochStep
    ) -> None:
        known = before >= 0
        keys = pa.concat_tables([some(vertices, known), vertices])
        degrees = np.concatenate([before[known], after])
        change = np.repeat([-1, 1], [int(known.sum()), len(after)])
        named = self.under(keys, {"degree": pa.array(degrees)})
        number, first = key_numbers(named)
        more = np.zeros(len(first), np.int64)
        np.add.at(more, number, change)
        moved: Mask = more != 0
        groups, more = named.take(pa.array(first[moved])), more[moved]
        stored, present = step.tables[DISTRIBUTION].get(groups)
        had = integers(stored.column(_COUNT))
        now = had + more
        counted = groups.append_column(_COUNT, pa.array(now))
        step.tables[DISTRIBUTION].put(some(counted, now > 0))
        step.tables[DISTRIBUTION].delete(some(groups, now == 0))
        at = np.concatenate([times[known], times])[first[moved]]
        old = groups.append_column(VERTICES, pa.array(had))
        self.emit(some(old, present), at[present], step, "-")
        new = groups.append_column(VERTICES, pa.array(now))
        self.emit(some(new, now > 0), at[now > 0], step, "+")

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """How many vertices have each degree."""
        columns = {"degree": DEGREE, _COUNT: VERTICES}
        return self.shown(tables[DISTRIBUTION].scan(), columns)
