"""A fold or reduce that raises on a row: that row is a dead letter, whatever the window."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.testing import drive

ROWS = [{"v": v, "at": 1_000 * i} for i, v in enumerate([1, 2, 13, 4])]
WINDOWS = {
    "panes": (hr.tumbling("10s"), {}),
    "late": (hr.tumbling("10s"), {"lateness": "1s"}),
    "info": (hr.tumbling("10s"), {"info": True}),
    "earliest": (hr.tumbling("10s"), {"result_time": "earliest"}),
    "trigger": (hr.tumbling("10s"), {"trigger": t.at_watermark()}),
    "session": (hr.session("10s"), {}),
    "rows": (hr.tumbling(rows=4), {}),
}


def add(one: Any, other: Any) -> Any:
    if other.v == 13:
        raise ValueError("thirteen")
    return one._replace(v=one.v + other.v)


def gather(before: list[int], row: Any) -> list[int]:
    before.append(row.v)  # changes what it was called with, and fails then
    if row.v in (1, 13):
        raise ValueError("not this one")
    return before


def run(folder: Any, case: str, fold: bool) -> tuple[list[Any], list[int]]:
    window, options = WINDOWS[case]
    job = hr.Job("failing")
    rows = job.read(hr.rows(ROWS, schema="v bigint, at bigint"), time="at", delay="1s", name="r")
    cut = rows.window(window, **options)
    result = cut.fold(list, gather, schema="value array<bigint>") if fold else cut.reduce(add)
    result.write("collect:", name="out")
    job.dead.write("collect:", name="letters")
    done = drive(job, folder)
    assert done.manifest is not None
    letters = [json.loads(r["record"])["v"] for r in done.output("letters").to_pylist()]
    assert done.manifest.counts["r"]["dead"] == len(letters)
    return done.output("out").column("value" if fold else "v").to_pylist(), sorted(letters)


@pytest.mark.parametrize("case", WINDOWS)
def test_the_others_are_reduced_without_it(tmp_path, case):
    assert run(tmp_path, case, fold=False) == ([7], [13])


@pytest.mark.parametrize("case", WINDOWS)
def test_a_fold_goes_on_from_the_value_before_it(tmp_path, case):
    assert run(tmp_path, case, fold=True) == ([[2, 4]], [1, 13])
