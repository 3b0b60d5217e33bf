"""A replay of dead letters killed at every durable step, of asking and of carrying out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.dead_replay import letters_of
from headrace.state import faults
from headrace.state.epochs import EpochLog
from headrace.testing import Driver

ROWS = [{"k": f"k{i % 3}", "v": i % 7} for i in range(21)]
BY_TIME = {"log.sync"}  # how often these are passed depends on the time that a run takes


class Crash(Exception):
    pass


def build(place: Path, fixed: bool) -> hr.Job:
    def inverse(row: Any) -> dict[str, Any]:
        return {"k": row.k, "x": 42 // row.v if row.v or not fixed else 0}

    job = hr.Job("crashing")
    rows = job.read(hr.rows(ROWS, "k string, v bigint"), name="rows")
    inverses = rows.map(inverse, schema="k string, x bigint", name="inverse")
    inverses.write(f"files:{place}/parquet", name="parquet")
    inverses.write("log:inverses", log=str(place / "log"), name="log")
    sums = inverses.key_by("k").agg(n=hr.count(), total=hr.sum("x"), unbounded=True)
    sums.select("n").write("collect:", name="counts")
    return job


def prepare(place: Path) -> None:
    Driver(build(place, False), place / "job").drain()


def replay(place: Path) -> Driver:
    hr.replay_dead(place / "job")
    driver = Driver(build(place, True), place / "job")
    driver.drain()
    return driver


def contents(place: Path, driver: Driver) -> dict[str, Any]:
    assert driver.manifest is not None
    log = hr.EmbeddedLog(str(place / "log"))
    in_log = [row for _, t in log.read("inverses", 0, 0) for row in t.to_pylist()]
    return {
        "parquet": Counter(map(repr, hr.read_output(place / "parquet").to_pylist())),
        "log": Counter(map(repr, in_log)),
        "counts": Counter(map(repr, driver.output("counts").to_pylist())),
        "dead": letters_of(EpochLog(place / "job")).open().num_rows,
        "accounts": driver.manifest.counts,
        "rows": driver.manifest.rows,
    }


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Counter[str]]:
    place = tmp_path_factory.mktemp("undisturbed")
    passed: Counter[str] = Counter()
    prepare(place)
    with faults.hooked(lambda name: passed.update([name])):
        driver = replay(place)
    found = contents(place, driver)
    assert found["accounts"]["rows"] == {
        "read": 24, "used": 21, "filtered": 0, "late": 0, "dead": 3
    }  # fmt: skip
    assert found["dead"] == 0 and sum(found["parquet"].values()) == 21
    return found, passed


def test_the_durable_steps_of_a_replay_are_all_named(undisturbed: Any) -> None:
    assert {"resend.linked", "resend.durable", "source.resent"} <= set(undisturbed[1])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_crash_at_any_step_of_a_replay_loses_and_doubles_nothing(
    undisturbed: Any, tmp_path: Path
) -> None:
    wanted, passed = undisturbed
    for name, times in sorted(passed.items()):
        for nth in sorted({1, 1 if name in BY_TIME else times}):
            place = tmp_path / f"{name}-{nth}"
            prepare(place)
            left = Counter({name: nth})

            def hook(point: str, left: Counter[str] = left) -> None:
                left[point] -= 1
                if left[point] == 0:
                    raise Crash(point)

            with faults.hooked(hook), pytest.raises(Crash):
                replay(place)
            assert contents(place, replay(place)) == wanted, f"after a crash at {name}, {nth}"
