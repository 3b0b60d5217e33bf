"""Keys of wider integers, and settings that may be others: the state goes on, cut anew."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.driver.start import review
from headrace.testing import Driver

draw = random.Random(11)
ROWS = [
    {"k": draw.choice((-7, 0, 2**31 - 1)), "v": draw.randrange(5), "at": n * 170, "day": n // 60}
    for n in range(180)
]


class Heard(hr.KeyedProcess):
    """How often, and what each silence ended."""

    output = "k bigint, n bigint, at bigint"
    n = hr.value("bigint", default=0, ttl="3s")
    key = hr.value("bigint", ttl="1h")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.key = row.k
        ctx.timer(ctx.time + 700)
        return (row.k, self.n, -1)

    def on_timer(self, time: int, ctx: Any) -> Any:
        return (self.key, 0, time)


def over(window: Any, **said: Any) -> Callable[[Any], Any]:
    return lambda keyed: keyed.window(window, **said).agg(
        n=hr.sum("v"), last=hr.last("v"), name="s"
    )


KEYED: dict[str, Callable[[Any], Any]] = {
    "running": lambda keyed: keyed.agg(n=hr.sum("v"), unbounded=True, name="s"),
    "tumbling": over(hr.tumbling("2s")),
    "coarse panes": over(hr.sliding("8s", every="100ms")),
    "patient": over(hr.tumbling("2s"), lateness="1s"),
    "sessions": over(hr.session("500ms")),
    "rows": over(hr.tumbling(rows=7)),
    "last rows": over(hr.sliding(rows=4, every_rows=2)),
    "fold": lambda keyed: keyed.fold(0, lambda t, row: t + row.v, unbounded=True, name="s"),
    "folds": lambda keyed: keyed.window(hr.tumbling("2s")).fold(
        0, lambda t, row: t + row.v, name="s"
    ),
    "process": lambda keyed: keyed.process(Heard(), name="s"),
    "deduplicate": lambda keyed: keyed.deduplicate(within="1s", name="s"),
    "throttle": lambda keyed: keyed.throttle(2, per="2s", name="s"),
    "limit": lambda keyed: keyed.limit(25, unbounded=True, name="s"),
    "changes": lambda keyed: keyed.changes_only("v", unbounded=True, name="s"),
}  # fmt: skip


def days(
    place: Path, build: Callable[[int, Any], Any], kinds: tuple[str, ...], drop: Any = ((),) * 3
) -> Counter[Any]:
    """The rows day by day, each under its version; the input's key is of its kind."""
    (place / "in").mkdir(parents=True)
    for day, kind in enumerate(kinds):
        fed(place, day)
        until = "end" if day == len(kinds) - 1 else None
        driver(place, build, day, kind, until, drop[day]).drain()
    return Counter(
        tuple(sorted(row.items(), key=str))
        for day in range(len(kinds))
        for row in hr.collected(str(place / "job"), f"out {day}").to_pylist()
    )


def fed(place: Path, day: int) -> None:
    text = "".join(json.dumps(row) + "\n" for row in ROWS if row["day"] == day)
    (place / "in" / f"{day}.json").write_text(text)


def job(place: Path, build: Callable[[int, Any], Any], day: int, kind: str) -> hr.Job:
    made, schema = hr.Job("changed"), f"k {kind}, v bigint, at bigint, day int"
    rows = made.read(f"files:{place}/in", schema=schema, format="json", time="at", delay="1s",
                     name="rows")  # fmt: skip
    build(day, rows).write("collect:", name=f"out {day}")
    return made


def driver(
    place: Path,
    build: Callable[[int, Any], Any],
    day: int,
    kind: str,
    until: str | None,
    drop: Any = (),
) -> Driver:
    made = job(place, build, day, kind)
    return Driver(made, place / "job", until=until, max_batch=13, drop=drop)


@pytest.mark.parametrize("kind", KEYED)
def test_a_key_of_wider_integers_is_the_same_key(kind: str, tmp_path: Path) -> None:
    def build(day: int, rows: Any) -> Any:
        return KEYED[kind](rows.key_by("k"))

    narrow = days(tmp_path / "widened", build, ("int", "bigint", "bigint"))
    assert narrow == days(tmp_path / "wide", build, ("bigint", "bigint", "bigint"))
    assert narrow.total() > 20


def test_the_totals_of_a_widened_key_are_those_of_all_its_rows(tmp_path: Path) -> None:
    def build(day: int, rows: Any) -> Any:
        return rows.key_by("k").agg(n=hr.sum("v"), unbounded=True, name="s").select("k", "at", "n")

    found, totals, wanted = days(tmp_path, build, ("int", "int", "bigint")), Counter[int](), set()
    for row in ROWS:
        totals[row["k"]] += row["v"]
        wanted.add((("at", row["at"]), ("k", row["k"]), ("n", totals[row["k"]])))
    assert found == Counter(wanted)


@pytest.mark.parametrize(("before", "after"), [("bigint", "int"), ("int", "double")])
def test_another_key_is_refused(before: str, after: str, tmp_path: Path) -> None:
    def build(day: int, rows: Any) -> Any:
        return rows.key_by("k").agg(n=hr.sum("v"), unbounded=True, name="s")

    with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as refused:
        days(tmp_path, build, (before, after))
    assert "its key was" in str(refused.value)


def test_a_plan_says_what_is_cut_anew(tmp_path: Path) -> None:
    def build(day: int, rows: Any) -> Any:
        return rows.key_by("k").deduplicate(within=("4s", "1s")[day], name="s")

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text("".join(json.dumps(r) + "\n" for r in ROWS[:60]))
    driver(tmp_path, build, 0, "int", None).drain()
    found = review(job(tmp_path, build, 1, "bigint").program(), str(tmp_path / "job"))
    assert str(found.comparison).splitlines()[:3] == [
        "operator  s: same",
        "value     s.k: widened from int to bigint",
        "value     s.within: changed from 4s to 1s",
    ]


def test_a_shorter_time_of_deduplicate_lets_more_rows_through_from_then_on(tmp_path: Path) -> None:
    within = (7_000, 3_300, 1_100)

    def build(day: int, rows: Any) -> Any:
        keyed = rows.key_by("k", "v")
        return keyed.deduplicate(within=f"{within[day]}ms", name="s").select("k", "at")

    found, last, wanted = days(tmp_path, build, ("int", "bigint", "bigint")), {}, Counter[Any]()
    for row in ROWS:
        key = row["k"], row["v"]
        if row["at"] - last.get(key, -(10**9)) >= within[row["day"]]:
            last[key] = row["at"]
            wanted[("at", row["at"]), ("k", row["k"])] += 1
    assert found == wanted


def test_narrower_bounds_of_a_join_pair_what_is_stored_by_the_new_ones(tmp_path: Path) -> None:
    bounds = (4_000, 1_200, 300)

    def build(day: int, rows: Any) -> Any:
        left, right = (rows.where(f"v {sign} 2") for sign in ("<", ">="))
        paired = left.join(right, on="k", within=f"{bounds[day]}ms", name="s")
        return paired.select("k", "at", right="at_right")

    found, wanted = days(tmp_path, build, ("bigint",) * 3), Counter[Any]()
    for a, b in product(ROWS, ROWS):
        near = abs(a["at"] - b["at"]) <= bounds[max(a["day"], b["day"])]
        if a["v"] < 2 <= b["v"] and a["k"] == b["k"] and near:
            wanted[("at", a["at"]), ("k", a["k"]), ("right", b["at"])] += 1
    assert found == wanted
    assert found.total() > 200


@pytest.mark.parametrize("how", ["left", "full", "anti"])
def test_narrower_bounds_of_an_outer_join(how: str, tmp_path: Path) -> None:
    """A row without a partner is emitted when none can come any more by the new bounds, and is
    not late for the next step."""
    bounds = (4_000, 1_200, 300)

    def build(day: int, rows: Any) -> Any:
        left, right = (rows.where(f"v {sign} 2") for sign in ("<", ">="))
        found = left.join(right, on="k", how=how, within=f"{bounds[day]}ms", name="s")
        if how == "anti":
            return found.window(hr.tumbling("1s")).agg(n=hr.count(), name="counts").select("n")
        return found.select("k", "at", right="at_right")

    found, wanted, met = days(tmp_path, build, ("bigint",) * 3), Counter[Any](), set[Any]()
    for a, b in product(ROWS, ROWS):
        near = abs(a["at"] - b["at"]) <= bounds[max(a["day"], b["day"])]
        if a["v"] < 2 <= b["v"] and a["k"] == b["k"] and near:
            wanted[("at", a["at"]), ("k", a["k"]), ("right", b["at"])] += 1
            met |= {a["at"], b["at"]}
    alone = [row for row in ROWS if row["at"] not in met]
    if how == "anti":
        emitted = sum(n for ((_, n),), count in found.items() for _ in range(count))
        assert emitted == sum(row["v"] < 2 for row in alone) > 5
        return
    for row in alone:
        if row["v"] < 2:
            wanted[("at", row["at"]), ("k", row["k"]), ("right", None)] += 1
        elif how == "full":
            wanted[("at", None), ("k", row["k"]), ("right", row["at"])] += 1
    assert found == wanted


def test_wider_bounds_and_longer_times_are_refused_with_the_reason(tmp_path: Path) -> None:
    def build(day: int, rows: Any) -> Any:
        return rows.key_by("k").deduplicate(within=("1s", "4s")[day], name="s")

    with pytest.raises(hr.StateError, match="what was over by that is gone"):
        days(tmp_path, build, ("int", "int"))
