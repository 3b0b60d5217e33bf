"""Connected components of growing graphs: each vertex belongs to the smallest it is connected with.

State is the component of each vertex, and the vertices of each component. A batch looks up the
components of its vertices, joins them, and writes those vertices whose component became another.
So its cost goes by its edges and by what it emits. After a batch the result depends on the edges
that came so far, on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Index, flat
from headrace.chunk import HASH
from headrace.ops.contract import EpochStep, Operator, Place
from headrace.ops.graph.edges import (
    VERTEX,
    EdgeBatch,
    GraphOperator,
    GraphSpec,
    ranks,
    some,
)
from headrace.ops.graph.forests import spanning_forest
from headrace.ops.keys import key_numbers
from headrace.state.table import KeyedTable, TableSpec

COMPONENT = "component"
OF_VERTEX, MEMBERS = "vertices", "members"
_LABEL = "c"


@dataclass(frozen=True)
class Components(GraphSpec):
    src: str
    dst: str
    vertex: str

    kind = "components"

    def __str__(self) -> str:
        return f"connected by {self.src} and {self.dst}, as changes"

    def operator(self, place: Place) -> Operator:
        return _ComponentsOperator(self, place)


class _ComponentsOperator(GraphOperator):
    def tables(self) -> tuple[TableSpec, ...]:
        of_vertex = self.table(OF_VERTEX, ["v"], [(_LABEL, self.type)])
        return (of_vertex, self.table(MEMBERS, [_LABEL, "v"]), self.newest())

    def step(self, step: EpochStep) -> None:
        if step.arrived is None:
            return
        batch = self.batch(step.arrived, step)
        stored, present = step.tables[OF_VERTEX].get(batch.vertices)
        label = pc.coalesce(flat(stored.column(_LABEL)), flat(batch.vertices.column("v")))
        names = self.under(batch.vertices, {_LABEL: label})  # a new vertex is its own component
        number, first = key_numbers(names)
        labels, now = names.take(pa.array(first)), self._joined(names, number, first, batch)
        moved = now != np.arange(len(now))
        known = np.zeros(len(now), np.bool_)
        known[number[present]] = True
        members, their = self._members(labels, moved & known, step)
        fresh = batch.vertices.filter(pa.array(~present))
        everyone = pa.concat_tables([members.select(fresh.column_names), fresh])
        to = np.concatenate([now[their], now[number[~present]]])
        became = flat(labels.column(_LABEL)).take(pa.array(to))
        at = np.empty(len(now), np.int64)
        at[number] = batch.latest
        times = at[to]
        self._store(step, members, everyone, became)
        before = members.drop_columns([_LABEL]).append_column(
            COMPONENT, flat(labels.column(_LABEL)).take(pa.array(their))
        )
        self.emit(_called(before), times[: len(their)], step, "-")
        self.emit(_called(everyone.append_column(COMPONENT, became)), times, step, "+")

    def _joined(self, names: pa.Table, number: Index, first: Index, batch: EdgeBatch) -> Index:
        """For each component the number of the one that it now belongs to."""
        rank = ranks(flat(names.column(_LABEL)).take(pa.array(first)))
        by_rank = np.argsort(rank)
        u, v = rank[number[batch.u]], rank[number[batch.v]]
        smallest, _ = spanning_forest(len(first), u, v)
        return by_rank[smallest[rank]]

    def _members(
        self, labels: pa.Table, moved: np.ndarray, step: EpochStep
    ) -> tuple[pa.Table, Index]:
        """The vertices of components that have become part of others, and which they were of.

        As rows of the vertex: the hash is that of key and vertex.
        """
        gone = np.flatnonzero(moved)
        sought = labels.take(pa.array(gone))
        table = step.tables[MEMBERS]
        rows = table.match(sought.column(HASH).to_numpy())
        both = pa.concat_tables([sought, rows.select(sought.column_names)])
        number, _ = key_numbers(both.combine_chunks())
        which = np.full(int(number.max(initial=-1)) + 1, -1)
        which[number[: len(gone)]] = gone
        their = which[number[len(gone) :]]
        rows, their = some(rows, their >= 0), their[their >= 0]
        vertices = self.under(rows, {"v": flat(rows.column("v"))})
        return vertices.append_column(_LABEL, flat(rows.column(_LABEL))), their

    def _store(
        self, step: EpochStep, members: pa.Table, everyone: pa.Table, became: pa.Array
    ) -> None:
        step.tables[OF_VERTEX].put(everyone.append_column(_LABEL, became))
        step.tables[MEMBERS].delete(self._member_rows(members, flat(members.column(_LABEL))))
        step.tables[MEMBERS].put(self._member_rows(everyone, became))

    def _member_rows(self, vertices: pa.Table, labels: pa.Array) -> pa.Table:
        rows = self.under(vertices, {_LABEL: labels})
        return rows.append_column("v", vertices.column("v"))

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The component of each vertex."""
        return self.shown(tables[OF_VERTEX].scan(), {"v": VERTEX, _LABEL: COMPONENT})

    def side_views(self) -> Mapping[str, Sequence[str]]:
        return {"vertices": (*self.keys.columns, VERTEX)}

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        return self.view(tables, 0, 0)


def _called(rows: pa.Table) -> pa.Table:
    return rows.rename_columns([VERTEX if n == "v" else n for n in rows.column_names])
