"""Triangles of a growing graph, estimated from a sample of fixed size.

Every edge has a random rank, computed from its graph's seed, its key and its vertices; the sample
is the edges of the lowest ranks. A graph's seed is made of `seed=` and the names of the job and
the step when its first edge comes, and is stored: an edge that comes again has the rank that it
had, even if the step has another name by now. So an edge that comes again changes nothing, and
neither does the way in which rows are cut into batches.

Of a full sample of m edges the m - 1 lowest count: they are a uniform choice of so many distinct
edges. With the m-th rank as share p of all ranks, the
triangles among them over p^3 are an estimate without bias for every m > 3: given that three edges
are among the m - 1 of n, with probability (m-1)(m-2)(m-3) / n(n-1)(n-2), the mean of 1/p^3 is the
inverse of just that. A batch that does not change the sample costs what its edges cost; one that
does counts the triangles of the sample again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, flat, integers
from headrace.chunk import HASH
from headrace.hashing import hash_keys, seed_of
from headrace.ops.agg.order import sorted_by
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.graph.edges import EdgeBatch, GraphOperator, GraphSpec, at_most_half, some
from headrace.ops.graph.triangles import count_triangles
from headrace.ops.keys import key_numbers
from headrace.ops.stream.key_groups import place_in_group
from headrace.state.table import KeyedTable, TableSpec

TRIANGLES, ERROR = "triangles", "error"
ESTIMATE, SAMPLE = "estimate", "sample"
_RANK, _LIMIT, _SEED = "rank", "limit", "seed"
_RANKS = 2**63  # so many ranks there are


@dataclass(frozen=True)
class SampledTriangles(GraphSpec):
    src: str
    dst: str
    vertex: str
    size: int
    seed: int
    step_name: str = ""  # "job/step"

    kind = "triangles"

    def __str__(self) -> str:
        return f"estimated from {self.size} edges between {self.src} and {self.dst}, as changes"

    def shape(self) -> dict[str, Any]:
        return {**super().shape(), "sample": self.size, "seed": self.seed, "format": 2}

    def for_step(self, name: str) -> SampledTriangles:
        return replace(self, step_name=name)

    def operator(self, place: Place) -> Operator:
        return _SampledOperator(self, place)


class _SampledOperator(GraphOperator):
    spec: SampledTriangles

    def tables(self) -> tuple[TableSpec, ...]:
        integer, number = pa.int64(), pa.float64()
        results = [(_SEED, integer), (_LIMIT, integer), (TRIANGLES, number), (ERROR, number)]
        edge = pa.schema([*self.keys.schema, ("a", self.type), ("b", self.type)])
        return (
            TableSpec(ESTIMATE, self.keys.schema, pa.schema(results)),
            TableSpec(SAMPLE, edge, pa.schema([(_RANK, integer)])),
            self.newest(),
        )

    def step(self, step: EpochStep) -> None:
        if step.arrived is None:
            return
        batch = self.batch(step.arrived, step)
        keys = self.keys.of(batch.rows)
        graph, first = key_numbers(keys)
        graphs = keys.take(pa.array(first))
        stored, present = step.tables[ESTIMATE].get(graphs)
        limit = np.where(present, integers(stored.column(_LIMIT)), _RANKS - 1)
        rows, rank = self._low(batch, keys, limit[graph], self._seeds(stored, present)[graph])
        touched = ~present
        touched[graph[rows]] = True
        latest = np.empty(len(first), np.int64)
        latest[graph] = batch.latest[batch.u]
        fresh = self._edges(batch, keys, rows, rank)
        graphs, stored, present = some(graphs, touched), some(stored, touched), present[touched]
        self._sample(graphs, fresh, stored, present, latest[touched], step)

    def _seeds(self, stored: pa.Table, present: Mask) -> Index:
        """Of some graphs; those that are not present begin now."""
        return np.where(
            present, integers(stored.column(_SEED)), seed_of(self.spec.seed, self.spec.step_name)
        )

    def _low(
        self, batch: EdgeBatch, keys: pa.Table, limit: Index, seed: Index
    ) -> tuple[Index, Index]:
        """The distinct edges that may belong to the sample, and their ranks."""
        rows = batch.first_of_each()
        ends = [
            flat(batch.vertices.column("v")).take(pa.array(e[rows])) for e in (batch.u, batch.v)
        ]
        key = pa.array(keys.column(HASH).to_numpy()[rows])
        rank = at_most_half(hash_keys([pa.array(seed[rows]), key, *ends], len(rows)))
        low = rank < limit[rows]
        return rows[low], rank[low]

    def _edges(self, batch: EdgeBatch, keys: pa.Table, rows: Index, rank: Index) -> pa.Table:
        edges = keys.take(pa.array(rows))
        vertices = batch.vertices.column("v")
        for name, end in (("a", batch.u), ("b", batch.v)):
            edges = edges.append_column(name, vertices.take(pa.array(end[rows])))
        return edges.append_column(_RANK, pa.array(rank))

    def _sample(
        self,
        graphs: pa.Table,
        fresh: pa.Table,
        before: pa.Table,
        present: Mask,
        times: Index,
        step: EpochStep,
    ) -> None:
        """The samples of some graphs with new edges, and what is estimated from each."""
        table = step.tables[SAMPLE]
        stored = table.match(graphs.column(HASH).to_numpy())
        both = pa.concat_tables([stored, fresh.select(stored.column_names)]).combine_chunks()
        _, distinct = key_numbers(both.drop_columns([_RANK]))
        both, new = both.take(pa.array(distinct)), distinct >= stored.num_rows
        named = pa.concat_tables([graphs, both.select(graphs.column_names)]).combine_chunks()
        number = key_numbers(named)[0]
        place = np.full(int(number.max(initial=-1)) + 1, -1)
        place[number[: graphs.num_rows]] = np.arange(graphs.num_rows)
        graph = place[number[graphs.num_rows :]]  # -1: another key of the same hash
        rank, within = integers(both.column(_RANK)), np.zeros(both.num_rows, np.int64)
        order = sorted_by([graph, rank]) if both.num_rows else np.zeros(0, np.int64)
        within[order] = place_in_group(graph[order])
        stays = within < self.spec.size
        table.delete(some(both, ~stays & ~new & (graph >= 0)).drop_columns([_RANK]))
        table.put(some(both, stays & new))
        counted = stays & (within < self.spec.size - 1) & (graph >= 0)
        limit = np.full(graphs.num_rows, _RANKS - 1)
        full = (within == self.spec.size - 1) & (graph >= 0)
        limit[graph[full]] = rank[full]
        self._estimate(
            some(both, counted), graph[counted], graphs, limit, before, present, times, step
        )

    def _estimate(
        self,
        edges: pa.Table,
        graph: Index,
        graphs: pa.Table,
        limit: Index,
        before: pa.Table,
        present: Mask,
        times: Index,
        step: EpochStep,
    ) -> None:
        half, keys = edges.num_rows, edges.select(self.keys.identity)
        ends = [flat(edges.column(n)) for n in "ab"]
        named = self.under(pa.concat_tables([keys, keys]), {"v": pa.concat_arrays(ends)})
        number, first = key_numbers(named)
        over = count_triangles(len(first), number[:half], number[half:]).over_edge
        found = np.bincount(graph, over, len(limit)) / 3
        pairs = np.bincount(graph, over * (over - 1) / 2, len(limit))
        share = np.where(limit == _RANKS - 1, 1.0, limit / _RANKS)
        estimate = found / share**3
        spread = np.sqrt(found * (1 - share**3) + 2 * pairs * (1 - share)) / share**3
        results = graphs.append_column(_SEED, pa.array(self._seeds(before, present)))
        results = results.append_column(_LIMIT, pa.array(limit))
        results = results.append_column(TRIANGLES, pa.array(estimate))
        results = results.append_column(ERROR, pa.array(spread))
        step.tables[ESTIMATE].put(results)
        was = [before.column(n).to_numpy(zero_copy_only=False) for n in (TRIANGLES, ERROR)]
        changed = ~present | (was[0] != estimate) | (was[1] != spread)
        old = graphs.append_column(TRIANGLES, before.column(TRIANGLES))
        old = old.append_column(ERROR, before.column(ERROR))
        back = present & changed
        self.emit(some(old, back), times[back], step, "-")
        self.emit(some(results.drop_columns([_SEED, _LIMIT]), changed), times[changed], step, "+")

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """What is estimated of each graph."""
        columns = {TRIANGLES: TRIANGLES, ERROR: ERROR}
        return self.shown(tables[ESTIMATE].scan(), columns)
