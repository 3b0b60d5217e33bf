"""A fold whose record gets other fields: the others go on, and a new one starts as in the zero."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.driver.test_changed_settings import ROWS, days

SCHEMAS = ("n int, total bigint", "total bigint, most bigint, n bigint", "most bigint, n bigint")
START = {"n": 0, "total": 0, "most": -1}


def fields(day: int) -> list[str]:
    return [column.split()[0] for column in SCHEMAS[day].split(", ")]


def folded(day: int) -> Any:
    def add(so_far: dict[str, int], row: Any) -> dict[str, int]:
        found = {"n": so_far["n"] + 1, "total": so_far.get("total", 0) + row.v,
                 "most": max(so_far.get("most", -1), row.v)}  # fmt: skip
        return {name: found[name] for name in fields(day)}

    return add


def merge(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
    return {k: max(a[k], b[k]) if k == "most" else a[k] + b[k] for k in a}


def build(window: Any, merges: bool) -> Any:
    def step(day: int, rows: Any) -> Any:
        zero = {name: START[name] for name in fields(day)}
        keyed, how = rows.key_by("k"), {"schema": SCHEMAS[day], "name": "s"}
        if window is None:
            found = keyed.fold(zero, folded(day), unbounded=True, **how)
        else:
            more = {"merge": merge} if merges else {}
            found = keyed.window(window).fold(zero, folded(day), **more, **how)
        return found.select("k", *fields(day))

    return step


def value(held: list[dict[str, Any]], day: int) -> Counter[Any]:
    """What each field is: `most` has been there since the second day."""
    since = [row["v"] for row in held if row["day"] >= 1]
    known = {"n": len(held), "total": sum(r["v"] for r in held), "most": max(since, default=-1)}
    row = {"k": held[0]["k"], **{name: known[name] for name in fields(day)}}
    return Counter([tuple(sorted(row.items()))])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_running_fold(tmp_path: Path) -> None:
    wanted, held = Counter[Any](), dict[int, list[Any]]()
    for row in ROWS:
        held.setdefault(row["k"], []).append(row)
        wanted += value(held[row["k"]], row["day"])
    assert days(tmp_path, build(None, False), ("int",) * 3, drop=((), (), "s.total")) == wanted


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("size", [4_000, 8_000])
def test_a_fold_of_windows(tmp_path: Path, merges: bool, size: int) -> None:
    """Each window by the day on which the watermark passes its end."""
    slide = 4_000
    marks = [max(r["at"] for r in ROWS if r["day"] <= n) - 1_000 for n in range(2)]
    windows = dict[tuple[int, int], list[Any]]()
    for row in ROWS:
        last = row["at"] // slide * slide
        for start in range(last, last - size, -slide):
            windows.setdefault((row["k"], start + size), []).append(row)
    wanted = Counter[Any]()
    for (_, end), held in windows.items():
        wanted += value(held, next((n for n, mark in enumerate(marks) if end <= mark), 2))
    window = hr.sliding(f"{size}ms", every=f"{slide}ms")
    found = days(tmp_path, build(window, merges), ("int",) * 3, drop=((), (), "s.total"))
    assert found == wanted


def test_a_field_that_is_gone_needs_consent_and_a_narrower_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(hr.StateError, match="HR-EVOLVE-002") as lost:
        days(tmp_path / "gone", build(None, False), ("int",) * 3)
    assert "drop='s.total'" in str(lost.value)

    def narrower(day: int, rows: Any) -> Any:
        schema = ("n bigint, m bigint", "n int, m bigint")[day]
        return rows.key_by("k").fold(
            {"n": 0, "m": 0}, lambda so_far, row: so_far, schema=schema, unbounded=True, name="s"
        )

    with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as refused:
        days(tmp_path / "narrower", narrower, ("int", "int"))
    assert "'n' was bigint and is int" in str(refused.value)
