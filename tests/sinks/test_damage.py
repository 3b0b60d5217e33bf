"""Damage: a file of an output that is changed, cut, emptied, gone or foreign is named.

The matrix is drawn up from the files there are: a new kind of file cannot be forgotten.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.sinks.writing import (
    ALONE,
    EVERY,
    EXACT,
    SCHEMA,
    expected,
    files,
    log,
    made,
    refusal,
    stage,
    table,
)

from headrace.errors import OutputError
from headrace.schema import schema_of
from headrace.sinks import Timelines, merging, open_sink, output_files, read_output
from headrace.state import faults
from headrace.state.manifest import FIRST

FILES = ["collect", "json lines", "parquet", "partitioned json lines"]


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "flipped": flip,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "emptied": lambda path: path.write_bytes(b""),
    "deleted": lambda path: path.unlink(),
    "replaced": lambda path: shutil.copyfile(__file__, path),
}


def kind_of(path: Path) -> str:
    return re.sub(r"[0-9a-f]{8,}|%2F\d+-\d+|-\d+-", "#", path.name)


def life(output, epochs: int) -> None:
    sink = made(output.open())
    for epoch in range(epochs):
        sink.publish(epoch, stage(sink, epoch), ALONE)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_readers_get_all_rows_or_an_error_that_names_the_file(
    tmp_path_factory, eager, hasty, kind, damage
):
    done = Counter[str]()
    whole = tmp_path_factory.mktemp("whole")
    life(EXACT[kind](whole), 7)
    for path in sorted(whole.rglob("*")):
        if not path.is_file() or path.is_relative_to(whole / "job" / "outputs"):
            continue
        done[kind_of(path)] += 1
        if "partitioned" in kind and done[kind_of(path)] > 2:
            continue  # there are many alike
        copy = tmp_path_factory.mktemp("damaged")
        shutil.copytree(whole, copy, dirs_exist_ok=True)
        victim = copy / path.relative_to(whole)
        DAMAGE[damage](victim)
        newest = path.name.endswith(".json") and path.name.startswith("000000000006")
        if newest and damage == "deleted":
            continue  # as if the epoch had not been published: only the manifest knows better
        unchanged_or_named(EXACT[kind](copy), victim)
    assert len(done) >= 5, done


def unchanged_or_named(output, victim: Path) -> None:
    try:
        assert output.rows() == expected(7), victim
    except OutputError as error:
        assert error.code and error.hint
    try:  # and if the job goes on, nothing that it merges is wrong
        sink = made(output.open())
        for epoch in range(7, 11):
            sink.publish(epoch, stage(sink, epoch), ALONE)
        assert output.rows() == expected(11), victim
    except OutputError as error:
        assert error.code and error.hint


@pytest.mark.parametrize("kind", sorted(EVERY))
@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_what_was_staged_and_is_damaged_does_not_come_out(tmp_path, kind, damage):
    output = EVERY[kind](tmp_path)
    sink = made(output.open())
    staged = stage(sink, 0)
    (victim,) = tmp_path.rglob(staged[0]["file"])
    DAMAGE[damage](victim)

    with pytest.raises(OutputError) as caught:
        output.open().publish(0, staged, ALONE)
        output.rows()

    assert staged[0]["file"] in caught.value.message


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("damage", sorted(DAMAGE))
def test_a_start_does_not_show_what_was_staged_and_is_damaged(tmp_path, kind, damage):
    output = EXACT[kind](tmp_path)
    sink = made(output.open())
    staged = stage(sink, 0)
    (victim,) = tmp_path.rglob(staged[0]["file"])
    whole = victim.read_bytes()
    DAMAGE[damage](victim)
    with pytest.raises(OutputError) as caught:
        output.open().publish(0, staged, replace(ALONE, recovers=True))
    assert staged[0]["file"] in caught.value.message

    victim.write_bytes(whole)  # where it was: nothing was shown
    output.open().publish(0, staged, replace(ALONE, recovers=True))
    assert output.rows() == expected(1)


# What is there and should not be, or should be and is not


def test_a_foreign_file_is_refused_by_name_unless_one_says_append(tmp_path, eager):
    for before in (0, 3):
        place = tmp_path / str(before)
        life(files(place), before)
        (place / "out" / "data.parquet").write_bytes(b"x")

        error = refusal(files(place).open().check)

        assert error.code == "HR-OUTPUT-011" and "'data.parquet'" in error.message
        files(place, mode="append").open().check()


def test_hidden_files_and_folders_of_others_are_no_output_files(tmp_path):
    life(files(tmp_path), 2)
    for name in ("_SUCCESS", ".DS_Store"):
        (tmp_path / "out" / name).touch()
    (tmp_path / "out" / "deeper").mkdir()

    files(tmp_path).open().check()


@pytest.mark.parametrize(
    "point", ["sink.stage.durable", "sink.publish.file", "sink.publish.renamed",
              "sink.merge.written", "sink.merge.recorded", "sink.merge.removed"],
)  # fmt: skip
def test_what_a_crash_has_left_is_ours(tmp_path, eager, point):
    def pass_by(name: str) -> None:
        if name == point and len(list((tmp_path / "out").glob("_commits/*.json"))) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), faults.hooked(pass_by):
        life(files(tmp_path), 7)

    files(tmp_path).open().check()


def test_a_deleted_folder_of_records_is_noticed(tmp_path):
    life(files(tmp_path), 3)
    shutil.rmtree(tmp_path / "out" / "_commits")

    assert refusal(files(tmp_path).open().check).code == "HR-OUTPUT-005"


def test_a_folder_that_is_gone_has_published_nothing(tmp_path):
    life(files(tmp_path), 3)
    assert files(tmp_path).open().held().number == 2
    shutil.rmtree(tmp_path / "out")

    assert files(tmp_path).open().held().number == 0  # the manifest says 2: refused by the start


@pytest.mark.constants
def test_deleted_newest_records_are_noticed_by_the_files_without_one(tmp_path):
    life(files(tmp_path), 4)
    for record in (tmp_path / "out" / "_commits").glob("00000000000[23].*"):
        record.unlink()

    assert files(tmp_path).open().held().number == 1
    assert refusal(files(tmp_path).open().check).code == "HR-OUTPUT-005"


def test_a_file_that_is_missing_or_another_is_refused_at_the_start(tmp_path):
    for name, damage in DAMAGE.items():
        if name != "flipped":  # the size is the same: readers notice, and merging does
            place = tmp_path / name
            life(files(place), 3)
            victim = output_files(place / "out")[0]
            damage(victim)
            assert victim.name in refusal(files(place).open().check).message


# Formats and columns


@pytest.mark.parametrize(("old", "new"), [("parquet", "json"), ("json", "parquet")])
def test_nothing_is_merged_across_formats(tmp_path, eager, old, new):
    for first, last, format in ((0, 5, old), (5, 12, new)):
        sink = made(files(tmp_path, format=format).open())
        for epoch in range(first, last):
            sink.publish(epoch, stage(sink, epoch), ALONE)

    assert files(tmp_path).rows() == expected(12)
    suffixes = {p.suffix for p in output_files(tmp_path / "out")}
    assert suffixes == {f".{old}", f".{new}"}


@pytest.mark.parametrize("other", ["n string", "n double", "n array<bigint>"])
def test_a_column_that_readers_could_not_unify_is_refused_at_the_start(tmp_path, other):
    def opened(schema: str):
        return open_sink(f"files:{tmp_path}/out", schema_of(schema), {}, str(tmp_path / "job"), "o")

    made(opened("n bigint"))
    error = refusal(opened(other).check)

    assert error.code == "HR-OUTPUT-006" and "'n'" in error.message
    opened("n int, more string").check()


def test_json_rows_are_read_with_the_columns_they_were_written_with(tmp_path, eager):
    def opened(schema: str):
        return open_sink(
            f"files:{tmp_path}/out", schema_of(schema), {"format": "json"}, str(tmp_path / "job"),
            "o",
        )  # fmt: skip

    for epoch, schema in enumerate(["n bigint, s string", "n bigint"]):
        sink = made(opened(schema))
        rows = table(0, 1).append_column("s", [["x"]]).select(schema_of(schema).names)
        sink.publish(epoch, sink.stage(rows, epoch, "a"), ALONE)

    found = read_output(tmp_path / "out")
    assert sorted(found["s"].to_pylist(), key=str) == [None, "x"]


# Topics


def test_the_log_is_asked_by_reading_only(tmp_path):
    life(log(tmp_path), 3)
    before = {p: p.read_bytes() for p in (tmp_path / "log").rglob("*") if p.is_file()}
    sink = log(tmp_path).open()
    sink.check()
    assert sink.held().number == 2

    after = {p: p.read_bytes() for p in (tmp_path / "log").rglob("*") if p.is_file()}
    assert after == before


@pytest.mark.parametrize("place", ["s3://bucket/x", "hdfs://h/x", "file:///tmp/x", "gs://b"])
def test_files_that_are_not_of_this_machine_are_refused(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    error = refusal(open_sink, f"files:{place}", SCHEMA, {}, str(tmp_path / "job"), "o")

    assert error.code == "HR-OUTPUT-001" and "://" in error.message
    assert list(tmp_path.iterdir()) == []


def test_the_columns_of_another_output_in_the_place_of_its_own_are_refused(tmp_path):
    for name, schema in (("a", SCHEMA), ("b", schema_of("n bigint"))):
        sink = made(open_sink(f"files:{tmp_path}/{name}", schema, {}, str(tmp_path / "job"), name))
        sink.publish(0, sink.stage(table(0, 1).select(schema.names), 0, "x"), ALONE)
    (own,), (other,) = ((tmp_path / n / "_commits").glob("*.schema") for n in "ab")
    shutil.copyfile(other, own)

    error = refusal(read_output, tmp_path / "a")

    assert error.code == "HR-OUTPUT-007" and own.name in error.message


def test_columns_that_are_gone_are_named_by_whoever_needs_them(tmp_path, eager, monkeypatch):
    """By readers, by merging, and by going back, which cuts a merged file."""

    def opened(name: str, schema: str):
        uri, job = f"files:{tmp_path}/{name}", str(tmp_path / "job")
        return made(open_sink(uri, schema_of(schema), {}, job, name))

    def published(sink, name: str, epochs: range) -> None:
        for epoch in epochs:
            rows = table(epoch, 1).append_column("s", [["x"]]).select(sink.schema.names)
            sink.publish(epoch, sink.stage(rows, epoch, name), ALONE)

    def gone(name: str) -> None:
        (file,) = (tmp_path / name / "_commits").glob("*.schema")
        file.unlink()

    back = opened("back", "n bigint")
    published(back, "back", range(8))
    gone("back")
    monkeypatch.setattr(merging, "EVERY", 100)
    published(opened("merged", "n bigint, s string"), "merged", range(5))
    gone("merged")
    monkeypatch.setattr(merging, "EVERY", 1)
    for work in (
        lambda: published(opened("merged", "n bigint"), "merged", range(5, 7)),
        lambda: read_output(tmp_path / "merged"),
        lambda: back.go_back(Timelines(((FIRST, 4),)), ALONE),
    ):
        error = refusal(work)
        assert error.code == "HR-OUTPUT-005" and "columns" in error.message
        assert ".schema" in error.hint


def test_an_output_file_whose_content_has_changed_is_named(tmp_path):
    output = files(tmp_path)
    life(output, 1)
    file = _shown(tmp_path)[0]
    flip(file)

    error = refusal(read_output, file.parent)

    assert error.code == "HR-OUTPUT-012" and file.name in error.message


def test_an_epoch_that_another_driver_has_published_with_other_files_is_refused(tmp_path):
    sink = made(files(tmp_path).open())
    ours, theirs = (sink.stage(table(0, 1), 0, unique) for unique in ("ours", "theirs"))
    sink.publish(0, theirs, ALONE)

    error = refusal(made(files(tmp_path).open()).publish, 0, ours, ALONE)

    assert error.code == "HR-OUTPUT-013" and "epoch 0" in error.message
    assert read_output(_shown(tmp_path)[0].parent).num_rows == sum(r["rows"] for r in theirs)


def _shown(root: Path) -> list[Path]:
    return sorted(p for p in root.rglob("part-*") if "_staging" not in p.parts)
