"""A sketch stores hashes, or values, of one type: a column of another type is not added to it."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.plan.origin_changes import origin_differences
from headrace.testing import Harness

HASHED: dict[str, Any] = {
    "hll": hr.approx_count_distinct("x"),
    "theta": hr.theta("x"),
    "cells": hr.count_min("x", [1, 2]),
}
STORED: dict[str, Any] = {"top": hr.approx_top_k("x", 2), "some": hr.sample("x", 3)}
DOUBLES: dict[str, Any] = {
    "kll": hr.approx_quantile("x", 0.5),
    "depth": hr.histogram("x", 4),
    "width": hr.histogram("x", 2, low=0, high=4),
}
REFUSED = [
    ("bigint", "double"), ("double", "string"), ("bigint", "date"), ("boolean", "bigint"),
    ("decimal(10,2)", "decimal(12,4)"), ("string", "binary"), ("timestamp", "bigint"),
]  # fmt: skip


def job(kind: str, how: str, aggs: dict[str, Any]) -> hr.Job:
    made = hr.Job("typed")
    rows = made.read("log:a", schema=f"x {kind}, at bigint", time="at", delay="1s", name="in")
    if how == "running":
        out = rows.with_columns(k="1").key_by("k").agg(**aggs, unbounded=True, name="s")
        out = out.select(*aggs)
    else:
        window = hr.sliding("20s", every="5s") if how == "sliding" else hr.tumbling("10s")
        out = rows.window(window).agg(**aggs, name="s")
    out.write("collect:", name="out")
    return made


def restarted(before: hr.Job, after: hr.Job, first: list[Any], then: list[Any]) -> dict[str, Any]:
    """What comes out of a job that has become another after its first rows."""
    with Harness(before) as test:
        test.send("in", [{"x": x, "at": 1_000} for x in first])
        test.output("out")
        test.restart(after)
        test.send("in", [{"x": x, "at": 1_000} for x in then])
        test.end()
        return test.output("out")[-1]


@pytest.mark.parametrize("how", ["tumbling", "sliding", "running"])
@pytest.mark.parametrize(("was", "now"), REFUSED)
def test_hashes_of_another_type_are_refused(was: str, now: str, how: str) -> None:
    aggs = {n: a for n, a in HASHED.items() if n != "cells"}
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as caught:
        restarted(job(was, how, aggs), job(now, how, aggs), [None], [])
    assert all(f"the aggregate '{name}' stores hashes of" in str(caught.value) for name in aggs)


@pytest.mark.parametrize("name", [*HASHED, *STORED])
def test_each_kind_that_stores_hashes_or_values_refuses_another_type(name: str) -> None:
    aggs = {name: (HASHED | STORED)[name]}
    values = hr.count_min("x", [1.0, 2.0])
    after = {name: values} if name == "cells" else aggs
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001"):
        restarted(job("bigint", "tumbling", aggs), job("double", "tumbling", after), [1, 2], [])


@pytest.mark.parametrize(("was", "now"), [("int", "bigint"), ("float", "double")])
def test_a_wider_type_goes_on_where_hashes_are_equal(was: str, now: str) -> None:
    aggs = {"hll": HASHED["hll"], "theta": HASHED["theta"]}
    found = restarted(job(was, "tumbling", aggs), job(now, "tumbling", aggs), [1, 2], [2, 3])
    assert found["hll"] == 3


def test_quantiles_and_histograms_are_of_doubles_whatever_the_type() -> None:
    jobs = [job(kind, "running", DOUBLES) for kind in ("bigint", "double")]
    found = restarted(*jobs, [1, 2], [3.0])
    assert found["kll"] == 2.0
    assert [bucket["count"] for bucket in found["width"]] == [0, 1, 2, 0]


def test_the_key_of_first_seen_has_its_type() -> None:
    def seen(kind: str) -> hr.Job:
        made = hr.Job("seen")
        rows = made.read("log:a", schema=f"x {kind}, at bigint", time="at", delay="1s", name="in")
        rows.first_seen("x", per="10s", expected=100, name="s").write("collect:", name="out")
        return made

    with pytest.raises(hr.StateError, match=r"HR-EVOLVE-001.*its key was .*bigint and is .*double"):
        restarted(seen("bigint"), seen("double"), [1], [])


def test_a_folder_in_which_the_type_was_not_recorded_is_accepted() -> None:
    now = {"hashed": {"n": "whole numbers"}}
    assert not list(origin_differences({}, now, {}))
    assert not list(origin_differences(now, now, {}))
    assert list(origin_differences({"hashed": {"n": "texts"}}, now, {}))
