"""Functions with a state of their own, against plain loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.process.playing import SCHEMA, said


def job_of(build: Any, **reading: Any) -> hr.Job:
    job = hr.Job("with state")
    options = {"time": "at", "delay": "1h", **reading}
    build(job.read("log:rows", schema=SCHEMA, name="rows", **options).key_by("k")).write(
        "collect:", name="out"
    )
    return job


def count(row: Any, state: int | None) -> Any:
    n = (state or 0) + row.v
    return (row.k, n), None if n > 10 else n


def spread(row: Any, state: int | None) -> Any:
    return ({"k": row.k, "v": i} for i in range(state or 0, row.v)), row.v


@dataclass
class Sums:
    n: int = 0
    total: int = 0


def add_up(rows: list[Any], state: Sums | None) -> Sums | None:
    state = state or Sums()
    made = Sums(state.n + len(rows), state.total + sum(r.v for r in rows))
    return None if made.total < 0 else made


def mapped(keyed: Any) -> Any:
    return keyed.map_with_state(count, state=int, output="k string, n bigint", unbounded=True)


def flat(keyed: Any) -> Any:
    return keyed.flat_map_with_state(spread, state=int, output="k string, v int", unbounded=True)


def updated(keyed: Any) -> Any:
    return keyed.update_state_by_key(add_up, schema=Sums, unbounded=True, name="sums")


def model(which: Any, batches: list[list[tuple[str, int]]]) -> list[tuple[Any, ...]]:
    state, out = dict[str, Any](), []
    for batch in batches:
        for k, v in batch if which is not updated else ():
            if which is mapped:
                state[k] = (state.get(k) or 0) + v
                out.append((k, state[k]))
                state[k] = None if state[k] > 10 else state[k]
            else:
                out += [(k, i) for i in range(state.get(k) or 0, v)]
                state[k] = v
        for k in sorted({k for k, _ in batch}) if which is updated else ():
            mine = [v for key, v in batch if key == k]
            n, total = state.get(k, (0, 0))
            state[k] = (n + len(mine), total + sum(mine))
            if state[k][1] < 0:
                del state[k]
            else:
                out.append((k, *state[k]))
    return sorted(out)


@pytest.mark.parametrize("which", [mapped, flat, updated])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 7)), min_size=1, max_size=8),
        min_size=1, max_size=4,
    ),
    data=st.data(),
)  # fmt: skip
def test_a_function_with_state_is_a_loop(which: Any, batches: Any, data: Any) -> None:
    with Harness(job_of(which), tasks=data.draw(st.integers(1, 3))) as test:
        for batch in batches:
            if data.draw(st.booleans()):
                test.crash()
            test.send("rows", [(k, v, 0) for k, v in batch])
        assert sorted(said(test)) == model(which, batches)


def test_a_state_can_be_declared_with_a_start_and_a_life(harness: Any) -> None:
    kept = hr.value(int, default=100, ttl="10s")
    test = harness(job_of(lambda k: k.map_with_state(count, state=kept, output="k string, n int")))
    test.send("rows", [("a", 0, 1_000)])
    assert test.state()["values"].num_rows == 0  # above ten: forgotten
    test.send("rows", [("a", -95, 2_000), ("a", 1, 11_999), ("a", -99, 21_999)])
    assert said(test) == [("a", 100), ("a", 5), ("a", 6), ("a", 1)]


def test_ttl_bounds_the_state(harness: Any) -> None:
    test = harness(job_of(lambda k: k.update_state_by_key(add_up, schema=Sums, ttl="10s")))
    test.send("rows", [("a", 1, 1_000)])
    test.send("rows", [("b", 1, 5_000)])
    test.watermark("rows", 11_000)
    test.send("rows", [("b", 1, 11_000)])
    assert test.state()["values"]["k0"].to_pylist() == ["b"]
    assert said(test)[-1] == ("b", 2, 2)


@pytest.mark.parametrize("schema", ["seen bigint", {"seen": int}])
def test_a_single_column_is_a_plain_value(harness: Any, schema: Any) -> None:
    def seen(rows: list[Any], state: int | None) -> int:
        return (state or 0) + len(rows)

    test = harness(job_of(lambda k: k.update_state_by_key(seen, schema=schema, unbounded=True)))
    test.send("rows", [("a", 1, 1), ("a", 1, 1)])
    assert test.output() == [{"k": "a", "seen": 2}]


def test_several_columns_are_a_dict(harness: Any) -> None:
    def seen(rows: list[Any], state: dict[str, int] | None) -> dict[str, int]:
        before = (state or {"n": 0})["n"]
        return {"n": before + len(rows), "last": rows[-1].v}

    build = lambda k: k.update_state_by_key(seen, schema="n int, last int", unbounded=True)  # noqa: E731
    test = harness(job_of(build))
    test.send("rows", [("a", 1, 1), ("a", 5, 2)])
    test.send("rows", [("a", 7, 3)])
    assert said(test) == [("a", 2, 5), ("a", 3, 7)]


def test_rows_on_which_an_update_fails_are_dead_letters_together(harness: Any) -> None:
    def picky(rows: list[Any], state: int | None) -> int:
        if any(r.v < 0 for r in rows):
            raise ValueError("below zero")
        return len(rows)

    test = harness(job_of(lambda k: k.update_state_by_key(picky, schema="n int", unbounded=True)))
    test.send("rows", [("a", 1, 1), ("a", -1, 1), ("b", 1, 1)])
    assert said(test) == [("b", 1)]
    assert len(test.dead()) == 2


@pytest.mark.parametrize(
    ("build", "code"),
    [
        (lambda k: k.map_with_state(count, state=int, output="k string, n int"), "HR-PLAN-003"),
        (lambda k: k.map_with_state(lambda row: 1, state=int, output="k string", unbounded=True),
         "HR-PLAN-028"),
        (lambda k: k.map_with_state(count, state=hr.list_of(int), output="k string, n int",
                                    unbounded=True), "HR-PROCESS-020"),
        (lambda k: k.map_with_state(count, state=hr.value(int), output="k string, n int", ttl="1s",
                                    unbounded=True), "HR-PROCESS-020"),
        (lambda k: k.map_with_state(count, state=object, output="k string", unbounded=True),
         "HR-SCHEMA-002"),
        (lambda k: k.update_state_by_key(add_up, schema="k string, n int", unbounded=True),
         "HR-PLAN-015"),
        (lambda k: k.unkeyed.map_with_state(count, state=int, output="n int"), "HR-PROCESS-001"),
        (lambda k: k.unkeyed.flat_map_with_state(spread, state=int, output="n int"),
         "HR-PROCESS-001"),
        (lambda k: k.unkeyed.update_state_by_key(add_up, schema=Sums), "HR-PROCESS-001"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_when_built(build: Any, code: str) -> None:
    with pytest.raises(hr.PlanError, match=code):
        job_of(build).check()
