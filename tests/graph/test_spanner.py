"""Spanners: distances and size, against networkx, and that the cuts of batches do no harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from headrace.hashing import hash_keys
from headrace.ops.graph import edges as graph_edges
from headrace.ops.graph import search
from tests.graph.drawing import SHAPES, cut, edges, graphs, job, played

CASES = [(shape, seed, 1 + seed % 3) for seed, shape in enumerate(SHAPES)]


def stretch(graph: nx.Graph, spanner: nx.Graph) -> float:
    """The longest distance in the spanner between the ends of an edge."""
    return max((nx.shortest_path_length(spanner, a, b) for a, b in graph.edges), default=0)


@pytest.mark.parametrize(
    ("shape", "seed", "k"), [*CASES, ("dense", 7, 2), ("dense", 9, 3), ("dense", 8, 10**12)]
)
def test_distances_are_at_most_so_much_longer_after_every_batch(
    shape: str, seed: int, k: int, tmp_path: Path
) -> None:
    rows, keyed = edges(shape, seed, 2, text=bool(seed % 2)), bool(seed % 3)
    made = job(lambda e: e.spanner(k, unbounded=True, name="s"), keyed, bool(seed % 2))
    came, taken, batches = [], [], cut(rows, seed)
    for number, (_, out) in enumerate(played(made, batches, tmp_path, seed)):
        came += batches[number]
        taken += [(r["k"] if keyed else "", r["a"], r["b"]) for r in out]
        assert len(taken) == len(set(taken))
        for key, graph in graphs(came, keyed).items():
            spanner = nx.Graph([(a, b) for name, a, b in taken if name == key])
            assert set(spanner.edges) <= set(nx.Graph(graph).edges) | {
                (b, a) for a, b in graph.edges
            }
            assert stretch(graph, spanner) <= 2 * k - 1
            if spanner.number_of_edges():
                assert nx.girth(spanner) > 2 * k
                assert spanner.number_of_edges() <= len(graph) ** (1 + 1 / k) + len(graph)


def test_vertices_of_one_hash_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_of_two(columns: Any, rows: int = 0) -> Any:
        return hash_keys(columns, rows) % np.uint64(2) << np.uint64(40)

    monkeypatch.setattr(graph_edges, "hash_keys", one_of_two)
    test_distances_are_at_most_so_much_longer_after_every_batch("power law", 2, 2, tmp_path)


@pytest.mark.parametrize("k", [1, 2, 3, 10**12])
def test_the_search_from_both_ends_finds_what_networkx_finds(k: int) -> None:
    graph = nx.gnp_random_graph(60, 0.04, seed=k)
    u, v = (np.array([e[i] for e in graph.edges]) for i in (0, 1))
    a, b = np.triu_indices(60, 1)
    found = search.spanned(search.Adjacency(60, u, v), a, b, k)
    within = dict(nx.all_pairs_shortest_path_length(graph, 2 * k - 1))
    assert found.tolist() == [y in within[x] for x, y in zip(a, b, strict=True)]
