"""An Iceberg table as an input: snapshots, commits that follow, changes, and what is refused."""

from __future__ import annotations

import datetime as dt
import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.lake_cases import loaded, sqlite_catalog
from tests.sources.reading import again, read_split, refusal
from tests.sources.test_delta import numbers, read, rows

from headrace.schema import schema_of
from headrace.sources import open_source

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match")


def opened(tmp_path, schema=None, until=None, **options):
    options.setdefault("catalog", sqlite_catalog(tmp_path))
    return open_source("iceberg:lake.t", schema, options=options, name="in", until=until,
                       folder=str(tmp_path / "job"))  # fmt: skip


def made(tmp_path):
    library = loaded(tmp_path)
    library.create_namespace_if_not_exists("lake")
    return library.create_table("lake.t", schema=rows().schema)


def test_a_job_reads_what_is_there_and_then_what_is_added(tmp_path):
    table = made(tmp_path)
    assert read(opened(tmp_path, until="end"))[0] == []
    table.append(rows(1, 2))
    table.append(rows(3))
    more, end = read(opened(tmp_path))
    assert numbers(more) == [1, 2, 3]
    table.append(rows(4, 5))
    source = opened(tmp_path)  # as after a restart
    source.check({"rows": end})
    assert source.has_more("rows", end)
    assert numbers(read(source, end)[0]) == [4, 5]


def test_only_what_is_added_from_now_on_and_a_version_as_it_was(tmp_path):
    table = made(tmp_path)
    table.append(rows(1))
    source = opened(tmp_path, start="latest")
    nothing, end = read(source)
    table.append(rows(2))
    assert nothing == [] and numbers(read(source, end)[0]) == [2]
    other = tmp_path / "other"
    other.mkdir()
    version = opened(other, until="end", version=1, catalog=sqlite_catalog(tmp_path))
    assert numbers(read(version)[0]) == [1]


@pytest.mark.parametrize("how", ["delete", "overwrite"])
def test_a_commit_that_removes_rows_is_refused_by_name(tmp_path, how):
    table = made(tmp_path)
    table.append(rows(1, 2))
    source = opened(tmp_path)
    _, end = read(source)
    table.delete("n == 1") if how == "delete" else table.overwrite(rows(7))
    error = refusal(read, source, end)
    assert error.code == "HR-LAKE-011" and "changes=True" in error.hint


@settings(max_examples=8, deadline=None)
@given(
    ops=st.lists(st.tuples(st.sampled_from(["delete", "overwrite", "append", "upsert"]),
                           st.integers(0, 3)), max_size=4),
    size=st.sampled_from([1, 1000]),
)  # fmt: skip
def test_changes_add_up_to_the_table_whatever_is_done_to_it(tmp_path_factory, ops, size):
    tmp_path = tmp_path_factory.mktemp("changes")
    table = made(tmp_path)
    table.append(rows(0, 1, 2))
    source = opened(tmp_path, changes=True)
    source.discover()
    for how, n in ops:
        if how == "delete":
            table.delete(f"n == {n}")
        elif how == "overwrite":
            table.overwrite(rows(n, 7))
        elif how == "append":
            table.append(rows(n + 10 * len(table.snapshots())))
        else:
            table.delete(f"n == {n}")
            table.append(rows(n, name="changed"))

    balance = Counter()
    for row in read_split(source, "rows", rows=size)[0]:
        balance[row["n"], row["name"]] += 1 if row["change"] == "+" else -1
    found = loaded(tmp_path).load_table("lake.t").scan().to_arrow().to_pylist()
    assert +balance == Counter((r["n"], r["name"]) for r in found) and not -balance


def test_columns_are_found_by_their_ids(tmp_path):
    table = made(tmp_path)
    table.append(rows(1, name="before"))
    with table.update_schema() as change:
        change.rename_column("name", "title")
    with table.update_schema() as change:
        from pyiceberg.types import StringType

        change.add_column("name", StringType())
    found, _ = read(opened(tmp_path))
    assert found == [{"n": 1, "title": "before", "name": None}]


def test_snapshots_that_expired_before_they_were_read_are_named(tmp_path):
    table = made(tmp_path)
    table.append(rows(1))
    _, end = read(opened(tmp_path))
    for n in range(3):
        table.append(rows(n))
    soon = dt.datetime.now() + dt.timedelta(days=1)
    table.maintenance.expire_snapshots().older_than(soon).commit()
    assert refusal(read, opened(tmp_path), end).code == "HR-LAKE-012"
    assert refusal(opened(tmp_path).check, {"rows": end}).code == "HR-LAKE-012"


def test_a_file_that_is_gone_is_named(tmp_path):
    table = made(tmp_path)
    table.append(rows(1))
    source = opened(tmp_path)
    (part,) = source.cut("rows", source.start("rows"), source.latest("rows"), 1)
    (file,) = table.inspect.files()["file_path"].to_pylist()
    os.unlink(Path(file.removeprefix("file://")))
    assert refusal(lambda: list(again(source).read(part))).code == "HR-LAKE-012"


def test_a_rollback_behind_what_was_read_is_refused(tmp_path):
    table = made(tmp_path)
    table.append(rows(1))
    first = table.current_snapshot().snapshot_id
    table.append(rows(2))
    source = opened(tmp_path)
    _, end = read(source)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(rows(3))

    assert refusal(read, source, end).code == "HR-LAKE-011"
    assert refusal(opened(tmp_path).check, {"rows": end}).code == "HR-LAKE-011"


@pytest.mark.parametrize("started", [True, False])
def test_a_rollback_while_the_job_is_down_is_refused(tmp_path, started):
    """What is current then has other rows than the snapshot with which the job began."""
    table = made(tmp_path)
    table.append(rows(1, 2, 3, 4))
    first = table.current_snapshot().snapshot_id
    table.append(rows(5))
    table.delete("n < 5")
    source = opened(tmp_path)
    source.discover()
    if started:
        found, end = read(source)
        assert numbers(found) == [5]
    table.manage_snapshots().set_current_snapshot(first).commit()
    table.append(rows(9))

    if started:
        assert refusal(opened(tmp_path).check, {"rows": end}).code == "HR-LAKE-011"
    else:
        assert refusal(read, opened(tmp_path)).code == "HR-LAKE-011"


@pytest.mark.parametrize("start", ["snapshot", "latest"])
def test_a_rollback_whose_snapshots_expired_is_refused(tmp_path, start):
    table = made(tmp_path)
    table.append(rows(1))
    first = table.current_snapshot().snapshot_id
    table.append(rows(2))
    second = table.current_snapshot().snapshot_id
    source = opened(tmp_path, start=start)
    _, end = read(source)
    table.manage_snapshots().set_current_snapshot(first).commit()
    table.append(rows(3))
    table.maintenance.expire_snapshots().by_id(second).commit()

    assert refusal(read, source, end).code == "HR-LAKE-011"
    again = opened(tmp_path, start=start)
    assert refusal(again.check, {"rows": end}).code == "HR-LAKE-011"


def test_a_version_that_there_is_not_is_refused(tmp_path):
    made(tmp_path).append(rows(1))
    assert refusal(read, opened(tmp_path, version=7)).code == "HR-LAKE-012"


def test_what_was_read_may_expire_while_the_job_runs_but_not_what_followed(tmp_path):
    table, soon = made(tmp_path), dt.datetime.now() + dt.timedelta(days=1)
    table.append(rows(1))
    table.append(rows(2))
    source = opened(tmp_path)
    _, end = read(source)
    table.maintenance.expire_snapshots().older_than(soon).commit()
    table.append(rows(3))
    found, end = read(source, end)
    assert numbers(found) == [3]
    table.append(rows(4))
    table.maintenance.expire_snapshots().older_than(soon).commit()
    assert refusal(read, source, end).code == "HR-LAKE-012"  # it might be another line


@pytest.mark.parametrize("renewed", [True, False])
def test_a_column_that_is_dropped_while_the_job_runs_is_refused(tmp_path, renewed):
    from pyiceberg.types import StringType

    table = made(tmp_path)
    table.append(rows(1))
    source = opened(tmp_path)
    _, end = read(source)
    with table.update_schema() as change:
        change.delete_column("name")
    if renewed:
        with table.update_schema() as change:
            change.add_column("name", StringType())
    table.append(rows(2) if renewed else rows(2).select(["n"]))
    error = refusal(read, source, end)
    assert error.code == "HR-INPUT-005" and "'name'" in error.message


def test_a_column_that_is_renamed_or_added_while_the_job_runs_is_no_matter(tmp_path):
    from pyiceberg.types import StringType

    table = made(tmp_path)
    table.append(rows(1))
    source = opened(tmp_path)
    _, end = read(source)
    with table.update_schema() as change:
        change.rename_column("name", "title")
    with table.update_schema() as change:
        change.add_column("more", StringType())
    table.append(pa.table({"n": [2], "title": ["t"], "more": ["m"]}))
    assert read(source, end)[0] == [{"n": 2, "name": "t"}]


def test_a_table_that_was_made_again_is_another(tmp_path):
    made(tmp_path).append(rows(1))
    source = opened(tmp_path)
    before = source.identity()
    loaded(tmp_path).drop_table("lake.t")
    made(tmp_path)
    assert refusal(source.check).code == "HR-INPUT-016"
    assert opened(tmp_path).identity()["thing"] != before["thing"]


def test_what_cannot_be_read_is_refused(tmp_path):
    assert refusal(opened, tmp_path).code == "HR-LAKE-010"
    bad = {"type": "sql", "uri": "sqlite:////no/such/place/x.db"}
    assert refusal(opened, tmp_path, catalog=bad).code == "HR-LAKE-010"
    assert refusal(opened, tmp_path, catalog=7).code == "HR-INPUT-013"
    library = loaded(tmp_path)
    library.create_namespace_if_not_exists("lake")
    library.create_table("lake.t", schema=rows().schema, properties={"format-version": "1"})
    assert refusal(opened(tmp_path).check).code == "HR-LAKE-014"
    assert refusal(opened(tmp_path, schema_of("m bigint")).check).code == "HR-LAKE-014"


def test_types_come_back_as_they_were_written(tmp_path):
    library = loaded(tmp_path)
    library.create_namespace_if_not_exists("lake")
    schema = schema_of(
        "i int, b bigint, f float, d double, s string, y binary, o boolean, a date, t timestamp, "
        "m decimal(6,2), l array<int>, r struct<a bigint, b string>, p map<string, bigint>"
    )
    row = {
        "i": 1, "b": 2, "f": 0.5, "d": 0.25, "s": "é", "y": b"\0", "o": True,
        "a": dt.date(2026, 11, 18), "t": dt.datetime(2026, 1, 1, 1, 2, 3, 4, dt.UTC), "m": None,
        "l": [1, None], "r": {"a": 1, "b": None}, "p": [("k", 1)],
    }  # fmt: skip
    wanted = pa.Table.from_pylist([row, dict.fromkeys(row)], schema)
    library.create_table("lake.t", schema=schema).append(wanted)
    assert read(opened(tmp_path))[0] == wanted.to_pylist()


def test_partitions_whose_folders_are_encoded_are_read(tmp_path):
    library = loaded(tmp_path)
    library.create_namespace_if_not_exists("lake")
    schema = schema_of("n bigint, s string, t timestamp")
    table = library.create_table("lake.t", schema=schema)
    with table.update_spec() as spec:
        spec.add_identity("s")
        spec.add_identity("t")
    time = dt.datetime(2026, 1, 1, 1, 2, 3, 4, dt.UTC)
    wanted = pa.table({"n": [1, 2, 3, 4], "s": ["é", "a/b", "a%20b", ""], "t": [time] * 4}, schema)
    table.append(wanted)
    source = opened(tmp_path)
    snapshot, end = read(source)
    table.append(wanted)
    commit, _ = read(source, end)
    for found in (snapshot, commit):
        assert sorted(found, key=lambda r: r["n"]) == wanted.to_pylist()
