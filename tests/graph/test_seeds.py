"""What graphs draw at random: by job and step, and as it was after a step has another name."""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

import headrace as hr
from headrace.testing import Harness
from tests.graph.drawing import applied

SENT = [{"a": a, "b": b, "at": 1} for a, b in nx.gnp_random_graph(60, 0.3, seed=2).edges]


def program(job: str, make: Any) -> hr.Job:
    made = hr.Job(job)
    rows = made.read("log:x", schema="a bigint, b bigint, at bigint", name="x", time="at",
                     delay="1ms")  # fmt: skip
    make(rows.edges("a", "b")).write("collect:", name="out")
    return made


def result(job: str, make: Any, folder: Path | None = None, sent: Any = SENT) -> list[Any]:
    with Harness(program(job, make), folder=folder) as test:
        test.send("x", sent)
        test.end()
        return test.output("out")


MAKES = {
    "triangles": lambda e, name, seed=0: e.triangles(sample=80, seed=seed, name=name),
    "sparsify": lambda e, name, seed=0: e.sparsify(
        hr.tumbling("1s"), error=0.9, seed=seed, name=name
    ),
}


@pytest.mark.parametrize("kind", sorted(MAKES))
def test_jobs_steps_and_seeds_draw_independently_and_a_second_run_the_same(kind: str) -> None:

    def drawn(job: str, name: str, seed: int) -> list[Any]:
        return result(job, lambda e: MAKES[kind](e, name, seed))

    same, again = drawn("one", "s", 0), drawn("one", "s", 0)
    job, step, seed = drawn("two", "s", 0), drawn("one", "t", 0), drawn("one", "s", 1)
    assert same == again
    assert len({str(found) for found in (same, job, step, seed)}) == 4


def test_an_edge_that_comes_again_has_the_rank_it_had_after_the_step_was_renamed(
    tmp_path: Path,
) -> None:
    """Of all edges twice, in any order, a sample is that of all edges once."""
    draw = random.Random(4)
    state: dict[Any, Any] = {}
    with Harness(program("j", lambda e: e.triangles(sample=80, name="s")), folder=tmp_path) as test:
        test.send("x", SENT)
        applied(state, test.output("out"), ())
        before = dict(state)
        test.restart(program("j", lambda e: e.triangles(sample=80, name="t", was="s")))
        test.send("x", draw.sample(SENT, len(SENT)))
        test.restart(program("j", lambda e: e.triangles(sample=80, name="t")))
        test.send("x", draw.sample(SENT, len(SENT)))
        applied(state, test.output("out"), ())
    assert state == before


def test_a_sparsifier_is_taken_back_as_it_was_emitted_after_the_step_was_renamed() -> None:
    def program_with(**names: str) -> hr.Job:
        window = hr.sliding("20ms", every="10ms")
        return program(
            "j", lambda e: e.sparsify(window, error=0.9, lateness="1s", mode="retract", **names)
        )

    draw, now, taken_back = random.Random(5), defaultdict[Any, int](int), 0
    sent = [
        {"a": a, "b": b, "at": draw.randrange(30)}
        for a, b in draw.sample([*nx.complete_graph(45).edges], 990)
    ]
    close = [{"a": 0, "b": 0, "at": 60}]
    with Harness(program_with(name="s")) as test:
        for names in ({"name": "s"}, {"name": "t", "was": "s"}, {"name": "t"}):
            test.restart(program_with(**names))
            test.send("x", [*sent[:330], *close])
            del sent[:330]
            for row in test.output("out"):
                fact = (row["window_start"], row["a"], row["b"], row["weight"])
                now[fact] += 1 if row["change"] == "+" else -1
                taken_back += row["change"] == "-"
                assert now[fact] in (0, 1), fact
    assert taken_back > 100
