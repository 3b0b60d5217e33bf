"""`process(fn, agg={...})`: a function that is called with aggregates of the window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.windows.cases import ASSIGNERS, TRIGGERS, cases
from tests.windows.driving import drive, streams
from tests.windows.test_against_model import KEYS, OPTIONS, SEQUENCES

SCHEMA = "k string, v bigint, at bigint"
AGGS = {"n": hr.count(), "total": hr.sum("v * 2")}


@pytest.mark.parametrize("evicts", [False, True])
@settings(max_examples=max(-(-SEQUENCES // KEYS), 8), **OPTIONS)
@given(data=st.data())
def test_it_shows_what_the_model_says(evicts: bool, data: Any) -> None:
    assigners = data.draw(st.sampled_from([*ASSIGNERS]))
    case = data.draw(cases(assigners, data.draw(st.sampled_from([*TRIGGERS]))))
    mode = "delta" if case.mode == "delta" else "replace"
    case = replace(case, function="summary", mode=mode, evict=case.evict if evicts else None)
    drive(case, data.draw(streams(*ASSIGNERS[assigners][:2], KEYS)))


def harness(window: Any, fn: Any, **options: Any) -> Harness:
    job = hr.Job("summed")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1ms", name="x").key_by("k")
    made = rows.window(window).process(fn, agg=AGGS, name="sums", **options)
    made.write("collect:", name="out")
    return Harness(job)


def played(harness: Harness) -> list[tuple[Any, ...]]:
    for batch in ([("a", 1, 1), ("b", 5, 2), ("a", 2, 3)], [("a", 7, 12), ("b", 3, 14)]):
        harness.send("x", [{"k": k, "v": v, "at": 1_000 * s} for k, v, s in batch])
    harness.end()
    return [tuple(row.values())[3:] for row in harness.output("out")]


def mean(key: Any, window: Any, values: Any) -> Any:
    return {"mean": values.total / values.n}


@pytest.mark.parametrize(
    ("window", "wanted"),
    [
        (hr.tumbling("10s"), [3.0, 6.0, 10.0, 14.0]),
        (hr.session("5s"), [3.0, 6.0, 10.0, 14.0]),
        (hr.tumbling(rows=2), [3.0, 8.0, 14.0]),
        (hr.everything(), [8.0, 20 / 3]),
    ],
    ids=str,
)
def test_every_kind_of_window(window: Any, wanted: list[float]) -> None:
    found = [value for (value,) in played(harness(window, mean, schema="mean double"))]
    assert sorted(found) == sorted(wanted)


def test_a_count_needs_no_column_of_the_rows() -> None:
    job = hr.Job("counted")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1ms", name="x").key_by("k")
    for name, window in {"rows": hr.tumbling(rows=2), "time": hr.tumbling("20s")}.items():
        counts = rows.window(window).process(
            lambda k, w, values: (values.n,), agg={"n": hr.count()}, schema="n bigint", name=name
        )
        counts.write("collect:", name=f"{name} out")
    with Harness(job) as harness:
        harness.send("x", [{"k": "a", "v": 1, "at": 1_000 * s} for s in range(5)])
        harness.end()
        found = {n: [r["n"] for r in harness.output(f"{n} out")] for n in ("rows", "time")}
    assert found == {"rows": [2, 2, 1], "time": [5]}


def test_no_row_is_stored() -> None:
    job = hr.Job("summed")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1ms", name="x").key_by("k")
    windows = rows.window(hr.tumbling("10s"))
    windows.process(mean, agg=AGGS, schema="mean double", name="sums").write("collect:", name="a")
    whole = windows.process(lambda k, w, r: None, schema="x int", name="all")
    whole.write("collect:", name="b")
    explained = str(job.explain())
    assert "=> sums: partial aggregates of" in explained and "=> all: rows of x" in explained


def test_values_per_key_and_per_window() -> None:
    class Trend(hr.WindowProcess):
        last = hr.value(float)

        def process(self, key: Any, window: Any, values: Any) -> Any:
            mean = values.total / values.n
            change, self.last = (None if self.last is None else mean - self.last), mean
            return {"mean": mean, "change": change}

    options = {"schema": "mean double, change double", "unbounded": True}
    found = played(harness(hr.tumbling("10s"), Trend(), **options))
    assert sorted(found, key=str) == [(10.0, None), (14.0, 11.0), (3.0, None), (6.0, -4.0)]


def test_a_call_that_fails_is_a_dead_letter_with_the_key_and_the_aggregates() -> None:
    def picky(key: Any, window: Any, values: Any) -> Any:
        if values.total == 10:
            raise ValueError("ten")
        return {"mean": values.total / values.n}

    one = harness(hr.tumbling("10s"), picky, schema="mean double")
    assert sorted(value for (value,) in played(one)) == [3.0, 6.0, 14.0]
    (dead,) = one.dead()
    assert dead["step"] == "sums" and dead["error"] == "ValueError: ten"


@pytest.mark.parametrize("agg", [{}, [hr.count()], hr.count()])
def test_refused(agg: Any) -> None:
    job = hr.Job("refused")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1ms", name="x")
    made = rows.window(hr.tumbling("10s")).process(mean, agg=agg, schema="mean double")
    made.write("collect:")
    with pytest.raises(hr.PlanError, match="HR-WINDOW-059"):
        job.check()
