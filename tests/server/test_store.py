"""What a server stores: read again, thinned as a plain model says, refused when it is damaged."""

from __future__ import annotations

import random
import sqlite3
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ServerError
from headrace.server import samples
from headrace.server.lifecycle import State
from headrace.server.records import TRIAL, JobRecord, Upgrade
from headrace.server.store import EVENTS, FORMAT, Store
from headrace.server.values import Series, Version

RECORD = JobRecord(
    name="shop", program="/programs/shop.py", folder="/jobs/shop", since=5,
    options={"parallelism": 2}, state=State.WAITING, reason="why", run=3,
    upgrade=Upgrade(2, 1, State.RUNNING, TRIAL, ("old",), "upgrade-2", 7),
)  # fmt: skip
HOUR, DAY = samples.HOUR, 24 * samples.HOUR


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = Store(tmp_path / "server.sqlite")
    yield made
    made.close()


def refusal(path: Path) -> ServerError:
    with pytest.raises(ServerError) as caught:
        Store(path)
    assert str(path) in caught.value.message
    return caught.value


def test_what_is_stored_is_there_for_the_next_server(tmp_path: Path) -> None:
    path = tmp_path / "server.sqlite"
    store = Store(path)
    store.put(RECORD)
    store.put_version("shop", Version(1, "/programs/shop.py", 3, "anna", "abc"))
    store.set_outcome("shop", 1, "replaced")
    store.add_event(4, "shop", "submitted", "version 1", "anna")
    store.add_samples(1_000, {"shop": {"rate_in": 1.5, "lag": None}})
    store.close()
    store = Store(path)
    assert store.records() == [RECORD]
    assert [(v.version, v.outcome) for v in store.versions("shop")] == [(1, "replaced")]
    assert [(e.id, e.time, e.job, e.by) for e in store.events()] == [(1, 4, "shop", "anna")]
    series = store.series("shop", 0, 2_000, [], 10)
    assert series.json == {"times": [1_000], "series": {"rate_in": [1.5], "lag": [None]}}
    store.remove("shop")
    assert store.records() == [] and store.versions("shop") == []
    assert store.series("shop", 0, 2_000, [], 10).times == ()
    assert len(store.events("shop")) == 1  # what has happened has happened
    store.close()


def test_a_record_of_an_older_or_newer_version_is_read() -> None:
    facts = RECORD.json
    assert JobRecord.from_json({**facts, "unknown": 1}) == RECORD
    few = {name: facts[name] for name in ("name", "program", "folder", "since")}
    read = JobRecord.from_json(few)
    assert (read.state, read.upgrade, read.run) == (State.INACTIVE, None, 0)
    assert replace(RECORD, upgrade=None) == JobRecord.from_json({**facts, "upgrade": None})


@pytest.mark.parametrize("damage", ["head", "middle", "text"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "server.sqlite"
    store = Store(path)
    for n in range(400):
        store.put(replace(RECORD, name=f"job {n}", reason="x" * 100))
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store.close()
    content = bytearray(path.read_bytes())
    if damage == "head":
        content[:16] = b"no database here"
    elif damage == "middle":
        content[8192:12288] = random.Random(1).randbytes(4096)
    else:
        content = bytearray(b"[settings]\nmaster = 1\n" * 300)
    path.write_bytes(content)
    error = refusal(path)
    assert error.code == "HR-SERVER-011" and "submit them again" in str(error.hint)
    assert path.read_bytes() == bytes(content)  # it is not touched


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.sqlite"
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")
    db.close()
    assert refusal(path).code == "HR-SERVER-012"


def test_a_database_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "server.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    assert refusal(path).code == "HR-SERVER-011"


def test_what_cannot_be_opened_is_said(tmp_path: Path) -> None:
    (tmp_path / "server.sqlite").mkdir()
    assert refusal(tmp_path / "server.sqlite").code == "HR-SERVER-013"


def test_events_are_read_on_from_the_last_that_was_seen(store: Store) -> None:
    for n in range(10):
        store.add_event(n, "a" if n % 2 else "b", "kind", str(n), "server")
    assert [e.text for e in store.events(limit=3)] == ["7", "8", "9"]
    assert [e.text for e in store.events("a", limit=2)] == ["7", "9"]
    last = store.events("a", limit=2)[0].id
    assert [e.text for e in store.events("a", after=last)] == ["9"]
    assert [e.text for e in store.events(after=3, limit=2)] == ["3", "4"]
    assert store.events(after=10) == []


def test_a_job_that_says_much_does_not_push_out_what_another_has_said(store: Store) -> None:
    store.add_event(0, "quiet", "kind", "once", "server")
    with store._transaction() as db:  # as add_event does, at once
        rows = [(n, "loud", "kind", "", "server") for n in range(EVENTS + 500)]
        db.executemany(
            "INSERT INTO events (time, job, kind, text, by) VALUES (?, ?, ?, ?, ?)", rows
        )
    for n in range(100):
        store.add_event(n, "loud", "kind", "last", "server")
    assert len(store.events("loud", limit=10_000)) <= EVENTS + 100
    assert store.events("loud", limit=1)[0].text == "last"
    assert [e.text for e in store.events("quiet")] == ["once"]


# samples


def kept(times: list[int], now: int) -> list[int]:
    """The plain model: of each span of ten seconds, or a minute, the last."""
    found = set()
    for time in times:
        every = next((s.every for s in reversed(samples.STEPS) if time < bound(now, s)), 1)
        if every is None:
            continue
        span = [t for t in times if t // every == time // every]
        if time == max(span) or every == 1:
            found.add(time)
    return sorted(found)


def known(found: Series) -> list[tuple[int, float]]:
    """Without the points that say that nothing is known."""
    return [(t, v) for t, v in zip(found.times, found.series["x"], strict=True) if v is not None]


def bound(now: int, step: samples.Thinning) -> int:
    before = now - step.age
    return before if step.every is None else before - before % step.every


@given(
    ages=st.lists(st.integers(0, 8 * DAY), min_size=1, max_size=60, unique=True),
    now=st.integers(10 * DAY, 11 * DAY),
    twice=st.integers(0, 3 * DAY),
)
def test_samples_are_thinned_as_a_plain_model_says(ages: list[int], now: int, twice: int) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(samples.TABLES)
    layouts = samples.Layouts()
    times = sorted({now - age for age in ages} | {now - ages[0] + 500})
    for time in times:
        samples.add(db, layouts, time, {"a": {"x": float(time)}, "b": {"y": 1.0}})
    samples.thin(db, now)
    found = samples.series(db, layouts, "a", 0, now + DAY, ["x"], 1 << 40)
    assert known(found) == [(time, float(time)) for time in kept(times, now)]
    samples.thin(db, now)  # it changes nothing more
    assert samples.series(db, layouts, "a", 0, now + DAY, ["x"], 1 << 40) == found
    samples.thin(db, now + twice)  # and later, what has become older since
    later = samples.series(db, layouts, "a", 0, now + DAY, ["x"], 1 << 40)
    still = kept([time for time, _ in known(found)], now + twice)
    assert [time for time, _ in known(later)] == still
    db.close()


@given(
    times=st.lists(st.integers(0, 10_000), unique=True, max_size=50).map(sorted),
    since=st.integers(0, 5_000), length=st.integers(1, 10_000), points=st.integers(1, 40),
)  # fmt: skip
def test_a_graph_shows_the_last_sample_of_each_span(
    times: list[int], since: int, length: int, points: int
) -> None:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(samples.TABLES)
    layouts = samples.Layouts()
    for time in times:
        samples.add(db, layouts, time, {"a": {"x": float(time)}})
    found = samples.series(db, layouts, "a", since, since + length, ["x"], points)
    width = -(-length // points)
    spans: dict[int, int] = {}
    for time in times:
        if since <= time < since + length:
            spans[(time - since) // width] = time
    wanted: list[tuple[int, float | None]] = []
    for time in spans.values():
        if wanted and time - wanted[-1][0] > 2 * max(width, 1_000) + 5_000:
            wanted.append((wanted[-1][0] + max(width, 1_000), None))
        wanted.append((time, float(time)))
    assert list(zip(found.times, found.series["x"], strict=True)) == wanted
    assert len(spans) <= points
    db.close()


def test_a_week_in_points_has_each_spans_last_sample_and_a_gap_for_downtime() -> None:
    """A counter that grows by one a second, with a night and ten minutes in which nothing ran."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.executescript(samples.TABLES)
    layouts = samples.Layouts()
    begin, end = 10 * DAY, 17 * DAY
    night, break_ = (begin + 40 * HOUR, begin + 46 * HOUR), (end - 1_200_000, end - 600_000)
    for time in range(begin, end, 61_000):  # what is older than a day, about as it was thinned
        if not night[0] <= time < night[1] and time < end - HOUR:
            samples.add(db, layouts, time, {"a": {"n": float(time // 1_000)}})
    for time in range(end - HOUR, end, 1_000):
        if not break_[0] <= time < break_[1]:
            samples.add(db, layouts, time, {"a": {"n": float(time // 1_000)}})
    samples.thin(db, end)
    for since, points, down in ((begin, 600, [night, break_]), (end - HOUR, 600, [break_])):
        found = samples.series(db, layouts, "a", since, end, ["n"], points)
        width = max(61_000 if since == begin else 1_000, (end - since) // points)
        for (time, value), (later, _) in pairwise(zip(found.times, found.series["n"], strict=True)):
            assert value in (None, time // 1_000)  # never what nobody has seen
            assert value is None or later - time <= 2 * width + 5_000
        unknown = [t for t, v in zip(found.times, found.series["n"], strict=True) if v is None]
        gaps = [(a, b) for a, b in down if b - a > 2 * width + 5_000]
        assert len(unknown) == len(gaps) >= 1
        assert all(a <= t < b for t, (a, b) in zip(unknown, gaps, strict=True))
    db.close()


def test_figures_that_come_and_go_are_null_where_they_are_not(store: Store) -> None:
    store.add_samples(1, {"a": {"x": 1.0}})
    store.add_samples(2, {"a": {"y": 2.0, "x": 3.0}})
    series = store.series("a", 0, 10, [], 10)
    assert series.series == {"x": (1.0, 3.0), "y": (None, 2.0)}


def test_the_number_of_samples_is_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now, rows = 10 * DAY, 200
    for n in range(rows):
        store.add_samples(now - rows + n, {"a": {f"x{i}": n * 0.1 + i for i in range(200)}})
    monkeypatch.setattr(samples, "MOST", samples._used(store._db))
    store.thin(now)
    assert len(times(store, now)) == rows  # it is as large as it may be
    monkeypatch.setattr(samples, "MOST", samples._used(store._db) * 3 // 4)
    sizes = []
    while samples._used(store._db) > samples.MOST:
        store.thin(now)
        sizes.append(len(times(store, now)))
    assert rows // 2 < sizes[-1] < rows * 9 // 10 + 1 and len(sizes) <= 6
    assert times(store, now)[-1] == now - 1


def times(store: Store, now: int) -> tuple[int, ...]:
    return store.series("a", 0, now, ["x0"], 1_000_000_000_000).times


def test_a_transaction_that_fails_changes_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store._transaction() as db:
        db.execute("INSERT INTO jobs VALUES ('x', '{}')")
        raise ZeroDivisionError
    assert store.records() == []
