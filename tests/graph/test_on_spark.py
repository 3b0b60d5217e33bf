"""Graphs on real Spark: every operator in one job, in several batches, against networkx."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import headrace as hr
from tests.graph.drawing import applied, edges, graphs
from tests.graph.test_running import components, degrees

pytestmark = pytest.mark.spark


def test_spark_gives_what_networkx_says(spark: Any, tmp_path: Path) -> None:
    rows = edges("dense", 5, keys=2, text=True)
    table = [{"k": k, "a": a, "b": b, "at": i} for i, (k, a, b) in enumerate(rows)]
    job = hr.Job("graphs")
    read = job.read(hr.rows(table), name="x", time="at", delay="1s")
    graph = read.key_by("k").edges("a", "b")
    found = {
        "components": graph.components(unbounded=True, name="c"),
        "degrees": graph.degrees(unbounded=True, name="d"),
        "triangles": graph.triangles(hr.tumbling("1m"), name="t"),
        "about": graph.triangles(sample=1_000, unbounded=True, name="a"),
        "spanner": graph.spanner(2, unbounded=True, name="s"),
        "sparse": graph.sparsify(hr.tumbling("1m"), name="p"),
    }
    for name, stream in found.items():
        stream.write("collect:", name=name)
    run = hr.run(job, folder=str(tmp_path / "job"), max_batch=40, until="end")
    assert run.wait(timeout=300).state == "ended"
    out = {name: run.output(name).to_pylist() for name in found}

    exact = graphs(rows, True)
    for name, model in (("components", components), ("degrees", degrees)):
        state: dict[Any, Any] = {}
        for row in out[name]:
            applied(state, [row], ("k", "vertex"))
        assert state == {(k, v): x for k, g in exact.items() for v, x in model(g).items()}
    count = {k: sum(nx.triangles(g).values()) // 3 for k, g in exact.items()}
    assert {r["k"]: r["triangles"] for r in out["triangles"]} == count
    assert {r["k"]: r["triangles"] for r in out["about"] if r["change"] == "+"} == count
    for key, g in exact.items():
        spanner = nx.Graph([(r["a"], r["b"]) for r in out["spanner"] if r["k"] == key])
        assert all(nx.shortest_path_length(spanner, a, b) <= 3 for a, b in g.edges)
        sparse = {(r["a"], r["b"]): r["weight"] for r in out["sparse"] if r["k"] == key}
        assert set(sparse.values()) == {1.0}  # so few edges are all needed
        assert len(sparse) == g.number_of_edges()
