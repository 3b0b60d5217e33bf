"""New aggregates computed of past rows: as if they had always been there.

Two or three versions of a program on one folder, with rows between them. What comes after a
change is compared with plain Python over all rows, also those that were read before it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver import recompute, recomputed_tables
from headrace.driver.start import review
from headrace.state import faults
from headrace.testing import Driver
from tests.driver.test_changed_aggregates import DELAY, KINDS, Crash, Row

REFUSED_KINDS = ("rows", "triggered rows")
BY_KIND = [kind for kind in KINDS if kind not in REFUSED_KINDS]
SCHEMA = "k string, v int, at bigint, part int"
VERSIONS: tuple[dict[str, Any], ...] = (
    {"total": hr.sum("v"), "n": hr.count()},
    {
        "n": hr.count(), "most": hr.max("v"), "total": hr.sum("v"), "early": hr.first("v"),
        "spread": hr.collect("v"), "since": "beginning",
    },
    {
        "rows": hr.count(), "most": hr.max("v"), "values": hr.count_distinct("v"),
        "middle": hr.median("v"), "since": "beginning", "was_fields": {"rows": "n"},
    },
)  # fmt: skip
SAID = (("total", "n"), ("n", "most", "total", "early", "spread"),
        ("rows", "most", "values", "middle"))  # fmt: skip
DROPS = ((), (), ("s.total", "s.early", "s.spread"))
MODEL: dict[str, Callable[[list[int]], Any]] = {
    "total": sum, "n": len, "rows": len, "most": max, "early": lambda v: v[0], "spread": list,
    "values": lambda v: len({*v}),
    "middle": lambda v: (sorted(v)[(len(v) - 1) // 2] + sorted(v)[len(v) // 2]) / 2,
}  # fmt: skip


def drawn(seed: int) -> list[list[Row]]:
    """Rows of three parts in order of time; no time, less the delay, is where a window ends."""
    draw = random.Random(seed)
    made = []
    for part in range(3):
        times = sorted(draw.sample(range(part * 1_700, part * 1_700 + 1_700), 60))
        rows = [
            {"k": draw.choice("ab"), "v": draw.randrange(-50, 50), "at": 10 * t + 1, "part": part}
            for t in times
        ]
        made.append(rows)
    return made


def job(place: Path, kind: str, version: int, where: str = "true", **more: Any) -> hr.Job:
    made, window = hr.Job("recomputing"), KINDS[kind][0]
    rows = made.read("log:in", log=str(place / "log"), time="at", delay="1s", name="rows")
    keyed, said = rows.where(where).key_by("k"), {**VERSIONS[version], "name": "s", **more}
    if window is None:
        found = keyed.agg(unbounded=True, **said)
    else:
        found = keyed.window(window[0], **window[1]).agg(**said)
    names = [n for n in said if n not in ("name", "since", "was_fields", "was")]
    found.select("k", version=str(version), **{n: n for n in names}).write(
        "collect:", name=f"out {version}"
    )
    return made


def dealt(rows: list[Row], partitions: int) -> list[list[Row]]:
    """The rows of each partition: what follows in time may be in another one."""
    found: list[list[Row]] = [[] for _ in range(partitions)]
    for n, row in enumerate(rows):
        found[n // 7 % partitions].append(row)
    return found


def append(place: Path, rows: list[Row], partitions: int = 1, **more: Any) -> None:
    log = hr.EmbeddedLog(str(place / "log"))
    if "in" not in log.topics():
        log.create("in", schema=SCHEMA, partitions=partitions, **more)
    for partition, own in enumerate(dealt(rows, partitions)):
        log.append("in", own, partition=partition)


def start(place: Path, made: hr.Job, until: str | None = None, **more: Any) -> Driver:
    more = {"max_batch": 13, **more}
    return Driver(made, place / "job", until=until, **more)


def play(
    place: Path,
    kind: str,
    parts: list[list[Row]],
    partitions: int = 1,
    crash: Callable[[Callable[[], Driver]], Driver] | None = None,
    **more: Any,
) -> Counter[Any]:
    found = Counter[Any]()
    for version, part in enumerate(parts):
        append(place, part, partitions)
        until = "end" if version == len(parts) - 1 else None

        def begin(version: int = version, until: str | None = until) -> Driver:
            return start(place, job(place, kind, version), until, drop=DROPS[version], **more)

        driver = begin() if crash is None else crash(begin)
        driver.drain()
        driver.close()
    for version in range(len(parts)):
        for row in hr.collected(str(place / "job"), f"out {version}").to_pylist():
            found[row["k"], version, repr([row[n] for n in SAID[version]])] += 1
    return found


def wanted(kind: str, parts: list[list[Row]], partitions: int = 1) -> Counter[Any]:
    """Each window by the version under which it is over, or its last row comes, of all its rows."""
    rows = [row for part in parts for row in part]
    marks = [
        min(max(r["at"] for r in own) for own in dealt(part, partitions)) - DELAY
        for part in parts[:2]
    ]
    found = Counter[Any]()
    for key, end, held in KINDS[kind][1](rows):
        if end is None:
            version = held[-1]["part"]
        else:
            version = next((n for n, mark in enumerate(marks) if end <= mark), 2)
        values = [r["v"] for r in held]
        found[key, version, repr([MODEL[name](values) for name in SAID[version]])] += 1
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", BY_KIND)
def test_an_aggregate_is_as_if_it_had_always_been_there(
    kind: str, seed: int, tmp_path: Path
) -> None:
    parts = drawn(seed)
    expected = wanted(kind, parts)
    assert {version for _, version, _ in expected} == {0, 1, 2}
    assert play(tmp_path, kind, parts) == expected
