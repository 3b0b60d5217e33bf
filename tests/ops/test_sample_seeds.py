"""What seeds a sample: job, step, key and place; not slots, tasks or the kind of window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.testing import drive

ROWS = [{"x": i, "at": 1_000 * i} for i in range(120)]
KEYS = ("a", "b", "c")
SAMPLE = hr.sample("x", 8)

WINDOWS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda s: s.window(hr.tumbling("1h")),
    "sliding": lambda s: s.window(hr.sliding("1h", every="5m")),
    "session": lambda s: s.window(hr.session("1m")),
    "calendar": lambda s: s.window(hr.calendar("day")),
    "everything": lambda s: s.window(hr.everything()),
    "late": lambda s: s.window(hr.tumbling("1h"), lateness="5m"),
    "rows": lambda s: s.window(hr.tumbling(rows=120)),
    "sliding rows": lambda s: s.window(hr.sliding(rows=120, every=60)),
    "running": lambda s: s,
    "per": lambda s: s.sample(8, per="1h").key_by("k").window(hr.tumbling("1h")),
}


def fanned(rows: Any) -> Any:
    """Each row once for each key: rows that share a place."""
    made = rows.with_columns(k="split('a b c', ' ')").explode("k")
    return made.key_by("k")


def branches(rows: Any) -> Any:
    first, *others = (rows.with_columns(k=f"'{k}'") for k in KEYS)
    return first.union(*others).key_by("k")


def samples(
    folder: Path, made: Any, window: Any, slots: int = 2, job: str = "one", step: str = "s",
    **options: Any,
) -> dict[str, list[int]]:  # fmt: skip
    """The last sample of each key."""
    draft = hr.Job(job, slots=slots)
    rows = draft.read(hr.rows(ROWS), time="at", delay="5s", name="in")
    aggregated = window(made(rows))
    unbounded = {"unbounded": True} if window is WINDOWS["running"] else {}
    aggregated.agg(s=SAMPLE, name=step, **unbounded).write("collect:", name="out")
    found = drive(draft, folder, **options).output("out").to_pylist()
    return {row["k"]: row["s"] for row in found if len(row["s"]) == 8}


@pytest.mark.parametrize(
    "window, made", [*((w, fanned) for w in WINDOWS), ("tumbling", branches), ("per", branches)]
)
def test_keys_draw_independently_whatever_the_slots(window: str, made: Any, tmp_path: Path) -> None:
    one = samples(tmp_path / "one", made, WINDOWS[window], slots=1)
    many = samples(tmp_path / "many", made, WINDOWS[window], slots=8, max_batch=50)
    assert one == many
    drawn = [set(one[k]) for k in KEYS]
    assert all(len(drawn[i] & drawn[j]) < 4 for i in range(3) for j in range(i))


def test_two_jobs_and_two_steps_draw_independently_and_a_replay_the_same(tmp_path: Path) -> None:
    def found(folder: str, **names: str) -> set[tuple[str, int]]:
        drawn = samples(tmp_path / folder, fanned, WINDOWS["tumbling"], **names)
        return {(k, x) for k, some in drawn.items() for x in some}

    one = found("a")
    assert found("b") == one and len(one) == 24
    assert len(found("c", job="two") & one) < 6
    assert len(found("d", step="t") & one) < 6
