"""Compaction by key: the newest record of each key stays under its offset, whatever happens."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import threading

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import ManualClock
from headrace.errors import HeadraceError
from headrace.log import EmbeddedLog
from headrace.sources import open_source
from headrace.state import faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
KEYS = "abcde"
DAY = 86_400_000


def refusal(call, *args, **kwargs):
    with pytest.raises(HeadraceError) as caught:
        call(*args, **kwargs)
    assert caught.value.hint
    return caught.value


def stored(log, start=0, partition=0, end=None):
    """Offset, key and value of every record that is left."""
    return [
        (row["__offset"], row["k"], row["v"])
        for _, table in log.read("t", partition, start, end, offsets=True)
        for row in table.to_pylist()
    ]


def made(log, **settings):
    log.create("t", 1, "k string, v long", key="k", compact=True, **settings)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(
            st.tuples(st.sampled_from(KEYS), st.none() | st.integers(0, 9)),
            min_size=1, max_size=4)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("wait"), st.integers(1, 3 * DAY)),
        st.tuples(st.just("reopen"), st.none()),
        st.tuples(st.just("read"), st.integers(0, 30)),
    ),
    max_size=25,
)  # fmt: skip


@example(
    [("append", [("a", None), ("b", 1)]), ("compact", None), ("wait", DAY + 1), ("compact", None)]
)
@given(steps)
def test_drawn_appends_and_compactions_agree_with_a_model(drawn):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as path:
        clock = ManualClock(1_000_000)
        log, left, total = EmbeddedLog(path, clock), [], 0
        made(log, delete_after="1d")
        for step, value in drawn:
            if step == "append":
                log.append("t", value)
                left += [(total + i, k, v, clock.now()) for i, (k, v) in enumerate(value)]
                total += len(value)
            elif step == "compact":
                log.compact("t")
                newest = {k: offset for offset, k, _, _ in left}
                left = [
                    r for r in left
                    if newest[r[1]] == r[0] and not (r[2] is None and r[3] < clock.now() - DAY)
                ]  # fmt: skip
            elif step == "wait":
                clock.advance(value)
            elif step == "reopen":
                log = EmbeddedLog(path, clock)
            else:
                start = min(value, total)
                assert stored(log, start) == [r[:3] for r in left if r[0] >= start]
        assert stored(log) == [r[:3] for r in left]
        assert (log.earliest("t"), log.latest("t")) == ({0: 0}, {0: total})
        with hr.Consumer("t", log=log) as consumer:
            found = [(r.offset, r.key, r.value["v"], r.time) for r in consumer.records("0s")]
        assert found == left
        for ms in {1_000_000, *(r[3] for r in left)}:
            expected = next((r[0] for r in left if r[3] >= ms), total)
            assert log.offset_for_time("t", 0, ms) == expected


def test_appends_compact_as_they_go_and_the_newest_of_each_key_is_there(embedded):
    embedded.create("t", 2, "k string, v long", key="k", compact=True, segment_bytes=2_000)
    newest = {}
    for n in range(300):
        embedded.append("t", [(f"k{n % 7}", n), (f"k{n % 3}", None if n % 5 == 0 else -n)])
        newest |= {f"k{n % 7}": n}
        newest |= {f"k{n % 3}": None if n % 5 == 0 else -n}
    rows = [r for p in (0, 1) for r in stored(embedded, partition=p)]
    assert len(rows) < 300
    found = {}
    for _, key, value in rows:
        found[key] = value
    assert found == newest
    assert len(list((embedded.root / "t").glob("*.compacted"))) == 1
    assert sum(embedded.latest("t").values()) == 600


def test_byte_topics_are_compacted_by_their_keys_and_records_without_are_refused(embedded):
    embedded.create("t", compact=True)
    embedded.append("t", [b"1", b"2", b"3"], key=["a", "b", "a"])
    embedded.compact("t")
    with hr.Consumer("t", log=embedded) as consumer:
        assert [(r.offset, r.key, r.value) for r in consumer.records("0s")] == [
            (1, b"b", b"2"), (2, b"a", b"3"),
        ]  # fmt: skip
    assert refusal(embedded.append, "t", [b"x"]).code == "HR-LOG-031"
    assert refusal(embedded.append, "t", [b"x", b"y"], key=["a", None]).code == "HR-LOG-031"
    assert embedded.latest("t") == {0: 3}


def test_what_would_not_see_the_gaps_is_refused(embedded):
    made(embedded)
    embedded.append("t", [("a", 1), ("a", 2)])
    assert refusal(embedded.read, "t", 0, 0).code == "HR-LOG-032"
    with pytest.raises(hr.InputError) as caught:
        open_source("log:t", None, None, {"log": str(embedded.root)})
    assert caught.value.code == "HR-LOG-032"
    assert refusal(embedded.forget, "t", {0: 1}).code == "HR-LOG-004"
    embedded.create("plain")
    assert refusal(embedded.compact, "plain").code == "HR-LOG-004"
    for settings in (
        {"schema": "k string"}, {"retention": "1d"}, {"retention_bytes": 5},
        {"schema": "k double", "key": "k"},
    ):  # fmt: skip
        assert refusal(embedded.create, "u", compact=True, **settings).code == "HR-LOG-004"


def test_columns_added_between_compactions_are_null_in_what_is_left(embedded):
    made(embedded)
    embedded.append("t", [("a", 1), ("b", 2)])
    embedded.compact("t")
    old = EmbeddedLog(embedded.root)
    assert len(stored(old)) == 2
    embedded.alter("t", "k string, v long, w string")
    embedded.append("t", [("a", 3, "x")])
    embedded.compact("t")
    rows = [r for _, t in embedded.read("t", 0, 0, offsets=True) for r in t.to_pylist()]
    assert [(r["k"], r["v"], r["w"]) for r in rows] == [("b", 2, None), ("a", 3, "x")]
    assert stored(old) == [(1, "b", 2), (2, "a", 3)]


def test_a_repeated_append_is_recognised_after_compaction(embedded):
    made(embedded)
    for n in range(3):
        embedded.append("t", [("a", n)], producer="p", sequence=n)
    embedded.compact("t")
    for n in range(3):
        embedded.append("t", [("a", n)], producer="p", sequence=n)
    assert stored(embedded) == [(2, "a", 2)]


def test_a_kill_at_any_point_of_a_compaction_loses_nothing(folder):
    for nth in range(1, 60):
        log = EmbeddedLog(folder / str(nth))
        made(log)
        log.append("t", [("a", 1), ("b", 2), ("a", 3)])
        log.compact("t")
        log.append("t", [("c", 4), ("b", 5)])
        killed = _died_at(log.root, nth)
        rows = stored(EmbeddedLog(log.root))
        assert {k: v for _, k, v in rows} == {"a": 3, "b": 5, "c": 4}
        log.append("t", [("c", 6)])
        log.compact("t")
        assert stored(log) == [(2, "a", 3), (4, "b", 5), (5, "c", 6)]
        assert len(list((log.root / "t").glob("*.compacted"))) == 1
        if not killed:
            break
    assert nth > 10


def _died_at(root, nth) -> bool:
    def work():
        passed = []

        def hook(name):
            passed.append(name)
            if len(passed) == nth:
                os.kill(os.getpid(), signal.SIGKILL)

        with faults.hooked(hook):
            EmbeddedLog(root).compact("t")

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join(20)
    return process.exitcode == -signal.SIGKILL


def test_readers_and_appenders_beside_compactions_see_the_newest(embedded):
    made(embedded, segment_bytes=1_000)
    stop, wrong = threading.Event(), []

    def read():
        log = EmbeddedLog(embedded.root)
        while not stop.is_set():
            end = log.latest("t")[0]
            found = {}
            last = -1
            for offset, key, value in stored(log, 0, end=end):
                if offset <= last:
                    wrong.append(("order", offset, last))
                found[key], last = value, offset
            missing = [k for k in range(min(end, 5)) if f"k{k}" not in found]
            # a key whose newest record came after `end` may have no older one any more
            if missing and log.latest("t")[0] == end:
                wrong.append(("missing", missing))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(300):
        embedded.append("t", [(f"k{n % 5}", n)])
        if n % 40 == 0:
            embedded.compact("t")
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("at", [70, 200, -10, -40])
def test_a_flipped_bit_in_what_is_left_is_an_error(embedded, at):
    made(embedded)
    embedded.append("t", [(k, i) for i, k in enumerate(KEYS)])
    embedded.compact("t")
    (file,) = (embedded.root / "t").glob("*.compacted")
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    assert refusal(lambda: stored(EmbeddedLog(embedded.root))).code == "HR-LOG-008"
    file.unlink()
    assert refusal(lambda: stored(EmbeddedLog(embedded.root))).code == "HR-LOG-009"


def test_a_topic_whose_only_column_is_its_key_deletes_nothing(folder, clock, monkeypatch):
    log = EmbeddedLog(folder / "log", clock)
    error = refusal(log.create, "t", 1, "k string", key="k", compact=True)
    assert error.code == "HR-LOG-004" and "only column" in error.message

    monkeypatch.setattr("headrace.log.arguments._check_compacted", lambda *_: None)
    log.create("t", 1, "k string", key="k", compact=True)  # as an earlier version did
    log.append("t", [("a",), ("b",), ("a",)])
    clock.advance(3 * DAY)
    log.compact("t")
    left = [r["k"] for _, t in log.read("t", 0, 0, offsets=True) for r in t.to_pylist()]
    assert left == ["b", "a"]
