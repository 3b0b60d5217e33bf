"""Files of lake tables that tasks have written: whatever others clean up or change between settling
and commit, rows are there once, and no file of ours is left that no commit names."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable, TableFeatures
from tests.sinks import iceberg_tables
from tests.sinks.lake_cases import delta_rows, iceberg_rows
from tests.sinks.writing import ALONE, SCHEMA, expected, made, refusal, stage, table, values

from headrace.sinks import open_sink
from headrace.state import faults

WEEKS = 15 * 24 * 3600  # seconds: twice what Delta's VACUUM waits by default
KINDS = pytest.mark.parametrize("kind", ["delta", "iceberg"])


class Lake:
    """A table of a kind, its output, and what others do to it."""

    def __init__(self, kind: str, tmp: Path) -> None:
        self.kind, self.tmp = kind, tmp

    def open(self):
        if self.kind == "iceberg":
            return iceberg_tables.opened(self.tmp)
        return open_sink(f"delta:{self.tmp}/table", SCHEMA, {}, str(self.tmp / "job"), "o")

    def rows(self):
        found = delta_rows(self.tmp / "table") if self.kind == "delta" else iceberg_rows(self.tmp)
        return values(found.select(SCHEMA.names))

    def settled(self) -> set[Path]:
        return {p for p in self.tmp.rglob("*.parquet") if "_headrace" not in p.parts}

    def staged(self) -> set[Path]:
        return {p for p in self.tmp.rglob("part-*.parquet") if "_headrace" in p.parts}

    def named(self) -> set[Path]:
        if self.kind == "delta":
            there = DeltaTable(str(self.tmp / "table"))
            return {Path(uri.removeprefix("file://")) for uri in there.file_uris()}
        paths = iceberg_tables.there(self.tmp).inspect.files().column("file_path").to_pylist()
        return {Path(path.removeprefix("file://")) for path in paths}

    def age(self) -> None:
        then = time.time() - WEEKS
        for path in self.tmp.rglob("*.parquet"):
            os.utime(path, (then, then))

    def clean_up(self) -> None:
        """As whoever tends the table does: what no commit names goes, if it is old."""
        if self.kind == "delta":
            DeltaTable(str(self.tmp / "table")).vacuum(full=True, dry_run=False)
            return
        for path in self.settled() - self.named():
            if path.stat().st_mtime < time.time() - WEEKS / 2:
                path.unlink()

    def change(self) -> None:
        """So that the library writes the rows, and not we."""
        if self.kind == "delta":
            alter, feed = DeltaTable(str(self.tmp / "table")).alter, TableFeatures.ChangeDataFeed
            alter.add_feature(feed, allow_protocol_versions_increase=True)
            return
        with iceberg_tables.there(self.tmp).transaction() as change:
            change.set_properties({"write.parquet.compression-codec": "gzip"})


class Killed(BaseException):
    pass


def killed_at(name: str, sink, epoch: int, staged) -> None:
    def kill(point: str) -> None:
        if point == name:
            raise Killed

    with faults.hooked(kill), pytest.raises(Killed):
        sink.publish(epoch, staged, ALONE)


def begun(kind: str, tmp: Path) -> Lake:
    lake = Lake(kind, tmp)
    made(lake.open()).publish(0, stage(lake.open(), 0), ALONE)
    return lake


def staged_for(lake: Lake, epoch: int):
    return stage(made(lake.open()), epoch)


@KINDS
def test_files_that_are_cleaned_up_between_a_kill_and_the_commit_are_settled_again(kind, tmp_path):
    lake = begun(kind, tmp_path)
    staged = staged_for(lake, 1)
    killed_at("sink.lake.settled", lake.open(), 1, staged)
    assert len(lake.settled() - lake.named()) == 2
    lake.age()
    lake.clean_up()
    assert lake.settled() == lake.named()

    made(lake.open()).publish(1, staged, ALONE)
    assert lake.rows() == expected(2) and lake.settled() == lake.named()


@KINDS
def test_files_that_were_staged_long_ago_are_as_new_as_their_commit(kind, tmp_path):
    lake = begun(kind, tmp_path)
    staged = staged_for(lake, 1)
    lake.age()
    cleaned = list[str]()

    def meanwhile(point: str) -> None:
        if point == "sink.lake.settled":
            lake.clean_up()
            cleaned.append(point)

    with faults.hooked(meanwhile):
        made(lake.open()).publish(1, staged, ALONE)
    assert cleaned and lake.rows() == expected(2) and lake.settled() == lake.named()


@KINDS
def test_what_a_commit_names_is_not_staged_any_more(kind, tmp_path):
    lake = begun(kind, tmp_path)
    assert lake.settled() == lake.named() and not lake.staged()


@KINDS
@pytest.mark.parametrize("kill", [None, "sink.lake.settled", "sink.lake.looked"])
def test_no_file_is_left_where_the_library_has_written_the_rows(kind, kill, tmp_path):
    lake = begun(kind, tmp_path)
    staged = staged_for(lake, 1)
    if kill:
        killed_at(kill, lake.open(), 1, staged)
    lake.change()

    made(Lake(kind, tmp_path).open()).publish(1, staged, ALONE)
    assert lake.rows() == expected(2)
    assert lake.settled() == lake.named() and not lake.staged()


@KINDS
def test_files_of_another_job_stay(kind, tmp_path):
    """Both append to one table; the other has settled an epoch and was killed."""
    lake = begun(kind, tmp_path)
    options = {"catalog": iceberg_tables.sqlite_catalog(tmp_path)} if kind == "iceberg" else {}
    uri = "iceberg:lake.t" if kind == "iceberg" else f"delta:{tmp_path}/table"

    def other():
        where = str(tmp_path / "other")
        return made(open_sink(uri, SCHEMA, {**options, "mode": "append"}, where, "o"))

    theirs = other().stage(table(1, 500), 1, "a")
    killed_at("sink.lake.settled", other(), 1, theirs)
    staged = staged_for(lake, 1)
    lake.change()
    made(lake.open()).publish(1, staged, ALONE)
    other().publish(1, theirs, ALONE)
    assert lake.rows() == sorted([*expected(2), *values(table(1, 500))])


@KINDS
def test_where_a_file_system_has_no_links_files_are_renamed(kind, tmp_path, monkeypatch):
    lake, link = begun(kind, tmp_path), os.link

    def refused(source, target) -> None:
        if str(target).endswith(".parquet"):
            raise OSError(errno.EPERM, "Operation not permitted")
        link(source, target)

    monkeypatch.setattr(os, "link", refused)
    staged = staged_for(lake, 1)
    killed_at("sink.lake.settled", lake.open(), 1, staged)
    assert not lake.staged()
    made(lake.open()).publish(1, staged, ALONE)
    assert lake.rows() == expected(2) and lake.settled() == lake.named()


def _moved(tmp: Path) -> Path:
    """The table's location is another from now on; its files stay where they are."""
    place = tmp / "elsewhere"
    found = iceberg_tables.there(tmp)
    update = found.metadata.model_copy(update={"location": f"file://{place}"})
    path = Path(found.metadata_location.removeprefix("file://"))
    path.write_text(update.model_dump_json())
    assert iceberg_tables.there(tmp).location() == f"file://{place}"
    return place


@pytest.mark.parametrize("kill", [None, "sink.lake.settled"])
def test_a_table_whose_location_has_changed_since_gets_the_rows(kill, tmp_path):
    lake = begun("iceberg", tmp_path)
    staged = staged_for(lake, 1)
    if kill:
        killed_at(kill, lake.open(), 1, staged)
    _moved(tmp_path)

    made(lake.open()).publish(1, staged, ALONE)
    assert lake.rows() == expected(2)
    assert lake.settled() == lake.named() and not lake.staged()


def test_a_file_that_is_lost_where_the_table_was_is_named_as_it_was(tmp_path):
    lake = begun("iceberg", tmp_path)
    staged = staged_for(lake, 1)
    (hidden,) = (p for p in lake.staged() if p.name == staged[0]["file"])
    hidden.unlink()
    _moved(tmp_path)

    error = refusal(made(lake.open()).publish, 1, staged, ALONE)
    assert error.code == "HR-OUTPUT-005" and str(hidden) in error.message


def test_staged_files_that_have_moved_along_with_the_table_are_found(tmp_path):
    lake = begun("iceberg", tmp_path)
    staged = staged_for(lake, 1)
    place = _moved(tmp_path)
    place.mkdir()
    (tmp_path / "warehouse" / "lake" / "t" / "_headrace").rename(place / "_headrace")

    made(lake.open()).publish(1, staged, ALONE)
    assert lake.rows() == expected(2) and lake.settled() == lake.named()
