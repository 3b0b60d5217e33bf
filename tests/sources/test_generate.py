"""Rows made by a function: at a rate, bounded or not, the same in every process."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import read_all, refusal

from headrace.clock import ManualClock
from headrace.errors import PlanError, StepError
from headrace.schema import schema_of
from headrace.sources import generate, open_source


@dataclass
class Reading:
    n: int
    name: str


def numbered(i):
    return {"n": i, "name": f"row {i}"}


@given(
    rate=st.integers(1, 5_000), total=st.integers(0, 500), splits=st.integers(1, 5),
    elapsed=st.integers(0, 10_000),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_there_are_as_many_rows_as_the_clock_says_each_in_one_split(rate, total, splits, elapsed):
    clock = ManualClock(777)
    source = open_source(generate(rate, numbered, total, splits=splits), clock=clock)
    assert all(source.latest(s) == 0 for s in source.splits())

    clock.advance(elapsed)

    due = min(total, elapsed * rate // 1_000)
    assert sorted(r["n"] for r in read_all(source)) == list(range(due))
    assert all(source.ended(s, source.latest(s)) for s in source.splits()) == (due == total)


def test_the_first_start_is_kept_when_the_job_restarts(tmp_path):
    clock, made = ManualClock(1_000), generate(10, numbered)
    open_source(made, folder=str(tmp_path), name="in/../x", clock=clock).latest("0")
    clock.advance(2_000)

    again = open_source(made, folder=str(tmp_path), name="in/../x", clock=clock)

    assert again.latest("0") == 20
    assert not again.bounded and not again.ended("0", 20)


def test_rate_none_makes_all_rows_at_once():
    source = open_source(generate(None, numbered, 5), clock=ManualClock(0))

    assert [r["n"] for r in read_all(source)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "fn",
    [
        lambda i: {"n": i, "name": i.astype(str)},
        lambda i: pa.table({"name": i.astype(str), "n": i}),
        lambda i: pa.record_batch({"n": i, "name": i.astype(str)}),
    ],
)
def test_a_vectorised_function_gets_numbers_and_gives_columns(fn):
    schema = schema_of("n bigint, name string")
    made = generate(None, fn, 100_000, splits=2, vectorised=True, schema=schema)

    found = read_all(open_source(made), rows=60_000)

    assert [r["n"] for r in found[:3]] == [0, 2, 4]
    assert found[-1] == {"n": 99_999, "name": "99999"}


def test_the_schema_is_that_of_the_first_row():
    assert generate(1, numbered).schema == schema_of("n bigint, name string")
    assert generate(1, lambda i: Reading(i, "x")).schema == schema_of(Reading)
    assert generate(1, lambda i: {"n": i * 0.5}, vectorised=True).schema == schema_of("n double")
    with pytest.raises(PlanError) as caught:
        generate(1, lambda i: i)
    assert caught.value.code == "HR-INPUT-012"
    with pytest.raises(PlanError) as caught:
        generate(1, lambda i: 1 / i)
    assert caught.value.code == "HR-INPUT-012"


def test_a_seed_gives_each_row_its_own_random_numbers():
    def roll(i, random):
        return {"x": random.random()}

    one, two = (read_all(open_source(generate(None, roll, 50, seed=7)), rows=n) for n in (7, 50))
    other = read_all(open_source(generate(None, roll, 50, seed=8)))

    assert one == two != other
    assert len({r["x"] for r in one}) == 50


def test_a_function_that_fails_is_named_with_the_row():
    source = open_source(
        generate(None, lambda i: {"n": 1 // (i - 3)}, 9, schema=schema_of("n bigint")), name="in"
    )
    with pytest.raises(StepError) as caught:
        read_all(source)
    assert "'in'" in caught.value.message and "ZeroDivisionError" in caught.value.message

    short = generate(None, lambda i: {"n": np.zeros(4)}, 9, vectorised=True)
    with pytest.raises(StepError):
        read_all(open_source(short))


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate": None}, {"rate": 0}, {"rate": 1, "total": -1}, {"rate": 1, "splits": 0},
        {"rate": 1, "vectorised": True, "seed": 1},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises(PlanError) as caught:
        generate(fn=numbered, **wrong)
    assert caught.value.code == "HR-INPUT-013" and caught.value.hint


def test_a_generator_without_an_end_cannot_be_run_to_its_end():
    assert refusal(open_source, generate(1, numbered), until="end").code == "HR-INPUT-013"


@pytest.mark.parametrize(("before", "now"), [(None, 5), (5, None), (1_000, 10), (10, 1_000)])
def test_another_rate_is_another_input(before, now):
    was, is_ = (open_source(generate(rate, numbered, 9)).identity() for rate in (before, now))
    assert was != is_ and was["kind"] == is_["kind"]


def test_asking_whether_there_is_more_stores_nothing(tmp_path):
    source = open_source(
        generate(5, numbered, 9), folder=str(tmp_path), name="in", clock=ManualClock(0)
    )

    assert source.has_more("0", 8) and not source.has_more("0", 9)
    assert not list(tmp_path.iterdir())
