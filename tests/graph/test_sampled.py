"""Triangles estimated from a sample: exact while it holds all edges, without bias afterwards."""

from __future__ import annotations

from pathlib import Path

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

from headrace.ops.contract import EpochStep, Place
from headrace.ops.graph.sampled_triangles import SampledTriangles
from headrace.state.table import KeyedTable
from tests.graph.drawing import SHAPES, applied, cut, edges, graphs, job, played


@pytest.mark.parametrize("seed", range(4))
def test_a_sample_of_all_edges_is_exact(seed: int, tmp_path: Path) -> None:
    rows = edges(["dense", *SHAPES][seed], seed, 2, text=bool(seed % 2))
    made = job(lambda e: e.triangles(sample=1_000, unbounded=True, name="s"), True, bool(seed % 2))
    came, state, batches = [], {}, cut(rows, seed)
    for number, (_, out) in enumerate(played(made, batches, tmp_path, seed)):
        came += batches[number]
        applied(state, out, ("k",))
        expected = {
            (k,): {"triangles": sum(nx.triangles(graph).values()) / 3, "error": 0.0}
            for k, graph in graphs(came, True).items()
        }
        assert state == expected


def test_how_rows_are_cut_and_what_comes_again_does_not_matter(tmp_path: Path) -> None:
    rows = edges("dense", 1, 2)
    made = job(lambda e: e.triangles(sample=30, unbounded=True, name="s"), True, False)
    ends = []
    for number, order in enumerate([rows, rows[::-1], rows + rows[:50]]):
        state: dict[object, object] = {}
        for _, out in played(made, cut(order, number), tmp_path / str(number), number):
            applied(state, out, ("k",))
        ends.append(state)
    assert ends[0] == ends[1] == ends[2]


def estimates(graph: nx.Graph, size: int, seeds: int) -> np.ndarray:
    """What is estimated of a graph, and the error that is stated, under many seeds."""
    pairs = np.sort(np.array(graph.edges), axis=1)
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    output = pa.schema([("triangles", pa.float64()), ("error", pa.float64()),
                        ("change", pa.string())])  # fmt: skip
    zeros = np.zeros(len(pairs), np.int64)
    rows = pa.table({"a": pairs[:, 0], "b": pairs[:, 1], "__s": zeros.astype(np.int32),
                     "__o": np.arange(len(pairs)), "__h": zeros.view(np.uint64)})  # fmt: skip
    found = []
    for seed in range(seeds):
        spec = SampledTriangles("a", "b", "bigint", size, seed)
        operator = spec.operator(Place(((),), (schema,), output))
        step = EpochStep([rows], {t.name: KeyedTable(t) for t in operator.tables()}, 0, 0, 0, 1)
        operator.step(step)
        last = step.out[-1].to_pylist()[-1]
        found.append((last["triangles"], last["error"]))
    return np.array(found)


@pytest.mark.constants
@pytest.mark.parametrize("graph", [
    nx.gnp_random_graph(40, 0.4, seed=1), nx.powerlaw_cluster_graph(120, 4, 0.8, seed=2),
])  # fmt: skip
def test_estimates_have_no_bias_and_the_error_is_as_stated(graph: nx.Graph) -> None:
    exact, seeds = sum(nx.triangles(graph).values()) / 3, 600
    found = estimates(graph, graph.number_of_edges() // 2, seeds)
    values, stated = found[:, 0], found[:, 1]
    assert abs(values.mean() - exact) < 4 * values.std() / np.sqrt(seeds)
    assert 0.7 < np.sqrt((stated**2).mean()) / values.std() < 1.4
    assert (np.abs(values - exact) <= 2 * stated).mean() > 0.9


def test_a_sample_is_exact_while_fewer_edges_have_come() -> None:
    complete = nx.complete_graph(5)  # 10 edges, 10 triangles
    assert {tuple(found) for found in estimates(complete, 11, 5)} == {(10.0, 0.0)}
    assert all(error > 0 for _, error in estimates(complete, 10, 5))
