"""kill -9 three times at each durable step of a batch on real Spark: nothing lost or doubled.

Once everything dies (driver, JVM, workers), and the next start dies at the next step; twice
only the process that takes the step, in another epoch each time. The verifier is this
process. For every sink at once the outputs equal those of an undisturbed run. `make chaos`
has more of it; the in-process suite (tests/runtime/test_crashes.py) has all passings.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.engine.killing import (
    BATCH,
    IN_TASKS,
    ON_DRIVER,
    STEPS,
    Contents,
    check_in_the_end,
    check_so_far,
    start,
    undisturbed,
)
from tests.runtime.crashing import contents

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return undisturbed(tmp_path_factory.mktemp("wanted"))


def test_a_kill_of_everything_at_one_step_after_the_other(tmp_path: Path, wanted: Contents) -> None:
    for step in STEPS:
        code, _, told = start(str(tmp_path), str(BATCH), crash=f"{step}:2")
        assert code == -9, f"{step}: {told}"
        check_so_far(tmp_path, wanted)
    code, _, told = start(str(tmp_path), str(BATCH))
    assert code == 0, told
    check_in_the_end(tmp_path, wanted)


def test_kills_of_single_processes_at_every_step(tmp_path: Path, wanted: Contents) -> None:
    for step in STEPS:
        for nth in (1, 9):
            place = tmp_path / f"{step}-{nth}"
            place.mkdir()
            (place / "order").write_text(f"{step}:{nth}")
    code, printed, told = start("each", str(tmp_path), str(BATCH))
    assert code == 0, told
    found = json.loads(printed)
    assert len(found) == 2 * len(STEPS)
    for name, what in found.items():
        step = name.rpartition("-")[0]
        assert what["killed"], f"{name} was not reached"
        assert what["starts"] == (1 if step in IN_TASKS else 2), name
        assert contents(tmp_path / name) == wanted, name
        check_in_the_end(tmp_path / name, wanted)
    assert {n.rpartition("-")[0] for n in found} == {*IN_TASKS, *ON_DRIVER}
