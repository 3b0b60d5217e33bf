"""State that grows: how much room it takes, and when that is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.inspect import progress
from headrace.inspect.progress import FLOOR, Progress, StateGrowth
from headrace.testing import Harness

HOUR = 3_600_000


@pytest.fixture(scope="module")
def seen() -> Progress:
    """The figures of a real job with two steps that keep state."""
    with Harness(_job("log:x")) as test:
        test.send("x", [(str(i),) for i in range(5_000)])
        return test.progress


def _job(place: Any) -> hr.Job:
    job = hr.Job("grows")
    rows = (
        job.read(place, schema="k string", name="x") if isinstance(place, str) else job.read(place)
    )
    counted = rows.key_by("k").agg(n=hr.count(), unbounded=True, name="counted")
    counted.write("collect:", name="out")
    rows.map(lambda row: {"one": 1}, schema="one bigint").key_by("one").agg(
        n=hr.count(), unbounded=True, name="all"
    ).write("collect:", name="one")
    return job


def test_the_room_of_each_step_is_told(seen: Progress) -> None:
    assert seen.held == {"counted": 5_000, "all": 1}
    assert 5_000 * 8 < seen.held_bytes["counted"] < 5_000 * 100
    assert 0 < seen.held_bytes["all"] < seen.held_bytes["counted"] / 5


def _at(seen: Progress, hours: float, size: float) -> Progress:
    return replace(seen, clock=int(hours * HOUR), held_bytes={"counted": int(size * FLOOR)})


def test_it_is_said_when_it_has_doubled_and_not_before(seen: Progress) -> None:
    watched = StateGrowth(lambda: 1 << 60)
    assert watched.see(_at(seen, 0, 0.1)) == watched.see(_at(seen, 1, 0.99)) == []
    (first,) = watched.see(_at(seen, 3, 1))
    assert first == (
        "the state of 'counted' has grown from 25.6 MB to 256.0 MB (5000 rows) within 3h"
    )
    assert watched.see(_at(seen, 4, 1.99)) == []
    (second,) = watched.see(_at(seen, 8, 2))
    assert "from 256.0 MB to 512.0 MB" in second and second.endswith("within 5h")
    assert watched.warnings == (second,)


def test_state_that_was_there_at_the_start_has_not_grown(seen: Progress) -> None:
    watched = StateGrowth(lambda: 1 << 60)
    assert watched.see(_at(seen, 0, 9)) == watched.see(_at(seen, 1, 17.9)) == []
    assert len(watched.see(_at(seen, 1, 18))) == 1


def test_it_is_forgotten_when_it_is_small_again(seen: Progress) -> None:
    watched = StateGrowth(lambda: 1 << 60)
    watched.see(_at(seen, 0, 1))
    assert len(watched.see(_at(seen, 1, 4))) == 1
    assert watched.see(_at(seen, 2, 2.1)) == [] and watched.warnings
    assert watched.see(_at(seen, 2, 1.9)) == [] and not watched.warnings
    assert len(watched.see(_at(seen, 3, 3.8))) == 1


@pytest.mark.parametrize(("free", "end"), [(2, "the disk is full in 4h"), (1_000, "within 2h")])
def test_how_long_the_disk_lasts_is_said_if_that_is_soon(
    seen: Progress, free: int, end: str
) -> None:
    watched = StateGrowth(lambda: free * FLOOR)
    watched.see(_at(seen, 0, 1))
    (told,) = watched.see(_at(seen, 2, 2))
    assert told.endswith(end)


@pytest.mark.spark
def test_a_run_says_it_once_and_keeps_it_as_a_warning(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "FLOOR", 20_000)
    rows = hr.rows([{"k": str(i)} for i in range(5_000)], "k string")
    run = hr.run(_job(rows), until="end", folder=str(tmp_path), max_batch=1_000)
    assert run.wait().state == "ended"
    told = [line for line in capsys.readouterr().err.splitlines() if "has grown" in line]
    assert told and all(line.startswith("grows: the state of 'counted'") for line in told)
    (warning,) = run.status.warnings
    assert told[-1] == f"grows: {warning}" and len(told) < 5
    assert run.progress is not None and run.progress.held_bytes["counted"] > 20_000
