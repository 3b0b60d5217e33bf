"""A spanner of a growing graph: few of its edges, among which no distance is much longer.

An edge is taken if those taken so far have no path of at most 2k - 1 edges between its ends;
once taken it stays. So distances are at most 2k - 1 times what they are in the whole graph, and
no cycle of what was taken has 2k edges or fewer: of n vertices there are at most n^(1 + 1/k) + n
edges. State is the neighbours of each vertex in the spanner; a batch reads those of the vertices
within k - 1 steps of its own, but for edges that are the first of a vertex.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Index, Mask, flat, numbers
from headrace.chunk import HASH
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.graph.edges import EdgeBatch, GraphOperator, GraphSpec, some
from headrace.ops.graph.search import greedy
from headrace.ops.keys import key_numbers
from headrace.ops.tables import emit_some
from headrace.state.table import KeyedTable, TableSpec

NEIGHBOURS, KNOWN = "neighbours", "vertices"


@dataclass(frozen=True)
class Spanner(GraphSpec):
    src: str
    dst: str
    vertex: str
    k: int

    kind = "spanner"
    changes = False
    passes = True
    by_event_time = False

    def __str__(self) -> str:
        return f"edges that keep distances within {2 * self.k - 1} times"

    def shape(self) -> dict[str, Any]:
        return {**super().shape(), "k": self.k}

    def operator(self, place: Place) -> Operator:
        return _SpannerOperator(self, place)


class _SpannerOperator(GraphOperator):
    spec: Spanner

    def tables(self) -> tuple[TableSpec, ...]:
        return (self.table(NEIGHBOURS, ["v", "w"]), self.table(KNOWN, ["v"]))

    def step(self, step: EpochStep) -> None:
        if step.arrived is None:
            return
        batch = self.batch(step.arrived, step)
        rows = batch.first_of_each()
        ends = self._at_new_ends(batch, rows, step.tables[KNOWN])
        takes = np.concatenate([rows[ends], self._taken(batch, rows[~ends], step)])
        self._store(batch, batch.u[takes], batch.v[takes], step)
        stays = np.zeros(batch.rows.num_rows, np.bool_)
        stays[takes] = True
        emit_some(batch.rows, stays, self.output.names, step)

    def _at_new_ends(self, batch: EdgeBatch, rows: Index, table: KeyedTable) -> Mask:
        """Whether an edge is the only one of a vertex: it is taken, and no path goes through it.

        So an edge between a new vertex and one with many neighbours reads none of these.
        """
        _, known = table.get(batch.vertices)
        both = np.concatenate([batch.u[rows], batch.v[rows]])
        alone: Mask = ~known & (np.bincount(both, minlength=len(known)) == 1)
        ends: Mask = alone[batch.u[rows]] | alone[batch.v[rows]]
        return ends

    def _taken(self, batch: EdgeBatch, rows: Index, step: EpochStep) -> Index:
        """Those of the rows that the spanner takes, by what it has near their ends."""
        centre, places = np.unique(
            np.concatenate([batch.u[rows], batch.v[rows]]), return_inverse=True
        )
        centres = batch.vertices.take(pa.array(centre))
        near = self._near(centres, step.tables[NEIGHBOURS])
        named = [self._vertices(near, n) for n in "vw"]
        every = pa.concat_tables([centres, *named]).combine_chunks()
        number, first = key_numbers(every)
        v, w = np.split(number[len(centre) :], 2)
        one, other = np.split(number[places], 2)
        return rows[greedy(len(first), (v, w), one, other, self.spec.k)]

    def _near(self, vertices: pa.Table, table: KeyedTable) -> pa.Table:
        """The edges at vertices within k - 1 steps of these."""
        found, known, frontier = list[pa.Table](), vertices, vertices
        for _ in range(self.spec.k):
            if found and not frontier.num_rows:
                break
            rows = table.match(numbers(frontier.column(HASH)))
            found.append(rows)
            known, frontier = self._beyond(known, rows)
        rows = pa.concat_tables(found).combine_chunks()
        _, first = key_numbers(rows)
        return rows.take(pa.array(first))

    def _beyond(self, known: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """All vertices, those at the other ends included, and which of them are new."""
        both = pa.concat_tables([known, self._vertices(rows, "w")]).combine_chunks()
        _, first = key_numbers(both)
        every = both.take(pa.array(first))
        return every, some(every, first >= known.num_rows)

    def _vertices(self, rows: pa.Table, column: str) -> pa.Table:
        return self.under(rows, {"v": flat(rows.column(column))})

    def _store(self, batch: EdgeBatch, u: Index, v: Index, step: EpochStep) -> None:
        for one, other in ((u, v), (v, u)):
            rows = batch.vertices.take(pa.array(one))
            neighbours = batch.vertices.column("v").take(pa.array(other))
            step.tables[NEIGHBOURS].put(rows.append_column("w", neighbours))
            step.tables[KNOWN].put(rows)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The edges of the spanner."""
        rows = tables[NEIGHBOURS].scan()
        forward = pc.less(rows.column("v"), rows.column("w"))
        return self.shown(rows.filter(forward), {"v": self.spec.src, "w": self.spec.dst})
