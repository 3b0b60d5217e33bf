"""What graphs refuse, by name, when the program is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr

ROW = "k string, a bigint, b bigint, i int, s string, d double, r struct<x: int>, at bigint"
TEN = hr.tumbling("10s")
REFUSED: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("HR-GRAPH-002", "the same column twice", lambda s: s.edges("a", "a").spanner(2)),
    ("HR-GRAPH-002", "a column of the key", lambda s: s.key_by("a").edges("a", "b").degrees()),
    ("HR-GRAPH-003", "the vertex 'r' is", lambda s: s.edges("r", "b").components()),
    ("HR-GRAPH-003", "the vertex 'd' is double", lambda s: s.edges("a", "d").components()),
    ("HR-GRAPH-003", "are bigint and int", lambda s: s.edges("a", "i").components()),
    ("HR-GRAPH-003", 'i="cast(i as bigint)"', lambda s: s.edges("a", "i").components()),
    ("HR-GRAPH-003", 'i="cast(i as bigint)"', lambda s: s.edges("i", "a").components()),
    ("HR-GRAPH-003", 'a="cast(a as string)"', lambda s: s.edges("s", "a").components()),
    ("HR-GRAPH-006", "second column 'weight'",
     lambda s: s.rename(weight="a").edges("weight", "b").sparsify(TEN)),
    ("HR-GRAPH-003", "are bigint and string", lambda s: s.edges("a", "s").triangles(TEN)),
    ("HR-GRAPH-004", "cannot be taken back",
     lambda s: s.top(3, by="d").edges("a", "b").components()),
    ("HR-GRAPH-005", "needs a window or a sample", lambda s: s.edges("a", "b").triangles()),
    ("HR-GRAPH-005", "has no by_vertex=",
     lambda s: s.edges("a", "b").triangles(sample=20, by_vertex=True)),
    ("HR-GRAPH-005", "has no lateness=",
     lambda s: s.edges("a", "b").triangles(sample=20, lateness="1s")),
    ("HR-GRAPH-005", "takes 3 edges", lambda s: s.edges("a", "b").triangles(sample=3)),
    ("HR-GRAPH-006", "error=) is 2", lambda s: s.edges("a", "b").sparsify(TEN, error=2)),
    ("HR-GRAPH-007", "of all its edges",
     lambda s: s.edges("a", "b").triangles(TEN, mode="delta", lateness="1s")),
    ("HR-STREAM-002", "spanner takes 0 steps", lambda s: s.edges("a", "b").spanner(0)),
    *(("HR-STREAM-005", f"{what} has the seed {seed!r}", make)
      for seed in ("q", 1.5, None, -1, 2**63, True)
      for what, make in (
          ("sparsify", lambda s, seed=seed: s.edges("a", "b").sparsify(TEN, seed=seed)),
          ("triangles(sample=)",
           lambda s, seed=seed: s.edges("a", "b").triangles(sample=20, seed=seed)))),
    ("HR-PLAN-003", "one entry for every vertex ever seen",
     lambda s: s.edges("a", "b").components()),
    ("HR-EXPR-001", "'c'", lambda s: s.edges("a", "c").components(unbounded=True)),
    ("HR-PLAN-", "unbounded", lambda s: s.edges("a", "b").components()),
    ("HR-PLAN-", "vertex",
     lambda s: s.rename(vertex="k").key_by("vertex").edges("a", "b").degrees(unbounded=True)),
]  # fmt: skip


@pytest.mark.parametrize(("code", "fact", "make"), REFUSED, ids=[r[1] for r in REFUSED])
def test_what_cannot_be_is_refused_when_it_is_built(code: str, fact: str, make: Any) -> None:
    job = hr.Job("refused")
    rows = job.read("log:x", schema=ROW, name="x", time="at", delay="1s")
    with pytest.raises(hr.PlanError) as refused:
        make(rows).write("log:out", name="out")
        job.check()
    assert code in str(refused.value)
    assert fact in str(refused.value)


def test_a_table_has_no_edges() -> None:
    job = hr.Job("refused")
    rows = job.read("log:x", schema=ROW, name="x", time="at", delay="1s")
    with pytest.raises(AttributeError, match="its changes are a stream"):
        rows.table("k", unbounded=True).edges("a", "b")


def test_an_unknown_method_is_named() -> None:
    job = hr.Job("refused")
    rows = job.read("log:x", schema=ROW, name="x")
    with pytest.raises(AttributeError, match="component"):
        rows.edges("a", "b").component()  # type: ignore[attr-defined]
