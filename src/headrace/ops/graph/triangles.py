"""Triangles of edges in arrays: how many there are, at each vertex and over each edge.

Edges go from the end with fewer neighbours to the other, so that no vertex has more than
sqrt(2 m) of them, and each triangle is found once: from the vertex that both of its other ends
come after. The pairs of a vertex's edges are looked up among all edges, a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headrace.arrays import Index

_PAIRS = 1 << 20  # pairs of edges looked up at a time


@dataclass(frozen=True, slots=True)
class Triangles:
    at_vertex: Index  # how many triangles each vertex is in
    over_edge: Index  # and each edge


def count_triangles(count: int, u: Index, v: Index) -> Triangles:
    """Of distinct edges without loops between the vertices 0 .. count - 1."""
    ends = np.concatenate([u, v])
    degree = np.bincount(ends, minlength=count)
    place = np.empty(count, np.int64)
    place[np.lexsort((np.arange(count), degree))] = np.arange(count)
    low, high = np.minimum(place[u], place[v]), np.maximum(place[u], place[v])
    codes = low * count + high
    order = np.argsort(codes)
    codes, low, high = codes[order], low[order], high[order]
    at_place, over = np.zeros(count, np.int64), np.zeros(len(u), np.int64)
    for one, other in _pairs(low):
        sought = high[one] * count + high[other]
        at = np.minimum(np.searchsorted(codes, sought), len(codes) - 1)
        hit = codes[at] == sought
        first, second, third = one[hit], other[hit], at[hit]
        for vertices in (low[first], high[first], high[second]):
            at_place += np.bincount(vertices, minlength=count)
        for edges in (first, second, third):
            over += np.bincount(edges, minlength=len(u))
    over_edge = np.empty(len(u), np.int64)
    over_edge[order] = over
    return Triangles(at_place[place], over_edge)


def _pairs(low: Index) -> Iterator[tuple[Index, Index]]:
    """Each pair of edges that begin at one vertex, the earlier first, block by block."""
    if not len(low):
        return
    after = np.searchsorted(low, low, "right") - np.arange(len(low)) - 1
    total = np.cumsum(after)
    begin = 0
    while begin < len(low):
        before = int(total[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(total, before + _PAIRS, "right")), begin + 1)
        counts = after[begin:end]
        first = np.repeat(np.arange(begin, end), counts)
        starts = np.cumsum(counts) - counts
        second = first + 1 + np.arange(len(first)) - np.repeat(starts, counts)
        yield first, second
        begin = end
