"""`update_state_by_key(every_key=True)`: every key that has state is called in every batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness, drive

BATCHES = st.lists(
    st.one_of(
        st.none(),  # a batch of another input: no rows for any key
        st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-2, 9)), min_size=1, max_size=6),
    ),
    min_size=1, max_size=7,
)  # fmt: skip


def halve(rows: list[Any], state: int | None) -> int | None:
    """Half of what was, and what came; a key of which nothing is left is dropped."""
    n = (state or 0) // 2 + sum(row.v for row in rows)
    return n if n > 0 else None


def job_of(fn: Any = halve, *, every_key: bool = True, **options: Any) -> hr.Job:
    job = hr.Job("every key")
    schema = "k string, v bigint, at bigint"
    rows = job.read("log:rows", schema=schema, time="at", delay="1h", name="rows")
    job.read("log:other", schema="v bigint", name="other").write("collect:", name="passed")
    options = {"schema": "n bigint", "unbounded": True, "name": "u", **options}
    keyed = rows.key_by("k").update_state_by_key(fn, every_key=every_key, **options)
    keyed.write("collect:", name="out")
    return job


def played(test: Harness, batch: list[tuple[str, int]] | None) -> list[tuple[str, int]]:
    if batch is None:
        test.send("other", [(0,)])
    else:
        test.send("rows", [(k, v, 1_000) for k, v in batch])
    return sorted((row["k"], row["n"]) for row in test.output("out"))


def model(state: dict[str, int], batch: list[tuple[str, int]] | None) -> list[tuple[str, int]]:
    """One batch: changes `state` and returns what is emitted."""
    came: dict[str, int] = {}
    for k, v in batch or ():
        came[k] = came.get(k, 0) + v
    for k in {*state, *came}:
        state[k] = state.get(k, 0) // 2 + came.get(k, 0)
        if state[k] <= 0:
            del state[k]
    return sorted(state.items())


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(batches=BATCHES, data=st.data())
def test_every_key_is_called_once_in_every_batch(
    batches: Any, data: Any, tmp_path_factory: Any
) -> None:
    folder, state = tmp_path_factory.mktemp("every"), dict[str, int]()
    test = Harness(job_of(), folder=folder, tasks=data.draw(st.integers(1, 3)))
    for batch in batches:
        if data.draw(st.booleans()):
            test.crash()
        if data.draw(st.booleans()):  # stopped, and started with another number of tasks
            test.close()
            test = Harness(job_of(), folder=folder, tasks=data.draw(st.integers(1, 4)))
            test.output("out")
        assert played(test, batch) == model(state, batch)
    test.close()


@pytest.mark.spark
def test_every_key_is_called_on_spark() -> None:
    state: dict[str, int] = {}
    with Harness(job_of(), on="spark") as test:
        for batch in ([("a", 8), ("b", 1)], None, [("b", 3)], None):
            if batch is None:
                test.crash()
            assert played(test, batch) == model(state, batch)


def test_no_batch_means_no_call() -> None:
    with Harness(job_of()) as test:
        played(test, [("a", 8)])
        test.advance("1h")  # no rows, no timer: no batch
        test.restart()
        assert test.output("out") == []
        assert played(test, None) == [("a", 4)]


def test_a_start_of_a_changed_program_is_no_batch() -> None:
    def fewer(rows: list[Any], state: int | None) -> int | None:
        return (state or 0) - 1 or None

    with Harness(job_of()) as test:
        played(test, [("a", 8)])
        test.restart(job_of(fewer))
        assert test.output("out") == []
        assert played(test, None) == [("a", 7)]


def test_the_option_may_come_and_go() -> None:
    with Harness(job_of(every_key=False)) as test:
        assert played(test, [("a", 8)]) == [("a", 8)]
        assert played(test, None) == []
        test.restart(job_of())
        assert played(test, None) == [("a", 4)]
        test.restart(job_of(every_key=False))
        assert played(test, None) == []
        assert played(test, [("a", 0)]) == [("a", 2)]


def test_a_call_without_rows_that_fails_leaves_the_key_as_it_was() -> None:
    def largest(rows: list[Any], state: int | None) -> int:
        return max(row.v for row in rows)

    with Harness(job_of(largest)) as test:
        assert played(test, [("a", 8), ("b", 3)]) == [("a", 8), ("b", 3)]
        assert played(test, [("a", 1)]) == [("a", 1)]
        (letter,) = test.dead()
        assert letter["step"] == "u"
        assert letter["record"] == b'{"k": "b"}'
        assert "max()" in letter["error"]
        stored = test.state("u")["values"].sort_by("k0").to_pydict()
        assert stored == {"k0": ["a", "b"], "state": [1, 3]}


def test_what_a_call_without_rows_emits_has_the_time_of_the_watermark() -> None:
    job = hr.Job("times")
    schema = "k string, v bigint, at bigint"
    rows = job.read("log:rows", schema=schema, time="at", in_order=True, name="rows")
    halved = rows.key_by("k").update_state_by_key(
        halve, schema="n bigint", every_key=True, unbounded=True
    )
    counted = halved.key_by("k").window(hr.tumbling("10s")).agg(n=hr.sum("n"))
    counted.write("collect:", name="out")
    with Harness(job) as test:
        test.send("rows", [("a", 8, 1_000)])
        test.send("rows", [("b", 2, 12_000)])  # a: 4, at 12 s
        test.send("rows", [("b", 0, 25_000)])  # a: 2, at 25 s
        found = sorted((r["k"], r["window_start"].second, r["n"]) for r in test.output())
        assert found == [("a", 0, 8), ("a", 10, 4), ("b", 10, 2)]
        assert test.late() == []


def test_keys_of_all_kinds_meet_their_rows() -> None:
    job = hr.Job("floats")
    rows = job.read("log:rows", schema="k double, s string, v bigint", name="rows")
    rows.key_by("k", "s").update_state_by_key(
        halve, schema="n bigint", every_key=True, unbounded=True
    ).write("collect:", name="out")
    nan = float("nan")
    with Harness(job, tasks=3) as test:
        test.send("rows", [(nan, "x", 8), (0.0, None, 4), (None, None, 2), (1.0, "", 2)])
        test.output()
        test.send("rows", [(nan, "x", 1), (-0.0, None, 1), (None, None, 1)])
        found = sorted(str(tuple(row.values())) for row in test.output())
        assert found == ["(0.0, None, 3)", "(1.0, '', 1)", "(None, None, 2)", "(nan, 'x', 5)"]


def test_the_end_of_the_input_is_a_batch(tmp_path: Path) -> None:
    job = hr.Job("end")
    rows = job.read(hr.rows([{"k": "a", "v": 8}, {"k": "b", "v": 2}]), name="rows")
    rows.key_by("k").update_state_by_key(
        halve, schema="n bigint", every_key=True, unbounded=True
    ).write("collect:", name="out")
    found = drive(job, tmp_path / "job", max_batch=1).output("out").to_pylist()
    assert [tuple(row.values()) for row in found] == [("a", 8), ("b", 2), ("a", 4)]


def test_a_time_to_live_is_refused_and_the_cost_is_explained() -> None:
    with pytest.raises(hr.PlanError) as refused:
        job_of(ttl="1h", unbounded=False).check()
    assert refused.value.code == "HR-PROCESS-021"
    with pytest.raises(hr.PlanError) as refused:
        job_of(unbounded=False).check()
    assert refused.value.code == "HR-PLAN-003"
    text = job_of().explain().text
    assert "cost of a batch grows with the keys held" in text
    assert "called for every key in every batch" in text
    assert "every" not in job_of(every_key=False).explain().text.replace("every key", "", 1)


def test_a_class_may_call_anything_of_its_own_every_key() -> None:
    class Plain(hr.KeyedProcess):
        output = "k string"
        every_key = True
        n = hr.value(int, default=0)

        def on_row(self, row: Any, ctx: Any) -> Any:
            self.n += 1
            return (row.k,)

    job = hr.Job("plain")
    rows = job.read("log:rows", schema="k string", name="rows")
    rows.key_by("k").process(Plain(), unbounded=True).write("collect:", name="out")
    with Harness(job) as test:
        test.send("rows", [("a",)])
        test.send("rows", [("b",)])
        assert [row["k"] for row in test.output()] == ["a", "b"]
