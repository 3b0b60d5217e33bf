"""Several processes on one log: appending, reading, being killed.

The processes are forks, each with a log that it opens itself, because starting Python anew
takes longer than the tests.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.log import EmbeddedLog
from headrace.log import topic as topics
from headrace.log.lock import locked
from headrace.state import faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

FORK = multiprocessing.get_context("fork")
PATIENCE = 60


def produce(out: Connection, root: Path, name: str, appends: int) -> None:
    log = EmbeddedLog(root)
    out.send("ready")
    for n in range(appends):
        log.append("t", [(name, n)] * 3, partition=n % 2, producer=name, sequence=n)
        out.send(n)


def crash(out: Connection, root: Path, name: str, appends: int, point: str, nth: int) -> None:
    """As `produce`, until the n-th passing of a point kills this process, and no other."""
    passed: list[str] = []

    def hook(name: str) -> None:
        passed.append(name)
        if name == point and passed.count(point) == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    with faults.hooked(hook):
        produce(out, root, name, appends)


def consume(out: Connection, root: Path, total: int) -> None:
    """Poll until `total` records were read; send all of them, then whether each step was sound."""
    log, at, seen, sound = EmbeddedLog(root), {0: 0, 1: 0}, [], True
    out.send("ready")
    while sum(at.values()) < total:
        for p, end in log.latest("t").items():
            for first, table in log.read("t", p, at[p], end):
                sound &= first == at[p]
                seen += [(p, row["who"], row["n"]) for row in table.to_pylist()]
                at[p] += table.num_rows
            sound &= at[p] == end and end % 3 == 0  # never half of an append
        os.sched_yield()
    out.send((seen, sound))


def start(work: Callable[..., None], *args: object) -> tuple[BaseProcess, Connection]:
    pa.array([0])  # has pyarrow import pandas here, once, and not in every fork
    mine, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=work, args=(theirs, *args), daemon=True)
    process.start()
    theirs.close()
    assert receive(mine) == "ready"
    return process, mine


def receive(source: Connection) -> object:
    assert source.poll(PATIENCE)
    return source.recv()


def drain(source: Connection) -> list[int]:
    """What a process still sent until it ended."""
    found = []
    try:
        while True:
            found.append(receive(source))
    except EOFError:
        return found


@pytest.fixture
def log(folder) -> EmbeddedLog:
    log = EmbeddedLog(folder / "log")
    log.create("t", 2, "who string, n int", segment_bytes=20_000)
    return log


def found(log) -> dict[str, list[int]]:
    """The numbers that each producer appended, in order, each once."""
    by_name: dict[str, list[int]] = {}
    for partition, end in log.latest("t").items():
        rows = [r for _, t in log.read("t", partition, 0, end) for r in t.to_pylist()]
        assert rows[::3] == rows[1::3] == rows[2::3], "an append is not whole"
        for row in rows[::3]:
            by_name.setdefault(row["who"], []).append(row["n"])
    return {name: sorted(numbers) for name, numbers in by_name.items()}


def test_processes_append_and_read_at_once(log):
    reader, seen_by_reader = start(consume, log.root, 3 * 50 * 3)
    producers = [start(produce, log.root, f"p{i}", 50) for i in range(3)]
    for producer, acks in producers:
        assert drain(acks) == list(range(50))
        producer.join(PATIENCE)
    seen, sound = receive(seen_by_reader)
    reader.join(PATIENCE)
    assert sound
    for name in ("p0", "p1", "p2"):
        for partition in (0, 1):
            mine = [n for p, who, n in seen if (p, who) == (partition, name)]
            assert mine[::3] == list(range(partition, 50, 2))
    assert found(log) == {f"p{i}": list(range(50)) for i in range(3)}


def test_a_killed_producer_leaves_what_it_had_acknowledged_and_no_half_record(log):
    before = 0
    for kill_after in range(5, 80, 5):
        producer, acks = start(produce, log.root, "p", kill_after + 40)
        while receive(acks) < kill_after:
            pass
        producer.kill()
        producer.join(PATIENCE)
        acknowledged = max([kill_after, *drain(acks)])
        numbers = found(log)["p"]
        assert numbers == list(range(len(numbers)))
        assert acknowledged + 1 <= len(numbers) <= max(before, acknowledged + 2)
        before = len(numbers)
    log.append("t", [("q", 0)] * 3, partition=0)
    assert found(log)["q"] == [0]


@pytest.mark.parametrize(
    ("point", "nth", "kept"),
    [
        ("log.block", 5, 5), ("log.written", 5, 5), ("log.synced", 5, 5), ("log.published", 5, 5),
        ("log.rolled", 1, None), ("log.rolled", 2, None),
    ],
)  # fmt: skip
def test_a_producer_that_dies_at_a_named_step_can_be_run_again(log, point, nth, kept):
    producer, acks = start(crash, log.root, "p", 300, point, nth)
    acknowledged = drain(acks)
    producer.join(PATIENCE)
    assert producer.exitcode == -signal.SIGKILL
    numbers = found(log)["p"]
    assert numbers == list(range(len(acknowledged) if kept is None else kept))

    again, acks = start(produce, log.root, "p", len(numbers) + 3)  # what is there is recognised
    again.join(PATIENCE)
    assert len(drain(acks)) == len(numbers) + 3
    assert found(log)["p"] == list(range(len(numbers) + 3))


def test_a_log_that_was_open_before_a_fork_works_on_both_sides(log):
    def append(out: Connection) -> None:
        out.send("ready")
        log.append("t", [("child", 0)] * 3, partition=0)

    log.append("t", [("parent", 0)] * 3, partition=0)
    child, _ = start(append)
    child.join(PATIENCE)
    log.append("t", [("parent", 1)] * 3, partition=0)
    assert (child.exitcode, found(log)) == (0, {"parent": [0, 1], "child": [0]})


def test_an_appender_waits_for_the_lock_and_readers_do_not(log):
    with locked(log.root / "t" / "write"):
        producer, acks = start(produce, log.root, "p", 1)
        for _ in range(300):
            assert log.latest("t") == {0: 0, 1: 0}
        assert not acks.poll()
    producer.join(PATIENCE)
    assert log.latest("t") == {0: 3, 1: 0}


# what a killed creation leaves


def killed_while_creating(root: Path, name: str) -> None:
    topics.disk.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    EmbeddedLog(root).create(name)


def left(root: Path) -> list[str]:
    return sorted(name for name in os.listdir(root) if name.startswith("."))


@pytest.mark.parametrize("clear", [lambda log: log.create("u"), lambda log: log.sweep()])
def test_the_folder_of_a_killed_creation_is_removed(folder, clear):
    child = FORK.Process(target=killed_while_creating, args=(folder, "t"))
    child.start()
    child.join(PATIENCE)
    assert (child.exitcode, len(left(folder))) == (-signal.SIGKILL, 1)
    (folder / ".gone-t-0123456789abcdef").mkdir()  # of a deletion that was killed
    for mine in (".new-notes", ".cache"):
        (folder / mine).mkdir()  # nobody's business

    clear(EmbeddedLog(folder))

    assert left(folder) == [".cache", ".new-notes"]


def test_the_folder_of_a_creation_under_way_stays(folder):
    with topics._draft(folder, "slow") as draft:
        EmbeddedLog(folder).create("quick")
        EmbeddedLog(folder).sweep()
        assert draft.exists()


def creates(root: Path, name: str) -> None:
    log = EmbeddedLog(root)
    for n in range(60):
        log.create(f"{name}{n}")
        log.sweep()


def test_creations_that_clear_at_the_same_time_all_succeed(folder):
    others = [FORK.Process(target=creates, args=(folder, name)) for name in "abc"]
    for other in others:
        other.start()
    for other in others:
        other.join(PATIENCE)
    assert [other.exitcode for other in others] == [0, 0, 0]
    assert len(EmbeddedLog(folder).topics()) == 180
    assert left(folder) == []
