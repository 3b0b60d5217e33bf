"""Group commit: who leads, who follows, and who learns of an error."""

from __future__ import annotations

import os
import threading

import pytest

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
    with group.leading:
        for thread in threads:
            thread.start()
        while len(group._waiting) < len(items):
            os.sched_yield()
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


def test_an_error_reaches_everybody_of_the_group_and_nobody_after():
    fail = [ValueError("no")]

    def commit(items):
        if fail:
            raise fail.pop()
        return list(items)

    group = Group(commit)
    assert {type(e) for e in run_together(group, [1, 2]).values()} == {ValueError}
    assert group.run(3) == 3


def test_an_interrupt_is_for_the_leader_alone():
    def commit(items):
        raise KeyboardInterrupt

    kinds = [type(e) for e in run_together(Group(commit), [1, 2, 3]).values()]
    assert sorted(k.__name__ for k in kinds) == ["KeyboardInterrupt"] + ["RuntimeError"] * 2
    with pytest.raises(KeyboardInterrupt):
        Group(commit).run(1)
