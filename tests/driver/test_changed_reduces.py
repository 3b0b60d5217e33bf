"""Rows under `reduce` that get other columns: a new one is null in what is stored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.start import review
from tests.driver.test_changed_settings import ROWS, days, driver, job

# The columns of each day: one more, in front; one less, and the others wider.
COLUMNS = (
    {"n": "cast(1 as int)", "total": "v"},
    {"most": "v", "total": "v", "n": "cast(1 as bigint)"},
    {"n": "cast(1 as bigint)", "most": "v"},
)
DROPS = ((), (), "s.total")


def added(a: Any, b: Any) -> Any:
    """The sums of what both have; the most of those that were ever seen."""
    found = {
        name: getattr(a, name) + getattr(b, name) for name in ("n", "total") if name in a._fields
    }
    if "most" in a._fields:
        found["most"] = max(m for m in (a.most, b.most) if m is not None)
    return b._replace(**found)


def build(window: Any, merges: bool) -> Any:
    def step(day: int, rows: Any) -> Any:
        keyed = rows.select("k", "at", **COLUMNS[day]).key_by("k")
        if window is None:
            found = keyed.reduce(added, unbounded=True, name="s")
        else:
            more = {"merge": added} if merges else {}
            found = keyed.window(window).reduce(added, **more, name="s")
        return found.select("k", *COLUMNS[day])

    return step


def value(held: list[dict[str, Any]], day: int) -> Counter[Any]:
    """What each column is: `most` has been there since the second day."""
    since = [row["v"] for row in held if row["day"] >= 1]
    known = {"n": len(held), "total": sum(r["v"] for r in held), "most": max(since, default=None)}
    row = {"k": held[0]["k"], **{name: known[name] for name in COLUMNS[day]}}
    return Counter([tuple(sorted(row.items()))])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_running_reduce(tmp_path: Path) -> None:
    wanted, held = Counter[Any](), dict[int, list[Any]]()
    for row in ROWS:
        held.setdefault(row["k"], []).append(row)
        wanted += value(held[row["k"]], row["day"])
    assert days(tmp_path, build(None, False), ("int", "int", "bigint"), drop=DROPS) == wanted


@pytest.mark.parametrize("merges", [False, True])
@pytest.mark.parametrize("size", [4_000, 8_000])
def test_a_reduce_of_windows(tmp_path: Path, merges: bool, size: int) -> None:
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
    assert days(tmp_path, build(window, merges), ("int", "bigint", "bigint"), drop=DROPS) == wanted


def test_a_plan_says_what_is_null(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": 1, "v": 2, "at": 0, "day": 0}\n')
    driver(tmp_path, build(None, False), 0, "int", None).drain()
    found = review(job(tmp_path, build(None, False), 1, "int").program(), str(tmp_path / "job"))
    assert str(found.comparison).splitlines()[:3] == [
        "operator  s: same",
        "value     s.most: new and null in what is stored",
        "value     s.n: widened from int to bigint",
    ]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("n int, x bigint not null", "may be null in what is stored, and not now"),
        ("n smallint", "the value 'n' was int and is smallint"),
    ],
)
def test_a_column_that_is_never_null_or_narrower_is_refused(
    schema: str, why: str, tmp_path: Path
) -> None:
    def step(day: int, rows: Any) -> Any:
        columns = ("n int", schema)[day]
        ones = {column.split()[0]: 1 for column in columns.split(", ")}
        made = rows.map(
            lambda r: {"k": r.k, "at": r.at, **ones}, schema=f"k int, at bigint, {columns}"
        )
        return made.key_by("k").reduce(lambda a, b: b, unbounded=True, name="s")

    with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as refused:
        days(tmp_path, step, ("int", "int"))
    assert why in str(refused.value)


def test_values_that_slide_have_the_columns_that_they_had(tmp_path: Path) -> None:
    def step(day: int, rows: Any) -> Any:
        keyed = rows.select("k", "at", **COLUMNS[day]).key_by("k")
        window = keyed.window(hr.sliding("4s", every="1s"))
        return window.reduce(added, merge=added, inverse=lambda a, b: a, name="s")

    with pytest.raises(hr.StateError, match="the value 'most' is new"):
        days(tmp_path, step, ("int", "int"))
