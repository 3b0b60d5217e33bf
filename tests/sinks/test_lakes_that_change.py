"""Tables whose columns change under a running job, and values of which nobody finds a bound: rows
are there as they were written, or an error says why not."""

from __future__ import annotations

import os
import uuid

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, LongType, NestedField, StringType
from tests.sinks.iceberg_tables import opened, put, there
from tests.sinks.lake_cases import delta_rows, iceberg_rows, loaded
from tests.sinks.writing import ALONE, made, refusal

from headrace.schema import schema_of
from headrace.sinks import open_sink
from headrace.state import faults

TWO = schema_of("n bigint, s string")


def delta(tmp_path, schema=TWO, **options):
    uri = f"delta:{tmp_path / 'table'}"
    return made(open_sink(uri, schema, options, str(tmp_path / "job"), "o"))


def of(schema, *rows):
    return pa.Table.from_pylist([dict(zip(schema.names, r, strict=True)) for r in rows], schema)


OTHERS = {
    "replaced": pa.table({"x": [9], "y": ["z"]}),
    "dropped": pa.table({"n": pa.array([9], pa.int64())}),
    "another type": pa.table({"n": pa.array([9], pa.int64()), "s": pa.array([9], pa.int64())}),
    "narrower": pa.table({"n": pa.array([9], pa.int32()), "s": ["z"]}),
}


@pytest.mark.parametrize(
    ("change", "parts"),
    [*((change, None) for change in OTHERS), ("another type", "s"), ("narrower", "s")],
)
def test_delta_columns_that_are_others_now_are_refused(tmp_path, change, parts):
    from deltalake import write_deltalake

    sink = delta(tmp_path, **({"partition_by": parts} if parts else {}))
    put(sink, 0, of(TWO, (1, "a")))
    write_deltalake(tmp_path / "table", OTHERS[change], mode="overwrite",
                    schema_mode="overwrite", partition_by=parts and [parts])  # fmt: skip
    staged = sink.stage(of(TWO, (1 << 40, "b")), 1, uuid.uuid4().hex)

    assert refusal(sink.publish, 1, staged, ALONE).code == "HR-LAKE-001"
    found = delta_rows(tmp_path / "table").to_pylist()
    assert found == OTHERS[change].to_pylist()


def _replaced(table):
    with table.update_schema() as change:
        change.delete_column("s")
    with table.update_schema() as change:
        change.add_column("s", StringType())


def _dropped(table):
    with table.update_schema() as change:
        change.delete_column("s")


def _swapped(table):
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        with table.update_schema() as change:
            change.rename_column(old, new)


@pytest.mark.parametrize("kind", ["files", "partitions", "upsert"])
@pytest.mark.parametrize("change", [_replaced, _dropped, _swapped])
def test_iceberg_columns_that_are_others_now_are_refused(tmp_path, change, kind):
    schema = schema_of("a bigint, b bigint, n bigint") if change is _swapped else TWO
    more = {"partitions": {"partition_by": "n"}, "upsert": {"mode": "upsert", "key": "n"}}
    sink = made(opened(tmp_path, schema, **more.get(kind, {})))
    put(sink, 0, of(schema, (1, 2, 3) if change is _swapped else (1, "a")))
    change(there(tmp_path))
    before = iceberg_rows(tmp_path).to_pylist()

    second = (10, 20, 30) if change is _swapped else (2, "b")
    staged = sink.stage(of(schema, second), 1, uuid.uuid4().hex)
    assert refusal(sink.publish, 1, staged, ALONE).code == "HR-LAKE-001"
    assert iceberg_rows(tmp_path).to_pylist() == before


@pytest.mark.constants
def test_a_row_group_without_bounds_hides_no_row(tmp_path):
    count = 1_100_000  # a row group has 1,048,576
    texts = pa.array([*["m"] * (count - 1), "z" * 5_000])
    put(made(opened(tmp_path, TWO)), 0, pa.table([pa.array(range(count)), texts], schema=TWO))

    table = there(tmp_path)
    assert table.scan(EqualTo("n", count - 1)).to_arrow().num_rows == 1
    assert table.scan(EqualTo("s", "z" * 5_000)).to_arrow().num_rows == 1
    (metrics,) = table.inspect.files().column("readable_metrics").to_pylist()
    assert metrics["n"]["upper_bound"] == count - 1 and metrics["s"]["upper_bound"] is None


@pytest.mark.parametrize("options", [{}, {"partition_by": "n"}, {"mode": "upsert", "key": "n"}])
def test_a_value_without_a_bound_is_delivered(tmp_path, options):
    text = "x" * 15 + "\ud7ff" + "more"
    put(made(opened(tmp_path, TWO, **options)), 0, of(TWO, (1, text), (2, "ok")))
    assert sorted(iceberg_rows(tmp_path)["s"].to_pylist()) == ["ok", text]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_date_beyond_the_calendar_is_delivered(tmp_path, kind):
    schema = schema_of("d date")
    rows = pa.table([pa.array([3_000_000, 5], pa.int32()).cast(pa.date32())], schema=schema)
    put(made(opened(tmp_path, schema)) if kind == "iceberg" else delta(tmp_path, schema), 0, rows)
    found = iceberg_rows(tmp_path) if kind == "iceberg" else delta_rows(tmp_path / "table")
    assert sorted(found["d"].cast(pa.int32()).to_pylist()) == [5, 3_000_000]


def test_a_null_where_the_table_allows_none_names_the_output(tmp_path):
    schema = schema_of("n bigint, l array<bigint>")
    catalog = loaded(tmp_path)
    catalog.create_namespace_if_not_exists("lake")
    listed = ListType(8, LongType(), element_required=True)
    catalog.create_table("lake.t", Schema(
        NestedField(1, "n", LongType(), required=False),
        NestedField(7, "l", listed, required=False),
    ))  # fmt: skip
    sink = made(opened(tmp_path, schema))
    error = refusal(sink.stage, of(schema, (1, [1, None])), 0, "u")
    assert error.code == "HR-LAKE-003" and "'o'" in error.message


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("harm", ["removed", "cut"])
def test_a_file_that_is_harmed_before_the_commit_is_named(tmp_path, kind, harm):
    sink = made(opened(tmp_path, TWO)) if kind == "iceberg" else delta(tmp_path)
    staged = sink.stage(of(TWO, (1, "a")), 0, uuid.uuid4().hex)

    def meanwhile(name):
        if name == "sink.lake.settled":
            (file,) = (p for p in tmp_path.rglob("part-*.parquet") if "_headrace" not in p.parts)
            file.unlink() if harm == "removed" else os.truncate(file, 10)

    with faults.hooked(meanwhile):
        assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-005"


def test_a_warehouse_that_libraries_read_otherwise_is_left_to_the_library(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "file://here/lake"}
    sink = made(open_sink("iceberg:lake.t", TWO, {"catalog": catalog}, str(tmp_path / "job"), "o"))
    put(sink, 0, of(TWO, (1, "a")))
    from pyiceberg.catalog import load_catalog

    found = load_catalog("default", **catalog).load_table("lake.t").scan().to_arrow()
    assert found.to_pylist() == [{"n": 1, "s": "a"}]
