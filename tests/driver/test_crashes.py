"""A crash at every durable step of a job, and every epoch replayed: nothing lost or doubled.

The job writes to every kind of output at once. In process a crash is an exception raised at
a named point; what is on disk then is what a power cut would leave. The same points are
killed for real, on Spark, in tests/engine/test_kill.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.driver.local_runner import run_tasks
from headrace.state import faults
from headrace.testing import Driver
from tests.driver.crashing import ROWS, build, contents


class Crash(Exception):
    pass


# Of these there are more with tiny cuts, which take long: only they, the first passing of each.
CUT = {"run.added", "run.written", "sink.stage", "commit.manifest", "sink.publish"}
BY_TIME = {"log.sync"}  # how often these are passed depends on the time that a run takes


def run(place: Path, max_batch: int = 30) -> Driver:
    driver = Driver(build(place), place / "job", max_batch=max_batch)
    driver.drain()
    return driver


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Counter[Any]], Any]:
    place = tmp_path_factory.mktemp("undisturbed")
    passed: Counter[str] = Counter()
    with faults.hooked(lambda name: passed.update([name])):
        driver = run(place)
    assert driver.manifest is not None and driver.manifest.counts["rows"]["dead"] == 8
    return contents(place), passed


def test_the_durable_steps_of_a_batch_are_all_named(undisturbed: Any) -> None:
    _, passed = undisturbed
    expected = {
        "source.read", "sink.stage", "run.added", "run.written", "run.synced", "state.written",
        "commit.checked", "commit.manifest", "sink.publish", "commit.published",
    }  # fmt: skip
    assert expected <= set(passed)


# A crash leaves files open, and the interpreter says so when it collects them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    undisturbed: Any, tmp_path: Path, cuts: int
) -> None:
    wanted, passed = undisturbed
    for name, times in sorted(passed.items()):
        if cuts and name not in CUT:
            continue
        last = 1 if name in BY_TIME or cuts else times
        for nth in sorted({1, last}):
            place = tmp_path / f"{name}-{nth}"
            _crash_at(place, name, nth)
            driver = run(place)
            assert contents(place) == wanted, f"after a crash at {name}, passing {nth}"
            assert driver.manifest is not None
            for counts in driver.manifest.counts.values():
                assert (
                    counts["read"]
                    == len(ROWS)
                    == sum(counts[f] for f in ("used", "filtered", "late", "dead"))
                )


def _crash_at(place: Path, point: str, nth: int) -> None:
    passed: Counter[str] = Counter()

    def hook(name: str) -> None:
        passed.update([name])
        if name == point and passed[name] == nth:
            raise Crash(name)

    with faults.hooked(hook), pytest.raises(Crash):
        run(place)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_two_crashes_in_a_row_during_recovery_are_survived(
    undisturbed: Any, tmp_path: Path
) -> None:
    wanted, _ = undisturbed
    _crash_at(tmp_path, "commit.manifest", 2)
    _crash_at(tmp_path, "sink.publish", 1)
    _crash_at(tmp_path, "sink.publish", 2)
    run(tmp_path)
    assert contents(tmp_path) == wanted


@pytest.mark.parametrize("known", [True, False])
def test_replaying_each_committed_epoch_changes_nothing(
    tmp_path: Path, undisturbed: Any, known: bool
) -> None:
    """What Spark does at each start: the same epoch once more; whether its end is known or not."""
    driver = Driver(build(tmp_path), tmp_path / "job", max_batch=5)
    runner = driver._runner
    replayed = 0
    while True:
        start = runner._offset
        if runner.epoch() is None:
            break
        end, planner = runner._offset, runner._planner
        planner._planned = (-1, [])
        tasks = planner._plan(start, end)
        assert [t.replay for t in tasks] == [True]
        if not known:
            (tmp_path / "job" / "published").unlink()
        runner._committer.commit(run_tasks(driver.start.bundle, tasks))
        replayed += 1
    assert replayed >= 20
    wanted = {n: rows for n, rows in undisturbed[0].items() if n != "dead"}
    assert {n: rows for n, rows in contents(tmp_path).items() if n != "dead"} == wanted
