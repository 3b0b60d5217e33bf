"""Spanning forests of edges in arrays: which edges join what was not connected, and into what.

Vertices are 0 .. n - 1, edges are two arrays of them. Boruvka's rounds: every tree takes an edge
to the neighbouring tree of the smallest id, so each round at least halves the trees that can
still grow. All edges at once; nothing here is stored.
"""

from __future__ import annotations

import numpy as np

from headrace.arrays import Index, Mask


def spanning_forest(count: int, u: Index, v: Index) -> tuple[Index, Mask]:
    """The smallest vertex connected with each vertex, and the edges of a spanning forest."""
    root = np.arange(count)
    chosen = np.zeros(len(u), np.bool_)
    left = np.flatnonzero(u != v)
    while len(left):
        a, b = root[u[left]], root[v[left]]
        apart = a != b
        left, a, b = left[apart], a[apart], b[apart]
        if not len(left):
            break
        parent, edge = _neighbours(count, a, b)
        trees = np.flatnonzero(edge >= 0)
        mutual = parent[parent[trees]] == trees
        stays = trees[mutual & (trees < parent[trees])]
        parent[stays] = stays
        joined = np.setdiff1d(trees, stays, assume_unique=True)
        chosen[left[edge[joined]]] = True
        root = _ends(parent)[root]
    return _smallest(count, root), chosen


def _neighbours(count: int, a: Index, b: Index) -> tuple[Index, Index]:
    """The smallest neighbour of each tree, itself where it has none, and an edge to it, or -1."""
    tree, other = np.concatenate([a, b]), np.concatenate([b, a])
    parent = np.full(count, count)
    np.minimum.at(parent, tree, other)
    edge = np.full(count, -1)
    best = np.flatnonzero(parent[tree] == other)
    edge[tree[best]] = best % len(a)
    return np.where(edge >= 0, parent, np.arange(count)), edge


def _ends(parent: Index) -> Index:
    """Where one arrives, going from each to its parent again and again."""
    while True:
        further = parent[parent]
        if np.array_equal(further, parent):
            return parent
        parent = further


def _smallest(count: int, root: Index) -> Index:
    """For each vertex the smallest of those with the same root."""
    smallest = np.full(count, count)
    np.minimum.at(smallest, root, np.arange(count))
    return smallest[root]


def forest_numbers(count: int, u: Index, v: Index) -> Index:
    """The forest of each edge: the first spans the graph, the next what is left, and so on.

    The ends of an edge of the i-th forest are connected in each one before, so at least i edges
    have to be cut to separate them (Nagamochi and Ibaraki). 0 for a loop.
    """
    number = np.zeros(len(u), np.int64)
    left, forest = np.flatnonzero(u != v), 0
    while len(left):
        forest += 1
        _, chosen = spanning_forest(count, u[left], v[left])
        number[left[chosen]] = forest
        left = left[~chosen]
    return number
