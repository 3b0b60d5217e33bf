"""Drawn graphs as rows of edges: of many shapes, with repeats, loops and missing vertices."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import networkx as nx

import headrace as hr
from headrace.testing import Harness

SHAPES: dict[str, Callable[[random.Random], nx.Graph]] = {
    "random": lambda r: nx.gnp_random_graph(40, 0.05, seed=r.randrange(99)),
    "dense": lambda r: nx.gnp_random_graph(18, 0.5, seed=r.randrange(99)),
    "power law": lambda r: nx.barabasi_albert_graph(40, 2, seed=r.randrange(99)),
    "long path": lambda r: nx.path_graph(60),
    "star": lambda r: nx.star_graph(30),
    "pairs": lambda r: nx.Graph([(2 * i, 2 * i + 1) for i in range(15)]),
}
Edge = tuple[str | None, Any, Any]  # key and vertices


def edges(shape: str, seed: int, keys: int = 1, text: bool = False) -> list[Edge]:
    """The edges of one graph for each key, in any order and direction, and what is odd."""
    draw = random.Random(seed)
    found: list[Edge] = []
    for key in range(keys):
        graph = SHAPES[shape](draw)
        names = draw.sample(range(-50, 200), graph.number_of_nodes())
        some = [(names[a], names[b]) for a, b in graph.edges]
        some += draw.sample(some, min(8, len(some)))
        some += [(v, v) for v in draw.sample(names, 2)] + [(500 + key, 500 + key)]
        some = [(b, a) if draw.random() < 0.5 else (a, b) for a, b in some]
        some += [(None, names[0]), (names[1], None), (None, None)]
        found += [(f"k{key}" if key else None, a, b) for a, b in some]
    draw.shuffle(found)
    named = {v: f"v{v}é" for _, a, b in found for v in (a, b) if v is not None}
    return [(k, named.get(a), named.get(b)) for k, a, b in found] if text else found


def cut(rows: list[Edge], seed: int, pieces: int = 5) -> list[list[Edge]]:
    """The rows in batches, cut anywhere."""
    draw = random.Random(seed)
    ends = sorted(draw.randrange(len(rows) + 1) for _ in range(pieces - 1))
    return [rows[a:b] for a, b in zip([0, *ends], [*ends, len(rows)], strict=True)]


def graphs(rows: list[Edge], keyed: bool) -> dict[Any, nx.Graph]:
    """What the rows are, by networkx: a graph without loops for each key."""
    found: dict[Any, nx.Graph] = {}
    for key, a, b in rows:
        if a is not None and b is not None:
            graph = found.setdefault(key if keyed else "", nx.Graph())
            graph.add_nodes_from([a, b])
            if a != b:
                graph.add_edge(a, b)
    return found


def job(make: Callable[[Any], Any], keyed: bool, text: bool) -> hr.Job:
    made = hr.Job("graphs")
    kind = "string" if text else "bigint"
    schema = f"k string, a {kind}, b {kind}, at bigint"
    rows = made.read("log:x", schema=schema, name="x", time="at", delay="10ms")
    make((rows.key_by("k") if keyed else rows).edges("a", "b")).write("collect:", name="out")
    return made


def played(
    made: hr.Job, batches: list[list[Edge]], folder: Path, seed: int
) -> Iterator[tuple[Harness, list[dict[str, Any]]]]:
    """After each batch the harness and what came out; with crashes, restarts, other tasks."""
    draw = random.Random(seed)
    test = Harness(made, folder=folder, tasks=draw.randint(1, 3))
    try:
        for number, batch in enumerate(batches):
            turn = draw.choice(["", "crash", "restart", "tasks"])
            if turn == "crash":
                test.crash()
            elif turn == "restart":
                test.restart(made)
            elif turn == "tasks":
                test.close()
                test = Harness(made, folder=folder, tasks=draw.randint(1, 4))
                test.output("out")
                test.dead()
            table = [{"k": k, "a": a, "b": b, "at": number} for k, a, b in batch]
            test.send("x", table, split=number % 2)
            yield test, test.output("out")
    finally:
        test.close()


def applied(state: dict[Any, Any], rows: list[dict[str, Any]], key: tuple[str, ...]) -> None:
    """The state of a table after these changes; what is retracted must have been there."""
    for row in sorted(rows, key=lambda r: r["change"] == "+"):
        values = {n: v for n, v in row.items() if n not in key and n != "change"}
        place = tuple(row[n] for n in key)
        if row["change"] == "-":
            assert state.pop(place) == values, row
        else:
            assert place not in state, row
            state[place] = values
