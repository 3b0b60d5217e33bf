"""Short paths: which edges a graph spans already, and which a greedy spanner takes.

The greedy rule: an edge is taken if the edges taken before have no path of at most 2k - 1 between
its ends. A path of that length has its middle within k steps of one end and k - 1 of the other, so
it is looked for from both. Many edges are looked at together, against what was taken before
them; those that remain one by one. No state here, and vertices are numbers.
"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Index, Mask

_FIRST, _LARGEST = 64, 1 << 14  # edges looked at together: at first, and at most
_REACHED = 1 << 22  # vertices reached at a time, summed over the edges that are looked at


class Adjacency:
    """The neighbours of each vertex, one after the other."""

    def __init__(self, count: int, u: Index, v: Index) -> None:
        ends, others = np.concatenate([u, v]), np.concatenate([v, u])
        order = np.argsort(ends, kind="stable")
        self.count, self._others = count, others[order]
        self._starts = np.zeros(count + 1, np.int64)
        np.cumsum(np.bincount(ends, minlength=count), out=self._starts[1:])

    def of(self, vertex: int) -> Index:
        return self._others[self._starts[vertex] : self._starts[vertex + 1]]

    def wider(self, searches: Index, vertices: Index) -> tuple[Index, Index]:
        """What each search has reached, and the neighbours of that, without repeats."""
        first = self._starts[vertices]
        counts = self._starts[vertices + 1] - first
        begin = np.cumsum(counts) - counts
        at = np.repeat(first - begin, counts) + np.arange(int(counts.sum()))
        reached = np.repeat(searches, counts) * self.count + self._others[at]
        codes = np.sort(np.concatenate([searches * self.count + vertices, reached]))
        codes = codes[np.append(True, codes[1:] != codes[:-1])] if len(codes) else codes
        return codes // self.count, codes % self.count

    def size(self, vertices: Index) -> int:
        return int((self._starts[vertices + 1] - self._starts[vertices]).sum())


def spanned(graph: Adjacency, u: Index, v: Index, k: int) -> Mask:
    """Whether the ends of each edge are at most 2k - 1 steps apart."""
    searches = np.arange(len(u))
    sides, reached = [(searches, u), (searches, v)], [0, 0]
    for step in range(2 * k - 1):
        side = step % 2
        if reached == [len(s) for s, _ in sides]:  # neither got further
            break
        reached[side] = len(sides[side][0])
        if len(u) > 1 and graph.size(sides[side][1]) > _REACHED:
            half = len(u) // 2
            parts = (slice(None, half), slice(half, None))
            return np.concatenate([spanned(graph, u[p], v[p], k) for p in parts])
        sides[side] = graph.wider(*sides[side])
    codes = [s * graph.count + x for s, x in sides]
    both = np.intersect1d(codes[0], codes[1], assume_unique=True)
    found = np.zeros(len(u), np.bool_)
    found[both // graph.count] = True
    return found


def greedy(count: int, taken: tuple[Index, Index], u: Index, v: Index, k: int) -> Mask:
    """Which of the edges, in their order, a spanner that has taken some takes as well."""
    takes = np.zeros(len(u), np.bool_)
    begin, size = 0, _FIRST
    while begin < len(u):
        some = slice(begin, begin + size)
        before = np.flatnonzero(takes)
        graph = Adjacency(
            count, np.concatenate([taken[0], u[before]]), np.concatenate([taken[1], v[before]])
        )
        open_ = begin + np.flatnonzero(~spanned(graph, u[some], v[some], k))
        takes[open_[_one_by_one(graph, u[open_], v[open_], k)]] = True
        begin, size = begin + size, min(2 * size, _LARGEST)
    return takes


def _one_by_one(graph: Adjacency, u: Index, v: Index, k: int) -> list[int]:
    """The same for edges that `graph` does not span."""
    near = _Near(graph)
    takes = []
    for i, (a, b) in enumerate(zip(u.tolist(), v.tolist(), strict=True)):
        if not _within(near, a, b, 2 * k - 1):
            near[a].add(b)
            near[b].add(a)
            takes.append(i)
    return takes


class _Near(dict[int, set[int]]):
    """The neighbours of the vertices that were looked at, those that were added included."""

    def __init__(self, graph: Adjacency) -> None:
        self._graph = graph

    def __missing__(self, vertex: int) -> set[int]:
        found = self[vertex] = set(self._graph.of(vertex).tolist())
        return found


def _within(near: _Near, a: int, b: int, most: int) -> bool:
    """Whether two vertices are at most so many steps apart, the smaller side growing first."""
    small, large = ({a}, {a}), ({b}, {b})  # all that was reached, and the newest of it
    for _ in range(most):
        if len(small[1]) > len(large[1]):
            small, large = large, small
        newest = set[int]().union(*(near[vertex] for vertex in small[1]))
        if not newest.isdisjoint(large[0]):
            return True
        newest -= small[0]
        if not newest:
            return False
        small = (small[0] | newest, newest)
    return False
