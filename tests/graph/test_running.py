"""Components and degrees of growing graphs, against networkx after every batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import headrace as hr
from headrace.hashing import hash_keys
from headrace.ops.graph import edges as graph_edges
from headrace.testing import Harness
from tests.graph.drawing import SHAPES, applied, cut, edges, graphs, job, played

CASES = [(shape, seed, bool(seed % 2), seed % 3 == 0) for seed, shape in enumerate(SHAPES)]


def smallest(vertices: Any) -> Any:
    """By bytes, as Spark orders texts."""
    return min(vertices, key=lambda v: v.encode() if isinstance(v, str) else v)


def components(graph: nx.Graph) -> dict[Any, dict[str, Any]]:
    parts = ((smallest(part), part) for part in nx.connected_components(graph))
    return {v: {"component": least} for least, part in parts for v in part}


def degrees(graph: nx.Graph) -> dict[Any, dict[str, Any]]:
    return {v: {"degree": d} for v, d in graph.degree}


def distribution(graph: nx.Graph) -> dict[Any, dict[str, Any]]:
    return {d: {"vertices": n} for d, n in Counter(d for _, d in graph.degree).items()}


MADE = {
    "components": (lambda e: e.components(unbounded=True, name="s"), components, "vertex"),
    "degrees": (lambda e: e.degrees(unbounded=True, name="s"), degrees, "vertex"),
    "distribution": (
        lambda e: e.degree_distribution(unbounded=True, name="s"), distribution, "degree",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MADE)
@pytest.mark.parametrize(("shape", "seed", "keyed", "text"), CASES)
def test_changes_add_up_to_what_networkx_says(
    what: str, shape: str, seed: int, keyed: bool, text: bool, tmp_path: Path
) -> None:
    make, model, by = MADE[what]
    rows = edges(shape, seed, 2 if keyed else 1, text)
    batches, came, state = cut(rows, seed), [], {}
    key = ("k", by) if keyed else (by,)
    for number, (test, out) in enumerate(
        played(job(make, keyed, text), batches, tmp_path, seed + len(what))
    ):
        came += batches[number]
        applied(state, out, key)
        expected = {
            ((k, v) if keyed else (v,)): values
            for k, graph in graphs(came, keyed).items() for v, values in model(graph).items()
        }  # fmt: skip
        assert state == expected
        assert len(test.dead()) == sum(a is None or b is None for _, a, b in batches[number])


@pytest.mark.parametrize("what", MADE)
def test_vertices_of_one_hash_are_told_apart(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_of_two(columns: Any, rows: int = 0) -> Any:
        return hash_keys(columns, rows) % np.uint64(2) << np.uint64(40)

    monkeypatch.setattr(graph_edges, "hash_keys", one_of_two)
    test_changes_add_up_to_what_networkx_says(what, "power law", 3, True, True, tmp_path)


def test_state_is_what_the_changes_say_and_can_be_looked_at(tmp_path: Path) -> None:
    rows = edges("power law", 3, keys=2)
    made = job(lambda e: e.components(unbounded=True, name="s"), True, False)
    for _ in played(made, cut(rows, 1), tmp_path, 4):
        pass
    found = hr.peek(made, "s", folder=str(tmp_path / "job"))
    every = {
        (k, v): values["component"]
        for k, graph in graphs(rows, True).items() for v, values in components(graph).items()
    }  # fmt: skip
    seen = {(r["k"], r["vertex"]): r["component"] for r in found.to_arrow().to_pylist()}
    assert seen == every
    assert {r["vertex"] for r in found.get("k1").to_pylist()} == {v for k, v in every if k == "k1"}
    (k, vertex), component = next(iter(every.items()))
    one = hr.peek(made, "s.vertices", folder=str(tmp_path / "job")).get(k, vertex)
    assert one.to_pylist() == [{"k": k, "vertex": vertex, "component": component}]
    count = found.sql("SELECT count(DISTINCT (k, component)) AS n FROM state").to_pylist()
    assert count == [{"n": len({(k, c) for (k, _), c in every.items()})}]


def test_a_long_path_that_comes_from_its_ends_is_one_component() -> None:
    made = job(lambda e: e.components(unbounded=True), False, False)
    order = [*range(0, 400, 2), *range(1, 400, 2)]
    with Harness(made) as test:
        for some in (order[:200], order[200:]):
            test.send("x", [{"k": None, "a": i, "b": i + 1, "at": 0} for i in some])
        last = {r["vertex"]: r["component"] for r in test.output("out") if r["change"] == "+"}
    assert set(last) == set(range(401))
    assert set(last.values()) == {0}


def test_the_changes_make_a_table_however_late_edges_come() -> None:
    """A later change never has an earlier time, so the latest by event time is the last."""
    made = hr.Job("table")
    rows = made.read("log:x", schema="a bigint, b bigint, at bigint", name="x", time="at",
                     delay="1s")  # fmt: skip
    changed = rows.edges("a", "b").components(unbounded=True, name="c")
    table = changed.where("change = '+'").drop("change").table("vertex", unbounded=True)
    table.changes(name="t").write("collect:", name="out")
    net = Counter[tuple[int, int]]()
    with Harness(made) as test:
        for a, b, at in ((5, 6, 900), (4, 5, 300), (6, 9, 100), (2, 9, 800), (1, 2, 200)):
            test.send("x", [{"a": a, "b": b, "at": at}])
            test.crash()
        test.end()
        for row in test.output("out"):
            net[row["vertex"], row["component"]] += 1 if row["change"] == "+" else -1
    assert +net == Counter((v, 1) for v in (1, 2, 4, 5, 6, 9))
    assert not -net


def test_what_is_emitted_has_the_event_time_of_what_changed_it() -> None:
    made = hr.Job("timed")
    rows = made.read("log:x", schema="a bigint, b bigint, at bigint", name="x", time="at",
                     delay="1ms")  # fmt: skip
    changed = rows.edges("a", "b").components(unbounded=True, name="c")
    changed.window(hr.tumbling("10ms")).agg(n=hr.count(), name="w").write("collect:", name="out")
    with Harness(made) as test:
        test.send("x", [{"a": 1, "b": 2, "at": 3}, {"a": 5, "b": 6, "at": 12}])
        test.send("x", [{"a": 2, "b": 5, "at": 25}])
        test.end()
        found = [(r["window_start"].microsecond // 1000, r["n"]) for r in test.output("out")]
    assert found == [(10, 4), (20, 4)]  # the changes of a batch have its newest time


ANSWERS = {
    "components": ("vertex", 1, "component", 0),
    "degrees": ("vertex", 1, "degree", 2),
    "degree_distribution": ("degree", 2, "vertices", 1),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_changes_are_not_behind_the_watermark_that_another_graph_has_moved(what: str) -> None:
    by, which, value, answer = ANSWERS[what]
    made, columns = hr.Job("late edges"), ("k", "a", "b", "at")
    times: dict[str, Any] = {"time": "at", "delay": "1s"}
    met = made.read("log:e", schema="k string, a bigint, b bigint, at bigint", name="e", **times)
    changes = getattr(met.key_by("k").edges("a", "b"), what)(unbounded=True, name="s")
    table = changes.where("change = '+'").drop("change").table("k", by, unbounded=True)
    asked = made.read("log:q", schema=f"k string, {by} bigint, at bigint", name="q", **times)
    asked.join(table, on=["k", by]).write("collect:", name="out")
    with Harness(made) as test:
        first = [("x", 1, 2, 1_000), ("y", 5, 6, 100_000)]
        test.send("e", [dict(zip(columns, row, strict=True)) for row in first])
        test.send("q", [{"k": "z", by: 0, "at": 100_000}])
        test.crash()
        test.send("e", [dict(zip(columns, ("x", 0, 1, 900), strict=True))])
        test.send("q", [{"k": "x", by: which, "at": 200_000}])
        test.end()
        assert [row[value] for row in test.output("out")] == [answer]
