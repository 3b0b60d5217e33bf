"""Rows of the program as an input."""

from __future__ import annotations

import pickle
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from tests.sources.reading import again, read_all, read_split, refusal

import headrace as hr
from headrace.errors import InputError, PlanError
from headrace.schema import schema_of
from headrace.sources import Range, open_source, rows
from headrace.testing import drive

Pair = namedtuple("Pair", "n name")


@dataclass
class Reading:
    n: int
    name: str | None = None


@pytest.mark.parametrize(
    "values",
    [
        [{"n": 1, "name": "a"}, {"n": 2, "name": None}],
        [Reading(1, "a"), Reading(2)],
        [Pair(1, "a"), Pair(2, None)],
        pa.table({"n": [1, 2], "name": ["a", None]}),
    ],
)
def test_rows_may_be_given_in_any_shape(values):
    source = rows(values)

    assert source.schema == schema_of("n bigint, name string")
    assert read_all(source) == [{"n": 1, "name": "a"}, {"n": 2, "name": None}]


def test_rows_may_be_dealt_to_several_splits():
    source = rows([{"n": i} for i in range(10)], splits=3)

    parts = [[r["n"] for r in read_split(source, s)[0]] for s in source.splits()]

    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9]]


def test_no_rows_are_an_input_that_has_ended():
    source = rows([], "n bigint")

    assert read_all(source) == [] and source.ended("0", 0)


@pytest.mark.constants
def test_a_large_table_travels_as_a_file_of_the_job(tmp_path):
    table = pa.table({"n": range(300_000)})
    source = open_source(rows(table), folder=str(tmp_path), name="../big")
    assert list(tmp_path.iterdir()) == []  # opening makes nothing

    assert len(pickle.dumps(source)) < 2_000
    assert source._file.path.is_relative_to(tmp_path / "inputs")
    assert again(source)._table is None
    assert read_all(source, rows=200_000)[-1] == {"n": 299_999}


def test_a_schema_casts_and_selects():
    source = rows(pa.table({"x": ["drop"], "n": pa.array([7], pa.int8())}), "n bigint")

    assert source.schema == schema_of("n bigint")


@pytest.mark.parametrize(
    ("values", "schema", "code"),
    [
        ([], None, "HR-INPUT-006"),
        ([{"n": "x"}], "n bigint", "HR-INPUT-006"),
        ([{"n": 1}, {"n": "x"}], None, "HR-INPUT-006"),
        (pa.table({"n": [1]}), "m bigint", "HR-INPUT-005"),
        (pa.table({"n": [2**40]}), "n int", "HR-INPUT-006"),
    ],
)
def test_rows_that_do_not_fit_are_refused(values, schema, code):
    assert refusal(rows, values, schema).code == code


def test_no_splits_are_refused():
    assert refusal(rows, [{"n": 1}], splits=0).code == "HR-INPUT-013"


def test_the_row_that_does_not_fit_is_named():
    given = [{"i": 0, "at": 5}, {"i": 1, "at": "2013-01-01"}, {"i": 2, "at": True}]
    error = refusal(rows, given, "i bigint, at timestamp")
    assert error.code == "HR-INPUT-006" and "row 1, column 'at'" in str(error)


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "deleted"])
def test_a_table_whose_file_is_damaged_while_the_job_runs_is_refused(tmp_path, monkeypatch, damage):
    monkeypatch.setattr("headrace.sources.memory.INLINE_BYTES", 1)
    source = open_source(rows(pa.table({"n": range(1_000)})), folder=str(tmp_path), name="in")
    task = again(source)
    path = tmp_path / "inputs" / "in" / "rows.arrow"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes({"flipped": content, "cut": content[:400], "emptied": b""}[damage])

    error = refusal(lambda: list(task.read(source.cut("0", 0, 1_000, 1)[0])))

    assert error.code == "HR-INPUT-009" and str(path) in error.message


TEXTS = ["2026-01-01T00:00:00Z", "2026-01-01 00:00:01.5", "2026-01-01T01:00:02+01:00", None]


def test_iso_text_is_a_timestamp_where_the_schema_says_so():
    dicts = [{"t": t, "d": "2026-01-0" + str(i + 1)} for i, t in enumerate(TEXTS)]
    source = hr.rows(dicts, schema="t timestamp, d date")
    table = pa.concat_tables(chunk for chunk, _ in source.read(Range("0", 0, 4)))
    instants = [t and t.timestamp() - 1_767_225_600 for t in table["t"].to_pylist()]
    assert instants == [0.0, 1.5, 2.0, None]
    assert [d.day for d in table["d"].to_pylist()] == [1, 2, 3, 4]
    assert hr.rows(dicts).schema.field("t").type == pa.string()  # without a schema text stays text


def test_wrong_iso_text_is_refused_with_its_row():
    for wrong in ("2026-13-01T00:00:00Z", "yesterday", ""):
        dicts = [{"t": "2026-01-01"}, {"t": wrong}]
        with pytest.raises(InputError, match=f"row 1, column 't': '{wrong}' is not a timestamp"):
            hr.rows(dicts, schema="t timestamp")
    with pytest.raises(InputError, match="row 1, column 't'"):  # texts and times in one column
        hr.rows([{"t": datetime(2026, 1, 1, tzinfo=UTC)}, {"t": TEXTS[0]}], schema="t timestamp")


def test_the_column_of_event_time_may_be_iso_text(tmp_path):
    job = hr.Job("j")
    rows = hr.rows([{"t": t, "v": 1} for t in TEXTS[:3]])
    stream = job.read(rows, time="t", delay="1s", name="rows")
    assert pa.types.is_timestamp(stream.schema.field("t").type)
    stream.window(hr.tumbling("2s")).agg(n=hr.count()).write("collect:", name="out")
    assert drive(job, tmp_path).output("out")["n"].to_pylist() == [2, 1]
    wrong = hr.Job("k")
    wrong.read(hr.rows([{"t": "noon"}]), time="t", delay="1s").write("collect:")
    with pytest.raises(PlanError, match="row 0, column 't': 'noon' is not a timestamp"):
        wrong.check()
