"""Keys of wider integers for steps that hold rows: each row goes on in wider columns.

What comes out is what a program gives in which the columns were wide from the beginning; and of
each kind of step, what a few lines of plain Python say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.driver.start import review
from headrace.state import faults
from tests.driver.test_changed_settings import ROWS, days, driver, fed, job


class Crash(Exception):
    pass


EARLY = t.at_watermark(early=t.after_rows(2))
WIDER, WIDE = ("int", "bigint", "bigint"), ("bigint",) * 3
Build = Callable[[Any], Any]


class Rows(hr.WindowProcess):
    calls = hr.window_value("bigint", default=0)

    def process(self, key: Any, window: Any, rows: Any) -> Any:
        self.calls += 1
        return {"n": len(rows["v"]), "most": max(rows["k"]) + self.calls}


class Heard(hr.KeyedProcess):
    """The rows of both inputs, in the order of event time."""

    output = "k bigint, n bigint, of bigint"
    n = hr.value("bigint", default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        return (row.k, self.n, row.v)


class Both(Heard):
    on_left = on_right = Heard.on_row
    on_row = None


def halves(rows: Any) -> tuple[Any, Any]:
    return rows.where("v < 2"), rows.where("v >= 2")


def paired(how: str, within: str = "1500ms") -> Build:
    def build(rows: Any) -> Any:
        left, right = halves(rows)
        return left.join(right, on="k", how=how, within=within, name="s")

    return build


def in_windows(cut: Any, how: str = "full") -> Build:
    def build(rows: Any) -> Any:
        left, right = halves(rows)
        return left.join(right, on="k", how=how, window=cut, name="s")

    return build


def cogrouped(rows: Any) -> Any:
    left, right = halves(rows)

    def told(key: Any, some: Any, others: Any) -> Any:
        return [(len(some), len(others))]

    window = hr.tumbling("2s")
    return left.cogroup(right, told, on="k", window=window, schema="a int, b int", name="s")


def all_three(rows: Any) -> Any:
    parts = {
        f"p{n}": rows.where(f"v % 3 = {n}").select("k", "at", **{f"v{n}": "v"}) for n in range(3)
    }
    return hr.join_all(on="k", within="700ms", how="left", name="s", **parts)


def latest(how: str, **said: Any) -> Build:
    def build(rows: Any) -> Any:
        left, right = halves(rows)
        table = right.select("k", "at", w="v").table("k", unbounded=True)
        return left.join(table, on="k", how=how, name="s", **said)

    return build


def tables(rows: Any) -> Any:
    left, right = halves(rows)
    here = left.select("k", "at", a="v").table("k", unbounded=True)
    return here.join(
        right.select("k", "at", b="v").table("k", unbounded=True), how="full", name="s"
    )


def referring(rows: Any) -> Any:
    """The left table has a key of its own, and refers to the right one."""
    left, right = halves(rows)
    here = left.select("at", own="k", ref="cast(v as bigint)").table("own", unbounded=True)
    there = right.select("at", id="cast(v - 2 as bigint)", b="v").table("id", unbounded=True)
    return here.join(there, on={"ref": "id"}, how="left", name="s")


def matched(rows: Any) -> Any:
    pattern = hr.pattern("low", "v < 1").then("high", "v > 3 and k > -9").within("3s")
    return rows.key_by("k").match(pattern, select={"low": "low.at", "high": "high.at"}, name="s")


def connected(rows: Any) -> Any:
    left, right = halves(rows)
    both = hr.connect(by="k", left=left, right=right)
    return both.process(Both(), order="event_time", unbounded=True, name="s")


def over(window: Any, **said: Any) -> Build:
    return lambda rows: (
        rows.key_by("k")
        .window(window, **said)
        .process(Rows(), schema="n int, most bigint", name="s")
    )


KINDS: dict[str, Build] = {
    "top": lambda rows: rows.key_by("k").top(3, by="v", unbounded=True, name="s"),
    "top of things": lambda rows: rows.table("k", unbounded=True).top(2, by="v", name="s"),
    "top of windows": lambda rows: (
        rows.key_by("k").window(hr.tumbling("2s")).agg(n=hr.sum("v")).top(2, by="n", name="s")
    ),
    "sample": lambda rows: rows.key_by("k").sample(2, per="3s", name="s"),
    "suppress": lambda rows: rows.key_by("k").suppress("3s", name="s"),
    "suppress by rows": lambda rows: rows.key_by("k").suppress(rows=4, unbounded=True, name="s"),
    "batch": lambda rows: rows.key_by("k").batch(4, within="5s", into="them", name="s").select(
        "k", n="size(them)"
    ),
    "first seen": lambda rows: rows.key_by("k", "v").first_seen(per="4s", expected=100, name="s"),
    "match": matched,
    "windows": over(hr.tumbling("2s")),
    "sliding": over(hr.sliding("4s", every="1s")),
    "triggered": over(hr.tumbling("3s"), trigger=EARLY, lateness="1s"),
    "sessions": over(hr.session("400ms")),
    "of rows": over(hr.tumbling(rows=7)),
    "of last rows": over(hr.sliding(rows=4, every_rows=2)),
    "triggered rows": over(hr.tumbling(rows=9), trigger=EARLY),
    "evicted": lambda rows: rows.key_by("k")
    .window(hr.tumbling("3s"), evict=hr.keep_last(2))
    .agg(n=hr.sum("v"), most=hr.max("k"), name="s"),
    "folded": lambda rows: rows.key_by("k")
    .window(hr.tumbling("3s"), trigger=EARLY)
    .fold(0, lambda total, row: total + row.k, name="s"),
    "reduced": lambda rows: rows.key_by("k").reduce(lambda a, b: b, unbounded=True, name="s"),
    "ordered": lambda rows: rows.key_by("k").process(
        Heard(), order="event_time", unbounded=True, name="s"
    ),
    "connected": connected,
    "inner": paired("inner"), "left": paired("left"), "right": paired("right"),
    "full": paired("full"), "semi": paired("semi"),
    "anti": paired("anti", "50ms"),
    "in windows": in_windows(hr.tumbling("2s")), "in sessions": in_windows(hr.session("300ms")),
    "cogroup": cogrouped, "join_all": all_three,
    "latest": latest("left", within="9s"), "latest, full": latest("full"),
    "tables": tables, "referring": referring,
    "changes": lambda rows: rows.table("k", unbounded=True).changes(name="s"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_rows_under_a_wider_key_are_those_of_one_that_was_always_wide(
    kind: str, tmp_path: Path
) -> None:
    def build(day: int, rows: Any) -> Any:
        return KINDS[kind](rows)

    widened = days(tmp_path / "widened", build, WIDER)
    assert widened == days(tmp_path / "wide", build, WIDE)
    assert widened.total() > 15


# Models in plain Python.


def played(kind: str, place: Path) -> Counter[Any]:
    return days(place, lambda day, rows: KINDS[kind](rows), WIDER)


def of_key(**where: Any) -> list[dict[str, int]]:
    return [row for row in ROWS if all(row[n] == value for n, value in where.items())]


def test_the_best_of_a_widened_key(tmp_path: Path) -> None:
    found = Counter[Any]()
    for changed, count in played("top", tmp_path).items():
        row = dict(changed)
        sign = 1 if row.pop("change") == "+" else -1
        found[tuple(sorted(row.items()))] += sign * count
    wanted = Counter[Any]()
    for key in {row["k"] for row in ROWS}:
        best = sorted(of_key(k=key), key=lambda row: (-row["v"], row["at"]))[:3]
        wanted += Counter(
            tuple(sorted({**row, "rank": n}.items())) for n, row in enumerate(best, start=1)
        )
    assert +found == wanted


def test_the_last_change_of_a_widened_key(tmp_path: Path) -> None:
    last = {(row["k"], row["at"] // 3_000): row for row in ROWS}
    assert played("suppress", tmp_path) == Counter(tuple(sorted(r.items())) for r in last.values())


def test_the_matches_of_a_widened_key(tmp_path: Path) -> None:
    """Each low row with the first high one after it."""
    wanted = Counter[Any]()
    for a in (row for row in ROWS if row["v"] < 1):
        later = (b for b in of_key(k=a["k"]) if b["at"] > a["at"] and b["v"] > 3)
        high = next((b["at"] for b in later if b["at"] - a["at"] <= 3_000), None)
        if high is not None:
            wanted[("high", high), ("k", a["k"]), ("low", a["at"])] += 1
    assert played("match", tmp_path) == wanted
    assert wanted.total() > 3


def test_the_windows_of_rows_of_a_widened_key(tmp_path: Path) -> None:
    sizes = Counter((row["k"], row["at"] // 2_000) for row in ROWS)
    wanted = Counter((key, n, key + 1) for (key, _), n in sizes.items())
    found = played("windows", tmp_path)
    told = Counter[Any]()
    for row, count in found.items():
        said = dict(row)
        told[said["k"], said["n"], said["most"]] += count
    assert told == wanted


def test_the_pairs_of_a_widened_key(tmp_path: Path) -> None:
    found = Counter[Any]()
    for row, count in played("full", tmp_path).items():
        said = dict(row)
        found[said["k"], said["at"], said["at_right"]] += count
    pairs = Counter(
        (a["k"], a["at"], b["at"])
        for a, b in product(ROWS, ROWS)
        if a["v"] < 2 <= b["v"] and a["k"] == b["k"] and abs(a["at"] - b["at"]) <= 1_500
    )
    met = {at for _, *times in pairs for at in times}
    alone = [row for row in ROWS if row["at"] not in met]
    pairs += Counter((r["k"], *((r["at"], None), (None, r["at"]))[r["v"] >= 2]) for r in alone)
    assert found == pairs


# Other columns of the rows, and what stays refused.


def build_of(*columns: dict[str, str], kind: str = "suppress") -> Callable[[int, Any], Any]:
    return lambda day, rows: KINDS[kind](rows.select("k", "at", "day", **columns[min(day, 1)]))


@pytest.mark.parametrize("kind", ["top", "suppress", "sessions", "batch", "ordered"])
def test_other_columns_of_the_rows_may_be_wider(kind: str, tmp_path: Path) -> None:
    """Also by a cast, which makes no other column of one that nothing goes by."""
    small, large = {"v": "v", "w": "cast(v as int)"}, {"v": "v", "w": "cast(v as bigint)"}
    widened = days(tmp_path / "a", build_of(small, large, kind=kind), WIDE)
    assert widened == days(tmp_path / "b", build_of(large, large, kind=kind), WIDE)
    assert widened.total() > 20


def test_a_plan_says_which_columns_are_wider(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": 1, "v": 2, "at": 0, "day": 0}\n')
    build = build_of({"v": "cast(v as int)"}, {"v": "v"})
    driver(tmp_path, build, 0, "int", None).drain()
    found = review(job(tmp_path, build, 1, "bigint").program(), str(tmp_path / "job"))
    assert str(found.comparison).splitlines()[:3] == [
        "operator  s: same",
        "value     s.k: widened from int to bigint",
        "value     s.v: widened from int to bigint",
    ]


KEYS: dict[str, tuple[str, str, str]] = {
    "narrower": ("bigint", "int", "not every key that is stored fits the narrower type"),
    "floats": ("float", "double", "most numbers are not the same as a float and as a double"),
    "whole and not": ("int", "double", "whole numbers have others than floating-point numbers"),
    "decimal places": ("decimal(8,2)", "decimal(10,3)", "decimals with 2 decimal places have"),
}  # fmt: skip


@pytest.mark.parametrize("step", ["suppress", "full", "windows"])
@pytest.mark.parametrize("case", KEYS)
def test_a_key_of_other_hashes_or_numbers_is_refused_with_the_reason(
    case: str, step: str, tmp_path: Path
) -> None:
    before, after, why = KEYS[case]
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as refused:
        days(tmp_path, lambda day, rows: KINDS[step](rows), (before, after))
    assert why in str(refused.value)


@pytest.mark.parametrize("step", ["suppress", "full", "top", "of rows"])
def test_a_decimal_with_more_digits_before_the_point_is_the_same_key(
    step: str, tmp_path: Path
) -> None:
    def build(day: int, rows: Any) -> Any:
        return KINDS[step](rows)

    kinds = ("decimal(12,2)", "decimal(20,2)", "decimal(30,2)")
    widened = days(tmp_path / "a", build, kinds)
    assert widened == days(tmp_path / "b", build, kinds[2:] * 3)
    assert widened.total() > 20


POINTS = ("run.added", "state.written", "commit.manifest", "commit.published")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_while_rows_are_rewritten_changes_nothing(point: str, tmp_path: Path) -> None:
    """The first start of the changed program dies; it is started again as it is."""
    crashes = iter([True])

    def build(day: int, rows: Any) -> Any:
        return KINDS["full"](rows)

    def crash(name: str) -> None:
        if name == point and next(crashes, False):
            raise Crash(name)

    place = tmp_path / "a"
    (place / "in").mkdir(parents=True)
    found = Counter[Any]()
    for day, kind in enumerate(WIDER):
        fed(place, day)
        until = "end" if day == len(WIDER) - 1 else None
        if day == 1:
            with faults.hooked(crash), pytest.raises(Crash):
                driver(place, build, day, kind, until).drain()
        driver(place, build, day, kind, until).drain()
    for day in range(len(WIDER)):
        rows = hr.collected(str(place / "job"), f"out {day}").to_pylist()
        found += Counter(tuple(sorted(row.items(), key=str)) for row in rows)
    assert found == days(tmp_path / "b", build, WIDE)
