"""A topic as an output: made when missing, refused when it does not fit, keyed."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest
from tests.sinks.writing import ALONE, SCHEMA, expected, log, made, refusal, stage, table

from headrace.log import EmbeddedLog
from headrace.schema import schema_of
from headrace.sinks import open_sink


@pytest.fixture
def topics(tmp_path) -> EmbeddedLog:
    return EmbeddedLog(tmp_path / "log")


def opened(tmp_path, topic="t", **options):
    options |= {"log": str(tmp_path / "log")}
    return open_sink(f"log:{topic}", SCHEMA, options, str(tmp_path / "job"), "o")


def test_a_missing_topic_is_made_with_the_outputs_columns(tmp_path, topics):
    made(opened(tmp_path, partitions=4, key="n"))

    info = topics.describe("t")
    assert (info.schema, info.partitions, info.key) == (SCHEMA, 4, "n")


def test_rows_of_one_key_stay_in_one_partition_in_order(tmp_path, topics):
    sink = opened(tmp_path, partitions=4, key="n")
    made(sink)
    for epoch in range(4):
        sink.publish(epoch, sink.stage(table(epoch, *range(12)), epoch, "a"), ALONE)

    for n in range(12):
        found = [
            (p, e)
            for p in range(4)
            for _, t in topics.read("t", p, 0)
            for e, m in zip(t["epoch"].to_pylist(), t["n"].to_pylist(), strict=True)
            if m == n
        ]
        assert [e for _, e in found] == [0, 1, 2, 3] and len({p for p, _ in found}) == 1


def test_a_topic_of_bytes_gets_json_and_keys(tmp_path, topics):
    topics.create("t")
    sink = opened(tmp_path, key="n")
    made(sink)
    sink.publish(0, sink.stage(table(0, 7), 0, "a"), ALONE)

    ((_, records),) = topics.read("t", 0, 0)
    assert records["key"].to_pylist() == [b"7"]
    assert json.loads(records["value"][0].as_py()) == {"epoch": 0, "n": 7, "text": 'é "7"'}


def test_columns_may_come_in_another_order_and_width(tmp_path, topics):
    topics.create("t", schema=schema_of("text string, n int, epoch bigint"))
    sink = opened(tmp_path)
    made(sink)
    sink.publish(0, sink.stage(table(0, 7), 0, "a"), ALONE)

    ((_, records),) = topics.read("t", 0, 0)
    assert records.to_pylist() == [{"text": 'é "7"', "n": 7, "epoch": 0}]


@pytest.mark.parametrize(
    "schema", ["n bigint", "epoch bigint, n bigint, text string, more int", "epoch bigint, n "
               "array<int>, text string"],
)  # fmt: skip
def test_a_topic_that_does_not_fit_is_refused(tmp_path, topics, schema):
    topics.create("t", schema=schema)

    error = refusal(opened(tmp_path).check)

    assert error.code == "HR-OUTPUT-006" and "'t'" in error.message


@pytest.mark.parametrize("name", ["../x", "a b", "it's", 'a"', "a;b", ""])
def test_a_name_that_is_no_topic_is_refused(tmp_path, name):
    assert refusal(opened, tmp_path, name).code == "HR-OUTPUT-001"
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_is_no_column_is_refused(tmp_path):
    assert refusal(opened(tmp_path, key="area").check).code == "HR-OUTPUT-008"
    assert refusal(opened, tmp_path, keys="n").code == "HR-OUTPUT-008"


@pytest.mark.parametrize("typed", [True, False])
def test_a_row_without_a_key_for_a_compacted_topic_is_refused_in_the_task(tmp_path, topics, typed):
    if typed:
        topics.create("t", 2, SCHEMA, key="n", compact=True)
    else:
        topics.create("t", 2, compact=True)
    sink = opened(tmp_path, key="n")
    made(sink)
    column = SCHEMA.get_field_index("n")
    rows = table(0, 1, 2)
    bad = rows.set_column(column, "n", pa.array([1, None], SCHEMA.field("n").type))

    error = refusal(sink.stage, bad, 0, "a")

    assert error.code == "HR-OUTPUT-006" and "'t'" in error.message
    sink.publish(0, sink.stage(rows, 0, "b"), ALONE)
    assert sum(topics.latest("t").values()) == 2


def test_a_key_by_which_a_compacted_topic_cannot_be_compacted_is_refused(tmp_path, topics):
    topics.create("t", 2, compact=True)
    assert refusal(opened(tmp_path).check).code == "HR-OUTPUT-006"
    opened(tmp_path, key="n").check()
    topics.create("typed", 2, SCHEMA, key="n", compact=True)
    assert refusal(opened(tmp_path, "typed", key="text").check).code == "HR-OUTPUT-006"
    opened(tmp_path, "typed").check()


def test_a_topic_that_another_job_folder_writes_to_is_refused_unless_one_says_append(tmp_path):
    mine = made(opened(tmp_path))
    mine.publish(0, stage(mine, 0), ALONE)
    made(opened(tmp_path))  # its own job may go on
    shutil.move(tmp_path / "job", tmp_path / "first")

    error = refusal(opened(tmp_path).check)
    assert error.code == "HR-OUTPUT-004" and "'t'" in error.message
    assert "--folder" in error.hint and "elete" not in error.hint  # that would destroy its rows
    assert not (tmp_path / "job").exists()

    again = made(opened(tmp_path, mode="append"))
    again.publish(0, stage(again, 0), ALONE)  # not taken for the epoch of its old self
    assert len(log(tmp_path).rows()) == 2 * len(expected(1))


def test_producers_that_are_no_outputs_are_no_owners(tmp_path, topics):
    topics.create("t", schema=SCHEMA)
    topics.append("t", table(0, 1), producer="a script", sequence=1)

    opened(tmp_path).check()


def test_a_topic_that_was_deleted_meanwhile_is_named(tmp_path, topics):
    sink = opened(tmp_path)
    made(sink)
    staged = stage(sink, 0)
    topics.delete("t")

    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-010"


def test_a_staged_file_that_is_gone_is_named(tmp_path):
    sink = opened(tmp_path)
    made(sink)
    staged = stage(sink, 0)
    shutil.rmtree(tmp_path / "job" / "staged")

    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-005"


@pytest.mark.parametrize(
    ("there", "given"),
    [
        ("bigint", "timestamp"), ("timestamp", "bigint"), ("date", "timestamp"),
        ("timestamp", "date"), ("float", "double"), ("double", "bigint"), ("bigint", "double"),
        ("bigint", "string"), ("bigint", "boolean"), ("string", "binary"),
        ("decimal(5,1)", "decimal(6,2)"), ("struct<a bigint>", "struct<a bigint, b bigint>"),
        ("array<int>", "array<bigint>"), ("struct<a date>", "struct<a timestamp>"),
    ],
)  # fmt: skip
def test_a_column_that_would_be_bent_to_fit_the_topic_is_refused(tmp_path, topics, there, given):
    topics.create("t", schema=schema_of(f"v {there}"))
    options = {"log": str(tmp_path / "log")}
    sink = open_sink("log:t", schema_of(f"v {given}"), options, str(tmp_path / "job"), "o")

    assert refusal(sink.check).code == "HR-OUTPUT-006"


def test_a_column_that_the_topic_holds_as_it_is_is_taken(tmp_path, topics):
    topics.create("t", schema=schema_of("n bigint, x double, q struct<b bigint, a bigint>"))
    schema = schema_of("q struct<a int, b bigint>, n int, x float")
    sink = made(
        open_sink("log:t", schema, {"log": str(tmp_path / "log")}, str(tmp_path / "job"), "o")
    )
    rows = pa.Table.from_pylist([{"q": {"a": 1, "b": 2}, "n": 3, "x": 0.5}], schema)
    sink.publish(1, sink.stage(rows, 1, "a"), ALONE)

    ((_, records),) = topics.read("t", 0, 0)
    assert records.to_pylist() == [{"n": 3, "x": 0.5, "q": {"b": 2, "a": 1}}]


@pytest.mark.parametrize(("column", "value"), [("v int", 2**40), ("v bigint not null", None)])
def test_a_value_that_the_topic_cannot_hold_fails_before_anything_is_committed(
    tmp_path, topics, column, value
):
    topics.create("t", schema=schema_of(column))
    schema = schema_of("v bigint")
    sink = made(
        open_sink("log:t", schema, {"log": str(tmp_path / "log")}, str(tmp_path / "job"), "o")
    )

    rows = pa.Table.from_pylist([{"v": value}], schema)
    assert refusal(lambda: sink.stage(rows, 1, "a")).code == "HR-OUTPUT-006"


def test_a_map_that_json_cannot_hold_fails_before_anything_is_committed(tmp_path, topics):
    topics.create("t")
    schema = schema_of("v map<string, bigint>")
    sink = made(
        open_sink("log:t", schema, {"log": str(tmp_path / "log")}, str(tmp_path / "job"), "o")
    )

    rows = pa.table({"v": pa.array([[("a", 1), ("a", 2)]], schema.field("v").type)})
    assert refusal(lambda: sink.stage(rows, 1, "a")).code == "HR-OUTPUT-006"


def test_columns_that_were_added_to_the_topic_are_null_in_what_an_output_writes(tmp_path, topics):
    sink = opened(tmp_path)
    made(sink)
    sink.publish(0, sink.stage(table(0, 1), 0, "a"), ALONE)
    topics.alter("t", pa.schema([*SCHEMA, ("more", pa.string())]))
    sink.publish(1, sink.stage(table(1, 2), 1, "a"), ALONE)
    again = opened(tmp_path)
    made(again)
    again.publish(1, again.stage(table(1, 2), 1, "b"), ALONE)
    found = [row for _, t in topics.read("t", 0, 0) for row in t.to_pylist()]
    assert [(row["n"], row["more"]) for row in found] == [(1, None), (2, None)]
