"""Dead letters say where the record is, as file and line; and nobody can overlook them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import headrace as hr
from headrace.engine.reporter import Reporter
from headrace.inspect.progress import account, progress_of
from headrace.inspect.why_answer import answer_why
from headrace.sources import lines
from headrace.testing import drive

SCHEMA = "k string, v bigint"


def _fails(row: Any) -> Any:
    if row.v == 3:
        raise ValueError("three")
    return row


class Fails(hr.KeyedProcess):
    output = SCHEMA

    def on_row(self, row: Any, ctx: Any) -> Any:
        return _fails(row)


STEPS = {
    "map": lambda s: s.map(_fails, schema=SCHEMA),
    "process": lambda s: s.key_by("k").process(Fails(), unbounded=True),
}


def _places(tmp_path: Path, uri: str, build: Any = lambda s: s, **options: Any) -> list[str]:
    job = hr.Job("places")
    stream = job.read(uri, schema=SCHEMA, name="in", **options)
    build(stream).write("collect:", name="out")
    drive(job, tmp_path / "job")
    letters = hr.read_output(tmp_path / "job" / "dead").to_pylist()
    return sorted(letter["place"] for letter in letters)


@pytest.mark.parametrize("block", [8, 1 << 20])
def test_a_bad_line_is_named_by_file_line_and_byte(tmp_path, monkeypatch, block):
    monkeypatch.setattr(lines, "BLOCK", block)
    good = b'{"k":"a","v":1}\n'
    (tmp_path / "a.json").write_bytes(
        b"\xef\xbb\xbf" + good + b"\n\n" + b"bad\n" + good + b"worse\n"
    )
    (tmp_path / "b.json").write_bytes(b"bad\r\n" + good)

    assert _places(tmp_path, f"files:{tmp_path}/*.json") == [
        "a.json line 4, byte 21",
        "a.json line 6, byte 41",
        "b.json line 1, byte 0",
    ]


def test_a_bad_csv_line_is_counted_with_the_header(tmp_path):
    (tmp_path / "a.csv").write_text("k,v\na,1\nb\nc,x\n")

    places = _places(tmp_path, f"files:{tmp_path}/a.csv")

    assert places == ["a.csv line 3, byte 8", "a.csv line 4, byte 10"]


def test_far_into_a_file_only_the_byte_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "COUNTED", 3)
    (tmp_path / "a.json").write_text("{}\nbad\n{}\nbad\n")

    assert _places(tmp_path, f"files:{tmp_path}/a.json") == [
        "a.json byte 10",
        "a.json line 2, byte 3",
    ]


@pytest.mark.parametrize("step", STEPS)
def test_a_row_on_which_a_function_fails_has_its_place(tmp_path, step):
    rows = [{"k": "a", "v": v} for v in range(5)]
    (tmp_path / "a.json").write_text("".join(f'{{"k":"a","v":{r["v"]}}}\n' for r in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")

    for name, place in (("json", "a.json line 4, byte 48"), ("parquet", "a.parquet row 4")):
        folder = tmp_path / name
        folder.mkdir()
        assert _places(folder, f"files:{tmp_path}/a.{name}", STEPS[step]) == [place]


def test_a_record_of_a_topic_has_its_partition(tmp_path):
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("t")
    log.append("t", [b"bad"])

    places = _places(tmp_path, "log:t", log=str(tmp_path / "log"), format="json")

    assert places == ["topic t partition 0 offset 0"]


def test_strict_mode_names_file_and_line(tmp_path):
    (tmp_path / "a.json").write_text('{"k":"a","v":1}\nbad\n')
    job = hr.Job("strict", on_error="fail")
    job.read(f"files:{tmp_path}/a.json", schema=SCHEMA).write("collect:")

    with pytest.raises(hr.StepError, match=r"a\.json line 2, byte 16; record bad"):
        drive(job, tmp_path / "job")


def _all_dead(tmp_path: Path) -> tuple[hr.Job, Any]:
    (tmp_path / "a.json").write_text("bad\nworse\n")
    job = hr.Job("lost")
    job.read(f"files:{tmp_path}/a.json", schema=SCHEMA, name="in").write("collect:")
    return job, drive(job, tmp_path / "job")


REASON = "malformed JSON: expecting value: line 1 column 1 (char 0) (a.json line 1, byte 0)"
WARNING = f"all 2 records of input 'in' are dead letters: {REASON}"


def test_why_quotes_a_dead_letter_when_all_rows_are_dead(tmp_path):
    _, driver = _all_dead(tmp_path)

    said = str(answer_why("lost", driver.program, driver.manifest, 0))

    assert f"all 2 rows of input 'in' are dead letters: {REASON}" in said


def test_a_run_says_it_loudly_when_all_rows_are_dead(tmp_path):
    _, driver = _all_dead(tmp_path)
    progress = progress_of(driver.manifest, {})
    console = Console(record=True, width=300, force_terminal=False, quiet=False, file=_Nowhere())
    reporter = Reporter("lost", console)

    reporter.progress(progress)
    reporter.progress(progress)

    assert progress.all_dead == (WARNING,)
    assert console.export_text().count(f"lost: WARNING: {WARNING}") == 1
    assert f"dead   in: {REASON}" in account(progress)


class _Nowhere:
    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


def test_a_good_row_takes_the_warning_back(tmp_path):
    (tmp_path / "a.json").write_text('bad\n{"k":"a","v":1}\n')
    job = hr.Job("alive")
    job.read(f"files:{tmp_path}/a.json", schema=SCHEMA).write("collect:")

    assert progress_of(drive(job, tmp_path / "job").manifest, {}).all_dead == ()
