"""A Delta table as an input: snapshots, commits that follow, changes, and what is refused."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import again, chunks, read_split, refusal, typed

from headrace.schema import schema_of
from headrace.sources import open_source

SCHEMA = schema_of("n bigint, name string")


def rows(*numbers, name="x"):
    return pa.Table.from_pylist([{"n": n, "name": name} for n in numbers], SCHEMA)


def put(place, *numbers, **options):
    write_deltalake(str(place), rows(*numbers), mode="append", **options)


def opened(place, schema=None, until=None, **options):
    return open_source(f"delta:{place}", schema, options=options, name="in", until=until,
                       folder=str(place.parent / "job"))  # fmt: skip


def read(source, start=None):
    source.discover()
    start = source.start("rows") if start is None else start
    end = source.latest("rows")
    found = [typed(source, t) for t, _ in chunks(source, "rows", start, end)]
    return [r for t in found for r in t.to_pylist()], end


def numbers(found):
    return sorted(r["n"] for r in found)


@pytest.fixture
def place(tmp_path):
    return tmp_path / "table"


def test_a_job_reads_what_is_there_and_then_what_is_added(place):
    put(place, 1, 2)
    source = opened(place)
    first, end = read(source)
    assert numbers(first) == [1, 2] and not source.has_more("rows", end)

    put(place, 3)
    put(place, 4, 5)
    again_opened = opened(place)  # as after a restart
    again_opened.check({"rows": end})
    more, end = read(again_opened, end)
    assert numbers(more) == [3, 4, 5] and not again_opened.bounded
    assert "version 2" in again_opened.where("rows", end)


def test_only_what_is_added_from_now_on(place):
    put(place, 1)
    source = opened(place, start="latest")
    nothing, end = read(source)
    assert nothing == [] and source.start("rows") == end
    source.check({"rows": end})
    put(place, 2)
    assert numbers(read(opened(place, start="latest"), end)[0]) == [2]


def test_a_version_is_what_it_was(place):
    put(place, 1)
    put(place, 2)
    assert numbers(read(opened(place, until="end", version=0))[0]) == [1]
    assert numbers(read(opened(place, version=0))[0]) == [1, 2]  # and what follows


def test_a_bounded_input_ends_with_what_is_there_at_the_start(place):
    put(place, 1)
    source = opened(place, until="end")
    assert source.bounded
    end = source.latest("rows")
    put(place, 2)
    assert source.latest("rows") == end and source.ended("rows", end)


def test_a_compaction_is_passed_over(place):
    for n in range(4):
        put(place, n)
    source = opened(place)
    _, end = read(source)
    assert DeltaTable(str(place)).optimize.compact()["numFilesAdded"] == 1
    assert not source.has_more("rows", end)
    put(place, 9)
    assert numbers(read(source, end)[0]) == [9]


@pytest.mark.parametrize("how", ["delete", "update", "overwrite"])
def test_a_commit_that_removes_rows_is_refused_by_name(place, how):
    put(place, 1, 2)
    source = opened(place)
    _, end = read(source)
    change(place, how)

    error = refusal(read, source, end)
    assert error.code == "HR-LAKE-011" and "version 1" in error.message
    assert "changes=True" in error.hint


def change(place, how, n=1):
    table = DeltaTable(str(place))
    if how == "delete":
        table.delete(f"n = {n}")
    elif how == "update":
        table.update(updates={"name": "'changed'"}, predicate=f"n = {n}")
    elif how == "overwrite":
        write_deltalake(table, rows(7), mode="overwrite")
    elif how == "optimize":
        table.optimize.compact()
    else:
        put(place, n, n)


@settings(max_examples=12, deadline=None)
@given(
    feed=st.booleans(),
    ops=st.lists(
        st.tuples(st.sampled_from(["delete", "update", "overwrite", "optimize", "append"]),
                  st.integers(0, 3)), max_size=6),
    size=st.sampled_from([1, 3, 1000]),
)  # fmt: skip
def test_changes_add_up_to_the_table_whatever_is_done_to_it(tmp_path_factory, feed, ops, size):
    place = tmp_path_factory.mktemp("changes") / "table"
    configuration = {"delta.enableChangeDataFeed": str(feed).lower()}
    put(place, 0, 1, 2, configuration=configuration)
    source = opened(place, changes=True)
    source.discover()
    for how, n in ops:
        change(place, how, n)

    balance = Counter()
    for row in read_split(source, "rows", rows=size)[0]:
        balance[row["n"], row["name"]] += 1 if row["change"] == "+" else -1
    there = DeltaTable(str(place)).to_pyarrow_table().to_pylist()
    assert +balance == Counter((r["n"], r["name"]) for r in there)
    assert not -balance


def test_partitions_come_back_with_their_types(place):
    values = {
        "s": ["a b/c%20=", None], "i": [-1, 2], "d": [dt.date(2026, 11, 18), None],
        "t": [dt.datetime(2026, 1, 1, 1, 2, 3, 4, dt.UTC), None], "b": [True, False],
        "m": [Decimal("1.50"), None],
    }  # fmt: skip
    kinds = "s string, i int, d date, t timestamp, b boolean, m decimal(6,2), n bigint"
    table = pa.Table.from_pydict(values | {"n": [1, 2]}, schema_of(kinds))
    write_deltalake(str(place), table, partition_by=list(values), mode="append")
    source = opened(place)
    snapshot, end = read(source)
    write_deltalake(str(place), table, mode="append")
    commit, _ = read(source, end)

    for found in (snapshot, commit):
        assert sorted(found, key=lambda r: r["n"]) == table.to_pylist()


def test_columns_may_be_added_to_the_table_and_none_that_is_read_removed(place):
    put(place, 1)
    source = opened(place, schema_of("n bigint, name string"))
    _, end = read(source)
    wide = rows(2).append_column("more", pa.array([5]))
    write_deltalake(str(place), wide, mode="append", schema_mode="merge")
    assert read(source, end)[0] == [{"n": 2, "name": "x"}]

    write_deltalake(str(place), pa.table({"n": [1]}), mode="overwrite", schema_mode="overwrite")
    changed = opened(place, schema_of("n bigint, name string, change string"), changes=True)
    assert refusal(read, changed, end).code == "HR-INPUT-005"


def test_files_of_before_have_nulls_where_a_column_was_added(place):
    put(place, 1)
    wide = rows(2).append_column("more", pa.array([5]))
    write_deltalake(str(place), wide, mode="append", schema_mode="merge")
    found = read(opened(place))[0]
    assert {r["n"]: r["more"] for r in found} == {1: None, 2: 5}


@pytest.mark.parametrize("declared", [True, False])
def test_a_job_goes_on_after_columns_were_added(place, declared):
    put(place, 1)
    source = opened(place)
    _, end = read(source)
    for n, name in ((2, "more"), (3, "most")):
        wide = rows(n).append_column(name, pa.array([5]))
        write_deltalake(str(place), wide, mode="append", schema_mode="merge")
    schema = schema_of("n bigint, name string, more bigint, most bigint") if declared else None
    again = opened(place, schema)  # as after a restart
    again.check({"rows": end})
    assert read(again, end)[0] == [
        {"n": 2, "name": "x", "more": 5, "most": None},
        {"n": 3, "name": "x", "more": None, "most": 5},
    ]
    assert numbers(read(opened(place, schema))[0]) == [1, 2, 3]  # from where it began


def test_a_column_that_was_dropped_and_added_again_is_refused(place):
    put(place, 1)
    options = {"changes": True}
    _, end = read(opened(place, **options))
    write_deltalake(str(place), pa.table({"n": [1]}), mode="overwrite", schema_mode="overwrite")
    write_deltalake(str(place), rows(2), mode="append", schema_mode="merge")
    assert refusal(read, opened(place, **options), end).code == "HR-INPUT-005"


@pytest.mark.parametrize("partitioned", [True, False])
def test_a_removed_file_whose_partition_is_not_stated_is_refused(place, partitioned):
    put(place, 1, **({"partition_by": ["name"]} if partitioned else {}))
    source = opened(place, changes=True)
    _, end = read(source)
    DeltaTable(str(place)).delete()
    log = place / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "remove" in action:  # optional, says the protocol
            del action["remove"]["partitionValues"]
    log.write_text("\n".join(map(json.dumps, actions)))

    if partitioned:
        assert refusal(read, source, end).code == "HR-LAKE-014"
    else:
        assert read(source, end)[0] == [{"n": 1, "name": "x", "change": "-"}]


def test_what_vacuum_has_removed_is_named(place):
    put(place, 1, 2)
    source = opened(place)
    source.discover()
    parts = source.cut("rows", source.start("rows"), source.latest("rows"), 1)
    change(place, "overwrite")
    table = DeltaTable(str(place))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    error = refusal(lambda: list(again(source).read(parts[0])))
    assert error.code == "HR-LAKE-012" and "vacuum" in error.hint


def test_commits_that_were_cleaned_up_before_they_were_read_are_named(place):
    put(place, 1)
    source = opened(place)
    _, end = read(source)
    for n in range(3):
        put(place, n)
    DeltaTable(str(place)).create_checkpoint()
    os.unlink(place / "_delta_log" / f"{2:020d}.json")

    assert refusal(read, opened(place), end).code == "HR-LAKE-012"


def test_a_table_that_was_made_again_is_another(place):
    put(place, 1)
    source = opened(place)
    before = source.identity()
    os.rename(place, place.parent / "old")
    put(place, 1)

    assert refusal(source.check).code == "HR-INPUT-016"
    assert opened(place).identity()["thing"] != before["thing"]


def test_a_table_that_is_shorter_than_what_was_read_is_refused(place):
    for n in range(3):
        put(place, n)
    source = opened(place, until="end")
    end = source.latest("rows")
    os.unlink(place / "_delta_log" / f"{2:020d}.json")
    assert refusal(opened(place).check, {"rows": end}).code in ("HR-INPUT-007", "HR-LAKE-012")


def test_deletion_vectors_and_mapped_columns_are_refused(place):
    put(place, 1)
    source = opened(place)
    _, end = read(source)
    file = json.loads((place / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[-1])
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 1,
              "cardinality": 1}  # fmt: skip
    add = {"add": {**file["add"], "deletionVector": vector}} if "add" in file else None
    add = add or {"add": {"path": "p", "dataChange": True, "deletionVector": vector}}
    (place / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(add))

    assert refusal(read, source, end).code == "HR-LAKE-014"


def test_where_a_job_began_is_stored_and_damage_to_it_is_named(place):
    put(place, 1)
    opened(place).discover()
    put(place, 2)
    assert opened(place).start("rows") == opened(place).start("rows") < opened(place).latest("rows")
    next((place.parent / "job").rglob("begin")).write_text("{")
    assert refusal(opened(place).check).code == "HR-INPUT-009"


@pytest.mark.parametrize(
    "options",
    [{"start": "earliest"}, {"version": -1}, {"version": True}, {"start": "latest", "version": 1},
     {"changes": 1}, {"versions": 2}],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(place, options):
    put(place, 1)
    assert refusal(opened, place, **options).code == "HR-INPUT-013"


def test_a_missing_table_and_missing_columns_are_named(place):
    assert refusal(opened, place).code == "HR-LAKE-010"
    put(place, 1)
    source = opened(place, schema_of("n bigint, more string"))
    assert refusal(source.check).code == "HR-INPUT-005"
    assert refusal(opened, place, SCHEMA, changes=True).code == "HR-INPUT-013"
    (place / "_delta_log" / f"{0:020d}.json").write_text("{")
    assert refusal(opened, place).code == "HR-LAKE-010"


def test_a_file_that_has_fewer_rows_than_the_log_says_is_named(place):
    import pyarrow.parquet as pq

    put(place, 1, 2, 3)
    (file,) = place.glob("*.parquet")
    pq.write_table(rows(1), file)
    assert refusal(read, opened(place)).code == "HR-LAKE-013"
