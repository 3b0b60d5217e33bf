"""Files as an input: watched, growing, late, replaced, damaged, oddly named."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import again, chunks, read_all, read_split, refusal, typed

from headrace.clock import ManualClock
from headrace.schema import schema_of
from headrace.sources import folder_looks, open_source
from headrace.sources.contract import MISFIT

SCHEMA = schema_of("a bigint, b string")
NUMBERS = schema_of("a bigint")


@pytest.fixture
def folder(tmp_path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


def watch(folder, schema=NUMBERS, format="json", **options):
    job = str(folder.parent / "job")
    clock = options.pop("clock", None)
    return open_source(f"files:{folder}", schema, format, options, folder=job, clock=clock)


def whole(path, schema=NUMBERS, format=None, **options):
    return open_source(f"files:{path}", schema, format, options, until="end")


def numbers(source, start=0):
    return [r["a"] for r in read_split(source, "files", start)[0]]


def put(path, *values, end="\n"):
    path.write_text("\n".join(f'{{"a": {v}}}' for v in values) + end)


# A folder that is watched


def test_new_files_are_read_in_the_order_they_are_seen_and_none_twice(folder):
    source = watch(folder)
    put(folder / "b", 1)
    put(folder / "c", 2)
    os.utime(folder / "c", ns=(10**18, 10**18))
    os.utime(folder / "b", ns=(2 * 10**18, 2 * 10**18))
    assert numbers(source) == [2, 1]
    at = source.latest("files")

    put(folder / "a", 3)
    os.utime(folder / "a", ns=(1, 1))  # older than all that was read

    assert numbers(source, at) == [3]
    assert numbers(watch(folder)) == [2, 1, 3]
    assert not source.bounded and not source.ended("files", source.latest("files"))


def test_a_bounded_run_reads_what_is_there_at_its_start(folder):
    put(folder / "a.json", 1)
    source = whole(folder)
    end = source.latest("files")
    put(folder / "b.json", 2)

    assert source.latest("files") == end
    assert numbers(source) == [1]
    assert sorted(numbers(whole(folder))) == [1, 2]


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.booleans(), st.booleans()),
        max_size=14,
    )
)
@settings(max_examples=30, deadline=None)
def test_files_that_grow_and_jobs_that_restart_lose_nothing(tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("grow") / "in"
    folder.mkdir()
    source, at, count, got = watch(folder, format="text", schema=None), 0, 0, []
    pending: dict[str, str] = {}
    for name, lines, half, restart in steps:
        text = pending.pop(name, "")
        for _ in range(lines):
            text += f"line {count}\n"
            count += 1
        cut = len(text) - 4 if half else len(text)
        pending[name] = text[cut:]
        with (folder / name).open("a") as file:
            file.write(text[:cut])
        if restart:
            source = watch(folder, format="text", schema=None)
        got += [r["value"] for r in read_split(source, "files", at)[0]]
        at = source.latest("files")

    for name, text in pending.items():
        with (folder / name).open("a") as file:
            file.write(text)
    got += [r["value"] for r in read_split(source, "files", at)[0]]
    assert sorted(got) == sorted(f"line {i}" for i in range(count))


def test_a_file_that_was_read_may_be_removed(folder):
    put(folder / "a", 1)
    source = watch(folder)
    at = source.latest("files")
    (folder / "a").unlink()
    put(folder / "b", 2)

    assert numbers(source, at) == [2]
    assert numbers(watch(folder), at) == [2]


def test_hidden_files_and_folders_are_left_alone(folder):
    put(folder / "a", 1)
    for name in (".a", "_a", ".b.json"):
        (folder / name).write_text("rubbish")
    (folder / "sub").mkdir()

    assert numbers(watch(folder)) == [1]


def test_a_large_folder_is_not_scanned_at_every_poll(folder, monkeypatch):
    monkeypatch.setattr(folder_looks, "MANY", 2)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    source = watch(folder)
    list_all = type(source._pattern).all_files

    def slowly(pattern, walk):
        now[0] += 1.0
        return list_all(pattern, walk)

    monkeypatch.setattr(type(source._pattern), "all_files", slowly)
    for i in range(4):
        put(folder / str(i), i)
    end = source.latest("files")
    put(folder / "5", 5)
    assert source.latest("files") == end
    now[0] += 10.0
    assert source.latest("files") > end


@pytest.mark.constants
def test_many_small_files_make_few_chunks(folder):
    for i in range(300):
        put(folder / f"{i:03}", i)
    source = watch(folder)

    assert len(chunks(source, "files", 0, source.latest("files"), 1)) == 1
    assert sorted(numbers(source)) == list(range(300))


# Lines that are not complete


def test_half_a_line_waits_for_its_end_unless_the_input_ends(folder):
    (folder / "a.txt").write_text("one\ntw")

    def read(source):
        return [r["value"] for r in read_all(source)]

    source = watch(folder, None, None)
    assert read(source) == ["one"]
    assert read(whole(folder, None)) == ["one", "tw"]
    at = source.latest("files")
    (folder / "a.txt").write_text("one\ntwo\n")
    assert [r["value"] for r in read_split(source, "files", at)[0]] == ["two"]


def test_a_whole_json_object_needs_no_line_end(folder):
    put(folder / "a", 1, 2, end="")
    source = watch(folder)
    assert numbers(source) == [1, 2]
    at = source.latest("files")

    with (folder / "a").open("a") as file:
        file.write('\n{"a": 3}\n{"a": 4')

    assert numbers(source, at) == [3]


def test_blank_lines_and_a_byte_order_mark_are_no_records(folder):
    (folder / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n\n{"a": 2}')

    assert numbers(whole(folder)) == [1, 2]


# CSV


def test_csv_columns_are_found_by_the_header_of_each_file(folder):
    (folder / "a.csv").write_text('b,x,a\n"q,1",,1\n')
    (folder / "b.csv").write_text("a,b\n2,z\n")

    found = sorted(read_all(whole(folder, SCHEMA)), key=lambda r: r["a"])

    assert found == [{"a": 1, "b": "q,1"}, {"a": 2, "b": "z"}]


def test_csv_without_a_header_and_with_another_delimiter(folder):
    (folder / "a.csv").write_text("1;x\n2;y")

    found = read_all(whole(folder, SCHEMA, header=False, delimiter=";"))

    assert found == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


def test_a_csv_file_waits_for_its_header(folder):
    (folder / "a").write_text("a,")
    source = watch(folder, SCHEMA, "csv")
    assert source.latest("files") == 0
    (folder / "a").write_text("a,b\n1,x\n")
    assert read_all(source) == [{"a": 1, "b": "x"}]


def test_bad_csv_rows_are_reported_one_by_one(folder):
    (folder / "a.csv").write_text("a,b\n1,x\nno,y\n3\n4,z\n")
    source = whole(folder, SCHEMA)

    ((chunk, offsets),) = chunks(source, "files", 0, source.latest("files"))
    table, bad, errors = source.decode(chunk)

    assert table["a"].to_pylist() == [1, 4]
    assert bad.tolist() == [False, True, True, False]
    assert errors == ["column 'a': 'no' is not bigint", "1 fields, expected 2"]
    assert offsets.tolist() == [0, 4, 9, 11]
    assert source.where("files", 9) == "a.csv line 4, byte 13"


def test_a_missing_csv_column_is_refused(folder):
    (folder / "a.csv").write_text("a,c\n1,x\n")

    error = refusal(whole(folder, SCHEMA).check)

    assert error.code == "HR-INPUT-005"
    assert "a.csv" in error.message and "'b'" in error.message
    assert refusal(watch(folder, SCHEMA, "csv").latest, "files").code == "HR-INPUT-005"


# Parquet


def test_only_the_columns_of_the_schema_are_read_and_cast_to_it(folder):
    table = pa.table(
        {
            "x": [b"big"] * 2,
            "t": pa.array([1_500, None], pa.timestamp("ns")),
            "n": pa.array([1, 2], pa.int16()),
            "d": pa.array(["a", "b"]).dictionary_encode(),
        }
    )
    pq.write_table(table, folder / "a.parquet")
    source = whole(folder, schema_of("n bigint, d string, t timestamp"))

    (first, second) = read_all(source)

    assert (first["n"], first["d"], first["t"].microsecond) == (1, "a", 1)
    assert second["t"] is None


def test_parquet_files_bring_their_own_schema(folder):
    table = pa.table(
        {
            "t": pa.array([1], pa.timestamp("ns")),
            "s": pa.array(["x"], pa.large_string()),
            "d": pa.array(["a"]).dictionary_encode(),
        }
    )
    pq.write_table(table, folder / "f.parquet")
    source = whole(folder, None)

    assert source.schema == schema_of("t timestamp, s string, d string")
    assert read_all(source)[0]["d"] == "a"
    (folder / "f.parquet").unlink()
    assert refusal(whole, folder, None, "parquet").code == "HR-INPUT-012"


@pytest.mark.parametrize(
    ("schema", "code", "column"),
    [
        ("a bigint, z string", "HR-INPUT-005", "'z'"),
        ("a string", "HR-INPUT-006", "'a'"),
        ("b bigint", "HR-INPUT-006", "'b'"),
        ("l bigint", "HR-INPUT-006", "'l'"),
    ],
)
def test_a_parquet_file_that_does_not_fit_is_refused_by_name(folder, schema, code, column):
    pq.write_table(pa.table({"a": [1], "b": ["x"], "l": [[1]]}), folder / "f.parquet")
    source = whole(folder, schema_of(schema))

    for call in (source.check, lambda: source.latest("files")):
        error = refusal(call)
        assert error.code == code
        assert "f.parquet" in error.message and column in error.message


@pytest.mark.constants
def test_a_value_that_does_not_fit_makes_its_row_bad(folder):
    pq.write_table(pa.table({"a": [1, 2**40, 3]}), folder / "f.parquet")
    source = whole(folder, schema_of("a int"))

    ((chunk, _),) = chunks(source, "files", 0, source.latest("files"))

    reason = "column 'a': 1099511627776 is not int"
    assert chunk["a"].to_pylist() == [1, None, 3]
    assert chunk[MISFIT].to_pylist() == [None, reason, None]


def test_cuts_keep_to_row_groups_when_they_are_near(folder):
    table = pa.table({"a": list(range(100_000))})
    pq.write_table(table, folder / "f.parquet", row_group_size=10_000)
    source = whole(folder)
    end = source.latest("files")

    cuts = source.cut("files", 0, end, 3)

    assert [r.start % 10_000 for r in cuts] == [0, 0, 0]
    assert source.clamp("files", 0, end, 9_000) == 10_000
    assert source.clamp("files", 0, end, 2_000) == 2_000
    assert source.rows("files", 5, 12) == 7


def test_a_parquet_file_that_is_being_written_is_waited_for(folder):
    clock = ManualClock(0)
    source = watch(folder, format="parquet", clock=clock)
    (folder / "f").write_bytes(b"PAR1 half a file")
    assert source.latest("files") == 0
    clock.advance(9_000)
    (folder / "f").write_bytes(b"PAR1 half a file and more")
    assert source.latest("files") == 0
    clock.advance(9_000)
    assert source.latest("files") == 0
    pq.write_table(pa.table({"a": [7]}), folder / "f")
    assert numbers(source) == [7]


def test_a_parquet_file_that_is_never_finished_is_refused(folder):
    clock = ManualClock(0)
    source = watch(folder, format="parquet", clock=clock)
    (folder / "f").write_bytes(b"PAR1 half a file")
    source.latest("files")
    clock.advance(11_000)

    assert refusal(source.latest, "files").code == "HR-INPUT-008"
    assert refusal(whole(folder, format="parquet").latest, "files").code == "HR-INPUT-008"


def test_a_parquet_file_with_a_damaged_footer_is_refused(folder):
    (folder / "f.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")

    assert refusal(whole(folder).latest, "files").code == "HR-INPUT-008"
    assert refusal(open_source, f"files:{folder}").code == "HR-INPUT-008"


def test_a_damaged_parquet_file_is_refused(folder):
    pq.write_table(pa.table({"a": list(range(10_000))}), folder / "f.parquet")
    source = whole(folder)
    end = source.latest("files")
    content = bytearray((folder / "f.parquet").read_bytes())
    content[5_000:5_400] = bytes(400)  # beyond what a fingerprint covers
    (folder / "f.parquet").write_bytes(content)

    error = refusal(lambda: [c for r in source.cut("files", 0, end, 1) for c in source.read(r)])

    assert error.code == "HR-INPUT-008" and "f.parquet" in error.message


# Files that change under the job


def test_a_file_that_shrinks_is_refused(folder):
    put(folder / "a", 1, 2)
    source = watch(folder)
    source.latest("files")
    put(folder / "a", 1)

    error = refusal(source.latest, "files")

    assert error.code == "HR-INPUT-007" and str(folder / "a") in error.message
    assert refusal(watch(folder).latest, "files").code == "HR-INPUT-007"


def test_a_file_that_is_replaced_is_refused_when_seen_and_when_read(folder):
    put(folder / "a", 1, 2)
    source = watch(folder)
    end = source.latest("files")
    (piece,) = source.cut("files", 0, end, 1)
    put(folder / "a", 3, 4, 5)

    assert refusal(lambda: list(again(source).read(piece))).code == "HR-INPUT-007"
    assert refusal(source.latest, "files").code == "HR-INPUT-007"


def test_a_parquet_file_that_is_replaced_is_refused(folder):
    pq.write_table(pa.table({"a": [1]}), folder / "f")
    source = watch(folder, format="parquet")
    source.latest("files")
    pq.write_table(pa.table({"a": [2]}), folder / "f")

    assert refusal(watch(folder, format="parquet").latest, "files").code == "HR-INPUT-007"


def test_a_file_that_goes_before_it_is_read_is_refused(folder):
    put(folder / "a", 1)
    source = watch(folder)
    end = source.latest("files")
    ranges = source.cut("files", 0, end, 1)
    (folder / "a").unlink()

    error = refusal(lambda: list(source.read(ranges[0])))

    assert error.code == "HR-INPUT-007" and str(folder / "a") in error.message
    assert source.clamp("files", 0, end, 1) == end  # planning survives, reading says it


# What the user may have got wrong


def test_what_does_not_exist_is_named(tmp_path):
    for path in ("missing.json", "missing", "missing/*.json"):
        error = refusal(lambda p=path: whole(tmp_path / p, format="json").check())
        assert error.code == "HR-INPUT-002", path
        assert "missing" in error.message


def test_an_empty_folder_can_be_watched_but_not_read_to_its_end(folder):
    watch(folder).check()
    assert refusal(whole(folder, format="json").check).code == "HR-INPUT-002"


def test_the_format_comes_from_the_names_or_must_be_given(folder):
    assert refusal(whole, folder).code == "HR-INPUT-004"
    put(folder / "a.jsonl", 1)
    (folder / "readme.md").write_text("# hello")
    assert numbers(whole(folder)) == [1]
    (folder / "b.csv").write_text("a\n2\n")
    assert refusal(whole, folder).code == "HR-INPUT-004"
    assert numbers(whole(folder / "*.csv")) == [2]
    assert refusal(whole, folder, format="xml").code == "HR-INPUT-004"


def test_compressed_files_of_unknown_kinds_are_refused(folder):
    put(folder / "a.json", 1)
    (folder / "b.json.zip").write_bytes(b"")

    assert refusal(whole, folder).code == "HR-INPUT-004"
    assert refusal(watch(folder).latest, "files").code == "HR-INPUT-004"
    assert refusal(whole(folder / "b.json.zip", format="json").check).code == "HR-INPUT-004"


@pytest.mark.parametrize("name", ["b.zip", "b.json.xz", "b.parquet.gz"])
def test_a_compressed_file_is_said_to_be_compressed_not_to_lack_a_format(folder, name):
    (folder / name).write_bytes(b"")

    assert "is compressed" in refusal(whole, folder / name).message


def test_a_schema_is_needed_unless_the_format_brings_one(folder):
    put(folder / "a.json", 1)

    assert refusal(whole, folder, None).code == "HR-INPUT-012"
    assert refusal(whole, folder, schema_of("a array<int>"), "csv").code == "HR-INPUT-006"
    assert refusal(whole, folder, SCHEMA, "text").code == "HR-INPUT-006"
    assert read_all(whole(folder, None, "bytes")) == [{"value": b'{"a": 1}'}]


def test_unknown_options_are_refused_with_a_guess(folder):
    put(folder / "a.json", 1)

    error = refusal(whole, folder, headr=False)

    assert error.code == "HR-INPUT-013" and "'header'" in str(error.hint)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that anybody can enter, unlike those of pytest."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def test_a_folder_without_permission_is_named(public):
    put(public / "a.json", 1)
    source, inner = whole(public), whole(public / "a.json")
    public.chmod(0)

    for call in (source.check, inner.check, lambda: source.latest("files")):
        error = as_nobody(call)
        assert "HR-INPUT-003" in error and str(public) in error


def test_a_file_without_permission_is_named(public):
    put(public / "a.json", 1)
    (public / "a.json").chmod(0)
    source = whole(public)

    for call in (source.check, lambda: source.latest("files")):
        assert "HR-INPUT-003" in as_nobody(call)


def as_nobody(call) -> str:
    """What `call` raises when it is not root that calls."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks beside threads
        child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setuid(65_534)
            call()
        except BaseException as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


@pytest.mark.parametrize(
    "name", ["a b.json", "it's.json", 'say "x".json', "a;rm -rf.json", "[1]*?.json", "é\n.json"]
)
def test_any_file_name_can_be_read(folder, name):
    put(folder / name, 1)
    put(folder / "other.json", 2)

    assert numbers(whole(folder / name)) == [1]
    assert sorted(numbers(watch(folder, format=None))) == [1, 2]


def test_an_input_of_any_name_keeps_to_the_jobs_folder(folder):
    put(folder / "a.json", 1)
    for name in ("../../x", "a/b", "..", ".", "", 'it\'s; "x"', "/etc"):
        source = open_source(
            f"files:{folder}", NUMBERS, folder=str(folder.parent / "job"), name=name
        )
        assert numbers(source) == [1]

    assert sorted(p.name for p in folder.parent.iterdir()) == ["in", "job"]
    assert [p.name for p in (folder.parent / "job").iterdir()] == ["inputs"]
    assert len(list((folder.parent / "job" / "inputs").iterdir())) == 7


def test_a_glob_reaches_into_folders(folder):
    (folder / "x" / "y").mkdir(parents=True)
    put(folder / "x" / "y" / "a.json", 1)
    put(folder / "x" / "b.json", 2)

    assert sorted(numbers(whole(folder / "**" / "*.json"))) == [1, 2]


def test_an_output_that_is_merged_cannot_be_watched(folder):
    (folder / "_commits").mkdir()
    pq.write_table(pa.table({"a": [1]}), folder / "merged-1.parquet")

    assert refusal(watch(folder, format="parquet").latest, "files").code == "HR-INPUT-014"
    assert numbers(whole(folder)) == [1]


def test_a_chunk_of_text_is_typed_by_its_source(folder):
    (folder / "a.txt").write_bytes(b"ok\n\xff\n")
    source = whole(folder, None)
    ((chunk, _),) = chunks(source, "files", 0, source.latest("files"))

    table, bad, errors = source.decode(chunk)

    assert (table["value"].to_pylist(), bad.tolist()) == (["ok"], [False, True])
    assert errors == ["not UTF-8 text"]
    assert typed(source, chunk.slice(0, 1)).num_rows == 1


@pytest.mark.parametrize("header", [b"k,v\ra,1\rb,2\r", b"x" * 200_000 + b",k,v\n"])
def test_a_header_that_cannot_be_read_is_refused_by_name(folder, header):
    (folder / "a.csv").write_bytes(header)

    error = refusal(whole(folder, schema_of("k string, v bigint")).check)

    assert error.code == "HR-INPUT-005" and "a.csv" in error.message


def test_an_empty_csv_file_has_no_rows(folder):
    (folder / "a.csv").write_bytes(b"")
    (folder / "b.csv").write_text("a,b\n1,x\n")
    source = whole(folder, SCHEMA)
    source.check()

    assert [r["a"] for r in read_all(source)] == [1]
