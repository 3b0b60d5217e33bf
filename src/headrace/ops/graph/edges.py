"""Edges and their vertices: what every graph operator makes of a batch, and how it stores them.

An edge has no direction: its smaller vertex comes first. A vertex is a text or a whole number,
never null. Each key is a graph of its own; without a key there is one.

State by vertex lies under a hash whose upper half is the key's, which says in which slot it is,
and whose lower half is that of the vertex: so the rows of a vertex are found among those of a
large graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headrace.arrays import Column, Index, Mask, flat, integers, numbers, valid
from headrace.chunk import HASH, SOURCE, TAKEN_BACK, TIME, hidden_columns, plain_column, plain_type
from headrace.errors import StepError
from headrace.hashing import Hashes, hash_keys
from headrace.ops.agg.order import codes
from headrace.ops.contract import ChunkSpec, EpochStep, Operator, Place, Spec
from headrace.ops.keys import KeyColumns, in_order, key_numbers
from headrace.ops.tables import derived_rows
from headrace.state.table import TableSpec

NEWEST = "newest"
VERTEX, CHANGE = "vertex", pa.field("change", pa.string())
_UPPER, _HALF = np.uint64(0xFFFFFFFF00000000), np.uint64(32)


def can_be_vertex(kind: pa.DataType) -> bool:
    plain = plain_type(kind)
    return bool(pt.is_string(plain) or pt.is_signed_integer(plain))


@dataclass(frozen=True)
class EdgeColumns(ChunkSpec):
    """Rows as edges: the smaller vertex first; one without a vertex fails."""

    src: str
    dst: str

    kind = "edges"

    def __str__(self) -> str:
        return f"between {self.src} and {self.dst}"

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[tuple[int, Any]]]:
        """The edges; the rows in which a vertex is null are lost."""
        rows = chunk.select([*schema.names, *hidden_columns(chunk)])
        ends = [flat(plain_column(rows.column(n))) for n in (self.src, self.dst)]
        whole = valid(ends[0]) & valid(ends[1])
        lost = [(int(i), self._missing(ends, int(i))) for i in np.flatnonzero(~whole)]
        first, second = smaller_first(*ends)
        for name, column in ((self.src, first), (self.dst, second)):
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return (rows.filter(pa.array(whole)) if lost else rows), lost

    def _missing(self, ends: Sequence[pa.Array], row: int) -> StepError:
        names = [n for n, c in zip((self.src, self.dst), ends, strict=True) if not c[row].is_valid]
        fact = f"an edge without a vertex: {' and '.join(names)} is null"
        return StepError("HR-GRAPH-001", fact, "Filter such rows out before edges(...).")

    def leaves(self, columns: Any) -> bool:
        """Which of two vertices is first does not matter to whoever asks where they come from."""
        return True


def smaller_first(a: pa.Array, b: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Both ends of each edge in order; texts by their bytes, as Arrow compares them."""
    turned = pc.greater(a, b)
    return pc.if_else(turned, b, a), pc.if_else(turned, a, b)


class GraphSpec(Spec):
    """A step over the edges of graphs, one for each key."""

    src: str
    dst: str
    vertex: str  # the type of vertices, as text

    endless = True
    widens_keys = True
    changes = True  # its results are changes, with the column that says so

    @property
    def compares(self) -> tuple[str, ...]:
        return (self.src, self.dst)

    def shape(self) -> dict[str, Any]:
        return {"edges": [self.src, self.dst], "vertex": self.vertex}

    @property
    def bound(self) -> str:
        return "unbounded=True; otherwise take the edges of a window: triangles(hr.tumbling(...))."


@dataclass(frozen=True, slots=True)
class EdgeBatch:
    """The edges of a batch, in order, by the numbers of their vertices."""

    rows: pa.Table
    u: Index
    v: Index
    vertices: pa.Table  # by number: hash, key and vertex
    latest: Index  # by number: the newest event time so far of its graph

    def first_of_each(self) -> Index:
        """The rows of distinct edges, loops left out, in order."""
        rows = np.flatnonzero(self.u != self.v)
        pairs = self.u[rows] * self.vertices.num_rows + self.v[rows]
        _, first = np.unique(pairs, return_index=True)
        return rows[np.sort(first)]


class GraphOperator(Operator):
    """What graph operators share: the columns of keys, vertices and changes."""

    sliceable = False

    def __init__(self, spec: GraphSpec, place: Place) -> None:
        self.spec, self.output = spec, place.output
        self.keys = KeyColumns(place.key, place.input)
        self.type = plain_type(place.input.field(spec.src).type)
        self.timed = place.timed

    def table(
        self, name: str, key: Sequence[str], value: Sequence[tuple[str, pa.DataType]] = ()
    ) -> TableSpec:
        """A table by key and these vertices."""
        identity = pa.schema([*self.keys.schema, *((n, self.type) for n in key)])
        return TableSpec(name, identity, pa.schema(list(value)), by_part=True)

    def newest(self) -> TableSpec:
        """The table of the newest event time of each graph, which its changes have."""
        return TableSpec(NEWEST, self.keys.schema, pa.schema([("t", pa.int64())]))

    def batch(self, arrived: pa.Table, step: EpochStep) -> EdgeBatch:
        rows = in_order(arrived)
        keys = self.keys.of(rows)
        ends = [flat(plain_column(rows.column(n))) for n in (self.spec.src, self.spec.dst)]
        both = pa.concat_tables([keys, keys])
        named = self.under(both, {"v": pa.concat_arrays(ends)})
        number, first = key_numbers(named)
        half = rows.num_rows
        vertices = named.take(pa.array(first))
        return EdgeBatch(
            rows,
            number[:half],
            number[half:],
            vertices,
            self._latest(rows, keys, first % half, step),
        )

    def _latest(self, rows: pa.Table, keys: pa.Table, first: Index, step: EpochStep) -> Index:
        """The newest event time of each graph, and the watermark at least: so later changes never
        have an earlier one, and none of them is late."""
        if not self.timed or not self.spec.changes:
            return np.zeros(len(first), np.int64)
        graph, heads = key_numbers(keys)
        graphs, table = keys.take(pa.array(heads)), step.tables[NEWEST]
        stored, present = table.get(graphs)
        before = np.where(present, integers(stored.column("t")), np.iinfo(np.int64).min)
        latest = before.copy()
        np.maximum.at(latest, graph, integers(rows.column(TIME)))
        newer = latest > before
        table.put(some(graphs.append_column("t", pa.array(latest)), newer))
        return np.maximum(latest, step.before)[graph[first]]

    def under(self, keys: pa.Table, vertices: dict[str, pa.Array]) -> pa.Table:
        """Keys and vertices under the hash of both; `keys` has any hash of the key's slot."""
        parts = hash_keys(list(vertices.values()), keys.num_rows)
        hashes = (numbers(keys.column(HASH)) & _UPPER) | (parts >> _HALF)
        columns = [keys.column(n) for n in self.keys.schema.names]
        names = [HASH, *self.keys.schema.names, *vertices]
        return pa.table([pa.array(hashes), *columns, *vertices.values()], names)

    def shown(self, stored: pa.Table, columns: dict[str, str]) -> pa.Table:
        """Stored rows as users see them: the key and these columns, by their new names."""
        names = [*self.keys.schema.names, *columns]
        called = [*self.keys.columns, *columns.values()]
        return stored.select(names).rename_columns(called)

    def emit(self, rows: pa.Table, times: Index, step: EpochStep, change: str = "") -> None:
        """Rows with a hash, the key and values; where `change` says so, as taken back."""
        if not rows.num_rows:
            return
        hashes = numbers(rows.column(HASH))
        output = rows.rename_columns(
            [dict(zip(self.keys.schema.names, self.keys.columns, strict=True)).get(n, n)
             for n in rows.column_names]
        )  # fmt: skip
        if change:
            output = output.append_column(CHANGE, pa.array([change] * rows.num_rows))
        output = output.select(self.output.names).cast(self.output)
        chunk = derived_rows(output, hashes.view(np.int64), times if self.timed else None)
        if change == "-":
            place = chunk.column_names.index(SOURCE)
            back = pa.array(np.full(rows.num_rows, TAKEN_BACK, np.int32))
            chunk = chunk.set_column(place, SOURCE, back)
        step.out.append(chunk)


def ranks(vertices: Column) -> Index:
    """The place of each vertex in their order; equal ones have any order among themselves."""
    order = np.argsort(codes(vertices).codes, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def at_most_half(hashes: Hashes) -> Index:
    """Hashes as whole numbers that are not negative."""
    shifted: Index = (hashes >> np.uint64(1)).view(np.int64)
    return shifted


def some(table: pa.Table, mask: Mask) -> pa.Table:
    return table.filter(pa.array(mask))
