"""kill -9 three times at each durable step of a batch on real Spark: nothing lost or doubled.

Once everything dies (driver, JVM, workers), and the next start dies at the next step; twice
only the process that takes the step, in another epoch each time. The verifier is this
process. For every sink at once the outputs equal those of an undisturbed run. `make chaos`
has more of it; the in-process suite (tests/driver/test_crashes.py) has all passings.
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
    place, batch = tmp_path / "killed", 8  # 15 epochs: every start gets further
    wanted = undisturbed(tmp_path / "wanted", batch)
    for step in STEPS:
        killed = start(str(place), str(batch), crash=f"{step}:2")
        assert killed.code == -9, f"{step}: {killed.told}"
        check_so_far(place, wanted)
    last = start(str(place), str(batch))
    assert last.code == 0, last.told
    check_in_the_end(place, wanted)


def test_two_kills_of_the_process_that_takes_the_step(tmp_path: Path) -> None:
    root, batch = tmp_path / "killed", 30  # 4 epochs, of which one is killed
    wanted = undisturbed(tmp_path / "wanted", batch)
    for step in STEPS:
        for nth in (1, 17 if step in OFTEN else 3):
            place = root / f"{step} {nth}"
            place.mkdir(parents=True)
            (place / "order").write_text(f"{step}:{nth}")
    ended = start("each", str(root), str(batch))
    assert ended.code == 0, ended.told
    found = json.loads(ended.printed)
    assert len(found) == 2 * len(STEPS)
    for name, what in found.items():
        assert what["killed"], f"{name} was not reached"
        assert what["starts"] == (1 if name.split()[0] in IN_TASKS else 2), f"{name}: {ended.told}"
        check_in_the_end(root / name, wanted)
