"""kill -9 at each durable step of a batch on real Spark: nothing lost or doubled.

At each step the process that takes it dies, by turns in the first epoch and in a later one; at
every other step everything dies (driver, JVM, workers), and the next start dies at the next of
them. The verifier is this process. For every sink at once the outputs equal those of an undisturbed
run. `make chaos` kills everything at each step; the in-process suite (tests/driver/test_crashes.py)
has all passings.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.killing import (
    IN_TASKS,
    OFTEN,
    STEPS,
    check_in_the_end,
    check_so_far,
    start,
    undisturbed,
)  # fmt: skip

pytestmark = pytest.mark.spark


def test_a_kill_of_everything_at_one_step_after_the_other(tmp_path: Path) -> None:
    place, batch = tmp_path / "killed", 15  # 8 epochs: every start gets further
    wanted = undisturbed(tmp_path / "wanted", batch)
    for step in STEPS[1::2]:
        killed = start(str(place), str(batch), crash=f"{step}:2")
        assert killed.code == -9, f"{step}: {killed.told}"
        check_so_far(place, wanted)
    last = start(str(place), str(batch))
    assert last.code == 0, last.told
    check_in_the_end(place, wanted)


def test_a_kill_of_the_process_that_takes_the_step(tmp_path: Path) -> None:
    root, batch = tmp_path / "killed", 30  # 4 epochs, of which one is killed
    wanted = undisturbed(tmp_path / "wanted", batch)
    for number, step in enumerate(STEPS):
        later = 17 if step in OFTEN else 3
        place = root / step
        place.mkdir(parents=True)
        (place / "order").write_text(f"{step}:{later if number % 2 else 1}")
    ended = start("each", str(root), str(batch))
    assert ended.code == 0, ended.told
    found = json.loads(ended.printed)
    assert len(found) == len(STEPS)
    for name, what in found.items():
        assert what["killed"], f"{name} was not reached"
        assert what["starts"] == (1 if name in IN_TASKS else 2), f"{name}: {ended.told}"
        check_in_the_end(root / name, wanted)
