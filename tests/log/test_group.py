"""Group commit: who leads, who follows, and who learns of an error."""

from __future__ import annotations

import os
import threading

import pytest

from headrace.errors import LogError
from headrace.log.group import Group


def run_together(group: Group[int, int], items: list[int]) -> dict[int, object]:
    """What each item got, all submitted while the first is being committed."""
    found: dict[int, object] = {}

    def run(item: int) -> None:
        try:
            found[item] = group.run(item)
        except BaseException as error:
            found[item] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in items]
    group._busy = True
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

    assert run_together(Group(commit), [1, 2, 3]) == {1: 10, 2: 20, 3: 30}
    assert groups == [[1, 2, 3]]


def test_an_item_that_fails_fails_alone():
    def commit(items):
        if 2 in items:
            raise ValueError("no")
        return [i * 10 for i in items]

    found = run_together(Group(commit), [1, 2, 3])
    assert isinstance(found.pop(2), ValueError)
    assert found == {1: 10, 3: 30}


def test_an_error_after_which_something_may_have_been_done_reaches_all_and_nobody_after():
    fail = [ValueError("no")]

    def commit(items):
        if fail:
            raise fail.pop()
        return list(items)

    group = Group(commit, harmless=lambda error: False)
    assert {type(e) for e in run_together(group, [1, 2]).values()} == {ValueError}
    assert group.run(3) == 3


def test_an_interrupt_is_for_the_leader_alone():
    def commit(items):
        raise KeyboardInterrupt

    found = run_together(Group(commit), [1, 2, 3]).values()
    assert sorted(type(e).__name__ for e in found) == ["KeyboardInterrupt"] + ["LogError"] * 2
    assert {e.code for e in found if isinstance(e, LogError)} == {"HR-LOG-018"}
    with pytest.raises(KeyboardInterrupt):
        Group(commit).run(1)


def test_many_threads_get_their_own_answers():
    group = Group(lambda items: [i * 10 for i in items])
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
