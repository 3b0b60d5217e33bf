"""The folder that a watch looks at is removed when its run ends, at any moment of a look."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headrace.engine.stall_watch import StallWatcher
from headrace.inspect.stall import TaskCounts


def watcher(folder: Path) -> StallWatcher:
    return StallWatcher(str(folder), 1_000, lambda: 0, lambda: TaskCounts(0, 0, 0, 1))


def test_the_newest_batch_without_a_commit_is_in_hand(tmp_path: Path) -> None:
    watch = watcher(tmp_path)
    assert watch._look().batch_since is None
    for name in ("offsets/9", "offsets/10", "offsets/.11.crc", "commits/9"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert watch._look().batch_since == int((tmp_path / "offsets/10").stat().st_mtime * 1_000)
    (tmp_path / "commits/10").touch()
    assert watch._look().batch_since is None


@pytest.mark.constants
def test_a_folder_that_is_removed_meanwhile_ends_no_watch(tmp_path: Path) -> None:
    over, offsets = threading.Event(), tmp_path / "offsets"

    def churn() -> None:
        while not over.is_set():
            offsets.mkdir()
            os.rmdir(offsets)

    churning = threading.Thread(target=churn)
    churning.start()
    try:
        watch = watcher(tmp_path)
        assert {watch._look().batch_since for _ in range(20_000)} == {None}
    finally:
        over.set()
        churning.join()
