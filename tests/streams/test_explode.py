"""Explode: a row for each element, against a plain loop; what is counted, and what is refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace.ops.stream.chunk_steps import Explode
from headrace.testing import Harness, drive

SCHEMA = "k string, xs array<bigint>, n int"
LISTS = st.none() | st.lists(st.none() | st.integers(-5, 5), max_size=4)


def job_of(step: Any, schema: str = SCHEMA) -> hr.Job:
    job = hr.Job("explode")
    step(job.read("log:x", schema=schema, name="x")).write("collect:", name="out")
    return job


def modelled(lists: list[Any], outer: bool) -> list[tuple[int, Any]]:
    made = []
    for n, xs in enumerate(lists):
        made += [(n, x) for x in xs or ([None] if outer else [])]
    return made


@given(lists=st.lists(LISTS, max_size=9), outer=st.booleans(), cut=st.integers(1, 4),
       kind=st.sampled_from([pa.list_(pa.int64()), pa.large_list(pa.int64())]))  # fmt: skip
def test_rows_and_elements_keep_their_order(lists, outer, cut, kind):
    whole = pa.table({"n": pa.array(range(len(lists)), pa.int64()), "xs": pa.array(lists, kind),
                      "__hidden": pa.array(range(len(lists)), pa.int64())})  # fmt: skip
    chunked = pa.concat_tables([whole.slice(i, cut) for i in range(0, max(len(lists), 1), cut)])
    schema = pa.schema([("n", pa.int64()), ("x", pa.int64())])
    made, bad = Explode("xs", "x", outer).run(chunked, schema)
    assert bad == [] and made.column_names == ["n", "x", "__hidden"]
    rows = list(zip(*(made.column(i).to_pylist() for i in range(3)), strict=True))
    assert rows == [(n, x, n) for n, x in modelled(lists, outer)]


def test_a_fixed_size_list_and_nested_elements_are_exploded():
    xs = pa.array([[{"a": 1}, None], None, [{"a": 2}, {"a": 3}]],
                  pa.list_(pa.struct([("a", pa.int32())]), 2))  # fmt: skip
    table = pa.table({"xs": xs})
    made, _ = Explode("xs", "xs", True).run(table, pa.schema([("xs", xs.type.value_type)]))
    assert made.column("xs").to_pylist() == [{"a": 1}, None, None, {"a": 2}, {"a": 3}]


@pytest.mark.parametrize("outer", [False, True])
def test_every_record_is_counted_once_however_many_rows_it_becomes(outer):
    lists: list[Any] = [[1, 2, 3], [], None, [None], [4]]
    with Harness(job_of(lambda s: s.explode("xs", as_="x", outer=outer))) as test:
        test.send("x", [{"k": "a", "xs": xs, "n": i} for i, xs in enumerate(lists)])
        assert [(r["n"], r["x"]) for r in test.output()] == modelled(lists, outer)
        counts = test.progress.counts["x"]
    left = 0 if outer else 2
    assert dict(counts) == {"read": 5, "used": 5 - left, "filtered": left, "late": 0, "dead": 0}


def test_a_record_of_which_one_element_fails_is_dead_once():
    step = lambda s: s.explode("xs", as_="x").with_columns(y="1000000000 * cast(x as int)")  # noqa: E731
    with Harness(job_of(step)) as test:
        test.send("x", [{"k": "a", "xs": [1, 5, 9], "n": 0}, {"k": "a", "xs": [2], "n": 1}])
        assert [r["x"] for r in test.output()] == [1, 2]
        counts = test.progress.counts["x"]
        assert len(test.dead()) == 2
    assert dict(counts) == {"read": 2, "used": 1, "filtered": 0, "late": 0, "dead": 1}


def test_windows_count_elements_with_the_time_of_their_record(tmp_path):
    job = hr.Job("explode")
    rows = [{"k": "a", "xs": [1, 2, 3], "at": 0}, {"k": "b", "xs": [9], "at": 1}]
    source = hr.rows(rows, "k string, xs array<bigint>, at bigint")
    made = job.read(source, name="x", time="at", delay="1s").explode("xs").where("xs > 1")
    made.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count()).write("collect:", name="out")
    found = drive(job, tmp_path).output("out").to_pylist()
    assert {r["k"]: r["n"] for r in found} == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda s: s.explode("n"), "'n' is of type int"),
        (lambda s: s.explode("ys"), "there is no column 'ys'"),
        (lambda s: s.explode("xs", as_="k"), "a second column 'k'"),
    ],
)
def test_what_cannot_be_exploded_is_refused_when_it_is_built(step, said):
    with pytest.raises(hr.PlanError, match=said):
        Harness(job_of(step))
