"""An Iceberg table as an output: made, refused, merged by key, shared with other writers."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.iceberg_tables import opened, put, there
from tests.sinks.lake_cases import iceberg_rows, loaded
from tests.sinks.test_delta import LIFE, UP, changes
from tests.sinks.writing import (
    ALONE,
    EXACT,
    SCHEMA,
    Output,
    expected,
    made,
    refusal,
    stage,
    table,
    values,
)

from headrace.connect import iceberg
from headrace.schema import schema_of
from headrace.sinks import Timelines, open_sink
from headrace.state import faults
from headrace.state.manifest import FIRST
from headrace.testing.output_drivers import EPOCHS, CrashingDriver


def rows_of(tmp_path):
    return values(iceberg_rows(tmp_path).select(SCHEMA.names))


def test_a_missing_table_is_made_with_columns_and_partitions(tmp_path):
    made(opened(tmp_path, partition_by="epoch", properties={"owner": "me"}))

    found = there(tmp_path)
    assert found.schema().column_names == SCHEMA.names
    assert [f.name for f in found.spec().fields] == ["epoch"] and found.properties["owner"] == "me"
    put(opened(tmp_path), 0, table(0, 1, 2))
    assert rows_of(tmp_path) == values(table(0, 1, 2))
    assert refusal(opened(tmp_path, partition_by="n").check).code == "HR-LAKE-004"


def test_an_epoch_is_one_commit_with_its_producer_and_number(tmp_path):
    put(made(opened(tmp_path)), 3, table(3, 1))

    (snapshot,) = there(tmp_path).snapshots()
    note = snapshot.summary.additional_properties
    assert note["headrace.epoch"] == "3" and note["headrace.producer"].endswith("/o")


def test_the_same_epoch_with_other_rows_is_noticed(tmp_path):
    put(made(opened(tmp_path)), 0, table(0, 1))
    assert refusal(put, opened(tmp_path), 0, table(0, 2)).code == "HR-OUTPUT-013"
    assert rows_of(tmp_path) == values(table(0, 1))


def test_epochs_are_known_when_snapshots_are_expired(tmp_path):
    sink = made(opened(tmp_path))
    for epoch in range(3):
        put(sink, epoch, table(epoch, epoch))
    soon = dt.datetime.now() + dt.timedelta(days=1)
    there(tmp_path).maintenance.expire_snapshots().older_than(soon).commit()
    assert len(there(tmp_path).snapshots()) == 1
    assert opened(tmp_path).held().number == 2


def test_another_job_is_refused_unless_one_says_append(tmp_path):
    put(made(opened(tmp_path)), 0, table(0, 1))
    assert refusal(opened(tmp_path, job="other").check).code == "HR-OUTPUT-004"
    put(made(opened(tmp_path, job="other", mode="append")), 0, table(0, 2))
    assert len(rows_of(tmp_path)) == 2


def test_the_same_epoch_by_two_drivers_at_the_same_moment_is_there_once(tmp_path):
    """The library would repeat the second commit by itself, on what is there then."""
    sink = made(opened(tmp_path))
    staged, done = stage(sink, 0), []

    def meanwhile(name):
        if name == "sink.lake.looked" and not done:
            done.append(name)
            opened(tmp_path).publish(0, staged, ALONE)

    with faults.hooked(meanwhile):
        sink.publish(0, staged, ALONE)
    assert rows_of(tmp_path) == expected(1)


def test_rows_that_others_write_meanwhile_stay(tmp_path):
    sink, done = made(opened(tmp_path)), []

    def meanwhile(name):
        if name == "sink.lake.looked" and len(done) < 2:
            done.append(name)
            there(tmp_path).append(table(99, 7))

    staged = stage(sink, 0)
    with faults.hooked(meanwhile):
        sink.publish(0, staged, ALONE)
    assert Counter(rows_of(tmp_path)) == Counter(expected(1) + 2 * values(table(99, 7)))
    assert sink.reached(0) and sink.beyond(Timelines(((FIRST, 0),))) == {}


def test_who_never_gets_through_is_refused_by_name_and_nothing_is_written(tmp_path):
    sink = made(opened(tmp_path))

    def meanwhile(name):
        if name == "sink.lake.looked":
            there(tmp_path).append(table(99, 7))

    with faults.hooked(meanwhile):
        assert refusal(put, sink, 1, table(1, 1)).code == "HR-LAKE-005"
    assert (1, 1, 'é "1"') not in rows_of(tmp_path)


def test_a_table_that_was_made_again_has_not_what_was_published(tmp_path):
    sink = made(opened(tmp_path))
    put(sink, 1, table(1, 1))
    assert sink.reached(1)
    loaded(tmp_path).drop_table("lake.t")
    made(opened(tmp_path))
    assert not sink.reached(1)


def test_changes_are_applied_by_key_and_the_column_is_not_written(tmp_path):
    sink = made(opened(tmp_path, UP, mode="upsert", key="k"))
    put(sink, 0, changes((1, "a", 1.0, "+"), (2, "b", None, "+")))
    put(sink, 1, changes((1, "c", 1.0, "+"), (1, "a", 1.0, "-"), (2, "b", None, "-")))
    put(sink, 2, changes((9, "x", 0.0, "+"), (9, "x", 0.0, "-")))  # nothing remains to be done
    put(sink, 3, changes((8, "never", 0.0, "-")))

    assert iceberg_rows(tmp_path).to_pylist() == [{"k": 1, "v": "c", "x": 1.0}]
    assert opened(tmp_path, UP, mode="upsert", key="k").held().number == 3


KEYS = schema_of("k bigint, s string, d date, t timestamp, v bigint")


@settings(max_examples=6, deadline=None)
@given(epochs=st.lists(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("a'\""),
       st.integers(0, 9)), max_size=6), min_size=1, max_size=3))  # fmt: skip
def test_upserts_leave_the_last_row_of_each_key(tmp_path_factory, epochs):
    tmp_path, model = tmp_path_factory.mktemp("upsert"), {}
    sink = made(opened(tmp_path, KEYS, mode="upsert", key=["k", "s", "d", "t"]))
    for epoch, drawn in enumerate(epochs):
        day = dt.date(2026, 11, 18)
        moment = dt.datetime(2026, 11, 18, 1, 2, 3, 4, dt.UTC)
        rows = [{"k": k, "s": s, "d": day, "t": moment, "v": v} for k, s, v in drawn]
        put(sink, epoch, pa.Table.from_pylist(rows, KEYS))
        model |= {(k, s): v for k, s, v in drawn}
    found = iceberg_rows(tmp_path).to_pylist()
    assert {(r["k"], r["s"]): r["v"] for r in found} == model and len(found) == len(model)


@pytest.mark.constants
def test_a_crash_at_any_point_of_an_upsert_loses_and_doubles_nothing(tmp_path_factory, hasty):
    def output(tmp):
        return Output(lambda: opened(tmp, mode="upsert", key="n"), lambda: seen(tmp))

    def seen(tmp):
        return rows_of(tmp) if loaded(tmp).table_exists("lake.t") else []

    calm = CrashingDriver(output(tmp_path_factory.mktemp("calm")), None)
    calm.run()
    points = [i for i, name in enumerate(calm.passed, 1) if name.startswith("sink.lake")]
    assert len(points) == 2 * EPOCHS
    for point in points[:6]:
        crashed = output(tmp_path_factory.mktemp("crash"))
        CrashingDriver(crashed, point).run()
        assert crashed.rows() == expected(EPOCHS)


@pytest.mark.chaos
@pytest.mark.constants  # once will do
@pytest.mark.parametrize("at", ["sink.lake.looked:2", "sink.lake.committed:2"])
def test_a_process_that_is_killed_is_taken_up_by_the_next(tmp_path, at):
    def life(**more):
        command = [sys.executable, "-c", LIFE, str(tmp_path), "iceberg"]
        return subprocess.run(
            command, check=False, env=os.environ | more, capture_output=True, text=True
        )

    assert life(HEADRACE_CRASH=at).returncode == -signal.SIGKILL
    again = life()
    assert (again.returncode, again.stderr) == (0, "")
    assert EXACT["iceberg"](tmp_path).rows() == expected(4)


@pytest.mark.parametrize("schema", ["n bigint", "epoch bigint, n string, text string"])
def test_a_table_that_does_not_fit_is_refused(tmp_path, schema):
    library = loaded(tmp_path)
    library.create_namespace("lake")
    library.create_table("lake.t", schema=schema_of(schema))
    assert refusal(opened(tmp_path).check).code == "HR-OUTPUT-006"


@pytest.mark.parametrize("kind", ["double", "float"])
def test_columns_that_cannot_be_partitions_are_refused(tmp_path, kind):
    schema = schema_of(f"n bigint, p {kind}")
    assert refusal(opened(tmp_path, schema, partition_by="p").check).code == "HR-LAKE-002"
    library = loaded(tmp_path)
    library.create_namespace("lake")
    with library.create_table("lake.t", schema=schema).update_spec() as spec:
        spec.add_identity("p")
    assert refusal(opened(tmp_path, schema).check).code == "HR-LAKE-002"


def test_partitions_whose_folders_are_encoded_are_stored_and_durable(tmp_path, monkeypatch):
    """A folder is called "p=%C3%A9": the name is what the table says, not what it stands for."""
    schema, synced = schema_of("n bigint, p string"), []
    whole = iceberg._sync_file
    monkeypatch.setattr(iceberg, "_sync_file", lambda p: (synced.append(p), whole(p)))
    sink = made(opened(tmp_path, schema, partition_by="p"))
    texts = ["", "__HIVE_DEFAULT_PARTITION__", "é", "a/b", "a%20b", None]
    wanted = pa.table({"n": range(len(texts)), "p": texts}, schema)
    put(sink, 0, wanted)
    assert iceberg_rows(tmp_path).sort_by("n").to_pylist() == wanted.to_pylist()
    files = [p for p in synced if p.suffix == ".parquet"]
    assert len(files) == len(texts) and all(p.exists() for p in synced)


def test_a_value_that_no_folder_can_be_called_fails_in_the_task(tmp_path):
    schema = schema_of("n bigint, p string, b binary")
    sink = made(opened(tmp_path, schema, partition_by=["p", "b"]))
    rows = [{"n": 1, "p": "x" * 253, "b": b"x" * 180}, {"n": 2, "p": None, "b": b""}]
    put(sink, 0, pa.Table.from_pylist(rows, schema))
    assert iceberg_rows(tmp_path).sort_by("n").to_pylist() == rows
    for bad in ({"p": "x" * 254}, {"p": "é" * 43}, {"b": b"\xff" * 200}):
        long = pa.Table.from_pylist([rows[1] | bad], schema)
        assert refusal(sink.stage, long, 1, "a").code == "HR-LAKE-003"


@pytest.mark.parametrize(
    ("uri", "options", "code"),
    [
        ("iceberg:t", {}, "HR-OUTPUT-001"), ("iceberg:a.t", {"catalog": 7}, "HR-OUTPUT-008"),
        ("iceberg:a.t", {"mode": "upsert"}, "HR-OUTPUT-008"),
        ("iceberg:a.t", {"storage_options": {}}, "HR-OUTPUT-008"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path, uri, options, code):
    assert refusal(open_sink, uri, SCHEMA, options, str(tmp_path), "o").code == code


def test_a_catalog_that_does_not_answer_is_named_without_secrets(tmp_path):
    catalog = {"type": "sql", "uri": "sqlite:////no/such/place/hush-hush.db", "token": "s3cr3t"}
    sink = opened(tmp_path, catalog=catalog)
    error = refusal(sink.check)
    assert error.code == "HR-LAKE-001" and "hush" not in error.message
    assert "s3cr3t" not in json.dumps(sink.describe()) and "s3cr3t" not in repr(sink._place)
    secret = opened(tmp_path, catalog={"type": "sql", "uri": "postgresql://me:pw@host/db"})
    assert "pw" not in json.dumps(secret.describe())
