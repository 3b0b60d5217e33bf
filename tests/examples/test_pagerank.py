"""PageRank: after every batch, the ranks are those of networkx over the links that there are."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate

import networkx as nx
import numpy as np
import pytest
from examples.data import pagerank as data
from examples.data.pagerank import Change
from examples.data.playing import topic
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.cli.loading import load_job
from headrace.testing import Harness, drive
from tests.examples.playing import EXAMPLES, PLACES, played

NEAR = 1e-6
SEQUENCES = int(os.environ.get("HEADRACE_EXAMPLES", "10"))


@pytest.fixture(scope="module", params=PLACES)
def printed(request, tmp_path_factory) -> Iterator[str]:
    with played(request, tmp_path_factory, "pagerank", max_batch=200, during=data.live) as text:
        yield text


def truth(changes: Iterable[Change]) -> dict[str, float]:
    """The exact solution for networkx's matrix: what its `pagerank` comes near to by turns."""
    made = Counter()
    for src, dst, change in changes:
        made[src, dst] += change
    web = nx.DiGraph([link for link, times in made.items() if times > 0])
    if not web:
        return {}
    matrix = np.asarray(nx.google_matrix(web, alpha=0.85)).T - np.eye(len(web))
    solved = np.linalg.solve(np.vstack([matrix[1:], np.ones(len(web))]), np.eye(len(web))[-1])
    return dict(zip(web, solved, strict=True))


def latest(rows: Iterable[dict[str, object]], known: dict[str, float]) -> dict[str, float]:
    """The last rank told of each page that is not gone."""
    known |= {row["page"]: row["rank"] for row in rows}
    return {page: rank for page, rank in known.items() if rank is not None}


def everything() -> list[Change]:
    return [change for changes in data.rounds() for change in changes]


def job() -> hr.Job:
    return load_job(EXAMPLES / "pagerank.py")


def kept(folder: str) -> dict[str, float]:
    rows = hr.peek(job(), "pagerank", folder=folder).to_arrow().to_pylist()
    return {row["page"]: row["rank"] for row in rows}


def test_the_ranks_told_are_those_of_networkx(printed: str) -> None:
    expected = truth(everything())
    assert len(expected) > 300 and sum(expected.values()) == pytest.approx(1)
    assert latest(topic("ranks"), {}) == pytest.approx(expected, abs=NEAR)
    assert kept("job") == pytest.approx(expected, abs=NEAR)


def test_the_whole_graph_can_be_ranked_at_once(printed: str, request) -> None:
    hr.EmbeddedLog().delete("ranks")  # those of the other folder: a topic has one job that writes
    if request.node.callspec.params["printed"] == "spark":
        hr.run(job(), until="end", folder="whole", quiet=True).wait()
    else:
        drive(job(), "whole")
    assert kept("whole") == pytest.approx(truth(everything()), abs=NEAR)


def test_so_they_are_after_every_round_of_changes(printed: str) -> None:
    so_far = list(accumulate(data.rounds()))
    lines = re.findall(r"^ +(\d+) +(\d+) +(\d+) +(\d+)  (.+)$", printed, re.MULTILINE)
    assert len(lines) == len(so_far) == 1 + len(data.ROUNDS)
    for (_, turns, _, pages, told), changes in zip(lines, so_far, strict=True):
        expected = truth(changes)
        first = [(page, float(rank)) for page, rank in re.findall(r"(\w+) (\d\.\d+)", told)]
        best = sorted(expected.values(), reverse=True)[:3]
        assert int(pages) == len(expected) and 1 < int(turns) < 100
        assert [expected[page] for page, _ in first] == pytest.approx(best, abs=NEAR)
        assert [rank for _, rank in first] == pytest.approx(best, abs=1e-4)


PAGES = st.sampled_from("abcde")
CHANGES = st.lists(st.tuples(PAGES, PAGES, st.sampled_from([1, 1, -1])), max_size=12)
BATCHES = st.lists(st.tuples(CHANGES, st.booleans()), max_size=5)


@settings(max_examples=SEQUENCES)
@given(BATCHES)
def test_any_changes_cut_anyhow_give_the_ranks_of_the_links_that_are_left(batches) -> None:
    """Links made twice, taken twice, taken before they are made; pages that go and come again."""
    sent, known = [], {}
    with Harness(job()) as test:
        for changes, crash in batches:
            if crash:
                test.crash()
            test.send("links", changes)
            sent += changes
            assert latest(test.output(), known) == pytest.approx(truth(sent), abs=NEAR)
        assert test.dead() == []


def test_a_rank_that_hardly_moved_is_not_told_again() -> None:
    ring = [(f"p{i}", f"p{(i + 1) % 9}", 1) for i in range(9)]
    with Harness(job()) as test:
        test.send("links", [*ring, ("x", "y", 1)])
        assert len(test.output()) == 11
        test.send("links", [("x", "y", 1)])  # it is there already
        assert test.output() == []
        test.send("links", [("y", "x", 1)])
        assert {row["page"] for row in test.output()} >= {"x", "y"}
        test.send("links", [("x", "y", -2), ("y", "x", -1)])
        told = {row["page"]: row["rank"] for row in test.output()}
        assert told["x"] is told["y"] is None and told["p0"] == pytest.approx(1 / 9, abs=NEAR)
