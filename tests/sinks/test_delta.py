"""A Delta table as an output: made, refused, merged by key, shared with other writers."""

from __future__ import annotations

import datetime as dt
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import uuid
from collections import Counter

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.lake_cases import delta_rows
from tests.sinks.writing import ALONE, SCHEMA, expected, made, refusal, stage, table, values

from headrace.schema import schema_of
from headrace.sinks import Timelines, open_sink
from headrace.sinks.lakes import latest_by_key
from headrace.state import faults
from headrace.state.manifest import FIRST


def opened(tmp_path, schema=SCHEMA, job="job", **options):
    return open_sink(f"delta:{tmp_path}/t", schema, options, str(tmp_path / job), "o")


def put(sink, epoch, rows, writer=ALONE):
    sink.publish(epoch, sink.stage(rows, epoch, uuid.uuid4().hex), writer)


def test_a_missing_table_is_made_with_columns_partitions_and_properties(tmp_path):
    made(opened(tmp_path, partition_by="epoch", properties={"delta.enableChangeDataFeed": "true"}))

    there = DeltaTable(str(tmp_path / "t"))
    assert [f.name for f in there.schema().fields] == SCHEMA.names
    assert there.metadata().partition_columns == ["epoch"]
    assert there.metadata().configuration == {"delta.enableChangeDataFeed": "true"}


def test_an_epoch_is_one_commit_with_its_producer_and_number(tmp_path):
    sink = made(opened(tmp_path))
    put(sink, 3, table(3, 1, 2))

    there = DeltaTable(str(tmp_path / "t"))
    (note,) = [json.loads(h["headrace"]) for h in there.history() if "headrace" in h]
    assert there.version() == 1 and note["epoch"] == 3
    assert there.transaction_version(note["producer"]) == 3
    assert note["producer"].endswith("/o")


def test_the_same_epoch_with_other_rows_is_noticed(tmp_path):
    sink = made(opened(tmp_path))
    put(sink, 0, table(0, 1))

    error = refusal(put, opened(tmp_path), 0, table(0, 2))
    assert error.code == "HR-OUTPUT-013" and str(tmp_path / "t") in error.message
    assert values(delta_rows(tmp_path / "t")) == values(table(0, 1))


def test_producers_are_known_after_checkpoints_and_without_old_commits(tmp_path):
    sink = made(opened(tmp_path))
    staged = [stage(sink, epoch, tasks=1) for epoch in range(5)]
    for epoch in range(4):
        sink.publish(epoch, staged[epoch], ALONE)
    DeltaTable(str(tmp_path / "t")).create_checkpoint()
    for version in range(3):
        (tmp_path / "t" / "_delta_log" / f"{version:020d}.json").unlink()
    sink.publish(4, staged[4], ALONE)

    again = opened(tmp_path)
    assert again.held().number == 4
    again.publish(3, staged[3], ALONE)
    assert values(delta_rows(tmp_path / "t")) == expected(5, tasks=1)


def test_another_job_is_refused_unless_one_says_append(tmp_path):
    put(made(opened(tmp_path)), 0, table(0, 1))

    assert refusal(opened(tmp_path, job="other").check).code == "HR-OUTPUT-004"
    put(made(opened(tmp_path, job="other", mode="append")), 0, table(0, 2))
    assert len(values(delta_rows(tmp_path / "t"))) == 2


def test_rows_that_others_write_meanwhile_stay_and_are_no_reason_to_fail(tmp_path):
    sink, place = made(opened(tmp_path)), str(tmp_path / "t")

    def meanwhile(name):
        if name == "sink.lake.looked":
            write_deltalake(place, table(99, 7), mode="append")

    for epoch in range(3):
        staged = stage(sink, epoch)
        with faults.hooked(meanwhile):
            sink.publish(epoch, staged, ALONE)
        assert sink.reached(epoch) and not sink.beyond(Timelines(((FIRST, epoch),)))

    assert Counter(values(delta_rows(tmp_path / "t"))) == Counter(
        expected(3) + 3 * values(table(99, 7))
    )


def test_a_merge_that_meets_another_is_done_again_on_what_is_there_then(tmp_path):
    sink = made(opened(tmp_path, mode="upsert", key="n"))
    put(sink, 0, table(0, 1, 2))
    times = []

    def meanwhile(name):
        if name == "sink.lake.looked" and len(times) < 2:
            times.append(name)
            DeltaTable(str(tmp_path / "t")).update(updates={"text": "'theirs'"}, predicate="n = 2")

    with faults.hooked(meanwhile):
        put(sink, 1, table(1, 1, 3))

    rows = {r[1]: (r[0], r[2]) for r in values(delta_rows(tmp_path / "t"))}
    assert rows == {1: (1, 'é "1"'), 2: (0, "theirs"), 3: (1, 'é "3"')} and len(times) == 2


def test_who_never_gets_through_is_refused_by_name_and_nothing_is_written(tmp_path):
    sink = made(opened(tmp_path, mode="upsert", key="n"))
    put(sink, 0, table(0, 1))

    def meanwhile(name):
        if name == "sink.lake.looked":
            DeltaTable(str(tmp_path / "t")).update(updates={"text": "'theirs'"}, predicate="n = 1")

    with faults.hooked(meanwhile):
        error = refusal(put, sink, 1, table(1, 1))
    assert error.code == "HR-LAKE-005"
    assert values(delta_rows(tmp_path / "t")) == [(0, 1, "theirs")]
    put(opened(tmp_path, mode="upsert", key="n"), 1, table(1, 1))
    assert values(delta_rows(tmp_path / "t")) == values(table(1, 1))


def test_a_table_that_was_made_again_has_not_what_was_published(tmp_path):
    sink = made(opened(tmp_path))
    for epoch in range(3):
        put(sink, epoch, table(epoch, 1))
    assert sink.reached(2)
    write_deltalake(str(tmp_path / "u"), table(0, 1))
    os.rename(tmp_path / "t", tmp_path / "gone")
    os.rename(tmp_path / "u", tmp_path / "t")

    assert not sink.reached(2)


def test_what_another_copy_of_the_folder_wrote_is_seen(tmp_path):
    sink = made(opened(tmp_path))
    put(sink, 0, table(0, 1))
    assert sink.beyond(Timelines(((FIRST, 0),))) == {}
    put(opened(tmp_path), 1, table(1, 1))

    assert sink.beyond(Timelines(((FIRST, 0),))) == {FIRST: 1}


UP = schema_of("k bigint, v string, x double, change string")


def changes(*rows):
    return pa.Table.from_pylist([dict(zip(UP.names, r, strict=True)) for r in rows], UP)


def test_changes_are_applied_by_key_and_the_column_is_not_written(tmp_path):
    sink = made(opened(tmp_path, UP, mode="upsert", key="k"))
    put(sink, 0, changes((1, "a", 1.0, "+"), (2, "b", None, "+")))
    put(sink, 1, changes((1, "c", 1.0, "+"), (1, "a", 1.0, "-"), (2, "b", None, "-")))
    put(sink, 2, changes((9, "x", 0.0, "+"), (9, "x", 0.0, "-")))  # nothing remains to be done
    put(sink, 3, changes((8, "never", 0.0, "-")))

    assert delta_rows(tmp_path / "t").to_pylist() == [{"k": 1, "v": "c", "x": 1.0}]
    assert opened(tmp_path, UP, mode="upsert", key="k").held().number == 3


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_changes_of_a_table_in_any_order_leave_the_table(data):
    """A changelog of a model, cut into epochs; within an epoch rows come in any order."""
    model, there = {}, {}
    for _ in range(data.draw(st.integers(1, 4))):
        log = []
        for _ in range(data.draw(st.integers(0, 12))):
            k = data.draw(st.integers(0, 3))
            v = data.draw(st.one_of(st.none(), st.sampled_from("ab")))
            x = data.draw(st.sampled_from([None, 0.0, float("nan")]))
            if k in model:
                log.append((k, *model.pop(k), "-"))
            if data.draw(st.booleans()):
                model[k] = (v, x)
                log.append((k, v, x, "+"))
        rows = latest_by_key(changes(*data.draw(st.permutations(log))), ["k"])
        assert len(set(rows["k"].to_pylist())) == rows.num_rows
        for row in rows.to_pylist():
            there.pop(row["k"], None)
            if not row["__deletes"]:
                there[row["k"]] = (row["v"], row["x"])
    assert repr(sorted(there.items())) == repr(sorted(model.items()))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 100)), max_size=30))
def test_without_changes_the_last_row_of_a_key_stays(rows):
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    table = pa.Table.from_pylist([{"k": k, "v": v} for k, v in rows], schema)
    found = latest_by_key(table, ["k"])
    assert {r["k"]: r["v"] for r in found.to_pylist()} == dict(rows)
    assert not any(found["__deletes"].to_pylist())


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"mode": "merge"}, "HR-OUTPUT-008"), ({"mode": "upsert"}, "HR-OUTPUT-008"),
        ({"key": "n"}, "HR-OUTPUT-008"), ({"partition_by": []}, "HR-OUTPUT-008"),
        ({"partition_by": "day"}, "HR-OUTPUT-008"), ({"partitions": 3}, "HR-OUTPUT-008"),
        ({"mode": "upsert", "key": "nn"}, "HR-OUTPUT-008"),
        ({"storage_options": {"secret": 7}}, "HR-OUTPUT-008"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(tmp_path, options, code):
    error = refusal(lambda: opened(tmp_path, **options).check())
    assert error.code == code and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ("k double, v string", "HR-LAKE-002"), ("k array<int>, v string", "HR-LAKE-002"),
        ("k bigint, change bigint", "HR-LAKE-002"),
        ("k bigint, s struct<a bigint>, change string", "HR-LAKE-002"),
    ],
)  # fmt: skip
def test_keys_and_changes_that_cannot_be_are_refused(tmp_path, schema, code):
    sink = opened(tmp_path, schema_of(schema), mode="upsert", key="k")
    assert refusal(sink.check).code == code


@pytest.mark.parametrize("row", [(None, "a", 0.0, "+"), (1, "a", 0.0, "?"), (1, "a", 0.0, None)])
def test_a_row_that_cannot_be_merged_fails_in_the_task(tmp_path, row):
    sink = made(opened(tmp_path, UP, mode="upsert", key="k"))
    assert refusal(sink.stage, changes(row), 0, "a").code == "HR-LAKE-003"


@pytest.mark.parametrize(
    "schema", ["n bigint", "epoch bigint, n bigint, text string, more int", "epoch bigint, n "
               "string, text string"],
)  # fmt: skip
def test_a_table_that_does_not_fit_is_refused(tmp_path, schema):
    DeltaTable.create(str(tmp_path / "t"), schema_of(schema))

    error = refusal(opened(tmp_path).check)
    assert error.code == "HR-OUTPUT-006" and str(tmp_path / "t") in error.message


def test_a_null_in_a_column_that_takes_none_fails_in_the_task(tmp_path):
    fields = [pa.field("n", pa.int64(), nullable=False), *[f for f in SCHEMA if f.name != "n"]]
    DeltaTable.create(str(tmp_path / "t"), pa.schema(fields))
    sink = made(opened(tmp_path))
    rows = pa.Table.from_pylist([{"epoch": 0, "n": None, "text": ""}], SCHEMA)

    assert refusal(sink.stage, rows, 0, "a").code == "HR-OUTPUT-006"


@pytest.mark.parametrize(
    ("configuration", "options"),
    [
        ({"delta.setTransactionRetentionDuration": "interval 1 days"}, {}),
        ({"delta.appendOnly": "true"}, {"mode": "upsert", "key": "n"}),
        ({}, {"partition_by": "n"}),
    ],
)
def test_a_table_that_could_not_take_what_is_committed_is_refused(tmp_path, configuration, options):
    DeltaTable.create(str(tmp_path / "t"), SCHEMA, configuration=configuration)
    assert refusal(opened(tmp_path, **options).check).code == "HR-LAKE-004"


def test_a_table_with_rules_for_its_rows_is_refused(tmp_path):
    DeltaTable.create(str(tmp_path / "t"), SCHEMA).alter.add_constraint({"positive": "n > 0"})
    error = refusal(opened(tmp_path).check)
    assert error.code == "HR-LAKE-004" and "positive" in error.message


def test_secrets_are_neither_described_nor_printed(tmp_path):
    options = {"storage_options": {"AWS_SECRET_ACCESS_KEY": "hush-hush", "aws_region": "x"}}
    sink = opened(tmp_path, **options)
    assert "hush" not in json.dumps(sink.describe()) and "hush" not in repr(sink._place)


def test_a_folder_that_is_no_table_any_more_is_named(tmp_path):
    sink = made(opened(tmp_path))
    staged = stage(sink, 0)
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").write_text("{broken")

    assert refusal(opened(tmp_path).publish, 0, staged, ALONE).code == "HR-LAKE-001"


def test_the_same_epoch_by_two_drivers_at_the_same_moment_is_there_once(tmp_path):
    for at in ("sink.lake.looked", "sink.lake.settled"):
        place = tmp_path / at
        sink, done = made(opened(place)), []
        staged = stage(sink, 0)

        def meanwhile(name, at=at, place=place, done=done, staged=staged):
            if name == at and not done:
                done.append(name)
                opened(place).publish(0, staged, ALONE)

        with faults.hooked(meanwhile):
            sink.publish(0, staged, ALONE)
        assert done and values(delta_rows(place / "t")) == expected(1)


def test_a_rule_that_the_table_has_got_meanwhile_is_checked(tmp_path):
    sink = made(opened(tmp_path))
    good = sink.stage(table(0, 1), 0, "a")
    bad = sink.stage(table(1, -1), 1, "a")
    DeltaTable(str(tmp_path / "t")).alter.add_constraint({"positive": "n > 0"})

    sink.publish(0, good, ALONE)
    assert refusal(sink.publish, 1, bad, ALONE).code == "HR-LAKE-001"
    assert values(delta_rows(tmp_path / "t")) == values(table(0, 1))


def test_vacuum_leaves_what_is_staged_and_a_file_that_is_gone_is_named(tmp_path):
    sink = made(opened(tmp_path))
    first, second = stage(sink, 0), stage(sink, 1)
    there = DeltaTable(str(tmp_path / "t"))
    there.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    sink.publish(0, first, ALONE)
    assert values(delta_rows(tmp_path / "t")) == expected(1)
    (hidden,) = (tmp_path / "t" / "_headrace").rglob(second[0]["file"])
    hidden.unlink()
    assert refusal(sink.publish, 1, second, ALONE).code == "HR-OUTPUT-005"
    assert refusal(sink.publish, 1, [{**second[1], "path": "../x"}], ALONE).code == "HR-OUTPUT-007"


KINDS = schema_of(
    "i int, b bigint, f double, s string, o boolean, a date, t timestamp, m decimal(6,2), "
    "l array<int>, r struct<a bigint, i string>, y binary"
)


def test_files_of_ours_beside_those_of_the_library_are_found_by_any_condition(tmp_path):
    rows = [{"i": 2, "f": 2.5, "s": "b" * 40}, {"i": None, "f": None, "s": None}]
    sink = made(opened(tmp_path, KINDS))
    put(sink, 0, pa.Table.from_pylist(rows, KINDS))
    write_deltalake(tmp_path / "t", pa.Table.from_pylist(rows, KINDS), mode="append")
    there = DeltaTable(str(tmp_path / "t")).to_pyarrow_dataset()
    for name, value in rows[0].items():
        for wanted in (ds.field(name) == value, ds.field(name).is_null()):
            assert there.to_table(filter=wanted).num_rows == 2


TEXTED = schema_of("i bigint, s string, a date, l array<int>")
_GREAT = st.sampled_from(["", "a" * 32, "b" * 5_000, "a" * 31 + chr(0x10FFFF), chr(0x10FFFF) * 40])


@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_what_the_log_says_of_files_hides_no_row_from_a_filter(tmp_path_factory, data):
    """Read with conditions by the library, which leaves files out by what the log says."""
    numbers = st.one_of(st.none(), st.integers(-5, 5))
    texts = st.one_of(st.none(), st.builds(str.__add__, _GREAT, st.text(max_size=40)))
    floats = st.one_of(st.none(), st.floats(width=32))
    days = st.one_of(st.none(), st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1)))
    row = st.fixed_dictionaries({
        "i": numbers, "b": numbers, "f": floats, "s": texts, "o": st.sampled_from([None, True]),
        "a": days, "l": st.one_of(st.none(), st.lists(numbers, max_size=2)),
        "r": st.one_of(st.none(), st.fixed_dictionaries({"a": numbers, "i": texts})),
    })  # fmt: skip
    place, schema = tmp_path_factory.mktemp("filters"), data.draw(st.sampled_from([KINDS, TEXTED]))
    sink, every = made(opened(place, schema)), []
    for epoch in range(2):
        drawn = data.draw(st.lists(row, min_size=1, max_size=4))
        every += drawn
        put(sink, epoch, pa.Table.from_pylist(drawn, schema))
    there = DeltaTable(str(place / "t"))
    for name in ("i", "s", "a"):
        for value in {r[name] for r in every if r[name] is not None}:
            found = there.to_pyarrow_dataset().to_table(filter=ds.field(name) == value)
            assert found.num_rows == sum(r[name] == value for r in every)
        missing = there.to_pyarrow_dataset().to_table(filter=ds.field(name).is_null())
        assert missing.num_rows == sum(r[name] is None for r in every)
    assert there.to_pyarrow_table().num_rows == len(every)
    assert pa.table(there.get_add_actions())["num_records"].to_pylist() != [None, None]


def test_files_of_partitions_are_as_those_of_the_library(tmp_path):
    """What the log says of each, and so what is found by a condition."""
    schema = schema_of("n bigint, s string, i int, o boolean, a date, t timestamp")
    day = dt.datetime(2026, 3, 1, 4, 5, 6, 7, dt.UTC)
    row = {"s": "é/ %20=", "i": -5, "o": True, "a": day.date(), "t": day}
    rows = [{"n": n, **{k: v if n % m else None for m, (k, v) in enumerate(row.items(), 2)}}
            for n in range(12)]  # fmt: skip
    table = pa.Table.from_pylist(rows, schema)
    sink = made(opened(tmp_path, schema, partition_by=[*row]))
    staged = sink.stage(table, 0, "a")
    assert len(staged) > 5 and all("path" in r for r in staged)
    sink.publish(0, staged, ALONE)
    write_deltalake(tmp_path / "u", table, partition_by=[*row])

    ours, theirs = DeltaTable(tmp_path / "t"), DeltaTable(tmp_path / "u")
    told = [
        sorted(
            (json.dumps(a["partition"], default=str, sort_keys=True), a["num_records"])
            for a in pa.table(there.get_add_actions()).to_pylist()
        )
        for there in (ours, theirs)
    ]
    assert told[0] == told[1] and len(told[0]) > 5
    for name in row:
        for wanted in (ds.field(name) == row[name], ds.field(name).is_null()):
            found = [t.to_pyarrow_dataset().to_table(filter=wanted) for t in (ours, theirs)]
            assert values(found[0].select(schema.names)) == values(found[1].select(schema.names))
            assert found[0].num_rows

    staged = sink.stage(table, 1, "a")
    ours.alter.add_constraint({"positive": "n >= 0"})  # so the library writes them
    sink.publish(1, staged, ALONE)
    assert values(delta_rows(tmp_path / "t").select(schema.names)) == values(
        pa.concat_tables([table, table])
    )


def test_a_table_that_is_divided_in_another_way_since_gets_the_rows(tmp_path):
    sink = made(opened(tmp_path, partition_by="epoch"))
    staged = stage(sink, 0)
    os.rename(tmp_path / "t" / "_headrace", tmp_path / "staged")
    shutil.rmtree(tmp_path / "t")
    DeltaTable.create(tmp_path / "t", SCHEMA, partition_by=["text"])
    os.rename(tmp_path / "staged", tmp_path / "t" / "_headrace")

    opened(tmp_path, mode="append").publish(0, staged, ALONE)
    assert values(delta_rows(tmp_path / "t").select(SCHEMA.names)) == expected(1)
    assert DeltaTable(tmp_path / "t").metadata().partition_columns == ["text"]


@pytest.mark.parametrize("kind", ["binary", "decimal(6,2)", "double", "float", "array<int>"])
def test_columns_that_cannot_be_partitions_are_refused(tmp_path, kind):
    schema = schema_of(f"n bigint, p {kind}")
    sink = opened(tmp_path, schema, partition_by="p")
    assert refusal(sink.check).code == "HR-LAKE-002"
    if "<" not in kind:  # the library would not make such a table
        DeltaTable.create(str(tmp_path / "t"), schema, partition_by=["p"])
        assert refusal(opened(tmp_path, schema).check).code == "HR-LAKE-002"


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_partitions_are_stored_as_they_are(tmp_path, mode):
    schema = schema_of("n bigint, s string, i int, d date, t timestamp, b boolean")
    first, last = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
    rows = [
        {"n": 1, "s": "é/ b%20=", "i": -(2**31), "d": first.date(), "t": first, "b": True},
        {"n": 2, "s": "null", "i": 2**31 - 1, "d": last.date(), "t": last, "b": False},
        dict.fromkeys(schema.names) | {"n": 3},
    ]
    options = {"mode": mode} | ({"key": "n"} if mode == "upsert" else {})
    sink = made(opened(tmp_path, schema, partition_by=schema.names[1:], **options))
    wanted = pa.Table.from_pylist(rows, schema)
    put(sink, 0, wanted)
    found = delta_rows(tmp_path / "t").select(schema.names).cast(schema).sort_by("n")
    assert found.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize("text", ["", "__HIVE_DEFAULT_PARTITION__"])
@pytest.mark.parametrize("ours", [True, False])
def test_a_text_that_would_be_stored_as_null_fails_in_the_task(tmp_path, text, ours):
    schema = schema_of("n bigint, p string")
    if not ours:
        DeltaTable.create(str(tmp_path / "t"), schema, partition_by=["p"])
    sink = made(opened(tmp_path, schema, **({"partition_by": "p"} if ours else {})))
    rows = pa.Table.from_pylist([{"n": 1, "p": "a"}, {"n": 2, "p": text}], schema)
    error = refusal(pickle.loads(pickle.dumps(sink)).stage, rows, 0, "a")
    assert error.code == "HR-LAKE-003" and repr(text) in error.message


@pytest.mark.parametrize(
    ("text", "fits"), [("x" * 253, True), ("x" * 254, False), ("é" * 43, False)]
)
def test_a_text_that_no_folder_can_be_called_fails_in_the_task(tmp_path, text, fits):
    schema = schema_of("n bigint, p string")
    sink = made(opened(tmp_path, schema, partition_by="p"))
    rows = pa.Table.from_pylist([{"n": 1, "p": "a"}, {"n": 2, "p": text}, {"n": 3}], schema)
    if not fits:
        assert refusal(sink.stage, rows, 0, "a").code == "HR-LAKE-003"
        return
    put(sink, 0, rows)
    assert set(delta_rows(tmp_path / "t")["p"].to_pylist()) == {None, "a", text}


LIFE = """
import json, os, pathlib, sys
from tests.sinks.writing import ALONE, EXACT, made, stage
tmp, kind = pathlib.Path(sys.argv[1]), sys.argv[2]
sink, log = made(EXACT[kind](tmp).open()), tmp / "manifests"
done = [json.loads(l) for l in log.read_text().splitlines()] if log.exists() else []
for epoch in range(max(0, len(done) - 1), 4):
    if epoch == len(done):
        done.append(stage(sink, epoch, attempt=f"{os.getpid()}-{epoch}"))
        with log.open("a") as file:
            file.write(json.dumps(done[-1]) + "\\n")
    sink.publish(epoch, done[epoch], ALONE)
"""


@pytest.mark.chaos
@pytest.mark.constants  # once will do
@pytest.mark.parametrize("kind", ["delta", "delta upsert"])
@pytest.mark.parametrize(
    "at", ["sink.lake.looked:2", "sink.lake.committed:2"],
)  # fmt: skip
def test_a_process_that_is_killed_is_taken_up_by_the_next(tmp_path, kind, at):
    def life(**more):
        command = [sys.executable, "-c", LIFE, str(tmp_path), kind]
        return subprocess.run(
            command, check=False, env=os.environ | more, capture_output=True, text=True
        )

    assert life(HEADRACE_CRASH=at).returncode == -signal.SIGKILL
    again = life()
    assert (again.returncode, again.stderr) == (0, "")

    rows = delta_rows(tmp_path / "table")
    assert values(rows.select(SCHEMA.names)) == expected(4)
