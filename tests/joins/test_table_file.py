"""Files as tables of a lookup: text as it stands, types as declared, bad lines named."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import headrace as hr
from headrace.testing import drive

VALUES = [
    "007", "1.10", "12345678901234567890123", "False", "NA", "null", "N/A", "nan", "+1", "1e5",
    "2024-01-01",
]  # fmt: skip
TEXTS = [
    pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.large_string()),
]  # fmt: skip


def looked_up(table: Any, *keys: str) -> list[tuple[str, Any]]:
    """What the keys find, by `zip`, in column `v`."""
    job = hr.Job("looked-up")
    rows = job.read(hr.rows([{"zip": key} for key in keys], "zip string"), name="in")
    rows.lookup(table, on="zip").write("collect:", name="out")
    with TemporaryDirectory() as folder:
        made = drive(job, folder).output("out").to_pylist()
    return sorted((r["zip"], r["v"]) for r in made)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl"])
@pytest.mark.parametrize("value", VALUES)
def test_text_of_a_file_is_looked_up_as_it_stands(name: str, value: str, tmp_path: Path) -> None:
    json = f'{{"zip": "01234", "v": "{value}"}}'
    (tmp_path / name).write_text(f"zip,v\n01234,{value}" if name == "t.csv" else json)

    table = hr.table_file(tmp_path / name, schema="zip string, v string")

    assert looked_up(table, "01234", "1234") == [("01234", value), ("1234", None)]


def test_a_csv_column_is_a_number_only_if_no_text_is_lost(tmp_path: Path) -> None:
    lines = [
        "zip,v,n,d,day,b,wrong,none",
        "01234,1.10,1,1.5,2024-01-01,true,2024-02-31,",
        "99999,12345678901234567890123,-20,2,2024-01-02,false,2024-02-01,",
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))

    found = hr.table_file(tmp_path / "t.csv").schema()

    kinds = ["string", "string", "int64", "double", "date32[day]", "bool", "string", "string"]
    assert [str(t) for t in found.types] == kinds
    assert looked_up(hr.table_file(tmp_path / "t.csv"), "01234") == [("01234", "1.10")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('zip,v\na,1\nb,"2\nc,3\n', "line 3 of .*: a quote that does not close"),
        ("zip,v\na,1\n\nb\n", "line 4 of .*: 1 fields, expected 2"),
        ("zip,v\na,x\n", "line 2 of .*'x' is not int"),
    ],
)
def test_a_bad_line_of_a_table_is_an_error_that_names_it(
    text: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(hr.HeadraceError, match=why) as caught:
        looked_up(hr.table_file(tmp_path / "t.csv", schema="zip string, v int"), "a")
    assert caught.value.code == "HR-JOIN-020" and "t.csv" in str(caught.value)


def test_a_line_beyond_the_first_block_is_named(tmp_path: Path) -> None:
    long = "x" * 700_000
    (tmp_path / "t.csv").write_text(f"zip,v\na,{long}\nb,{long}{long}\nc,1\nd\n")
    with pytest.raises(hr.HeadraceError, match="line 5 of"):
        looked_up(hr.table_file(tmp_path / "t.csv", schema="zip string, v string"), "a")


def test_a_guessed_type_holds_for_every_refresh(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("zip,v\na,1\n")
    job = hr.Job("guessed")
    rows = job.read(hr.rows([{"zip": "a"}]), name="in")
    rows.lookup(hr.table_file(tmp_path / "t.csv"), on="zip").write("collect:", name="out")
    (tmp_path / "t.csv").write_text("zip,v\na,one\n")
    with pytest.raises(hr.HeadraceError, match=r"line 2 .*'one' is not bigint"):
        drive(job, tmp_path / "job")


@pytest.mark.parametrize("kind", TEXTS, ids=str)
@pytest.mark.parametrize("place", ["file", "table"])
def test_every_kind_of_text_is_text(kind: pa.DataType, place: str, tmp_path: Path) -> None:
    column = pa.array(["a", "b"]).cast(kind)
    made: Any = pa.table({"zip": column, "v": column})
    if place == "file":
        pa.parquet.write_table(made, tmp_path / "t.parquet")
        made = hr.table_file(tmp_path / "t.parquet")

    assert looked_up(made, "a", "x") == [("a", "a"), ("x", None)]
