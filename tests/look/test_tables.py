"""`show` and `head` of tables: the rows they have when all has been read, by key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.look.test_look import _elsewhere, picture  # noqa: F401

SCHEMA = "k string, n bigint, gone boolean, at bigint"
CHANGES = st.lists(
    st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.booleans(), st.integers(0, 30)),
    max_size=30,
)


def versions(job: hr.Job, changes: list[Any], **read: Any) -> hr.Stream:
    made = [dict(zip(("k", "n", "gone", "at"), c, strict=True)) for c in changes]
    return job.read(hr.rows(made, schema=SCHEMA), name="versions", **read)


def current(changes: list[Any], timed: bool, deletes: bool) -> list[dict[str, Any]]:
    """The last row of each key, by time if there is one."""
    last: dict[str, Any] = {}
    for change in sorted(changes, key=lambda c: c[3]) if timed else changes:
        last[change[0]] = change
    names = ("k", "n", "gone", "at")
    return [dict(zip(names, last[k], strict=True)) for k in sorted(last)
            if not (deletes and last[k][2])]  # fmt: skip


@settings(max_examples=15, deadline=None)
@given(changes=CHANGES, timed=st.booleans(), deletes=st.booleans(), most=st.integers(1, 4))
def test_the_rows_are_those_that_the_table_has_in_the_end(changes, timed, deletes, most):
    time = {"time": "at", "delay": "1s"} if timed else {}
    read = versions(hr.Job("look"), changes, **time)
    table = read.table("k", delete="gone") if deletes else read.table("k")
    expected = current(changes, timed, deletes)
    assert table.head(most, quiet=True).to_pylist() == expected[:most]
    assert table.head(quiet=True).to_pylist() == expected


CHANGED = [("b", 1, False, 0), ("a", 2, False, 1), ("b", 3, False, 2), ("c", 4, True, 3)]


def test_it_says_how_many_rows_there_are_and_what_was_read(capsys):
    table = versions(hr.Job("look"), CHANGED).table("k")
    table.show(2)
    assert capsys.readouterr().out == (
        "k            n  gone         at\n"
        "string  bigint  boolean  bigint\n"
        "------  ------  -------  ------\n"
        "a            2  False         1\n"
        "b            3  False         2\n"
        "\n"
        "the first 2 of 3 rows of the table, computed in process from 4 rows of input\n"
    )
    table.head()
    assert capsys.readouterr().err == (
        "3 rows of the table, computed in process from 4 rows of input\n"
    )


def test_rows_without_a_key_are_counted(capsys):
    changes = [(None, 1, False, 0), ("a", 2, False, 1)]
    assert versions(hr.Job("look"), changes).table("k").head().num_rows == 1
    assert "1 row is a dead letter: " in capsys.readouterr().err


def test_of_an_input_without_an_end_the_first_rows_are_read(capsys):
    endless = hr.generate(5, lambda i: {"k": i % 3, "change": i}, schema="k bigint, change bigint")
    table = hr.Job("look").read(endless).table("k")
    assert table.head(2).to_pylist() == [{"k": 0, "change": 9_999}, {"k": 1, "change": 9_997}]
    assert capsys.readouterr().err == (
        "the first 2 of 3 rows of the table, computed in process from 10,000 rows of input; "
        "input 'generate' has no end: only its first 10,000 rows were read\n"
    )


def test_a_look_leaves_no_trace_in_the_program_and_on_disk(tmp_path):
    job = hr.Job("look")
    table = versions(job, CHANGED, time="at", delay="1s").table("k", unbounded=True)
    before = picture(tmp_path)
    table.show()
    changes = table.changes()
    changes.write("collect:", name="out")
    table.show()
    assert picture(tmp_path) == before
    assert changes.name == "versions.changes"
    job.check()


def test_a_mistake_in_the_table_is_shown():
    table = versions(hr.Job("look"), CHANGED).table("none")
    with pytest.raises(hr.PlanError, match="there is no column 'none'"):
        table.show()
    with pytest.raises(hr.PlanError, match="HR-STREAM-013 show takes 0 rows"):
        table.show(0)


def test_a_table_shows_its_columns_in_a_notebook():
    table = versions(hr.Job("look"), CHANGED).table("k")
    shown = table._repr_html_()
    assert "Table by k" in shown and ">n</td>" in shown


@pytest.mark.spark
def test_a_table_that_needs_spark_is_computed_there(spark, capsys):
    other = hr.spark_table(
        lambda s: s.createDataFrame([("a", 7)], "k string, w int"), schema="k string, w int"
    )
    read = versions(hr.Job("look"), CHANGED).lookup(other, on="k")
    found = read.table("k").head(2).select(["k", "n", "w"]).to_pylist()
    assert found == [{"k": "a", "n": 2, "w": 7}, {"k": "b", "n": 3, "w": None}]
    assert ", computed on Spark from 4 rows of input" in capsys.readouterr().err
