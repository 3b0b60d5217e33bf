"""Partitioned files: what other readers find, which values have a folder, what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sinks.test_two_drivers import nothing_is_left_over
from tests.sinks.writing import ALONE, made, refusal

from headrace.schema import schema_of
from headrace.sinks import Timelines, merging, open_sink, output_files, read_output
from headrace.sinks.commits import Commits
from headrace.state.manifest import FIRST
from headrace.state.sealed import read_sealed

SCHEMA = schema_of("n bigint, area string")
HOSTILE = [
    "plain", "a b", "a=b", "a/b", "50%", "%41", "a:b", "x\ny", "\x00", "\x7f", "\x1f", "é", "日本",
    "😀", "e\u0301", ".", "..", "a.", "~", "+", "a+b", "&", ";", ",", "|", "<>", "!", "$", "`",
    "'", '"', "*?[]{}^#\\", "NULL", "null", "true", "007", "2026-01-01", "1.0", " lead", "trail ",
    "\u00a0", "\ufeff", "\u2028", "\x85", "%zz", "None", "__HIVE_DEFAULT_PARTITION", "nan",
    "x" * 200, None,
]  # fmt: skip


def opened(tmp_path: Path, schema: pa.Schema = SCHEMA, path: str = "out", **options: Any):
    options = {"partition_by": "area", **options}
    return open_sink(f"files:{tmp_path}/{path}", schema, options, str(tmp_path / "job"), "o")


def written(sink, *epochs: list[dict[str, Any]], first: int = 0):
    made(sink)
    for epoch, rows in enumerate(epochs, first):
        table = pa.Table.from_pylist(rows, sink.schema)
        sink.publish(epoch, sink.stage(table, epoch, "a"), ALONE)
    return sink


def hostile_rows() -> list[dict[str, Any]]:
    return [{"n": i, "area": v} for i, v in enumerate(HOSTILE)]


def by_n(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda r: r["n"])


# What readers find


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "text", "avro"])
def test_every_value_comes_back_as_it_was(tmp_path, format):
    schema = SCHEMA if format != "text" else schema_of("line string, area string")
    rows = [{schema.names[0]: r["n"], "area": r["area"]} for r in hostile_rows()]
    if format == "text":
        rows = [{"line": str(r["line"]), "area": r["area"]} for r in rows]
    written(opened(tmp_path, schema, format=format), rows, rows)

    found = read_output(tmp_path / "out")

    assert found.schema.names == schema.names
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, rows * 2))
    assert len(list((tmp_path / "out").glob("area=*"))) == len(HOSTILE)


def test_pyarrow_and_duckdb_find_the_same(tmp_path):
    written(opened(tmp_path), hostile_rows())
    layout = ds.partitioning(pa.schema([("area", pa.string())]), flavor="hive")

    found = ds.dataset(tmp_path / "out", format="parquet", partitioning=layout).to_table()
    sql = f"from read_parquet('{tmp_path}/out/area=*/*', hive_types={{'area': varchar}})"
    duck = duckdb.sql(f"select n, area {sql}").fetchall()

    assert by_n(found.select(["n", "area"])) == hostile_rows()
    assert sorted(duck) == [(r["n"], r["area"]) for r in hostile_rows()]


def test_values_of_every_type_have_the_names_that_others_give_them(tmp_path):
    schema = schema_of("n bigint, i int, day date, b boolean, s string")
    rows = [
        {"n": 0, "i": -7, "day": dt.date(2026, 1, 2), "b": True, "s": "x"},
        {"n": 1, "i": 0, "day": dt.date(1, 1, 1), "b": False, "s": "x"},
        {"n": 2, "i": None, "day": None, "b": None, "s": None},
        {"n": 3, "i": -7, "day": dt.date(2026, 1, 2), "b": True, "s": "x"},
    ]
    by = ["day", "i", "b", "s"]
    written(opened(tmp_path, schema, partition_by=by), rows)
    kinds = pa.schema([schema.field(name) for name in by])

    assert by_n(read_output(tmp_path / "out")) == rows
    layout = ds.partitioning(kinds, flavor="hive")
    theirs = ds.dataset(tmp_path / "out", format="parquet", partitioning=layout).to_table()
    assert by_n(theirs.select(schema.names)) == rows
    files = [str(p.parent.relative_to(tmp_path / "out")) for p in output_files(tmp_path / "out")]
    null = "__HIVE_DEFAULT_PARTITION__"
    assert sorted(files) == [
        "day=0001-01-01/i=0/b=false/s=x", "day=2026-01-02/i=-7/b=true/s=x",
        f"day={null}/i={null}/b={null}/s={null}",
    ]  # fmt: skip


def test_columns_of_partitions_are_not_in_the_files_and_order_stays_within_one(tmp_path):
    rows = [{"n": i, "area": "ab"[i % 2]} for i in range(10)]
    written(opened(tmp_path), rows)

    for path in output_files(tmp_path / "out"):
        file = pq.ParquetFile(path).read()
        assert file.column_names == ["n"]
        assert file["n"].to_pylist() == list(range("ab".index(path.parent.name[-1]), 10, 2))


def test_rows_with_several_dictionaries_are_divided(tmp_path):
    pieces = [pa.array([k, "z", None]).dictionary_encode() for k in "abc"]
    rows = pa.concat_tables(pa.table({"n": [i, 9, None], "area": p}) for i, p in enumerate(pieces))
    sink = made(opened(tmp_path, rows.schema))
    sink.publish(0, sink.stage(rows, 0, "a"), ALONE)

    found = read_output(tmp_path / "out")

    assert sorted(map(str, found.to_pylist())) == sorted(map(str, rows.to_pylist()))


values = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
values = values.filter(lambda v: v != "__HIVE_DEFAULT_PARTITION__")
drawn = st.lists(st.tuples(values, st.none() | st.integers(-2, 2)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(epochs=st.lists(drawn, min_size=1, max_size=6), back=st.integers(0, 3))
def test_any_epochs_merged_and_taken_back_agree_with_a_model(tmp_path_factory, epochs, back):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "EVERY", 2)
        patch.setattr(merging, "FEW", 2)
        patch.setattr("os.fsync", lambda handle: None)
        place = tmp_path_factory.mktemp("drawn")
        schema = schema_of("a string, n bigint, k int")
        sink = opened(place, schema, partition_by=["a", "k"])
        rows = [[{"a": a, "n": e, "k": k} for a, k in epoch] for e, epoch in enumerate(epochs)]
        written(sink, *rows)
        to = len(epochs) - 1 - back
        opened(place, schema, partition_by=["a", "k"]).go_back(Timelines(((FIRST, to),)), ALONE)

        found = read_output(place / "out").to_pylist()

        assert sorted(map(str, found)) == sorted(
            str(r) for part in rows[: max(0, to + 1)] for r in part
        )
        layout = pa.schema([("a", pa.string()), ("k", pa.int32())])
        if found:
            theirs = ds.dataset(
                place / "out", format="parquet", partitioning=ds.partitioning(layout, flavor="hive")
            )
            glob = theirs.to_table().select(schema.names).to_pylist()
            assert sorted(map(str, glob)) == sorted(map(str, found))
        nothing_is_left_over(place / "out")


# Merging


def test_files_are_merged_within_a_partition(tmp_path, eager, hasty):
    epochs = [[{"n": e, "area": v} for v in ("a", "b/c", None)] for e in range(16)]
    written(opened(tmp_path), *epochs)

    shown = [p for p in (tmp_path / "out").rglob("*.parquet") if "_staging" not in p.parts]
    assert len(shown) <= 3 * 6 and {p.parent.name for p in shown} == {
        "area=a", "area=b%2Fc", "area=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    assert any(p.name.startswith("merged") for p in shown)
    assert len(read_output(tmp_path / "out")) == 48


def test_what_is_taken_back_keeps_its_folder(tmp_path, hasty):
    written(opened(tmp_path), *([{"n": e, "area": "a"}] for e in range(4)))
    opened(tmp_path).go_back(Timelines(((FIRST, 1),)), ALONE)

    aside = sorted((tmp_path / "out" / "_taken_back").rglob("*.parquet"))
    assert aside and {p.parent.name for p in aside} == {"area=a"}


# What is refused


@pytest.mark.parametrize(
    "value", ["", "__HIVE_DEFAULT_PARTITION__", "x" * 251, "%" * 84, "é" * 126]
)
def test_a_value_without_a_folder_of_its_own_stops_the_epoch_before_it_is_committed(
    tmp_path, value
):
    sink = made(opened(tmp_path))
    rows = pa.table({"n": [1, 2], "area": ["a", value]}, schema=SCHEMA)

    error = refusal(sink.stage, rows, 0, "a")

    assert error.code == "HR-OUTPUT-071" and "'area'" in error.message
    assert not list((tmp_path / "out").rglob("part-*"))


def test_what_the_file_system_does_not_allow_stops_the_epoch_before_it_is_committed(tmp_path):
    sink = made(opened(tmp_path))
    (tmp_path / "out" / "area=a").write_text("a file")
    assert refusal(sink.stage, pa.table({"n": [1], "area": ["a"]}), 0, "a").code == "HR-OUTPUT-009"
    deep = schema_of("n bigint, " + ", ".join(f"c{i} string" for i in range(20)))
    sink = made(opened(tmp_path, deep, "deep", partition_by=deep.names[1:]))
    row = pa.Table.from_pylist([{n: "x" * 230 for n in deep.names[1:]} | {"n": 1}], deep)
    assert refusal(sink.stage, row, 0, "a").code == "HR-OUTPUT-009"


def test_too_many_folders_at_once_are_refused_with_their_number(tmp_path):
    rows = pa.table({"n": range(1001), "area": [str(i) for i in range(1001)]})
    sink = made(opened(tmp_path))

    error = refusal(sink.stage, rows, 0, "a")

    assert error.code == "HR-OUTPUT-072" and "1,001" in error.message
    assert "max_partitions=1001" in str(error.hint)
    sink = made(opened(tmp_path, max_partitions=1001))
    assert len(sink.stage(rows, 0, "a")) == 1001


@pytest.mark.parametrize(
    ("schema", "by", "code"),
    [
        ("n bigint, x double", "x", "HR-OUTPUT-006"),
        ("n bigint, x float", "x", "HR-OUTPUT-006"),
        ("n bigint, x timestamp", "x", "HR-OUTPUT-006"),
        ("n bigint, x decimal(9,2)", "x", "HR-OUTPUT-006"),
        ("n bigint, x binary", "x", "HR-OUTPUT-006"),
        ("n bigint, x array<int>", "x", "HR-OUTPUT-006"),
        ("n bigint, _x string", "_x", "HR-OUTPUT-006"),
        ("n bigint, `a=b` string", "a=b", "HR-OUTPUT-006"),
        ("n bigint, x string", ["x", "n"], "HR-OUTPUT-006"),
        ("n bigint, x string", "y", "HR-OUTPUT-008"),
    ],
)
def test_columns_that_cannot_be_partitions_are_refused_at_the_start(tmp_path, schema, by, code):
    if "`" in schema:
        columns = pa.schema([("n", pa.int64()), ("a=b", pa.string())])
    else:
        columns = schema_of(schema)
    error = refusal(opened(tmp_path, columns, partition_by=by).check)

    assert error.code == code and (by if isinstance(by, str) else "all") in error.message


@pytest.mark.parametrize(
    "options",
    [
        {"partition_by": []}, {"partition_by": 3}, {"partition_by": ["area", "area"]},
        {"partition_by": [""]}, {"max_partitions": 0}, {"max_partitions": True},
        {"partition_by": None, "max_partitions": 5},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(tmp_path, options):
    assert refusal(opened, tmp_path, **options).code == "HR-OUTPUT-008"


def test_text_is_one_column_beside_the_partitions(tmp_path):
    schema = schema_of("line string, other string, area string")
    assert refusal(opened(tmp_path, schema, format="text").check).code == "HR-OUTPUT-006"
    opened(tmp_path, schema, format="text", partition_by=["area", "other"]).check()


@pytest.mark.parametrize(
    ("before", "after"),
    [("area", None), (None, "area"), ("area", ["area", "k"]), (["k", "area"], ["area", "k"])],
)
def test_another_layout_in_the_same_folder_is_refused(tmp_path, before, after):
    schema = schema_of("n bigint, area string, k int")
    first = opened(tmp_path, schema, partition_by=before)
    made(first)
    opened(tmp_path, schema, partition_by=after).check()  # nothing is there yet
    written(first, [{"n": 1, "area": "a", "k": 2}])
    written(opened(tmp_path, schema, partition_by=before), first=1)

    error = refusal(opened(tmp_path, schema, partition_by=after).check)

    assert error.code == "HR-OUTPUT-073"
    assert ("area" in error.message) and ("partition_by" in str(error.hint))


def test_a_wider_type_of_a_partition_reads_the_old_folders(tmp_path):
    written(opened(tmp_path, schema_of("n bigint, k int"), partition_by="k"), [{"n": 1, "k": 2}])
    wide = opened(tmp_path, schema_of("n bigint, k bigint"), partition_by="k")
    written(wide, [{"n": 2, "k": 1 << 40}], first=1)

    assert by_n(read_output(tmp_path / "out")) == [{"n": 1, "k": 2}, {"n": 2, "k": 1 << 40}]


def test_a_foreign_file_in_a_partition_is_refused_and_another_output_there_is_not(tmp_path):
    sink = written(opened(tmp_path), [{"n": 1, "area": "a"}])
    written(opened(tmp_path, path="out/kind=x", partition_by=None), [{"n": 1, "area": "a"}])
    sink.check()
    (tmp_path / "out" / "area=a" / "theirs.parquet").write_bytes(b"x")

    error = refusal(sink.check)

    assert error.code == "HR-OUTPUT-011" and "area=a/theirs.parquet" in error.message
    opened(tmp_path, mode="append").check()


def test_a_file_in_another_folder_is_missed(tmp_path):
    sink = written(opened(tmp_path), [{"n": 1, "area": "a"}, {"n": 2, "area": "b"}])
    (file,) = (tmp_path / "out" / "area=a").iterdir()
    file.rename(tmp_path / "out" / "area=b" / file.name)

    assert refusal(read_output, tmp_path / "out").code == "HR-OUTPUT-005"
    assert refusal(sink.check).code == "HR-OUTPUT-005"


def test_a_manifest_that_names_another_folder_is_refused(tmp_path):
    sink = made(opened(tmp_path))
    staged = sink.stage(pa.table({"n": [1], "area": ["a"]}), 0, "a")
    for folder in ("../x=1", "/tmp/x=1", "area=a/..", "_x=1", "x"):
        assert refusal(sink.publish, 0, [staged[0] | {"folder": folder}], ALONE).code == (
            "HR-OUTPUT-007"
        )


def test_records_of_files_without_folders_are_those_of_earlier_releases(tmp_path):
    for by, version in ((None, 4), ("area", 5)):
        written(opened(tmp_path, path=str(version), partition_by=by), [{"n": 1, "area": "a"}])
        (name,) = Commits(tmp_path / str(version)).names()
        path = tmp_path / str(version) / "_commits" / name.file
        body = read_sealed(path, "output-commit")
        assert body["version"] == version
        assert ("folder" in body["parts"][0]) == ("closed" in body) == (by is not None)


# On Spark


@pytest.mark.spark
def test_spark_finds_the_same(tmp_path, spark):
    written(opened(tmp_path), hostile_rows())
    written(opened(tmp_path, path="json", format="json"), hostile_rows())

    for format, path in (("parquet", "out"), ("json", "json")):
        frame = spark.read.schema("n bigint, area string").format(format)
        found = frame.load(str(tmp_path / path)).collect()
        assert sorted((r.n, r.area) for r in found) == [(r["n"], r["area"]) for r in hostile_rows()]
