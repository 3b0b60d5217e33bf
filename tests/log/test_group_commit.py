"""Group commit: who leads, who follows, and who learns of an error."""

from __future__ import annotations

import linecache
import os
import sys
import threading
from itertools import count
from pathlib import Path

import pytest

from headrace.errors import LogError
from headrace.log import group_commit as module
from headrace.log.group_commit import GroupCommit
from headrace.log.lock import locked


def run_together(group: GroupCommit[int, int], items: list[int]) -> dict[int, object]:
    """What each item got, all submitted while the first is being committed."""
    found: dict[int, object] = {}

    def run(item: int) -> None:
        try:
            found[item] = group.run(item)
        except BaseException as error:
            found[item] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in items]
    group._busy = True
    with group._leading:  # else one that has waited for a while leads
        for thread in threads:
            thread.start()
        while len(group._waiting) < len(items):
            os.sched_yield()
    group._hand_over()
    for thread in threads:
        thread.join()
    return found


def test_those_who_wait_are_committed_together():
    groups: list[list[int]] = []

    def commit(items):
        groups.append(sorted(items))
        return [i * 10 for i in items]

    assert run_together(GroupCommit(commit), [1, 2, 3]) == {1: 10, 2: 20, 3: 30}
    assert groups == [[1, 2, 3]]


def test_an_item_that_fails_fails_alone():
    def commit(items):
        if 2 in items:
            raise ValueError("no")
        return [i * 10 for i in items]

    found = run_together(GroupCommit(commit), [1, 2, 3])
    assert isinstance(found.pop(2), ValueError)
    assert found == {1: 10, 3: 30}


def test_an_error_after_which_something_may_have_been_done_reaches_all_and_nobody_after():
    fail = [ValueError("no")]

    def commit(items):
        if fail:
            raise fail.pop()
        return list(items)

    group = GroupCommit(commit, harmless=lambda error: False)
    assert {type(e) for e in run_together(group, [1, 2]).values()} == {ValueError}
    assert group.run(3) == 3


def test_an_interrupt_is_for_the_leader_alone():
    def commit(items):
        raise KeyboardInterrupt

    found = run_together(GroupCommit(commit), [1, 2, 3]).values()
    assert sorted(type(e).__name__ for e in found) == ["KeyboardInterrupt"] + ["LogError"] * 2
    assert {e.code for e in found if isinstance(e, LogError)} == {"HR-LOG-018"}
    with pytest.raises(KeyboardInterrupt):
        GroupCommit(commit).run(1)


def test_many_threads_get_their_own_answers():
    group = GroupCommit(lambda items: [i * 10 for i in items])
    found = []

    def work(thread):
        found.extend(group.run(n) == n * 10 for n in range(thread * 1_000, thread * 1_000 + 500))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4_000
    assert all(found)
    assert not group._busy


class _Interrupt:
    """Raises KeyboardInterrupt in its thread before the nth line of the module, once.

    Not where a `with` begins or ends: there Python takes no signals.
    """

    def __init__(self, nth: int) -> None:
        self.left, self.raised = nth, False

    def __call__(self, frame, event, arg):
        if frame.f_code.co_filename != module.__file__:
            return None
        line = linecache.getline(module.__file__, frame.f_lineno).strip()
        if event in ("call", "line") and not self.raised and not line.startswith("with "):
            self.left -= 1
            if self.left == 0:
                self.raised = True
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("first", [True, False], ids=["leads", "waits"])
def test_an_interrupt_at_any_line_leaves_nobody_waiting(first):
    for nth in count(1):
        done: list[int] = []
        interrupt = _Interrupt(nth)
        alive, found = _interrupted_at(interrupt, done, first)
        assert not alive, f"interrupted at {nth}"
        for item in (1, 2, 3):
            kind = type(found[item])
            assert kind in (int, LogError) or item == 1, f"interrupted at {nth}: {found[item]!r}"
            assert kind is not int or done.count(item) == 1
            assert done.count(item) <= 1
        if not interrupt.raised:
            assert {i: found[i] for i in (1, 2, 3)} == {1: 10, 2: 20, 3: 30}
            return


def _interrupted_at(interrupt: _Interrupt, done: list[int], first: bool):
    """Three that wait together, the first or the last of them interrupted; then one more."""
    found: dict[int, object] = {}

    def commit(items):
        done.extend(items)
        return [i * 10 for i in items]

    group: GroupCommit[int, int] = GroupCommit(commit)

    def run(item: int) -> None:
        if item == 1:
            sys.settrace(interrupt)
        try:
            found[item] = group.run(item)
        except BaseException as error:
            sys.settrace(None)
            found[item] = error
        finally:
            sys.settrace(None)

    group._busy = True
    threads = []
    with group._leading:  # else one that has waited for a while leads
        for item in (1, 2, 3) if first else (2, 3, 1):
            threads.append(threading.Thread(target=run, args=(item,), daemon=True))
            before = len(group._waiting)
            threads[-1].start()
            while len(group._waiting) == before and threads[-1].is_alive():
                os.sched_yield()
    group._hand_over()
    threads.append(threading.Thread(target=run, args=(4,), daemon=True))
    threads[-1].start()
    for thread in threads:
        thread.join(30)
    return [t.name for t in threads if t.is_alive()], found


def test_who_waits_for_a_thread_that_is_stuck_is_told_so(monkeypatch):
    monkeypatch.setattr(module, "_LEAST", 0.05)
    stuck, go_on = threading.Event(), threading.Event()

    def commit(items):
        stuck.set()
        go_on.wait()
        return list(items)

    group: GroupCommit[int, int] = GroupCommit(commit, patience=0.05)
    leader = threading.Thread(target=group.run, args=(1,))
    leader.start()
    stuck.wait()
    with pytest.raises(LogError) as caught:
        group.run(2)
    assert caught.value.code == "HR-LOG-016"
    go_on.set()
    leader.join()
    assert group.run(3) == 3


def test_who_need_not_wait_for_a_lock_gives_its_file_back(tmp_path: Path) -> None:
    """Readers, and appenders whose records others publish, do this thousands of times a minute."""
    path = tmp_path / "lock"
    with locked(path):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(100):
            with locked(path, needless=lambda: True) as held:
                assert not held
        assert len(os.listdir("/proc/self/fd")) == before
    with locked(path) as held:
        assert held
