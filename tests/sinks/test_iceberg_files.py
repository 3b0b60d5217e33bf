"""Files that tasks write for an Iceberg table: as the library's own, and rows once, whatever is
changed about the table between staging and commit."""

from __future__ import annotations

import datetime as dt
import decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.types import LongType
from tests.sinks.iceberg_tables import opened, put, there
from tests.sinks.lake_cases import delta_rows, iceberg_rows
from tests.sinks.writing import ALONE, SCHEMA, expected, made, refusal, stage, table, values

from headrace.schema import schema_of
from headrace.sinks import open_sink
from headrace.state import faults

KINDS = schema_of(
    "i int, b bigint, f double, s string, o boolean, a date, t timestamp, "
    "m decimal(6,2), w decimal(30,4), l array<int>, r struct<a bigint, i string>, "
    "p map<string, int>, y binary"
)
ROW = {
    "i": 2, "b": 1 << 40, "f": 2.5, "s": "é" * 40, "o": True, "a": dt.date(2026, 3, 1),
    "t": dt.datetime(2026, 3, 1, 4, 5, 6, 7, dt.UTC),
    "m": decimal.Decimal("-12.34"), "w": decimal.Decimal("12345678901234567890.1234"),
    "l": [1, None], "r": {"a": 5, "i": None}, "p": [("k", 1)], "y": b"\x00\xff" * 20,
}  # fmt: skip
NOTHING = dict.fromkeys(ROW)


def by_us(tmp_path):
    """Of each file of the table, whether a task wrote it."""
    paths = there(tmp_path).inspect.files().column("file_path").to_pylist()
    return ["/data/part-" in path for path in paths]


def test_a_file_is_described_as_the_library_describes_its_own(tmp_path):
    rows = pa.Table.from_pylist([ROW, NOTHING, {**ROW, "i": -7, "s": "", "f": float("nan")}], KINDS)
    put(made(opened(tmp_path, KINDS)), 0, rows)
    there(tmp_path).append(rows)

    assert sorted(by_us(tmp_path)) == [False, True]
    ours, theirs = sorted(
        there(tmp_path).inspect.files().to_pylist(), key=lambda f: "/part-" not in f["file_path"]
    )
    for where in ("file_path", "file_size_in_bytes", "column_sizes", "split_offsets"):
        assert ours.pop(where) and theirs.pop(where)
    of_columns = [f.pop("readable_metrics") for f in (ours, theirs)]
    for metrics in of_columns:
        for each in metrics.values():
            each.pop("column_size", None)
    assert ours == theirs and of_columns[0] == of_columns[1]
    found = iceberg_rows(tmp_path).to_pylist()
    assert len(found) == 6 and repr(found[:3]) == repr(found[3:])


@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_what_is_said_of_files_hides_no_row_from_a_filter(tmp_path_factory, data):
    values = {k: st.sampled_from([None, v]) for k, v in ROW.items()}
    values |= {
        "i": st.one_of(st.none(), st.integers(-3, 3)),
        "s": st.one_of(st.none(), st.text(max_size=30)),
        "f": st.one_of(st.none(), st.floats(width=32)),
        "a": st.one_of(st.none(), st.dates(dt.date(1900, 1, 1), dt.date(2100, 1, 1))),
    }
    place, every = tmp_path_factory.mktemp("filters"), []
    sink = made(opened(place, KINDS))
    for epoch in range(2):
        rows = data.draw(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=4))
        every += rows
        put(sink, epoch, pa.Table.from_pylist(rows, KINDS))
    assert all(by_us(place))
    for name in ("i", "s", "a"):
        for value in {r[name] for r in every if r[name] is not None}:
            found = there(place).scan(EqualTo(name, value)).to_arrow()
            assert found.num_rows == sum(r[name] == value for r in every)
        missing = there(place).scan(IsNull(name)).to_arrow()
        assert missing.num_rows == sum(r[name] is None for r in every)
    assert there(place).scan().to_arrow().num_rows == len(every)


def _partition(found):
    with found.update_spec() as spec:
        spec.add_identity("epoch")


def _column(found):
    with found.update_schema() as schema:
        schema.add_column("more", LongType())


def _setting(found):
    with found.transaction() as change:
        change.set_properties({"write.parquet.compression-codec": "gzip"})


def _order(found):
    with found.update_schema() as schema:
        schema.move_first("text")


@pytest.mark.parametrize("changed", [_partition, _column, _setting, _order])
def test_a_table_that_was_changed_since_gets_the_rows_by_the_library(tmp_path, changed):
    sink = made(opened(tmp_path))
    first, second = stage(sink, 0), stage(sink, 1)
    sink.publish(0, first, ALONE)
    assert all(by_us(tmp_path))
    changed(there(tmp_path))

    sink.publish(1, second, ALONE)
    assert not all(by_us(tmp_path))
    assert values(iceberg_rows(tmp_path).select(SCHEMA.names)) == expected(2)


@pytest.mark.parametrize(
    "options",
    [{"partition_by": "epoch"}, {"mode": "upsert", "key": "n"},
     {"properties": {"write.parquet.compression-codec": "gzip"}},
     {"properties": {"write.object-storage.enabled": "true"}}],
)  # fmt: skip
def test_where_files_are_not_as_ours_the_library_writes_them(tmp_path, options):
    put(made(opened(tmp_path, **options)), 0, table(0, 1, 2))
    assert not any(by_us(tmp_path))
    assert values(iceberg_rows(tmp_path).select(SCHEMA.names)) == values(table(0, 1, 2))


def test_settings_of_metadata_are_no_reason_and_are_followed(tmp_path):
    none = {"write.metadata.metrics.default": "none", "commit.manifest-merge.enabled": "true",
            "commit.manifest.min-count-to-merge": "2"}  # fmt: skip
    sink = made(opened(tmp_path, properties=none))
    for epoch in range(4):
        put(sink, epoch, table(epoch, epoch))
    assert by_us(tmp_path) == [True] * 4
    assert len(there(tmp_path).current_snapshot().manifests(there(tmp_path).io)) < 4
    metrics = there(tmp_path).inspect.files().column("readable_metrics").to_pylist()
    assert all(m["n"]["upper_bound"] is None for m in metrics)
    assert len(values(iceberg_rows(tmp_path))) == 4


def test_names_that_files_spell_otherwise_are_the_librarys(tmp_path):
    schema = schema_of("`a b` bigint, c string")
    rows = pa.Table.from_pylist([{"a b": 1, "c": "x"}], schema)
    put(made(opened(tmp_path, schema)), 0, rows)
    assert not any(by_us(tmp_path)) and iceberg_rows(tmp_path).to_pylist() == rows.to_pylist()


@pytest.mark.parametrize("at", ["sink.lake.looked", "sink.lake.settled"])
def test_the_same_epoch_by_two_drivers_is_there_once(tmp_path, at):
    sink, done = made(opened(tmp_path)), []
    staged = stage(sink, 0)

    def meanwhile(name):
        if name == at and not done:
            done.append(name)
            opened(tmp_path).publish(0, staged, ALONE)

    with faults.hooked(meanwhile):
        sink.publish(0, staged, ALONE)
    assert done and values(iceberg_rows(tmp_path)) == expected(1) and all(by_us(tmp_path))


def test_an_epoch_whose_file_somebody_has_compacted_is_not_missed(tmp_path):
    sink = made(opened(tmp_path))
    staged = stage(sink, 0)
    sink.publish(0, staged, ALONE)
    rows = iceberg_rows(tmp_path)
    there(tmp_path).overwrite(rows)
    data = (tmp_path / "warehouse").rglob("part-*.parquet")
    assert [p.unlink() for p in data]

    opened(tmp_path).publish(0, staged, ALONE)
    assert values(iceberg_rows(tmp_path)) == expected(1)


def test_a_staged_file_that_is_gone_or_damaged_is_named(tmp_path):
    sink = made(opened(tmp_path))
    staged = stage(sink, 0)
    (hidden,) = (tmp_path / "warehouse").rglob(staged[0]["file"])
    hidden.write_bytes(hidden.read_bytes()[:-1] + b"x")
    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-012"
    hidden.unlink()
    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-005"
    assert not iceberg_rows(tmp_path).num_rows


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_jobs_that_append_to_one_table_leave_each_others_files(tmp_path, kind):
    """Both call their output "o"; the second starts while the first has staged an epoch."""

    def of(job):
        if kind == "iceberg":
            return opened(tmp_path, job=job, mode="append")
        uri = f"delta:{tmp_path}/table"
        return open_sink(uri, SCHEMA, {"mode": "append"}, str(tmp_path / job), "o")

    first = made(of("first"))
    staged = stage(first, 0)
    second = made(of("second"))
    second.discard(set())
    put(second, 0, table(7, 7))
    second.discard(set(), 5)
    first.publish(0, staged, ALONE)
    rows = iceberg_rows(tmp_path) if kind == "iceberg" else delta_rows(tmp_path / "table")
    assert values(rows) == sorted(expected(1) + values(table(7, 7)))
