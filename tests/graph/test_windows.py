"""Triangles of windows, and sparsifiers, against networkx."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.ops.graph.forests import forest_numbers, spanning_forest
from headrace.ops.graph.in_windows import LISTS, SEED, Sparsifier
from headrace.testing import Harness
from tests.graph.drawing import SHAPES, edges, graphs


def timed_rows(seed: int) -> list[dict[str, Any]]:
    draw, shape = random.Random(seed), list(SHAPES)[seed % len(SHAPES)]
    rows = edges(shape if seed % 3 else "dense", seed, keys=2, text=bool(seed % 2))
    return [{"k": k, "a": a, "b": b, "at": draw.randrange(40)} for k, a, b in rows]


def counted(rows: list[dict[str, Any]], size: int, every: int) -> dict[Any, dict[Any, int]]:
    """The triangles at each vertex, by key and window."""
    found = {}
    for start in range(-size, 60, every):
        here = [(r["k"], r["a"], r["b"]) for r in rows if start <= r["at"] < start + size]
        for key, graph in graphs(here, True).items():
            found[key, start] = nx.triangles(graph)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("size", "every"), [(20, 20), (20, 5)])
def test_triangles_of_windows(seed: int, size: int, every: int) -> None:
    window = hr.tumbling("20ms") if size == every else hr.sliding("20ms", "5ms")
    rows, made = timed_rows(seed), hr.Job("windows")
    kind = "string" if seed % 2 else "bigint"
    read = made.read("log:x", schema=f"k string, a {kind}, b {kind}, at bigint", name="x",
                     time="at", delay="1s")  # fmt: skip
    graph = read.key_by("k").edges("a", "b")
    graph.triangles(window, name="t").write("collect:", name="total")
    graph.triangles(window, by_vertex=True, name="v").write("collect:", name="vertex")
    with Harness(made, tasks=2) as test:
        for number in range(3):
            test.send("x", rows[number::3])
            (test.crash, test.restart)[number % 2]()
        test.end()
        total = {(r["k"], _ms(r)): r["triangles"] for r in test.output("total")}
        by_vertex: dict[Any, dict[Any, int]] = defaultdict(dict)
        for r in test.output("vertex"):
            by_vertex[r["k"], _ms(r)][r["vertex"]] = r["triangles"]
    expected = counted(rows, size, every)
    assert dict(by_vertex) == expected
    assert total == {place: sum(at.values()) // 3 for place, at in expected.items()}


def _ms(row: dict[str, Any]) -> int:
    return round(row["window_start"].timestamp() * 1000)


def test_a_result_that_is_taken_back_is_the_one_that_was_emitted() -> None:
    made = hr.Job("retract")
    rows = made.read("log:x", schema="a bigint, b bigint, at bigint", name="x", time="at",
                     delay="1ms")  # fmt: skip
    found = rows.edges("a", "b").triangles(
        hr.tumbling("10ms"), lateness="1s", mode="retract", name="t"
    )
    found.write("collect:", name="out")
    with Harness(made) as test:
        test.send("x", [{"a": a, "b": b, "at": 1} for a, b in ((1, 2), (3, 2), (1, 3))])
        test.send("x", [{"a": 9, "b": 9, "at": 50}])
        test.send("x", [{"a": 4, "b": b, "at": 2} for b in (1, 2, 3)])
        came = [(r["triangles"], r["change"]) for r in test.output("out")]
    assert came == [(1, "+"), (1, "-"), (4, "+")]


@pytest.mark.parametrize("vertex", ["bigint", "string"])
def test_a_sparsifier_that_is_taken_back_is_the_one_that_was_emitted(vertex: str) -> None:
    made = hr.Job("back")
    rows = made.read("log:x", schema=f"a {vertex}, b {vertex}, at bigint", name="x", time="at",
                     delay="1ms")  # fmt: skip
    window = hr.sliding("20ms", every="10ms")
    sparse = rows.edges("a", "b").sparsify(window, error=0.9, lateness="1s", mode="retract")
    sparse.write("collect:", name="out")
    name = (lambda n: n) if vertex == "bigint" else str
    draw, pairs = random.Random(5), [*nx.complete_graph(45).edges]
    sent = [{"a": name(a), "b": name(b), "at": draw.randrange(30)} for a, b in pairs]
    draw.shuffle(sent)
    now: dict[Any, int] = defaultdict(int)
    with Harness(made) as test:
        for some in (sent[:600], [{"a": name(0), "b": name(0), "at": 60}], sent[600:]):
            test.send("x", some)
            for row in test.output("out"):
                fact = (row["window_start"], row["a"], row["b"], row["weight"])
                now[fact] += 1 if row["change"] == "+" else -1
                assert now[fact] in (0, 1), fact


@pytest.mark.parametrize("what", ["triangles", "sparsify"])
def test_late_edges_are_a_stream_of_edges(what: str) -> None:
    made = hr.Job("late")
    rows = made.read("log:x", schema="a bigint, b bigint, at bigint", name="x", time="at",
                     delay="1ms")  # fmt: skip
    found = getattr(rows.edges("a", "b"), what)(hr.tumbling("10ms"), name="t")
    found.write("collect:", name="out")
    found.late.write("collect:", name="late")
    with Harness(made) as test:
        test.send("x", [{"a": 1, "b": 2, "at": 50}])
        test.send("x", [{"a": 7, "b": 3, "at": 5}])
        assert test.output("late") == [{"a": 3, "b": 7}]


@pytest.mark.parametrize("what", ["triangles", "sparsify"])
@pytest.mark.parametrize("name", ["edge_src", "edge_dst", "edge_seed"])
def test_a_key_and_a_vertex_may_be_named_as_a_column_within(what: str, name: str) -> None:
    """Nothing of the user's is lost for the columns that a window's edges are collected in."""
    for vertex, key in ((name, f"{name}_"), (f"{name}_", name)):
        made = hr.Job("named")
        rows = made.read("log:x", schema=f"{key} string, {vertex} bigint, b bigint, at bigint",
                         name="x", time="at", delay="1ms").key_by(key)  # fmt: skip
        window = hr.tumbling("10ms")
        getattr(rows.edges(vertex, "b"), what)(window).write("collect:", name="out")
        with Harness(made) as test:
            test.send("x", [{key: "k", vertex: 1, "b": 2, "at": 1}])
            test.end()
            (row,) = test.output("out")
        ends = {"triangles": 0} if what == "triangles" else {vertex: 1, "b": 2, "weight": 1.0}
        assert {n: v for n, v in row.items() if not n.startswith("window_")} == {key: "k", **ends}


def sparsified(all_graphs: list[nx.Graph], error: float) -> list[nx.Graph]:
    """The sparsifier of each graph: each is the result of a window in one chunk."""
    ends = zip(*(zip(*graph.edges, strict=True) for graph in all_graphs), strict=True)
    lists = [pa.array([list(e) for e in end], pa.list_(pa.int64())) for end in ends]
    number = pa.array(range(len(all_graphs)), pa.int64())
    seeds = pa.array(np.full(len(all_graphs), 7))
    spec = Sparsifier("a", "b", LISTS, SEED, error, ("number",))
    schema = pa.schema([("number", pa.int64()), ("a", pa.int64()), ("b", pa.int64()),
                        ("weight", pa.float64())])  # fmt: skip
    found, _ = spec.run(pa.table([number, *lists, seeds], ["number", *LISTS, SEED]), schema)
    sparse = [nx.empty_graph(graph) for graph in all_graphs]
    for row in found.to_pylist():
        sparse[row["number"]].add_edge(row["a"], row["b"], weight=row["weight"])
    return sparse


def test_a_sparsifier_of_a_window_is_the_same_after_a_replay() -> None:
    made = hr.Job("sparse")
    rows = made.read("log:x", schema="k string, a string, b string, at bigint", name="x",
                     time="at", delay="1ms")  # fmt: skip
    sparse = rows.key_by("k").edges("a", "b").sparsify(hr.tumbling("1s"), error=0.9, name="s")
    sparse.write("collect:", name="out")
    pairs = [*nx.complete_graph(70).edges]
    found = []
    for crash in (False, True):
        with Harness(made) as test:
            for some in (pairs[:900], pairs[900:]):
                test.send("x", [{"k": k, "a": f"{a}", "b": f"{b}", "at": 1}
                                for a, b in some for k in "xy"])  # fmt: skip
                if crash:
                    test.crash()
            test.end()
            found.append(sorted((r["k"], r["a"], r["b"], r["weight"]) for r in test.output("out")))
    assert found[0] == found[1]
    assert 0 < len(found[0]) < 2 * len(pairs)
    one, other = ({r[1:3] for r in found[0] if r[0] == k} for k in "xy")
    assert one != other  # each graph has its own luck


def drawn(number: int) -> nx.Graph:
    """Dense graphs, and dense parts with few edges between them."""
    n, draw = 90, random.Random(number)
    if number % 3 == 0:
        return nx.gnp_random_graph(n, 0.9, seed=number)
    if number % 3 == 1:
        parts = nx.disjoint_union(nx.complete_graph(n // 2), nx.complete_graph(n // 2))
        between = [(draw.randrange(n // 2), n // 2 + draw.randrange(n // 2)) for _ in range(3)]
        parts.add_edges_from(between)
        return parts
    return nx.barabasi_albert_graph(n, 40, seed=number)


def worst(graph: nx.Graph, sparse: nx.Graph, number: int) -> float:
    """How far a cut is off, relatively: of every vertex, of halves, of parts, and the smallest."""
    draw, nodes = random.Random(number), list(graph)
    parts = [{v} for v in nodes] + [set(nodes[: len(nodes) // 2])]
    parts += [set(draw.sample(nodes, draw.randint(2, len(nodes) // 2))) for _ in range(200)]
    if number % 10 == 0:
        parts += [set(nx.stoer_wagner(g)[1][0]) for g in (graph, sparse)]
    inside = np.array([[v in part for v in nodes] for part in parts], float)
    before, after = (
        ((inside @ nx.to_numpy_array(g, nodes)) * (1 - inside)).sum(1) for g in (graph, sparse)
    )
    return float((np.abs(after - before) / before).max())


@pytest.mark.constants
def test_cuts_weigh_what_they_did() -> None:
    """Within the error for at least 95 of 100 drawn graphs; and there are fewer edges."""
    error, before = 0.7, [drawn(number) for number in range(100)]
    after = sparsified(before, error)
    off = [worst(a, b, n) for n, (a, b) in enumerate(zip(before, after, strict=True))]
    assert sum(x <= error for x in off) >= 95
    assert sum(map(nx.number_of_edges, after)) < 0.9 * sum(map(nx.number_of_edges, before))


@pytest.mark.parametrize("seed", range(8))
def test_forests_span_what_is_left_and_number_edges_by_connectivity(seed: int) -> None:
    graph = nx.gnp_random_graph(25, 0.1 + seed / 12, seed=seed)
    pairs = [*graph.edges, (3, 3)]
    u, v = (np.array([p[i] for p in pairs]) for i in (0, 1))
    smallest, chosen = spanning_forest(25, u, v)
    expected = {x: min(part) for part in nx.connected_components(graph) for x in part}
    assert smallest.tolist() == [expected[x] for x in range(25)]
    forest = nx.Graph([p for p, c in zip(pairs, chosen, strict=True) if c])
    assert nx.is_forest(forest) if len(forest) else not graph.edges
    assert chosen.sum() == 25 - nx.number_connected_components(graph)
    for (a, b), number in zip(pairs, forest_numbers(25, u, v), strict=True):
        assert number == 0 if a == b else nx.edge_connectivity(graph, a, b) >= number > 0
