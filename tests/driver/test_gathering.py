"""Inputs that store rows in pieces: a run until now, and one that drains, wait for all of them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver.planner import request_drain, stop_requested
from headrace.sources import sql_changes, sql_growing
from headrace.testing import Driver
from tests.databases import new_table, postgres_database, run, uri

SETTLE = 10_000  # ms


def _table(folder: Path, *numbers: int) -> None:
    with sqlite3.connect(folder / "rows.sqlite") as database:
        database.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY)")
        database.executemany("INSERT INTO t VALUES (?)", [(n,) for n in numbers])


def _driver(folder: Path, clock: ManualClock, until: str | None, **options: Any) -> Driver:
    job = hr.Job("gathering")
    rows = job.read(uri("sqlite", folder), table="t", growing="n", name="in", **options)
    rows.write("collect:", name="out")
    return Driver(job, folder / "job", until=until, clock=clock)


def _numbers(driver: Driver) -> list[int]:
    return sorted(driver.output("out")["n"].to_pylist())


def _until_it_stops(driver: Driver, folder: Path, clock: ManualClock) -> None:
    for _ in range(20):
        driver.drain()
        if stop_requested(folder / "job") or (driver.manifest and driver.manifest.ended):
            return driver.close()
        clock.advance(SETTLE // 4)
    pytest.fail("it does not stop")


@pytest.mark.parametrize("options", [{}, {"settle": "10s"}])
def test_a_run_until_now_reads_all_rows_that_were_there(tmp_path, monkeypatch, options):
    monkeypatch.setattr(sql_growing, "MOST_AT_ONCE", 2)
    clock = ManualClock(10**9)
    _table(tmp_path, 1, 2, 3, 4, 5)
    first = _driver(tmp_path, clock, "now", **options)
    first.epoch()
    _table(tmp_path, 6)  # later: left to the next run
    _until_it_stops(first, tmp_path, clock)
    assert _numbers(first) == [1, 2, 3, 4, 5]

    second = _driver(tmp_path, clock, "now", **options)
    _until_it_stops(second, tmp_path, clock)
    assert _numbers(second) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("options", [{}, {"settle": "10s"}, {"poll": "1h"}])
def test_a_drain_reads_all_rows_that_are_there(tmp_path, monkeypatch, options):
    monkeypatch.setattr(sql_growing, "MOST_AT_ONCE", 2)
    clock = ManualClock(10**9)
    _table(tmp_path, 1)
    driver = _driver(tmp_path, clock, None, **options)
    driver.drain()
    _table(tmp_path, 2, 3, 4, 5, 6)
    request_drain(tmp_path / "job")
    _until_it_stops(driver, tmp_path, clock)
    assert driver.manifest is not None and driver.manifest.ended
    assert _numbers(driver) == [1, 2, 3, 4, 5, 6]


def test_changes_are_read_up_to_where_they_were_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(sql_changes, "MOST_CHANGES", 1)
    table, where = new_table("postgresql"), postgres_database()
    run(where, f"CREATE TABLE {table} (n bigint PRIMARY KEY)", f"INSERT INTO {table} VALUES (0)")
    clock, read = ManualClock(10**9), list[list[int]]()
    try:
        for added in ([], [1, 2, 3, 4]):
            for n in added:
                run(where, f"INSERT INTO {table} VALUES ({n})")
            job = hr.Job("changes")
            rows = job.read(uri("postgresql", tmp_path), table=table, changes=True, name="in")
            rows.write("collect:", name="out")
            driver = Driver(job, tmp_path / "job", until="now", clock=clock)
            _until_it_stops(driver, tmp_path, clock)
            read.append(_numbers(driver))
    finally:
        run(where, "SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots")
    assert read == [[0], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("watch", ["list", "notify"])
def test_a_drain_looks_at_a_folder_that_is_seldom_listed(tmp_path, monkeypatch, watch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("one\n")
    job = hr.Job("folder")
    job.read(f"files:{tmp_path}/in", name="in", watch=watch).write("collect:", name="out")
    clock = ManualClock(10**9)
    driver = Driver(job, tmp_path / "job", until=None, clock=clock)
    driver.drain()
    looks = driver.start.bundle.sources["in"]._arrivals._looks
    getattr(looks, "_listed", looks)._rest_until = float("inf")  # as after a long list
    monkeypatch.setattr(looks, "_certain", False, raising=False)  # as when notes were lost
    (tmp_path / "in" / "2.txt").write_text("two\n")
    request_drain(tmp_path / "job")
    _until_it_stops(driver, tmp_path, clock)
    assert sorted(driver.output("out")["value"].to_pylist()) == ["one", "two"]
