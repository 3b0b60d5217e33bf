"""Graphs of windows: what is computed of the edges that a window has collected.

A window's result has two lists, of the ends of its edges; here each result becomes the count of
triangles, a row for each vertex, or the edges of a sparsifier. Without state. Edges that a window
has several times count once, loops make their vertex known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, flat
from headrace.chunk import hidden_columns
from headrace.hashing import hash_keys, seed_of
from headrace.ops.agg.order import codes, sorted_by
from headrace.ops.contract import ChunkSpec
from headrace.ops.graph.edges import VERTEX, at_most_half
from headrace.ops.graph.forests import forest_numbers
from headrace.ops.graph.sampled_triangles import TRIANGLES
from headrace.ops.graph.triangles import count_triangles

WEIGHT = "weight"
LISTS, SEED = ("edge_src", "edge_dst"), "edge_seed"  # of a window's edges, unless keys are named so
SAMPLING = 2.0  # edges per forest that are expected to stay, times ln(n) / error^2


@dataclass(frozen=True, slots=True)
class ListedGraphs:
    """The distinct edges of all rows of a chunk, by the numbers of their vertices."""

    u: Index
    v: Index
    of_vertex: Index  # the row of each vertex
    vertices: pa.Array

    @staticmethod
    def of(chunk: pa.Table, names: Iterable[str]) -> ListedGraphs:
        lists = [flat(chunk.column(n)) for n in names]
        counts = pc.fill_null(pc.list_value_length(lists[0]), 0).to_numpy(zero_copy_only=False)
        ends = pa.concat_arrays([flat(pc.list_flatten(c)) for c in lists])
        row = np.tile(np.repeat(np.arange(len(counts)), counts), 2)
        number, first = _numbered(row, codes(ends).codes)
        half = len(row) // 2
        pairs = np.sort(number[:half] * max(len(first), 1) + number[half:])
        pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])] if len(pairs) else pairs
        u, v = pairs // max(len(first), 1), pairs % max(len(first), 1)
        edges = u != v
        return ListedGraphs(u[edges], v[edges], row[first], ends.take(pa.array(first)))


def _numbered(row: Index, vertex: Index) -> tuple[Index, Index]:
    """The number of each vertex of each row, in their order, and where it comes first.

    By value and not by hash: what is computed of a row is the same whatever rows are beside it.
    """
    order = sorted_by([row, vertex])
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (np.diff(row[order]) != 0) | (np.diff(vertex[order]) != 0)
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(fresh) - 1
    return number, order[fresh]


@dataclass(frozen=True)
class WindowTriangles(ChunkSpec):
    src: str
    dst: str
    lists: tuple[str, str]
    by_vertex: bool

    kind = "triangles"

    @property
    def several(self) -> bool:  # type: ignore[override]
        return self.by_vertex

    def __str__(self) -> str:
        each = " at each vertex" if self.by_vertex else ""
        return f"of {self.src} and {self.dst}{each}"

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[tuple[int, Any]]]:
        """The triangles of each row's edges; none fails."""
        graphs = ListedGraphs.of(chunk, self.lists)
        count = len(graphs.vertices)
        at_vertex = count_triangles(count, graphs.u, graphs.v).at_vertex
        if not self.by_vertex:
            total = np.bincount(graphs.of_vertex, at_vertex, chunk.num_rows).astype(np.int64) // 3
            return _with(chunk, schema, {TRIANGLES: pa.array(total)}), []
        order = np.argsort(graphs.of_vertex, kind="stable")
        rows = chunk.drop_columns(list(self.lists)).take(pa.array(graphs.of_vertex[order]))
        vertices = graphs.vertices.take(pa.array(order))
        return _with(rows, schema, {VERTEX: vertices, TRIANGLES: pa.array(at_vertex[order])}), []


@dataclass(frozen=True)
class Seeded(ChunkSpec):
    """A seed beside every edge, made of `seed=` and the names of the job and the step.

    A window's result has it as it was when the result was emitted: so a result that is taken back
    after the step was renamed draws the same edges again.
    """

    seed: int
    column: str
    step: str = ""

    kind = "seeded"

    def __str__(self) -> str:
        return f"as {self.column}"

    def for_step(self, name: str) -> Seeded:
        return replace(self, step=name)

    def leaves(self, columns: Collection[str]) -> bool:
        return self.column not in columns

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[tuple[int, Any]]]:
        """The rows with the seed; none fails."""
        seeds = np.full(chunk.num_rows, seed_of(self.seed, self.step))
        return _with(chunk, schema, {self.column: pa.array(seeds)}), []


@dataclass(frozen=True)
class Sparsifier(ChunkSpec):
    """Few edges with weights: every cut weighs within 1 - error and 1 + error of its edges.

    An edge of the i-th spanning forest stays with the probability p = min(1, c ln(n) / (error^2
    i)), by Nagamochi and Ibaraki's numbers as Fung, Hariharan, Harvey and Panigrahi have it, and
    then weighs 1 / p. Whether it stays follows from the seed, the key, the window and its ends.
    """

    src: str
    dst: str
    lists: tuple[str, str]
    seed: str
    error: float
    known_by: tuple[str, ...]  # the columns that tell one window's result from another

    kind = "sparsify"
    several = True

    def __str__(self) -> str:
        return f"{self.src} and {self.dst}, cuts within {self.error:g}"

    def run(self, chunk: pa.Table, schema: pa.Schema) -> tuple[pa.Table, list[tuple[int, Any]]]:
        """The edges of each row that stay; none fails."""
        graphs = ListedGraphs.of(chunk, self.lists)
        u, v, count = graphs.u, graphs.v, len(graphs.vertices)
        forest = forest_numbers(count, u, v)
        row = graphs.of_vertex[u]
        size = np.bincount(graphs.of_vertex, minlength=chunk.num_rows)[row]
        share = np.minimum(1.0, SAMPLING * np.log(np.maximum(size, 2)) / self.error**2 / forest)
        ends = [graphs.vertices.take(pa.array(end)) for end in (u, v)]
        stays = self._drawn(chunk, row, ends) < share
        order = np.flatnonzero(stays)
        order = order[np.argsort(row[order], kind="stable")]
        rows = chunk.drop_columns([*self.lists, self.seed]).take(pa.array(row[order]))
        columns = {
            n: end.take(pa.array(order)) for n, end in zip((self.src, self.dst), ends, strict=True)
        }
        return _with(rows, schema, {**columns, WEIGHT: pa.array(1 / share[order])}), []

    def _drawn(self, chunk: pa.Table, row: Index, ends: list[pa.Array]) -> np.ndarray:
        """A number from 0 to 1 for each edge, the same whenever it is asked for."""
        at = pa.array(row)
        known = [flat(chunk.column(n)).take(at) for n in (self.seed, *self.known_by)]
        return at_most_half(hash_keys([*known, *ends], len(row))) / 2**63


def _with(rows: pa.Table, schema: pa.Schema, columns: dict[str, Column]) -> pa.Table:
    """The rows with these columns instead of what they had, as `schema` has them."""
    names = [*schema.names, *hidden_columns(rows)]
    values = [columns[n] if n in columns else rows.column(n) for n in names]
    return pa.table(values, names=names)
