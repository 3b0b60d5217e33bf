"""Members of a group in several processes that are killed, stopped and woken up again."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from contextlib import suppress

import pytest

import headrace as hr
from headrace.errors import LogError
from headrace.log import EmbeddedLog, TopicPartition
from headrace.state import faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
FORK = multiprocessing.get_context("fork")
PARTITIONS, ROWS = 4, 60


def member(out, root, name, session="1h", kill=None, stop=False):
    """Send what was read, then commit it: after a kill it may come again, and none is skipped."""

    def hook(passed):
        if kill is not None and passed.startswith("log.group_commit") and random.random() < kill:
            os.kill(os.getpid(), signal.SIGKILL)

    random.seed(name)
    with faults.hooked(hook):
        consumer = hr.Consumer("t", "g", log=root, auto_commit=None, session=session)
        while True:
            batch = consumer.poll("50ms", max_rows=7)
            if batch is None:
                continue
            out.send((name, batch.partition, batch.offsets.tolist()))
            if stop:
                os.kill(os.getpid(), signal.SIGSTOP)
                stop = False
            try:
                consumer.commit()
                out.send((name, "committed", batch.partition, batch.end))
            except LogError as error:
                out.send((name, error.code))


def start(root, name, **options):
    mine, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=member, args=(theirs, root, name), kwargs=options, daemon=True)
    process.start()
    theirs.close()
    return process, mine


def filled(embedded):
    embedded.create("t", PARTITIONS)
    for p in range(PARTITIONS):
        embedded.append("t", [b"%d" % i for i in range(ROWS)], partition=p)


def received(pipe):
    messages = []
    with suppress(EOFError):
        while pipe.poll(0):
            messages.append(pipe.recv())
    return messages


def test_members_that_are_killed_at_random_lose_nothing(embedded):
    filled(embedded)
    rng, seen = random.Random(5), []
    members = [start(embedded.root, f"m{i}", kill=0.02) for i in range(3)]
    until, born, kills = time.monotonic() + 60, 3, 0
    watch = EmbeddedLog(embedded.root)
    while time.monotonic() < until:
        for i, (process, pipe) in enumerate(members):
            seen += received(pipe)
            if not process.is_alive():
                seen += received(pipe)
                members[i], born = start(embedded.root, f"m{born}", kill=0.02), born + 1
            elif rng.random() < 0.01 or (seen and not kills):
                os.kill(process.pid, signal.SIGKILL)
                kills += 1
        if watch.groups() and sum(watch.group("g").committed.values()) == PARTITIONS * ROWS:
            break
        time.sleep(0.005)
    for process, _ in members:
        process.kill()
        process.join()
    for _, pipe in members:
        seen += received(pipe)
    read = {(m[1], o) for m in seen if m[1] in range(PARTITIONS) for o in m[2]}
    assert read == {(p, o) for p in range(PARTITIONS) for o in range(ROWS)}
    assert kills


def test_a_stopped_member_that_wakes_up_cannot_commit_over_its_successor(embedded):
    filled(embedded)
    process, pipe = start(embedded.root, "old", session="300ms", stop=True)
    assert pipe.poll(20)
    with hr.Consumer("t", "g", log=embedded, auto_commit=None) as successor:
        taken, until = 0, time.monotonic() + 30
        while taken < PARTITIONS * ROWS and time.monotonic() < until:
            if successor.poll("1s") is not None:
                successor.commit()
            taken = sum(embedded.group("g").committed.values())
        assert taken == PARTITIONS * ROWS
        received(pipe)
        os.kill(process.pid, signal.SIGCONT)
        assert pipe.poll(20)
        assert pipe.recv() == ("old", "HR-LOG-021")
        assert sum(embedded.group("g").committed.values()) == PARTITIONS * ROWS
    process.kill()
    process.join()


def test_a_killed_member_is_replaced_long_before_its_session_ends(embedded):
    filled(embedded)
    process, pipe = start(embedded.root, "old")
    assert pipe.poll(20)
    process.kill()
    process.join()
    with hr.Consumer("t", "g", log=embedded, auto_commit=None) as successor:
        assert successor.poll("20s") is not None
        assert len(successor.assignment()) == PARTITIONS
        assert isinstance(successor.assignment()[0], TopicPartition)
