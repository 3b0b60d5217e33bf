"""Figures over time, in the server's database: thinned with age, and packed.

A sample is one row: the values of all figures of a job at one time, as doubles in the order of a
layout, which is stored once. The longer ago, the fewer are kept: of each span the last.

    for an hour     one a second
    for a day       one in ten seconds
    for a week      one a minute

A graph of `points` points shows the last sample of each of so many equal spans. Where no samples
are, because the job or the server did not run, there is a point more, at which nothing is known: a
line between two samples would be made up.
"""

from __future__ import annotations

import json
import math
import sqlite3
import zlib
from array import array
from collections.abc import Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from headrace.server.values import Series

TABLES = """
CREATE TABLE layouts (id INTEGER PRIMARY KEY, names TEXT NOT NULL UNIQUE);
CREATE TABLE samples (
    job TEXT NOT NULL, time INTEGER NOT NULL, layout INTEGER NOT NULL, packed BLOB NOT NULL,
    PRIMARY KEY (job, time)
) WITHOUT ROWID;
CREATE TABLE thinned (step INTEGER PRIMARY KEY, upto INTEGER NOT NULL);
"""

SECOND, HOUR = 1_000, 3_600_000
_DAY, _WEEK = 24 * HOUR, 7 * 24 * HOUR


class Thinning(NamedTuple):
    """Of samples that are older than `age`, one is kept of each `every`; none if that is None."""

    age: int
    every: int | None


STEPS = (
    Thinning(HOUR, 10 * SECOND), Thinning(_DAY, 60 * SECOND), Thinning(_WEEK, None),
)  # fmt: skip
_PATIENCE = 5 * SECOND  # by which a sample may be late
MOST = 512 << 20  # bytes of the whole file; beyond that the oldest tenth of all samples goes
NAN = float("nan")


class Layouts:
    """The names of figures by the number under which they are stored."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._names: dict[int, list[str]] = {}

    def id_of(self, db: sqlite3.Connection, names: list[str]) -> int:
        text = json.dumps(names)
        if text not in self._ids:
            db.execute("INSERT OR IGNORE INTO layouts (names) VALUES (?)", (text,))
            (id,) = db.execute("SELECT id FROM layouts WHERE names = ?", (text,)).fetchone()
            if len(self._ids) > 10_000:  # of programs that were
                self._ids.clear()
            self._ids[text] = id
        return self._ids[text]

    def names_of(self, db: sqlite3.Connection, id: int) -> list[str]:
        if id not in self._names:
            (text,) = db.execute("SELECT names FROM layouts WHERE id = ?", (id,)).fetchone()
            self._names[id] = json.loads(text)
        return self._names[id]

    def forget(self) -> None:
        self._ids.clear()


def add(
    db: sqlite3.Connection,
    layouts: Layouts,
    time: int,
    figures: Mapping[str, Mapping[str, float | None]],
) -> None:
    rows = []
    for job, values in figures.items():
        id = layouts.id_of(db, list(values))
        packed = array("d", [NAN if value is None else value for value in values.values()])
        rows.append((job, time, id, zlib.compress(packed.tobytes(), 1)))
    db.executemany("INSERT OR REPLACE INTO samples VALUES (?, ?, ?, ?)", rows)


def thin(db: sqlite3.Connection, now: int) -> None:
    """Of what has become older since it was last done, keep what the table above says."""
    for number, step in enumerate(STEPS):
        before = now - step.age
        if step.every is None:
            db.execute("DELETE FROM samples WHERE time < ?", (before,))
            continue
        before -= before % step.every  # whole spans only
        row = db.execute("SELECT upto FROM thinned WHERE step = ?", (number,)).fetchone()
        since = row[0] if row is not None and row[0] <= before else -(1 << 62)
        kept = (
            "SELECT max(time) FROM samples AS other WHERE other.job = samples.job "
            "AND other.time >= samples.time - samples.time % :every "
            "AND other.time < samples.time - samples.time % :every + :every"
        )
        db.execute(
            f"DELETE FROM samples WHERE time >= :since AND time < :before AND time < ({kept})",
            {"since": since, "before": before, "every": step.every},
        )
        db.execute("INSERT OR REPLACE INTO thinned VALUES (?, ?)", (number, before))
    if _used(db) > MOST:
        times = [time for (time,) in db.execute("SELECT time FROM samples ORDER BY time")]
        db.execute("DELETE FROM samples WHERE time <= ?", (times[len(times) // 10],))


def _used(db: sqlite3.Connection) -> int:
    """Bytes of the file that hold something."""
    pages, free, size = (
        db.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def series(
    db: sqlite3.Connection,
    layouts: Layouts,
    job: str,
    since: int,
    until: int,
    names: Sequence[str],
    points: int,
) -> Series:
    """The last sample of each of `points` equal spans of [since, until), and the gaps between
    them; without names, all figures."""
    width = max(1, math.ceil((until - since) / max(1, points)))
    rows = db.execute(
        "SELECT time, layout, packed FROM samples WHERE job = :job AND time IN ("
        "SELECT max(time) FROM samples WHERE job = :job AND time >= :since AND time < :until "
        "GROUP BY (time - :since) / :width) ORDER BY time",
        {"job": job, "since": since, "until": until, "width": width},
    ).fetchall()
    there = [layouts.names_of(db, id) for id in dict.fromkeys(row[1] for row in rows)]
    wanted = list(names) or list(dict.fromkeys(chain.from_iterable(there)))
    columns: dict[str, list[float | None]] = {name: [] for name in wanted}
    gaps = _gaps(db, [time for time, _, _ in rows], width)
    for time, id, packed in rows:
        values = array("d")
        values.frombytes(zlib.decompress(packed))
        at = dict(zip(layouts.names_of(db, id), values, strict=True))
        for name, column in columns.items():
            value = at.get(name, NAN)
            column.append(None if math.isnan(value) else value)
            if time in gaps:
                column.append(None)
    times = chain.from_iterable((t, gaps[t]) if t in gaps else (t,) for t, _, _ in rows)
    return Series(tuple(times), {n: tuple(c) for n, c in columns.items()})


def _gaps(db: sqlite3.Connection, times: Sequence[int], width: int) -> dict[int, int]:
    """By the last sample before each gap, the time from which on nothing is known."""
    thinned = db.execute("SELECT step, upto FROM thinned ORDER BY step").fetchall()
    gaps = {}
    for time, following in pairwise(times):
        every = max([SECOND, *(STEPS[n].every or 0 for n, upto in thinned if time < upto)])
        far = max(every, width)
        if following - time > 2 * far + _PATIENCE:  # the last of two spans may be so far apart
            gaps[time] = time + far
    return gaps
