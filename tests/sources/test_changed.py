"""Files that change after they were read: noticed by name, and never rows that are mixed."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.sources.reading import again, read_split, refusal
from tests.sources.test_files import numbers, put, watch

from headrace.errors import InputError
from headrace.schema import schema_of
from headrace.sources import open_source
from headrace.sources.layout import ENDS

LINES = st.lists(st.integers(0, 10**6).map(lambda n: b"%d\n" % n), min_size=1, max_size=6)
WIDTHS = st.sampled_from([0, 1, 700, ENDS - 9, ENDS, 2 * ENDS, 3 * ENDS])


@st.composite
def edits(draw) -> tuple[bytes, bytes]:
    """What a file held when it was read, and what it holds afterwards."""
    before = b"".join(line[:-1] + b"." * draw(WIDTHS) + b"\n" for line in draw(LINES))
    after = bytearray(before)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(after)))
        removed = draw(st.sampled_from([0, 1, 5, ENDS]))
        after[at : at + removed] = draw(st.sampled_from([b"", b"9", b"77\n", b"xxxxx"]))
    return before, bytes(after) + b"".join(draw(LINES)) * draw(st.integers(0, 1))


@given(edit=edits(), restart=st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_changed_file_is_refused_unless_what_was_read_keeps_its_place(
    tmp_path_factory, edit, restart
):
    folder = tmp_path_factory.mktemp("changed") / "in"
    folder.mkdir()
    path, (before, after) = folder / "a.txt", edit
    path.write_bytes(before)
    source = watch(folder, None, "text")
    at = source.latest("files")
    assert at == len(before)
    path.write_bytes(after)
    os.utime(path, ns=(at, at))  # whatever the clock of the file system makes of it

    if restart:
        source = again(watch(folder, None, "text"))
    read, ends = after[:at], (before[:ENDS], before[-ENDS:])
    same = len(read) == at and (read[:ENDS], read[-ENDS:]) == ends
    try:
        source.check({"files": at})
        rows = [r["value"] for r in read_split(source, "files", at)[0]]
    except InputError as error:
        event("refused")
        assert error.code == "HR-INPUT-007" and str(path) in error.message
        assert not same
    else:
        event("read on")
        assert same
        whole = after[at : after.rfind(b"\n") + 1]
        assert rows == whole.decode().splitlines()


@pytest.mark.parametrize("change", ["touched", "copied", "renamed and back"])
def test_a_file_that_only_looks_changed_is_read_on(tmp_path, change):
    folder = tmp_path / "in"
    folder.mkdir()
    put(folder / "a", 1, 2)
    source = watch(folder)
    at = source.latest("files")
    if change == "touched":
        os.utime(folder / "a", ns=(5, 5))
    elif change == "copied":
        content = (folder / "a").read_bytes()
        (folder / "a").unlink()
        (folder / "a").write_bytes(content)
    else:
        (folder / "a").rename(tmp_path / "b")
        (tmp_path / "b").rename(folder / "a")
    with (folder / "a").open("a") as file:
        file.write('{"a": 3}\n')

    for found in (source, watch(folder)):
        found.check({"files": at})
        assert numbers(found, at) == [3]


def test_a_parquet_file_with_other_rows_of_the_same_size_is_refused(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(pa.table({"a": list(range(50))}), folder / "f", **plain)
    size = (folder / "f").stat().st_size
    source = watch(folder, format="parquet")
    at = source.latest("files")
    pq.write_table(pa.table({"a": list(range(1, 51))}), folder / "f", **plain)
    os.utime(folder / "f", ns=(5, 5))

    assert (folder / "f").stat().st_size == size
    assert refusal(source.latest, "files").code == "HR-INPUT-007"
    assert refusal(watch(folder, format="parquet").check, {"files": at}).code == "HR-INPUT-007"


def test_a_file_that_goes_while_it_is_looked_at_is_one_that_was_removed(tmp_path, monkeypatch):
    folder = tmp_path / "in"
    folder.mkdir()
    put(folder / "a", 1)
    at = watch(folder).latest("files")
    source = watch(folder)
    scan = type(source._pattern).scan

    def scan_and_remove(pattern):
        found = scan(pattern)
        (folder / "a").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(type(source._pattern), "scan", scan_and_remove)

    source.check({"files": at})
    assert source.latest("files") == at


# What the job knows of the files


def read_two(folder: Path) -> tuple[int, Path]:
    """A job that has read a and b; where it stands, and its list."""
    folder.mkdir()
    put(folder / "a", 1)
    put(folder / "b", 2)
    at = watch(folder).latest("files")
    return at, folder.parent / "job" / "inputs" / "input" / "files"


@pytest.mark.parametrize("keep", [0, 1, "all but a byte"])
def test_a_list_that_does_not_reach_to_where_the_job_stands_is_refused(tmp_path, keep):
    folder = tmp_path / "in"
    at, listed = read_two(folder)
    content = listed.read_bytes()
    (folder / "a").unlink()  # as the guide allows
    put(folder / "c", 3)
    put(folder / "d", 4)
    if keep == 0:
        listed.unlink()
    else:
        cut = content.index(b"\n") + 1 if keep == 1 else len(content) - 1
        listed.write_bytes(content[:cut])

    error = refusal(watch(folder).check, {"files": at})

    assert error.code == "HR-INPUT-009" and str(listed) in error.message
    assert listed.exists() == (keep != 0)  # nothing was scanned and listed anew


def test_a_file_that_is_listed_and_gone_before_it_was_read_is_refused_at_the_start(tmp_path):
    folder = tmp_path / "in"
    at, _ = read_two(folder)
    first = watch(folder).clamp("files", 0, at, 1)
    (folder / "a").unlink()

    watch(folder).check({"files": first})
    watch(folder).check({"files": at})
    (folder / "b").unlink()
    error = refusal(watch(folder).check, {"files": first})

    assert error.code == "HR-INPUT-007" and str(folder / "b") in error.message


def test_a_list_that_is_removed_while_the_job_runs_is_an_error_when_it_is_added_to(tmp_path):
    folder = tmp_path / "in"
    read_two(folder)
    source = watch(folder)
    source.latest("files")
    (folder.parent / "job" / "inputs" / "input" / "files").unlink()
    put(folder / "c", 3)

    assert refusal(source.latest, "files").code == "HR-INPUT-009"


def test_what_an_input_stores_goes_by_its_key_and_stays_when_it_is_renamed(tmp_path):
    folder, job = tmp_path / "in", str(tmp_path / "job")
    folder.mkdir()
    put(folder / "b", 1, 2)

    def opened(name):
        uri, schema = f"files:{folder}", schema_of("a bigint")
        return open_source(uri, schema, "json", folder=job, name=name, key="one")

    at = opened("one").latest("files")
    (folder / "b").unlink()
    put(folder / "a", 3, 4, 5)
    os.utime(folder / "a", ns=(1, 1))
    renamed = opened("two")

    renamed.check({"files": at})
    assert numbers(renamed, at) == [3, 4, 5]
    assert [p.name for p in (tmp_path / "job" / "inputs").iterdir()] == ["one"]


@pytest.mark.parametrize(
    ("columns", "options"), [("k string, v bigint", {"delimiter": ";"}), ("k string, z bigint", {})]
)
def test_columns_that_the_header_of_a_half_read_file_has_not_are_named(tmp_path, columns, options):
    folder, job = tmp_path / "in", str(tmp_path / "job")
    folder.mkdir()
    (folder / "a.csv").write_text("k,v\na,1\n")
    schema = schema_of("k string, v bigint")
    at = open_source(f"files:{folder}", schema, folder=job, name="f").latest("files")
    with open(folder / "a.csv", "a") as file:
        file.write("b,2\n")

    changed = open_source(
        f"files:{folder}", schema_of(columns), options=options, folder=job, name="f"
    )
    assert refusal(read_split, changed, "files", at).code == "HR-INPUT-005"
