"""What a server stores: jobs, versions, events and samples, in one SQLite file.

One connection and one lock: every method is a transaction. The file has a version of its own
(`user_version`); a newer or damaged one is refused by name, never repaired in silence. It is not
the truth about a job, which is in the job's folder: what is lost with it is who submitted what.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.errors import ServerError
from headrace.server import samples
from headrace.server.records import JobRecord
from headrace.server.values import Event, Series, Version

FORMAT = 1
EVENTS = 2_000  # that are kept of a job
_PATIENCE = 30.0  # seconds for another program that reads the file
_TABLES = """
CREATE TABLE jobs (name TEXT PRIMARY KEY, record TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE versions (
    job TEXT NOT NULL, version INTEGER NOT NULL, about TEXT NOT NULL, PRIMARY KEY (job, version)
) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, time INTEGER NOT NULL, job TEXT, kind TEXT NOT NULL,
    text TEXT NOT NULL, by TEXT NOT NULL
);
CREATE INDEX events_of_job ON events (job, id);
"""


class Store:
    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.RLock()
        self._layouts = samples.Layouts()
        with self._named():
            self._connect()

    def _connect(self) -> None:
        self._db = sqlite3.connect(
            self._path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
        )
        try:
            self._open()
            self._inode = self._path.stat().st_ino
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        (found,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise self._damaged(str(found).splitlines()[0])
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > FORMAT:
            raise ServerError(
                "HR-SERVER-012",
                f"{str(self._path)!r} was written by a newer version of Headrace (format "
                f"{version}, and this one knows {FORMAT})",
                "Start the server with that version.",
            )
        if version == 0:
            if self._db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
                raise self._damaged("it is a database of something else")
            self._db.executescript(
                f"BEGIN; {_TABLES} {samples.TABLES} PRAGMA user_version = {FORMAT}; COMMIT;"
            )

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What SQLite says of the file is an error that names it."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise ServerError(
                "HR-SERVER-013",
                f"{str(self._path)!r} cannot be used: {error}",
                "Is there room on the disk, and may this user write there? Does another program "
                "hold the file?",
            ) from error
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from error

    def _damaged(self, what: str) -> ServerError:
        return ServerError(
            "HR-SERVER-011",
            f"{str(self._path)!r} is damaged: {what}",
            "Put back a copy, or rename it: a server that starts without it knows no job, but "
            "those that run go on, and their folders hold their state: submit them again.",
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._named():
            self._see_that_it_is_there()
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself ends it where the disk is full
                    self._db.execute("ROLLBACK")
                raise

    def _see_that_it_is_there(self) -> None:
        """A file that was removed while the server runs is written again: all of it is at hand."""
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            self._write_again()
            return
        if inode != self._inode:
            raise ServerError(
                "HR-SERVER-038",
                f"another file was put in the place of {str(self._path)!r} while the server runs",
                "Stop the server before you put back a copy; jobs go on meanwhile.",
            )

    def _write_again(self) -> None:
        fresh = self._path.with_name(f"{self._path.name}.new")
        fresh.unlink(missing_ok=True)
        self._db.execute("VACUUM INTO ?", (str(fresh),))
        self._db.close()
        for end in ("-wal", "-shm"):  # of the file that was removed
            self._path.with_name(self._path.name + end).unlink(missing_ok=True)
        fresh.chmod(0o600)
        fresh.replace(self._path)
        self._connect()

    @contextmanager
    def _legible(self, what: str) -> Iterator[None]:
        """What a row holds is as it was written, or the file is damaged."""
        try:
            yield
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._damaged(f"{what} cannot be read: {error}") from error

    def _all(self, query: str, *values: Any) -> list[Any]:
        with self._lock, self._named():
            return self._db.execute(query, values).fetchall()

    # jobs

    def records(self) -> list[JobRecord]:
        rows = self._all("SELECT record FROM jobs ORDER BY name")
        with self._legible("the record of a job"):
            return [JobRecord.from_json(json.loads(record)) for (record,) in rows]

    def put(self, record: JobRecord) -> None:
        with self._transaction() as db:
            values = (record.name, json.dumps(record.json))
            db.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", values)

    def remove(self, job: str) -> None:
        """Forget a job: its record, versions and samples. What happened to it stays."""
        with self._transaction() as db:
            for table, column in (("jobs", "name"), ("versions", "job"), ("samples", "job")):
                db.execute(f"DELETE FROM {table} WHERE {column} = ?", (job,))

    # versions

    def versions(self, job: str) -> list[Version]:
        """The newest first."""
        rows = self._all("SELECT about FROM versions WHERE job = ? ORDER BY version DESC", job)
        with self._legible(f"a version of job {job!r}"):
            return [Version(**json.loads(about)) for (about,) in rows]

    def put_version(self, job: str, version: Version) -> None:
        with self._transaction() as db:
            about = json.dumps({**version.json, "current": False})
            values = (job, version.version, about)
            db.execute("INSERT OR REPLACE INTO versions VALUES (?, ?, ?)", values)

    def set_outcome(self, job: str, version: int, outcome: str) -> None:
        for one in self.versions(job):
            if one.version == version:
                self.put_version(job, replace(one, outcome=outcome))

    # events

    def add_event(self, time: int, job: str | None, kind: str, text: str, by: str) -> Event:
        with self._transaction() as db:
            added = db.execute(
                "INSERT INTO events (time, job, kind, text, by) VALUES (?, ?, ?, ?, ?)",
                (time, job, kind, text, by),
            )
            id = int(added.lastrowid or 0)
            if id % 100 == 0:
                kept = "SELECT id FROM events WHERE job IS ? ORDER BY id DESC LIMIT ?"
                db.execute(
                    f"DELETE FROM events WHERE job IS ? AND id NOT IN ({kept})",
                    (job, job, EVENTS),
                )
        return Event(id, time, job, kind, text, by)

    def events(self, job: str | None = None, after: int = 0, limit: int = 200) -> list[Event]:
        """The first after an id; with 0 the newest. Ascending."""
        where, values = ("job = ? AND ", [job]) if job is not None else ("", [])
        order = "ASC" if after > 0 else "DESC"
        query = f"SELECT * FROM events WHERE {where}id > ? ORDER BY id {order} LIMIT ?"
        rows = self._all(query, *values, after, limit)
        return [Event(*row) for row in (rows if after > 0 else reversed(rows))]

    # samples

    def add_samples(self, time: int, figures: Mapping[str, Mapping[str, float | None]]) -> None:
        """Figures of several jobs, taken at one time."""
        try:
            with self._transaction() as db:
                samples.add(db, self._layouts, time, figures)
        except BaseException:
            self._layouts.forget()  # what is new among them was not stored
            raise

    def thin(self, now: int) -> None:
        with self._transaction() as db:
            samples.thin(db, now)

    def series(self, job: str, since: int, until: int, names: Sequence[str], points: int) -> Series:
        with self._lock, self._named():
            return samples.series(self._db, self._layouts, job, since, until, names, points)
