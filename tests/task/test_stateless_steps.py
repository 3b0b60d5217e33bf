"""Steps that need a key but store nothing come, go and change at will."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import StateError
from headrace.testing import Driver

ROWS = [{"k": "ab"[n % 2], "n": n, "at": 1_000 * n} for n in range(20)]
Step = Callable[[hr.Stream], hr.Stream]


def transformed(stream: hr.Stream, **named: Any) -> hr.Stream:
    return stream.key_by("k").transform(lambda rows: rows, **named)


def looked_up(stream: hr.Stream, **named: Any) -> hr.Stream:
    return stream.lookup(pa.table({"k": ["a", "b"], "v": [1, 2]}), on="k", **named)


def whole(stream: hr.Stream) -> hr.Stream:
    return stream


def go(place: Path, step: Step, *, epochs: int = 100) -> list[int]:
    job = hr.Job("job")
    source = hr.rows(ROWS, "k string, n bigint, at bigint")
    rows = job.read(source, time="at", delay="1s", name="in")
    step(rows).write("collect:", name="out")
    driver = Driver(job, place, max_batch=3)
    for _ in range(epochs):
        if driver.epoch() is None:
            break
    driver.close()
    return sorted(r["n"] for r in driver.output("out").to_pylist())


@pytest.mark.parametrize("step", [transformed, looked_up])
def test_a_job_with_a_step_that_stores_nothing_goes_on(tmp_path: Path, step: Step) -> None:
    go(tmp_path, step, epochs=2)
    go(tmp_path, lambda s: step(s.where("n > 3")), epochs=2)
    go(tmp_path, lambda s: step(s.select("k", "n")), epochs=1)
    assert go(tmp_path, whole) == list(range(20))


def test_a_name_that_had_state_is_not_given_up_for_one_that_has_none(tmp_path: Path) -> None:
    def once(stream: hr.Stream) -> hr.Stream:
        return stream.key_by("n").deduplicate(within="1m", name="step")

    go(tmp_path, once, epochs=2)
    with pytest.raises(StateError, match="HR-EVOLVE-002"):
        go(tmp_path, lambda s: transformed(s, name="step"))
