"""CSV files without a declared schema: what is guessed, and that it stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError, PlanError
from headrace.schema import ddl_of
from headrace.sources import guess
from headrace.testing import Driver

HEAD = "id,area,celsius,at,day,ok,zip,nothing\n"
LINES = (
    HEAD + "1,roof,20.5,2026-01-01T00:00:00Z,2026-01-01,true,00501,\n"
    "2,cellar,7,2026-01-01 00:00:05,2026-02-28,false,12345,\n"
)
GUESSED = (
    "id bigint, area string, celsius double, at timestamp, day date, ok boolean, zip string, "
    "nothing string"
)


def job_of(path: Path, **options: Any) -> hr.Job:
    job = hr.Job("csv")
    job.read(f"files:{path}", name="in", **options).write("collect:", name="out")
    job.dead.write("collect:", name="bad")
    return job


def ran(path: Path, folder: Path, **options: Any) -> Any:
    driver = Driver(job_of(path, **options), folder, until=None)
    driver.drain()
    driver.close()
    return driver


def refused(path: Path, folder: Path, **options: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        ran(path, folder, **options)
    return caught.value


def test_names_come_from_the_header_and_types_from_the_values(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(LINES)
    out = ran(path, tmp_path / "job").output("out")
    assert ddl_of(out.schema) == GUESSED
    assert out["zip"].to_pylist() == ["00501", "12345"]
    assert out["celsius"].to_pylist() == [20.5, 7.0]


def test_a_later_row_that_does_not_fit_is_a_dead_letter(tmp_path: Path) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    (inputs / "1.csv").write_text("n\n1\n2\n")
    (inputs / "2.csv").write_text("n\nmany\n4\n")
    driver = ran(inputs, tmp_path / "job")
    assert driver.output("out")["n"].to_pylist() == [1, 2, 4]
    assert driver.output("bad")["record"].to_pylist() == [b"many"]


def test_a_second_run_has_the_same_columns_or_is_refused(tmp_path: Path) -> None:
    inputs, folder = tmp_path / "in", tmp_path / "job"
    inputs.mkdir()
    (inputs / "1.csv").write_text("n,s\n1,a\n")
    ran(inputs, folder)
    (inputs / "2.csv").write_text("n,s\n2.5,b\n3,c\n")
    driver = ran(inputs, folder)  # more files do not change the columns
    assert driver.output("out")["n"].to_pylist() == [1, 3]
    (inputs / "1.csv").unlink()  # it was read; now the second would say double
    problem = refused(inputs, folder)
    assert problem.code == "HR-INPUT-019"
    assert 'schema="n bigint, s string"' in str(problem)
    (inputs / "3.csv").write_text("n,s\n5,d\n")
    again = ran(inputs, folder, schema="n bigint, s string")
    assert again.output("out")["n"].to_pylist() == [1, 3, 5]


def test_columns_that_were_declared_are_not_guessed_later(tmp_path: Path) -> None:
    path, folder = tmp_path / "x.csv", tmp_path / "job"
    path.write_text("n\n1\n")
    ran(path, folder, schema="n string")
    assert refused(path, folder).code == "HR-INPUT-019"


def test_what_was_guessed_is_missed_in_the_folder(tmp_path: Path) -> None:
    path, folder = tmp_path / "x.csv", tmp_path / "job"
    path.write_text("n\n1\n")
    ran(path, folder)
    (stored,) = folder.glob("inputs/*/columns")
    assert stored.read_text() == "n bigint"
    stored.unlink()
    assert refused(path, folder).code == "HR-INPUT-019"


def test_options_of_csv_are_heeded(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("\ufeffa;b\n1;x,y\n", encoding="utf-8")
    out = ran(path, tmp_path / "job", delimiter=";").output("out")
    assert out.to_pylist() == [{"a": 1, "b": "x,y"}]


def test_a_line_that_is_not_whole_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv"
    path.write_text("n\n1\n22x\n")
    monkeypatch.setattr(guess, "SAMPLE", 6)
    out = ran(path, tmp_path / "job").output("out")
    assert out["n"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        ("", {}, "no file with rows"),
        ("a,b\n", {}, "no file with rows"),
        ("a,b", {}, "no file with rows"),
        ("1,2\n3,4\n", {"header": False}, "no header"),
        ("a,a\n1,2\n", {}, "two columns 'a'"),
    ],
)
def test_without_rows_or_names_there_is_nothing_to_guess(
    tmp_path: Path, content: str, options: dict[str, Any], says: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(PlanError, match=says) as caught:
        job_of(path, **options).check()
    assert "test_guess.py" in str(caught.value)


@pytest.mark.parametrize("null", ["NA", ["NA"], ("NA", "-")])
def test_texts_may_stand_for_null(null: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('n,s\n1,a\nNA,NA\n3,"NA"\n')
    out = ran(path, tmp_path / "job", null=null).output("out")
    assert out.to_pylist() == [{"n": 1, "s": "a"}, {"n": None, "s": None}, {"n": 3, "s": "NA"}]
    declared = ran(path, tmp_path / "other", null=null, schema="n int, s string").output("out")
    assert declared.to_pylist() == out.to_pylist()


@pytest.mark.parametrize("null", [5, None, ["NA", 5]])
def test_only_texts_stand_for_null(null: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("n\n1\n")
    assert refused(path, tmp_path / "job", null=null).code == "HR-INPUT-013"


def test_a_guessed_column_that_nothing_reads_need_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.sources.guess.SAMPLE", 16)
    path = tmp_path / "x.csv"
    path.write_text("k,v,other\na,1,1\na,2,nil\na,x,3\n")
    for other, found, dead in (("", [1, 2], 1), (", other", [1], 2)):
        job = hr.Job("unused")
        read = job.read(f"files:{path}", name="in")
        read.select(*f"k, v{other}".split(", ")).write("collect:", name="out")
        driver = Driver(job, tmp_path / f"job{other}", until="end")
        driver.drain()
        assert driver.output("out")["v"].to_pylist() == found
        assert driver.manifest is not None and driver.manifest.counts["in"]["dead"] == dead
        driver.close()
