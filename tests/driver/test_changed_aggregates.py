"""Aggregates that come, go, get other names and wider columns: as if it had been so from then on.

Three versions of a program on one folder, with rows between them. What windows emit is compared
with plain Python: an aggregate that came with the second version knows the rows since then.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.state import faults
from headrace.testing import Driver

Row = dict[str, Any]
Window = tuple[str, int | None, list[Row]]  # its key, when it is over, and its rows
END, DELAY = 10**9, 1_000


def parts() -> list[list[Row]]:
    """Rows of three days; no time of a row, less the delay, is where a window ends."""
    draw = random.Random(7)
    made = []
    for day in range(3):
        times = sorted(draw.randrange(day * 17_000, day * 17_000 + 17_000) for _ in range(60))
        made.append([
            {"k": draw.choice("ab"), "v": draw.randrange(-50, 50), "at": t - t % 10 + 1, "day": day}
            for t in times
        ])  # fmt: skip
    return made


PARTS = parts()
ROWS = [row for part in PARTS for row in part]


def spans(size: int, slide: int, rows: list[Row]) -> list[Window]:
    found: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        first = (row["at"] - size) // slide * slide + slide
        for start in range(first, row["at"] + 1, slide):
            found.setdefault((row["k"], start + size), []).append(row)
    return [(key, end, held) for (key, end), held in found.items()]


def sessions(rows: list[Row]) -> list[Window]:
    found = list[Window]()
    for key in "ab":
        for row in (r for r in rows if r["k"] == key):
            if found and found[-1][0] == key and row["at"] - found[-1][2][-1]["at"] <= 700:
                found[-1][2].append(row)
            else:
                found.append((key, None, [row]))
    return [(key, held[-1]["at"] + 701, held) for key, _, held in found]


def counted(rows: list[Row]) -> list[Window]:
    found = list[Window]()
    for key in "ab":
        own = [r for r in rows if r["k"] == key]
        for n in range(0, len(own), 7):
            held = own[n : n + 7]
            found.append((key, None if len(held) == 7 else END, held))
    return found


def every(rows: list[Row]) -> list[Window]:
    """A running aggregate: a window of all rows before for each row."""
    return [
        (row["k"], None, [r for r in rows[: n + 1] if r["k"] == row["k"]])
        for n, row in enumerate(rows)
    ]


NEVER_EARLY = hr.triggers.any_of(hr.triggers.at_watermark(), hr.triggers.after_rows(99))
KINDS: dict[str, tuple[Any, Callable[[list[Row]], list[Window]]]] = {
    "running": (None, every),
    "tumbling": ((hr.tumbling("5s"), {}), lambda rows: spans(5_000, 5_000, rows)),
    "sliding": ((hr.sliding("10s", every="2s"), {}), lambda rows: spans(10_000, 2_000, rows)),
    "coarse panes": ((hr.sliding("8s", every="100ms"), {}), lambda rows: spans(8_000, 100, rows)),
    "patient": ((hr.tumbling("5s"), {"lateness": "3s"}), lambda rows: spans(5_000, 5_000, rows)),
    "sessions": ((hr.session("700ms"), {}), sessions),
    "rows": ((hr.tumbling(rows=7), {}), counted),
    "triggered rows": (
        (hr.tumbling(rows=7), {"trigger": NEVER_EARLY}), counted,
    ),
}  # fmt: skip

VERSIONS: tuple[dict[str, Any], ...] = (
    {"total": hr.sum("v"), "low": hr.min("v"), "n": hr.count()},
    {
        "n": hr.count(), "most": hr.max("v"), "spent": hr.sum("v"), "low": hr.min("v"),
        "since": "restart", "was_fields": {"spent": "total"},
    },
    {"seen": hr.count(), "low": hr.min("v"), "most": hr.max("v"), "since": "restart"},
)  # fmt: skip
TOLD = (("total", "low", "n"), ("spent", "low", "n", "most"), ("low", "most", "seen"))
BEGINS = {"most": 1, "seen": 2}
DROPS = ((), (), ("s.n", "s.spent"))
VALUES: dict[str, Callable[[list[int]], int | None]] = {
    "total": lambda v: sum(v) if v else None, "spent": lambda v: sum(v) if v else None,
    "low": lambda v: min(v, default=None), "most": lambda v: max(v, default=None),
    "n": len, "seen": len,
}  # fmt: skip


def job(place: Path, kind: str, version: int) -> hr.Job:
    made, window = hr.Job("evolving"), KINDS[kind][0]
    schema = f"k string, v {'int' if version < 2 else 'bigint'}, at bigint, day int"
    rows = made.read(
        f"files:{place}/in", schema=schema, format="json", time="at", delay="1s", name="rows"
    )
    keyed, said = rows.key_by("k"), {**VERSIONS[version], "name": "s"}
    if window is None:
        found = keyed.agg(unbounded=True, **said)
    else:
        found = keyed.window(window[0], **window[1]).agg(**said)
    told = {name: name for name in TOLD[version]}
    found.select("k", version=str(version), **told).write("collect:", name=f"out {version}")
    return made


def play(place: Path, kind: str, crash: Callable[[int], Any] | None = None) -> Counter[Any]:
    (place / "in").mkdir(parents=True, exist_ok=True)
    for version, part in enumerate(PARTS):
        text = "".join(json.dumps(row) + "\n" for row in part)
        (place / "in" / f"{version}.json").write_text(text)
        if crash is not None:
            crash(version)
        until = "end" if version == len(PARTS) - 1 else None
        start(place, kind, version, until).drain()
    return Counter(
        (r["k"], r["version"], *(r[name] for name in TOLD[int(r["version"])]))
        for version in range(3)
        for r in hr.collected(str(place / "job"), f"out {version}").to_pylist()
    )


def start(place: Path, kind: str, version: int, until: str | None) -> Driver:
    made = job(place, kind, version)
    return Driver(made, place / "job", until=until, max_batch=13, drop=DROPS[version])


def wanted(kind: str) -> Counter[Any]:
    """Each window by the version under which it is over, or its last row comes."""
    marks = [max(r["at"] for part in PARTS[: n + 1] for r in part) - DELAY for n in range(2)]
    found = Counter[Any]()
    for key, end, held in KINDS[kind][1](ROWS):
        if end is None:
            version = held[-1]["day"]
        else:
            version = next((n for n, mark in enumerate(marks) if end <= mark), 2)
        found[key, version, *(value(name, held) for name in TOLD[version])] += 1
    return found


def value(name: str, held: list[Row]) -> int | None:
    return VALUES[name]([r["v"] for r in held if r["day"] >= BEGINS.get(name, 0)])


@pytest.mark.parametrize("kind", KINDS)
def test_each_aggregate_counts_since_it_has_been_there(kind: str, tmp_path: Path) -> None:
    expected = wanted(kind)
    assert {version for _, version, *_ in expected} == {0, 1, 2}
    assert play(tmp_path, kind) == expected


class Crash(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["running", "sliding"])
def test_a_crash_in_the_change_leaves_the_state_before_or_after_it(
    kind: str, tmp_path: Path
) -> None:
    """At each of its durable steps, one after the other, before it may go through."""
    points = set[str]()

    def crash(version: int) -> None:
        nth = 1
        while version:
            left = nth

            def hook(point: str) -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    points.add(point)
                    raise Crash(point)

            try:
                with faults.hooked(hook):
                    start(tmp_path, kind, version, None)
            except Crash:
                nth += 1
                continue
            return

    assert play(tmp_path, kind, crash) == wanted(kind)
    assert {"run.added", "run.written", "commit.manifest"} & points


def test_a_plan_before_the_change_names_what_is_lost(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("".join(json.dumps(r) + "\n" for r in PARTS[0]))
    start(tmp_path, "tumbling", 0, None).drain()
    start(tmp_path, "tumbling", 1, None).drain()
    with pytest.raises(hr.StateError, match="HR-EVOLVE-002") as lost:
        Driver(job(tmp_path, "tumbling", 2), tmp_path / "job", until=None)
    assert "'s.n', 's.spent'" in str(lost.value)
