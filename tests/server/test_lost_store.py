"""The store's file while a server works, and after: removed, replaced, damaged within, on a disk
that is full. What is known is not lost, and what is lost is said."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from headrace.driver.planner import request_stop
from headrace.errors import ServerError
from headrace.server.daemon import Daemon
from headrace.server.lifecycle import State
from headrace.server.records import JobRecord
from headrace.server.store import Store
from tests.server.test_life import refused, totals
from tests.server.test_upgrade import running
from tests.server.worlds import World


def record(name: str, **more: str) -> JobRecord:
    return JobRecord(name, "shop.py", "/nowhere", 0, **more)


def names(store: Store) -> list[str]:
    return [one.name for one in store.records()]


@pytest.mark.parametrize("ends", [("",), ("", "-wal", "-shm")])
def test_a_store_that_is_removed_while_it_is_open_is_written_again(
    tmp_path: Path, ends: tuple[str, ...]
) -> None:
    path = tmp_path / "server.sqlite"
    store = Store(path)
    store.put(record("one"))
    first = store.add_event(1, "one", "started", "", "server")
    for end in ends:
        path.with_name(path.name + end).unlink()
    store.put(record("two"))
    second = store.add_event(2, "one", "ended", "", "server")
    store.close()
    again = Store(path)
    assert names(again) == ["one", "two"] and again.events("one") == [first, second]
    assert second.id == first.id + 1 and path.stat().st_mode & 0o077 == 0
    again.close()


def test_a_store_that_is_replaced_while_it_is_open_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "server.sqlite"
    store = Store(path)
    store.put(record("one"))
    copy = tmp_path / "copy"
    copy.write_bytes(b"somebody's")
    copy.replace(path)
    with pytest.raises(ServerError, match="HR-SERVER-038"):
        store.put(record("two"))
    assert path.read_bytes() == b"somebody's"
    store.close()


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "7", '{"state": "dancing"}'])
def test_a_record_that_cannot_be_read_is_damage_that_has_a_name(
    tmp_path: Path, content: str
) -> None:
    with Daemon(tmp_path / "home") as daemon:
        daemon.parts.desk.put(record("one"))
    with sqlite3.connect(tmp_path / "home" / "server.sqlite") as db:
        db.execute("UPDATE jobs SET record = ?", (content,))
    db.close()
    refused(lambda: Daemon(tmp_path / "home"), "HR-SERVER-011")
    assert not daemon.home.is_held()


def test_a_transaction_that_fails_at_its_end_leaves_none_open(tmp_path: Path) -> None:
    """And a server whose disk is full ends as one that has room: nothing is held after it."""
    with Daemon(tmp_path / "home") as daemon:
        store = daemon.parts.desk.store
        store.put(record("one"))
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count = {pages}")  # SQLite's own full disk
        for _ in range(3):
            with pytest.raises(ServerError, match=r"HR-SERVER-013.*full"):
                store.put(record("two", reason="x" * 100_000))
        assert names(store) == ["one"] and not store._db.in_transaction
        store._db.execute("PRAGMA max_page_count = 100000")
        store.put(record("two"))
        store._db.execute("PRAGMA query_only = 1")
    assert not daemon.home.is_held()
    store = Store(tmp_path / "home" / "server.sqlite")
    assert names(store) == ["one", "two"]
    store.close()


def test_a_server_that_has_lost_its_store_says_which_jobs_it_does_not_know(world: World) -> None:
    with world.running():
        running(world)
    (world.place / "home" / "server.sqlite").unlink()
    with world.running() as service:
        assert service.jobs() == [] and "shop" in service.events()[-1].text
        path = str(world.programs / "shop.py")
        error = refused(lambda: service.submit(path), "HR-SERVER-039")
        folder = world.place / ".headrace" / "jobs" / "shop"
        assert f"headrace deactivate {folder}" in str(error.hint)
        request_stop(folder)
        run = world.daemon.home.run("shop", 1)
        world.until(lambda: world.daemon.parts.processes.look(run).pid is None)
        service.submit(path)
        world.send('{"k": "a", "n": 2}')
        world.until(lambda: totals(world) == [("a", 1), ("a", 3)])
        world.until_state("shop", State.RUNNING)
