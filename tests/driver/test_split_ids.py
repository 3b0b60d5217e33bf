"""No split gets the id of another, also not of an input that was dropped: stored rows have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Driver

ROW = "k string, id bigint, v bigint, at bigint"
Build = Callable[[hr.KeyedStream], hr.Stream]


def row(id: int, v: int, at: int, k: str = "a") -> dict[str, Any]:
    return {"k": k, "id": id, "v": v, "at": at}


def run(root: Path, topic: str, rows: list[dict[str, Any]], build: Build, **options: Any) -> Driver:
    """The job reads this topic, and no other."""
    log = hr.EmbeddedLog(str(root / "log"))
    log.create(topic, schema=ROW)
    log.append(topic, rows)
    job = hr.Job("moved")
    read = job.read(f"log:{topic}", log=str(root / "log"), time="at", delay="1s", name=topic)
    build(read.key_by("k")).write("collect:", name="out")
    driver = Driver(job, root / "job", until=None, **options)
    driver.drain()
    driver.close()
    return driver


def best(stream: hr.KeyedStream) -> hr.Stream:
    return stream.top(1, by="v", unbounded=True, name="best")


@pytest.mark.parametrize("before", [0, 3])
def test_of_equals_at_one_time_the_row_of_the_dropped_input_stays_the_best(
    tmp_path: Path, before: int
) -> None:
    rows = [row(i, 0, 0) for i in range(before)]
    run(tmp_path, "old", [*rows, row(8, 7, 5_000)], best)
    run(tmp_path, "new", [row(9, 7, 5_000)], best, drop="old")
    told = hr.collected(str(tmp_path / "job"), "out").to_pylist()
    assert [(r["change"], r["id"]) for r in told] == [("+", 8)]


def test_a_row_of_a_dropped_input_that_fails_is_not_blamed_on_the_new_one(tmp_path: Path) -> None:
    def fails(key: Any, window: Any, rows: Any) -> Any:
        raise ValueError("no")

    def failing(stream: hr.KeyedStream) -> hr.Stream:
        return stream.window(hr.tumbling("10s")).process(fails, schema="id bigint", name="failing")

    run(tmp_path, "old", [row(1, 0, 0)], failing)
    driver = run(tmp_path, "new", [row(2, 0, 50_000, k="b")], failing, drop="old")
    (letter,) = hr.read_output(tmp_path / "job" / "dead").to_pylist()
    assert b'"id": 1' in letter["record"]
    assert letter["input"] != "new"
    counts = driver.manifest.counts["new"]
    assert (counts["read"], counts["used"], counts["dead"]) == (1, 1, 0)


def test_ids_go_on_after_several_inputs_were_dropped(tmp_path: Path) -> None:
    ids = []
    for n in range(4):
        drop = f"t{n - 1}" if n else ()
        driver = run(tmp_path, f"t{n}", [row(n, n, n)], best, drop=drop)
        ids += [s.id for s in driver.manifest.splits]
    assert ids == [0, 1, 2, 3]
