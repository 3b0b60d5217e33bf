"""Files in folders of partitions: written by us, by pyarrow or by DuckDB; what is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from tests.sinks.test_partitions import HOSTILE, hostile_rows, written
from tests.sinks.test_partitions import opened as output
from tests.sources.reading import read_all, refusal

from headrace.schema import schema_of
from headrace.sinks import merging
from headrace.sources import open_source


def opened(tmp_path: Path, schema: str | None = "n bigint, area string", **options: Any):
    options = {"partition_by": "area", "until": "end", **options}
    named = {n: options.pop(n) for n in ("until", "format") if n in options}
    return open_source(
        f"files:{tmp_path}/out",
        schema=schema_of(schema) if schema else None,
        folder=str(tmp_path / "reader"),
        name="in",
        options=options,
        **named,
    )


def rows_of(source) -> list[dict[str, Any]]:
    return sorted(read_all(source), key=lambda r: int(r.get("n", r.get("value", 0))))


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "avro"])
def test_what_our_output_has_partitioned_is_read_back_as_it_was(tmp_path, format):
    written(output(tmp_path, format=format), hostile_rows())

    assert rows_of(opened(tmp_path)) == hostile_rows()


def test_text_files_have_their_line_and_the_columns_of_their_folders(tmp_path):
    schema = schema_of("line string, area string")
    rows = [{"line": str(i), "area": v} for i, v in enumerate(HOSTILE)]
    written(output(tmp_path, schema, format="text"), rows)

    found = rows_of(opened(tmp_path, None))

    assert found == [{"value": r["line"], "area": r["area"]} for r in rows]


@pytest.mark.parametrize("format", ["parquet", "avro", "csv"])
def test_without_a_schema_columns_of_folders_are_text(tmp_path, format):
    schema = schema_of("k int, n bigint, day date")
    row = {"k": 7, "n": 1, "day": dt.date(2026, 1, 2)}
    written(output(tmp_path, schema, format=format, partition_by=["day", "k"]), [row])

    source = opened(tmp_path, None, partition_by=["day", "k"])

    assert source.schema.names == ["n", "day", "k"]
    assert read_all(source) == [{"n": 1, "day": "2026-01-02", "k": "7"}]
    typed = opened(tmp_path, "day date, n bigint, k int", partition_by=["day", "k"])
    assert read_all(typed) == [row]


def test_folders_of_others_are_read(tmp_path):
    rows = [{"n": i, "area": v, "k": i % 2} for i, v in enumerate(["a b", "c/d", "é", "%41", None])]
    made = pa.Table.from_pylist(rows)
    layout = ds.partitioning(pa.schema([("area", pa.string()), ("k", pa.int64())]), flavor="hive")
    ds.write_dataset(made, tmp_path / "out", format="parquet", partitioning=layout)
    (tmp_path / "duck").mkdir()
    duckdb.sql("select * from made").write_parquet(
        str(tmp_path / "duck" / "out"), partition_by=["area", "k"]
    )

    for place in (tmp_path, tmp_path / "duck"):
        source = opened(place, "n bigint, area string, k bigint", partition_by=["area", "k"])
        assert rows_of(source) == rows


def test_only_some_of_the_columns_may_be_declared(tmp_path):
    written(output(tmp_path), hostile_rows())

    assert rows_of(opened(tmp_path, "n bigint")) == [{"n": r["n"]} for r in hostile_rows()]
    assert refusal(opened, tmp_path, "area string").code == "HR-INPUT-006"


def test_a_folder_that_is_watched_gives_new_partitions(tmp_path):
    sink = written(output(tmp_path, merge=False), [{"n": 0, "area": "a"}])
    source = opened(tmp_path, until=None)
    assert read_all(source) == [{"n": 0, "area": "a"}]
    written(sink, [{"n": 1, "area": "b"}], first=1)

    assert rows_of(opened(tmp_path, until=None))[-1] == {"n": 1, "area": "b"}


def test_a_partitioned_output_that_is_merged_is_not_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(merging, "EVERY", 2)
    monkeypatch.setattr(merging, "FEW", 2)
    epochs = [[{"n": e, "area": "a"}] for e in range(8)]
    written(output(tmp_path), *epochs)

    assert refusal(lambda: opened(tmp_path, until=None).check()).code == "HR-INPUT-014"
    assert len(read_all(opened(tmp_path))) == 8


@pytest.mark.constants
def test_a_bad_row_is_still_told_from_the_others(tmp_path):
    folder = tmp_path / "out" / "area=x%2Fy"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text('{"n": 1}\nnothing\n{"n": 2}\n')
    source = opened(tmp_path, format="json")
    source.check()
    split = source.splits()[0]
    end = source.latest(split)
    (part,) = source.cut(split, 0, end, 1)
    (chunk,) = [c for c, _ in source.read(part)]

    rows, bad, reasons = source.decode(chunk)

    assert rows.to_pylist() == [{"n": 1, "area": "x/y"}, {"n": 2, "area": "x/y"}]
    assert bad.tolist() == [False, True, False] and len(reasons) == 1


@pytest.mark.parametrize(
    ("folder", "schema"),
    [
        ("area=x", "n bigint, area int"), ("other=1", "n bigint, area int"),
        ("area=%ff", "n bigint, area string"), ("area=", "n bigint, area int"),
        ("area=__HIVE_DEFAULT_PARTITION__", "n bigint, area int not null"),
        ("area=99999999999", "n bigint, area int"),
    ],
)  # fmt: skip
def test_a_folder_that_does_not_hold_a_value_is_named(tmp_path, folder, schema):
    (tmp_path / "out" / folder).mkdir(parents=True)
    (tmp_path / "out" / folder / "a.json").write_text('{"n": 1}\n')
    source = opened(tmp_path, schema, format="json")
    if folder == "other=1":
        return  # not a folder of the column: nothing matches
    error = refusal(source.check)

    assert error.code == "HR-INPUT-072" and folder in error.message


def test_a_partitioned_folder_is_not_taken_for_an_empty_one(tmp_path):
    written(output(tmp_path), hostile_rows())

    for schema in ("n bigint, area string", None):
        error = refusal(opened, tmp_path, schema, partition_by=None, until=None)
        assert error.code == "HR-INPUT-073" and 'partition_by=["area"]' in str(error.hint)


@pytest.mark.parametrize("by", [[], 3, ["a", "a"], ["a=b"], [""], "_x"])
def test_what_names_no_columns_is_refused(tmp_path, by):
    assert refusal(opened, tmp_path, partition_by=by).code == "HR-INPUT-013"


def test_a_glob_has_no_partitions(tmp_path):
    error = refusal(
        open_source,
        f"files:{tmp_path}/*/x.json",
        schema=schema_of("n bigint"),
        folder=str(tmp_path),
        name="in",
        options={"partition_by": "area"},
    )
    assert error.code == "HR-INPUT-013"
