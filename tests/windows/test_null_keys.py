"""Null is a key like any other, also where several splits bring it beside other keys."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import headrace as hr
from headrace.testing import drive

SPLITS = [["a", None, "a"], ["b", "ß", None], [None, "c", "c"]]
WINDOWS = [
    hr.tumbling("10s"),
    hr.sliding("10s", "5s"),
    hr.session("10s"),
    hr.cumulating("10s", "5s"),
]


@pytest.mark.parametrize("kind", ["string", "binary"])
@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("window", WINDOWS)
def test_null_is_counted_beside_keys_of_other_splits(
    tmp_path: Path, window: hr.Window, tasks: int, kind: str
) -> None:
    splits = [[k and k.encode() if kind == "binary" else k for k in keys] for keys in SPLITS]
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in", schema=f"k {kind}, at bigint", partitions=len(splits))
    for number, keys in enumerate(splits):
        log.append("in", [{"k": key, "at": 7_000} for key in keys], partition=number)

    job = hr.Job("nulls")
    rows = job.read("log:in", log=str(tmp_path / "log"), time="at", delay="1s")
    rows.key_by("k").window(window).agg(n=hr.count()).write("collect:", name="out")
    told = drive(job, str(tmp_path / "job"), tasks=tasks).output("out").to_pylist()

    counted = Counter(key for keys in splits for key in keys)
    for end in {row["window_end"] for row in told}:
        assert {r["k"]: r["n"] for r in told if r["window_end"] == end} == counted
    assert told
