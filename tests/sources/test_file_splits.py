"""Files that overlap in time: which split reads each, and what that saves."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import again, read_split, refusal

import headrace as hr
from headrace.schema import schema_of
from headrace.sources import Source, file_splits, open_source
from headrace.testing import Driver

SCHEMA = schema_of("at timestamp, device string, n bigint")
SECOND = 1_000_000  # microseconds


def written(
    folder: Path, name: str, times: list[int], format: str = "json", stamp: int | None = None
) -> Path:
    """A file of one device with a row for each second of `times`."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.{format}"
    rows = {
        "at": pa.array([t * SECOND for t in times], pa.timestamp("us", "UTC")),
        "device": pa.array([name] * len(times), pa.string()),
        "n": pa.array(times, pa.int64()),
    }
    if format == "parquet":
        pq.write_table(pa.table(rows), path, row_group_size=7)
    else:
        stamps = [t.isoformat() for t in rows["at"].to_pylist()]
        lines = zip(stamps, rows["device"].to_pylist(), times, strict=True)
        path.write_text("".join(_line(format, *line) for line in lines))
    if stamp is not None:
        os.utime(path, (stamp, stamp))
    return path


def _line(format: str, at: str, device: str, n: int) -> str:
    if format == "csv":
        return f"{at},{device},{n}\n"
    return json.dumps({"at": at, "device": device, "n": n}) + "\n"


def opened(folder: Path, job: Path, until: str | None = "end", **options: Any) -> Source:
    return open_source(
        f"files:{folder}", SCHEMA, None, options, folder=str(job), until=until, time="at"
    )


def devices(source: Source) -> dict[str, list[str]]:
    """The files of each split, in the order in which they are read."""
    source.discover()
    files = {}
    for split in source.splits():
        rows, _ = read_split(source, split)
        files[split] = list(dict.fromkeys(r["device"] for r in rows))
    return files


FORMATS = pytest.mark.parametrize("format", ["json", "parquet", "csv"])


@FORMATS
def test_files_that_overlap_are_read_side_by_side(tmp_path, format):
    options = {"header": False} if format == "csv" else {}
    written(tmp_path / "in", "a", list(range(100)), format)
    written(tmp_path / "in", "b", list(range(50, 150)), format)
    written(tmp_path / "in", "c", list(range(120, 130)), format)  # after a, within b

    source = opened(tmp_path / "in", tmp_path / "job", **options)

    assert devices(source) == {"files": ["a", "c"], "files 2": ["b"]}


@FORMATS
def test_files_one_after_the_other_are_one_split_in_the_order_of_their_times(tmp_path, format):
    options = {"header": False} if format == "csv" else {}
    written(tmp_path / "in", "a", [30, 31, 40], format, stamp=1)  # the oldest file
    written(tmp_path / "in", "b", [10, 12, 30], format, stamp=2)
    written(tmp_path / "in", "c", [1, 10], format, stamp=3)

    source = opened(tmp_path / "in", tmp_path / "job", **options)

    assert devices(source) == {"files": ["c", "b", "a"]}


def test_a_first_look_takes_both_ends_of_a_long_file(tmp_path):
    a, b, c = (letter * 200 for letter in "abc")  # so that few lines are more than it looks at
    written(tmp_path / "in", a, list(range(600)))
    written(tmp_path / "in", b, list(range(599, 1_200)))
    written(tmp_path / "in", c, list(range(598, 1_200)))

    source = opened(tmp_path / "in", tmp_path / "job")

    assert devices(source) == {"files": [a, b], "files 2": [c]}


def test_a_file_whose_times_are_not_known_is_followed_by_none(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "bad.json").write_text("no JSON\n")
    written(tmp_path / "in", "a", [1, 2])
    written(tmp_path / "in", "b", [3, 4])

    source = opened(tmp_path / "in", tmp_path / "job")
    source.discover()

    extents = {e.path: e.split for e in source._listing().files()}
    assert extents == {"bad.json": 0, "a.json": 1, "b.json": 1}


def test_where_one_end_of_a_file_shows_no_time_the_rest_may_have_any(tmp_path):
    a = written(tmp_path / "in", "a" * 200, list(range(300)))
    nulls = f'{{"at": null, "device": "{"b" * 200}", "n": 0}}\n' * 400
    b = written(tmp_path / "in", "b" * 200, list(range(900)))
    b.write_text(nulls + b.read_text())

    source = opened(tmp_path / "in", tmp_path / "job")
    source.discover()

    assert {e.path: e.split for e in source._listing().files()} == {a.name: 1, b.name: 0}


def test_times_that_python_does_not_have_are_no_statistics(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        at = pa.array([0, 4 * 10**17], pa.timestamp("us", "UTC"))
        columns = {"at": at, "device": [name] * 2, "n": [1, 2]}
        pq.write_table(pa.table(columns), tmp_path / "in" / f"{name}.parquet")
    job = hr.Job("far")
    read = job.read(f"files:{tmp_path}/in", time="at", in_order=True, name="in")
    read.write("collect:", name="out")

    driver = Driver(job, tmp_path / "run")
    driver.drain()

    assert driver.output("out").num_rows == driver.manifest.counts["in"]["dead"] == 2
    driver.close()


def test_what_a_file_has_grown_by_counts_when_another_is_placed(tmp_path):
    a = written(tmp_path / "in", "a", list(range(100)))
    watched = opened(tmp_path / "in", tmp_path / "job", None)
    watched.discover()
    more = written(tmp_path / "more", "a", list(range(100, 300)))
    a.write_text(a.read_text() + more.read_text())
    written(tmp_path / "in", "c", list(range(100, 300)))
    written(tmp_path / "in", "d", list(range(299, 310)))

    source = opened(tmp_path / "in", tmp_path / "job")
    source.discover()

    placed = {e.path: (e.split, e.start) for e in source._listing().files()}
    assert placed == {"a.json": (0, 0), "c.json": (1, 0), "d.json": (0, 0)}


def test_a_file_whose_name_is_not_utf8_may_have_bad_rows(tmp_path):
    (tmp_path / "in").mkdir()
    odd = os.path.join(os.fsencode(tmp_path / "in"), b"\xff.json")
    with open(odd, "wb") as file:
        file.write(b'{"at": 1000, "device": "a", "n": 1}\nno JSON\n')
    driver = Driver(counts_job(tmp_path / "in"), tmp_path / "run")
    driver.drain()

    assert sum(windows_of(driver).values()) == driver.manifest.counts["in"]["dead"] == 1
    driver.close()


@pytest.mark.parametrize("unit", ["ms", "ns"])
@pytest.mark.parametrize("statistics", [True, False])
def test_parquet_without_statistics_is_looked_at(tmp_path, statistics, unit):
    (tmp_path / "in").mkdir()
    for name, times in {"a": range(0, 3_000), "b": range(3_000, 6_000), "c": [2_999]}.items():
        per_unit = pa.array([t * {"ms": 1_000, "ns": 1_000_000_007}[unit] for t in times])
        at = per_unit.cast(pa.timestamp(unit, "UTC"))
        columns = {"at": at, "device": [name] * len(times), "n": list(times)}
        path = tmp_path / "in" / f"{name}.parquet"
        pq.write_table(pa.table(columns), path, write_statistics=statistics)

    source = opened(tmp_path / "in", tmp_path / "job")

    assert devices(source) == {"files": ["a", "c", "b"]}


def test_a_watched_folder_is_one_split_unless_asked_otherwise(tmp_path):
    for name in "abc":
        written(tmp_path / "in", name, [1, 2, 3], stamp=ord(name))

    assert devices(opened(tmp_path / "in", tmp_path / "1", None)) == {"files": ["a", "b", "c"]}
    assert devices(opened(tmp_path / "in", tmp_path / "2", "end", splits="folder")) == {
        "files": ["a", "b", "c"]
    }
    by_file = opened(tmp_path / "in", tmp_path / "3", None, splits="file")
    assert devices(by_file) == {"files": ["a"], "files 2": ["b"], "files 3": ["c"]}
    by_number = opened(tmp_path / "in", tmp_path / "4", None, splits=2)
    assert devices(by_number) == {"files": ["a", "c"], "files 2": ["b"]}


def test_a_file_stays_in_its_split_when_it_grows_and_when_splits_changes(tmp_path):
    a, b = (written(tmp_path / "in", n, [1], stamp=i) for i, n in enumerate("ab"))
    first = opened(tmp_path / "in", tmp_path / "job", None, splits="file")
    assert devices(first) == {"files": ["a"], "files 2": ["b"]}
    positions = {split: first.latest(split) for split in first.splits()}
    for path in (a, b):
        path.write_text(path.read_text() + path.read_text())
    written(tmp_path / "in", "c", [1])

    second = again(opened(tmp_path / "in", tmp_path / "job", None, splits="folder"))
    second.check(positions)
    second.discover()

    rest = {s: read_split(second, s, positions.get(s, 0))[0] for s in second.splits()}
    assert {s: [r["device"] for r in rows] for s, rows in rest.items()} == {
        "files": ["a", "c"],
        "files 2": ["b"],
    }


def test_two_drivers_that_choose_otherwise_read_a_file_once(tmp_path):
    written(tmp_path / "in", "a", [1], stamp=1)
    one = opened(tmp_path / "in", tmp_path / "job", None, splits="file")
    two = opened(tmp_path / "in", tmp_path / "job", None, splits="folder")
    one.discover(), two.discover()
    written(tmp_path / "in", "b", [1], stamp=2)
    one.discover(), two.discover()

    for source in (one, two, opened(tmp_path / "in", tmp_path / "job", None)):
        assert devices(source) == {"files": ["a"], "files 2": ["b"]}


@pytest.mark.parametrize("splits", [0, -1, 1_001, True, 2.0, "files", ["file"]])
def test_splits_that_cannot_be_are_refused(tmp_path, splits):
    written(tmp_path / "in", "a", [1])

    assert refusal(opened, tmp_path / "in", tmp_path / "job", splits=splits).code == "HR-INPUT-013"


def test_more_files_than_splits_are_possible(tmp_path, monkeypatch):
    monkeypatch.setattr(file_splits, "MOST_SPLITS", 2)
    for i, name in enumerate("abc"):
        written(tmp_path / "in", name, [i, 10 - i])

    by_file = opened(tmp_path / "in", tmp_path / "1", splits="file")
    assert refusal(by_file.discover).code == "HR-INPUT-017"
    by_time = opened(tmp_path / "in", tmp_path / "2")
    assert devices(by_time) == {"files": ["a"], "files 2": ["b", "c"]}


# A whole job: sorted files have no late rows, however they overlap and are cut into batches.


def counts_job(folder: Path, **options: Any) -> hr.Job:
    job = hr.Job("counts")
    rows = job.read(f"files:{folder}/*", schema=SCHEMA, time="at", in_order=True, **options)
    windows = rows.key_by("device").window(hr.tumbling("10s")).agg(rows=hr.count())
    windows.write("collect:", name="out")
    return job


def windows_of(driver: Driver) -> Counter[tuple[int, str]]:
    found: Counter[tuple[int, str]] = Counter()
    for row in driver.output("out").to_pylist():
        found[int(row["window_start"].timestamp()), row["device"]] += row["rows"]
    return found


SORTED = st.lists(st.integers(0, 80), min_size=1, max_size=25).map(sorted)
FILES = st.lists(SORTED, min_size=1, max_size=5)


@given(files=FILES, batch=st.integers(1, 30), crash=st.integers(0, 6), data=st.data())
@settings(max_examples=12, deadline=None)
def test_sorted_files_have_no_late_rows(tmp_path_factory, files, batch, crash, data):
    folder = tmp_path_factory.mktemp("job") / "in"
    for i, times in enumerate(files):
        written(folder, f"d{i}", times, "json", stamp=data.draw(st.integers(0, 9)))
    expected = Counter((t // 10 * 10, f"d{i}") for i, times in enumerate(files) for t in times)

    first = Driver(counts_job(folder), folder.parent / "run", max_batch=batch)
    for _ in range(crash):
        first.epoch()
    second = Driver(counts_job(folder), folder.parent / "run", max_batch=batch)
    second.drain()

    assert windows_of(second) == expected
    second.close()


def test_in_one_split_they_would_be_late(tmp_path):
    for name in "ab":
        written(tmp_path / "in", name, list(range(100)))

    driver = Driver(counts_job(tmp_path / "in", splits="folder"), tmp_path / "run", max_batch=50)
    driver.drain()

    assert sum(windows_of(driver).values()) < 200
    driver.close()


def test_a_batch_reads_whole_pieces_of_the_files_that_are_furthest_behind(tmp_path):
    """Of Parquet a few rows cost as much as a row group, so a small share is not read."""
    for i in range(6):
        written(tmp_path / "in", f"d{i}", list(range(i, 100)), "parquet")

    driver = Driver(counts_job(tmp_path / "in"), tmp_path / "run", max_batch=100)
    driver.epoch()

    read = [s.name for s in driver.manifest.splits if s.at]
    assert len(read) == 1 and len(driver.manifest.splits) == 6
    driver.drain()
    assert sum(windows_of(driver).values()) == 6 * 100 - 15
    driver.close()


def test_a_run_until_now_leaves_files_that_come_later_to_the_next(tmp_path):
    written(tmp_path / "in", "a", [1, 2, 3])
    job = counts_job(tmp_path / "in", splits="file")
    driver = Driver(job, tmp_path / "run", until="now", max_batch=1)
    driver.epoch()
    written(tmp_path / "in", "b", [1, 2, 3])
    driver.drain()

    assert [s.name for s in driver.manifest.splits] == ["files"]
    driver.close()
    driver = Driver(job, tmp_path / "run", until="now")
    driver.drain()
    assert [s.name for s in driver.manifest.splits] == ["files", "files 2"]
    driver.close()
