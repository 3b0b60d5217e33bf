"""Compressed files: every row, or an error that names the file."""

from __future__ import annotations

import gzip
import json
import subprocess
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.file_cases import compressed
from tests.sources.reading import read_all, refusal

from headrace.clock import ManualClock
from headrace.schema import schema_of
from headrace.sources import open_source

SCHEMA = schema_of("n bigint, t string")
KINDS = ("gz", "bz2", "zst", "lz4")


def lines(*numbers: int) -> bytes:
    return b"".join(json.dumps({"n": n, "t": f"é {n}"}).encode() + b"\n" for n in numbers)


def whole(path: Path, **options):
    return open_source(f"files:{path}", SCHEMA, until="end", **options)


def numbers(source) -> list[int]:
    return [r["n"] for r in read_all(source)]


@given(st.lists(st.integers(0, 900), max_size=4), st.sampled_from(KINDS), st.booleans())
@settings(max_examples=40, deadline=None)
def test_all_members_of_a_file_are_read(tmp_path_factory, cuts, kind, ended):
    folder = tmp_path_factory.mktemp("packed")
    data = lines(*range(60))
    data = data if ended else data[:-1]
    edges = [0, *sorted(min(c, len(data)) for c in cuts), len(data)]
    members = [compressed(kind, data[a:b]) for a, b in pairwise(edges)]
    (folder / f"a.json.{kind}").write_bytes(b"".join(members))

    assert numbers(whole(folder)) == list(range(60))


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_short_anywhere_is_an_error_and_no_rows(tmp_path, kind):
    data = compressed(kind, lines(*range(100)))
    for length in range(0, len(data), 1 if len(data) < 200 else 7):
        path = tmp_path / f"{length}.json.{kind}"
        path.write_bytes(data[:length])
        error = refusal(whole(path).check)
        assert error.code == "HR-INPUT-070" and path.name in error.message


@pytest.mark.parametrize("kind", ["gz", "bz2", "lz4"])
def test_a_damaged_file_is_an_error(tmp_path, kind):
    data = bytearray(compressed(kind, lines(*range(1_000))))
    data[len(data) // 2] ^= 0x55
    (tmp_path / f"a.json.{kind}").write_bytes(data)
    assert refusal(whole(tmp_path).latest, "files").code == "HR-INPUT-070"
    (tmp_path / f"a.json.{kind}").write_bytes(compressed(kind, lines(1)) + b"more")
    assert refusal(whole(tmp_path).latest, "files").code == "HR-INPUT-070"


def test_files_of_the_command_line_and_of_duckdb_are_read(tmp_path):
    (tmp_path / "a.json").write_bytes(lines(1, 2))
    subprocess.run(["gzip", "a.json"], cwd=tmp_path, check=True)
    duckdb.sql("select 3 as n, 'x' as t").write_csv(str(tmp_path / "b.csv.gz"), compression="gzip")
    assert numbers(whole(tmp_path / "a.json.gz")) == [1, 2]
    assert numbers(whole(tmp_path / "b.csv.gz")) == [3]


def test_a_watched_file_is_read_when_it_is_complete_and_an_error_if_it_never_is(tmp_path):
    clock, data = ManualClock(0), gzip.compress(lines(*range(50)))
    path = tmp_path / "a.json.gz"
    path.write_bytes(data[:40])
    source = open_source(
        f"files:{tmp_path}", SCHEMA, format="json", folder=str(tmp_path / "job"), clock=clock
    )
    assert source.latest("files") == 0 and source.unsettled("files")
    path.write_bytes(data)
    assert numbers(source) == list(range(50))
    (tmp_path / "b.json.gz").write_bytes(data[:40])
    source.latest("files")
    clock.advance(20_000)
    assert refusal(source.latest, "files").code == "HR-INPUT-070"


def test_a_compressed_file_that_changes_after_it_was_read_is_an_error(tmp_path):
    path, job = tmp_path / "a.json.gz", str(tmp_path / "job")
    path.write_bytes(gzip.compress(lines(1)))
    source = open_source(f"files:{path}", SCHEMA, folder=job)
    end = source.latest("files")
    with path.open("ab") as file:
        file.write(gzip.compress(lines(2)))
    again = open_source(f"files:{path}", SCHEMA, folder=job)
    assert refusal(again.check, {"files": end}).code == "HR-INPUT-007"


def test_bad_rows_of_a_compressed_file_are_bad_one_by_one_and_say_where(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(lines(1) + b"no\n" + lines(2)))
    source = whole(tmp_path)
    [part] = source.cut("files", 0, source.latest("files"), 3)
    good, bad = [], []
    for chunk, offsets in source.read(part):
        rows, wrong, _ = source.decode(chunk)
        good += rows["n"].to_pylist()
        bad += [source.where("files", int(at)) for at in offsets[wrong]]
    assert (good, bad) == ([1, 2], [f"a.json.gz byte {len(lines(1))}"])


def test_columns_of_a_compressed_csv_file_can_be_guessed(tmp_path):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"n,t\n1,x\n2,y\n"))
    source = open_source(f"files:{tmp_path}", until="end")
    assert read_all(source) == [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}]
