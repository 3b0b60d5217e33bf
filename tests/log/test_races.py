"""Readers overtaken by retention or a deletion, locks that are not let go, wrong clocks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable

import pyarrow as pa
import pytest

from headrace.clock import ManualClock, SystemClock
from headrace.errors import LogError
from headrace.log import EmbeddedLog, head, producers, reader, recovery, retention, segment
from headrace.log import embedded as embedded_log
from headrace.log.lock import locked
from headrace.state import faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
YEAR = 365 * 86_400_000


def values(log, start=0, partition=0):
    return [v for _, t in log.read("t", partition, start) for v in t["value"].to_pylist()]


CALLS: dict[str, Callable[[EmbeddedLog], object]] = {
    "read": lambda log: values(log, log.earliest("t")[0]),
    "describe": lambda log: log.describe("t").bytes,
    "offset_for_time": lambda log: log.offset_for_time("t", 0, 1_000_000),
    "latest": lambda log: log.latest("t"),
    "sweep": lambda log: log.sweep("t"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("before", "more"), [(4, 2), (4, 3), (4, 9), (1, 6)])
def test_a_reader_overtaken_by_retention_is_told_so_or_reads_on(
    folder, clock, monkeypatch, call, before, more
):
    log, other = EmbeddedLog(folder, clock), EmbeddedLog(folder, clock)
    log.create("t", 1, retention_bytes=1000, segment_bytes=1)
    for _ in range(before):
        other.append("t", [b"0"])
    real, left = reader.segments, [more]

    def overtaken(path):
        for _ in range(left.pop() if left else 0):
            other.append("t", [b"x"])  # what another process does in this moment
        return real(path)

    for module in (reader, retention):
        monkeypatch.setattr(module, "segments", overtaken)
    try:
        CALLS[call](log)
    except LogError as error:
        assert error.code == "HR-LOG-007"
    monkeypatch.undo()
    assert values(log, log.earliest("t")[0])


@pytest.mark.parametrize("call", CALLS)
def test_a_topic_deleted_meanwhile_is_said_to_be_gone(folder, clock, monkeypatch, call):
    log, other = EmbeddedLog(folder, clock), EmbeddedLog(folder, clock)
    log.create("t", 1, retention="1s")
    log.append("t", [b"0"])
    real = reader.segments

    def deleted(path):
        if other.topics():
            other.delete("t")
        return real(path)

    for module in (reader, retention):
        monkeypatch.setattr(module, "segments", deleted)
    try:
        CALLS[call](log)
    except LogError as error:
        assert error.code == "HR-LOG-002"


@pytest.mark.parametrize("moment", ["segments", "read_snapshot", "SegmentView", "producers"])
@pytest.mark.parametrize("call", [*CALLS, "producers"])
def test_a_topic_made_again_meanwhile_is_not_called_damaged(
    folder, clock, monkeypatch, call, moment
):
    log, other = EmbeddedLog(folder, clock), EmbeddedLog(folder, clock)
    log.create("t", 1, segment_bytes=200)
    for i in range(6):
        log.append("t", [b"%d" % i] * 3, producer="p", sequence=i)
    place = embedded_log if moment == "producers" else reader
    real, times = getattr(place, moment), [0]

    def made_again(*given):
        if not times[0]:
            times[0] += 1
            other.delete("t")
            other.create("t", 1, segment_bytes=500)
            other.append("t", [b"another" * 9] * 5)
        return real(*given)

    monkeypatch.setattr(place, moment, made_again)
    calls = {**CALLS, "producers": lambda log: log.producers("t")}
    try:
        calls[call](log)
    except LogError as error:
        assert error.code == "HR-LOG-002"
    assert sum(log.latest("t").values()) in (18, 5)


def test_a_file_that_is_really_missing_is_not_called_overtaken(embedded):
    embedded.create("t", 1, segment_bytes=1, retention_bytes=10**9)
    for i in range(3):
        embedded.append("t", [b"%d" % i])
    sorted((embedded.root / "t").glob("*.log"))[1].unlink()
    with pytest.raises(LogError) as caught:
        values(embedded)
    assert caught.value.code == "HR-LOG-009"


# Locks


def _hold(path, ready, stay) -> None:
    with locked(path):
        ready.set()
        stay.wait(60)


@pytest.mark.parametrize("lock", ["write", "sync"])
def test_a_lock_that_is_not_let_go_is_an_error_that_names_its_holder(folder, lock):
    EmbeddedLog(folder).create("t")
    ready, stay = FORK.Event(), FORK.Event()
    holder = FORK.Process(target=_hold, args=(folder / "t" / lock, ready, stay))
    holder.start()
    assert ready.wait(60)
    os.kill(holder.pid, signal.SIGSTOP)
    log = EmbeddedLog(folder, patience="200ms")
    with pytest.raises(LogError) as caught:
        log.append("t", [b"x"])
    assert caught.value.code == ("HR-LOG-016" if lock == "write" else "HR-LOG-018")
    assert f"process {holder.pid} on " in caught.value.message
    assert log.latest("t") == {0: 0}
    os.kill(holder.pid, signal.SIGCONT)
    stay.set()
    holder.join(60)
    log.append("t", [b"y"])
    assert values(log)[-1] == b"y"


def test_a_forked_child_does_not_keep_the_lock_of_a_parent_that_died(folder):
    EmbeddedLog(folder).create("t")
    stay = FORK.Event()
    mine, theirs = FORK.Pipe()

    def parent() -> None:
        with locked(folder / "t" / "write"):
            child = os.fork()
            if child == 0:
                theirs.send(os.getpid())
                stay.wait(60)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)

    process = FORK.Process(target=parent)
    process.start()
    assert mine.poll(60)
    mine.recv()
    os.waitpid(process.pid, 0)  # joining would wait for the child too
    try:
        assert EmbeddedLog(folder, patience="5s").append("t", [b"x"]) == {0: (0, 1)}
    finally:
        stay.set()


def test_a_child_forked_in_an_append_does_not_let_go_the_lock_of_its_parent(folder):
    log = EmbeddedLog(folder)
    log.create("t")
    ends: list[int] = []

    def hook(name: str) -> None:
        if name == "log.block" and not ends:
            child = os.fork()
            if child == 0:
                os._exit(0)
            ends.append(os.waitpid(child, 0)[1])
            with pytest.raises(LogError) as caught:
                EmbeddedLog(folder, patience="50ms").append("t", [b"between"])
            assert caught.value.code == "HR-LOG-016"

    with faults.hooked(hook):
        log.append("t", [b"x"])
    assert ends == [0]
    assert values(log) == [b"x"]


def test_a_thread_that_gives_up_waiting_leaves_no_lock_behind(folder):
    EmbeddedLog(folder).create("t")
    log = EmbeddedLog(folder, patience="100ms")
    with locked(folder / "t" / "write"), pytest.raises(LogError):
        log.append("t", [b"x"])
    for _ in range(3):
        log.append("t", [b"y"])
    assert values(log) == [b"y"] * 3


# Producers


def test_one_producer_in_many_threads_loses_nothing(folder):
    log = EmbeddedLog(folder)
    log.create("t", 2)
    numbers, lock = iter(range(400)), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                n = next(numbers, None)
            if n is None:
                return
            ack = log.append("t", [b"%d" % n] * 2, producer="job", sequence=n)
            assert all(a.end > a.first for a in ack.values())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = sorted(int(v) for p in (0, 1) for v in values(log, 0, p))
    assert found == sorted([*range(400)] * 2)


def test_a_sequence_from_before_all_that_is_remembered_is_refused(folder, monkeypatch):
    monkeypatch.setattr(producers, "RANGES", 4)
    log = EmbeddedLog(folder)
    log.create("t", segment_bytes=500)
    for n in range(0, 40, 2):
        log.append("t", [b"x"], producer="p", sequence=n)
    end = log.latest("t")
    for again in (log, EmbeddedLog(folder)):
        with pytest.raises(LogError) as caught:
            again.append("t", [b"x"], producer="p", sequence=3)
        assert caught.value.code == "HR-LOG-017"
        again.append("t", [b"x"], producer="p", sequence=36)  # a retry
    assert log.latest("t") == end
    assert log.append("t", [b"late"], producer="p", sequence=37) == {0: (20, 21)}


# Clocks


class Shifted:
    def __init__(self, by: int) -> None:
        self.by = by

    def now(self) -> int:
        return SystemClock().now() + self.by


def test_a_clock_far_ahead_expires_nothing_of_others_and_does_not_stay(folder):
    log = EmbeddedLog(folder)
    log.create("t", 1, retention="1h", segment_bytes=1)
    log.append("t", [b"fresh"])
    ahead = EmbeddedLog(folder, Shifted(YEAR))
    for _ in range(3):
        ahead.append("t", [b"ahead"])
        ahead.sweep("t")
    assert values(log) == [b"fresh"] + [b"ahead"] * 3
    [(_, table)] = log.read("t", 0, 0, times=True)
    assert max(table["__append_time"].to_pylist()) <= SystemClock().now() + 2_000


def test_what_was_appended_while_the_machines_clock_was_ahead_goes_in_its_time(folder, monkeypatch):
    machine = ManualClock(5 * YEAR)
    monkeypatch.setattr(SystemClock, "now", lambda self: machine.now())
    log = EmbeddedLog(folder)
    log.create("t", 1, retention="1h", segment_bytes=1)
    log.append("t", [b"from the future"])
    machine.advance(-4 * YEAR)  # somebody sets it right
    log.append("t", [b"now"])
    log.append("t", [b"now"])
    machine.advance(3_600_001)
    log.append("t", [b"later"])
    log.sweep("t")
    assert values(log, log.earliest("t")[0]) == [b"later"]


def test_a_clock_far_behind_expires_nothing(folder):
    log, behind = EmbeddedLog(folder), EmbeddedLog(folder, Shifted(-YEAR))
    log.create("t", 1, retention="1h", segment_bytes=1)
    for _ in range(3):
        log.append("t", [b"x"])
        behind.append("t", [b"y"])
        log.sweep("t")
    assert len(values(log)) == 6


# One of a group


def test_an_append_that_cannot_be_written_fails_alone(folder, monkeypatch):
    """Of appends committed together, only the one that is too large for the disk is refused."""
    log = EmbeddedLog(folder)
    log.create("t", 1, "s string")
    write, room = os.pwritev, 1_000_000

    def small_disk(fd, buffers, at):
        if at + sum(map(len, buffers)) > room:
            raise OSError(28, "No space left on device")
        return write(fd, buffers, at)

    monkeypatch.setattr(os, "pwritev", small_disk)
    opened = log._topics.find("t")
    opened.group._busy = True  # all of them wait, and are committed together
    found: dict[int, object] = {}

    def work(n: int) -> None:
        records = pa.table({"s": ["x" * (3_000_000 if n == 2 else 10)]})
        try:
            found[n] = log.append("t", records)
        except LogError as error:
            found[n] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(5)]
    with opened.group._leading:  # else one that has waited for a while leads
        for thread in threads:
            thread.start()
        while len(opened.group._waiting) < 5:
            os.sched_yield()
    opened.group._hand_over()
    for thread in threads:
        thread.join()
    refused = found.pop(2)
    assert isinstance(refused, LogError)
    assert refused.code == "HR-LOG-010"
    assert sorted(ack[0] for ack in found.values()) == [(n, n + 1) for n in range(4)]
    assert log.latest("t") == {0: 4}


# a reader while an appender recovers


def torn(root, blocks: int) -> None:
    """A bulk append that is killed in the middle, so that its segment has a torn tail."""
    passed: list[str] = []

    def hook(point: str) -> None:
        passed.append(point)
        if passed.count("log.block") == blocks:
            os.kill(os.getpid(), signal.SIGKILL)

    with faults.hooked(hook):
        EmbeddedLog(root).append("t", pa.table({"n": range(2_000_000)}))


def next_boot() -> None:
    for module in (head, recovery):
        module.boot_id = lambda: b"the next boot 16"


def reads_on(root, together, recovered) -> None:
    """Holds what it has read, and reads on, while the other recovers; then looks at all again."""
    log = EmbeddedLog(root)
    held = [table for _, table in log.read("t", 0, 0)]
    before = [table.to_pydict() for table in held]
    next_boot()
    together.wait(60)
    while not recovered.is_set():
        log.latest("t")
        held += [table for _, table in EmbeddedLog(root).read("t", 0, 0, 3)]
    assert all(table.to_pydict() == before[0] for table in held)
    assert log.latest("t") == {0: 4}


def recovers(root, together, recovered) -> None:
    next_boot()
    together.wait(60)
    EmbeddedLog(root).append("t", [(9,)])
    recovered.set()


def test_no_reader_dies_when_an_appender_recovers_a_torn_tail(folder):
    """It was killed by SIGBUS: the tail that it had mapped was cut off below it."""
    log = EmbeddedLog(folder)
    log.create("t", 1, "n bigint")
    log.append("t", [(1,), (2,), (3,)])
    (file,) = (folder / "t").glob("*.log")
    whole = file.stat().st_size
    killed = FORK.Process(target=torn, args=(folder, 4))
    killed.start()
    killed.join(60)
    tail = file.stat().st_size
    together, recovered = FORK.Barrier(4), FORK.Event()
    roles = [reads_on] * 3 + [recovers]
    others = [FORK.Process(target=role, args=(folder, together, recovered)) for role in roles]
    for other in others:
        other.start()
    for other in others:
        other.join(60)

    assert (killed.exitcode, tail > whole) == (-signal.SIGKILL, True)
    assert [other.exitcode for other in others] == [0] * 4
    assert file.stat().st_size < tail  # it was cut, while they read
    assert [n for _, t in log.read("t", 0, 0) for n in t["n"].to_pylist()] == [1, 2, 3, 9]


def test_a_reader_maps_nothing_behind_the_published_end(folder, monkeypatch):
    """What is behind it may be cut off at any moment by who recovers."""
    log = EmbeddedLog(folder)
    log.create("t", 1, "n bigint")
    log.append("t", [(1,), (2,), (3,)])
    (file,) = (folder / "t").glob("*.log")
    whole = file.stat().st_size
    killed = FORK.Process(target=torn, args=(folder, 4))
    killed.start()
    killed.join(60)
    assert file.stat().st_size > whole
    sizes, mapped = [], segment._map
    monkeypatch.setattr(
        segment, "_map", lambda *which: sizes.append((found := mapped(*which)).size) or found
    )

    for reader_of in (log, EmbeddedLog(folder)):
        assert [n for _, t in reader_of.read("t", 0, 0) for n in t["n"].to_pylist()] == [1, 2, 3]
        assert reader_of.latest("t") == {0: 3}
        assert reader_of.offset_for_time("t", 0, 0) == 0
    assert sizes and max(sizes) <= whole
