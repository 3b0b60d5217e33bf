"""Keys of every type, null among them or not, from several splits that bring different ones."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import drive

KEYS: dict[str, list[Any]] = {  # not in order, and some before 1970
    "string": ["b", "a", "ß", ""],
    "binary": [b"b", b"a", b"\xff", b""],
    "boolean": [True, False, True, False],
    "int": [5, -7, 0, 70_000],
    "bigint": [2**40, -7, 0, 3],
    "double": [1.5, -0.5, 0.0, float("inf")],
    "decimal(10, 2)": [Decimal("1.50"), Decimal("-2.00"), Decimal("0.00"), Decimal("9.99")],
    "date": [date(2026, 1, 2), date(1960, 1, 1), date(1970, 1, 1), date(2000, 2, 29)],
    "timestamp": [datetime(year, 1, 1, tzinfo=UTC) for year in (2026, 1960, 1970, 2000)],
}
WINDOWS = [
    hr.tumbling("10s"),
    hr.sliding("10s", "5s"),
    hr.session("10s"),
    hr.cumulating("10s", "5s"),
]


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_every_key_is_counted(tmp_path: Path, window: hr.Window, nulls: bool, kind: str) -> None:
    one, two, three, four = KEYS[kind]
    splits = [[one, two, one], [three, one, four], [two, four]]
    if nulls:
        splits = [[None, *split, None] for split in splits]
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("in", schema=f"k {kind}, at bigint", partitions=len(splits))
    for number, keys in enumerate(splits):
        log.append("in", [{"k": key, "at": 7_000} for key in keys], partition=number)

    job = hr.Job("keys")
    rows = job.read("log:in", log=str(tmp_path / "log"), time="at", delay="1s")
    rows.key_by("k").window(window).agg(n=hr.count()).write("collect:", name="out")
    told = drive(job, str(tmp_path / "job"), tasks=2).output("out").to_pylist()

    counted = Counter(key for keys in splits for key in keys)
    for end in {row["window_end"] for row in told}:
        assert {r["k"]: r["n"] for r in told if r["window_end"] == end} == counted
    assert told
