"""The order of changes: a row that points elsewhere now is taken back before it is given."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

import pytest

import headrace as hr
from headrace.ops.join.table_join import HOWS
from headrace.testing import Harness

LEFT, RIGHT = "p string, fk string, at bigint", "id string, v bigint, at bigint"
Result = tuple[Any, ...]
Made = dict[Result, tuple[int | None, int | None]]


class Told(hr.KeyedProcess):
    """Gives the rows of each key as they come to it."""

    output = "p string, fk string, v bigint, change string"

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (row.p, row.fk, row.v, row.change)


def job(time: str) -> hr.Job:
    job = hr.Job("order")
    a, b = (
        job.read(f"log:{n}", schema=schema, time="at", delay="1s", name=n)
        for n, schema in (("a", LEFT), ("b", RIGHT))
    )
    left, right = a.table("p", unbounded=True), b.table("id", unbounded=True)
    joined = left.join(right, on={"fk": "id"}, time=time).select("p", "fk", "v", "change")
    joined.write("collect:", name="plain")
    joined.key_by("p").process(Told()).write("collect:", name="keyed")
    return job


@pytest.mark.parametrize("time", ["event", "processing"])
def test_who_applies_changes_in_order_by_left_key_has_the_join(time: str) -> None:
    rand = random.Random(7)
    people, places = [f"p{i}" for i in range(5)], [f"x{i}" for i in range(6)]
    left: dict[str, str] = {}
    right: dict[str, int] = {}
    seen: dict[str, tuple[str, int]] = {}
    with Harness(job(time)) as test:
        for turn in range(1, 12):
            moved = [(p, rand.choice(places), turn * 100_000 + rand.randrange(50)) for p in people]
            changed = [
                (x, rand.randrange(99), turn * 100_000 + rand.randrange(50))
                for x in places if turn == 1 or rand.random() < 0.5
            ]  # fmt: skip
            left |= {p: fk for p, fk, _ in moved}
            right |= {x: v for x, v, _ in changed}
            test.send("b", changed)
            test.send("a", moved)
            for name in "ab":
                test.watermark(name, turn * 100_000 + 60_000)
            of_each: dict[tuple[str, str], str] = {}
            for p, fk, v, change in _new(test, "keyed"):
                if change == "-":
                    assert seen.pop(p) == (fk, v)
                else:
                    assert p not in seen
                    seen[p] = fk, v
            for p, fk, _, change in _new(test, "plain"):
                of_each[p, fk] = of_each.get((p, fk), "") + change
            assert seen == {p: (fk, right[fk]) for p, fk in left.items()}
            assert time != "event" or not any("+-" in told for told in of_each.values())


def _new(test: Harness, name: str) -> list[Result]:
    return [tuple(row.values()) for row in test.output(name)]


class Timed(hr.KeyedProcess):
    """Gives the rows of each key with their event time."""

    output = "p string, fk string, v bigint, change string, at bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (row.p, row.fk, getattr(row, "v", None), row.change, ctx.time)


def timed(how: str, foreign: bool) -> hr.Job:
    """Rows whose value is a multiple of four delete their key."""
    job = hr.Job("times")
    a, b = (
        job.read(f"log:{n}", schema=schema, time="at", delay="1h", name=n)
        for n, schema in (("a", "p string, fk string, n bigint, at bigint"), ("b", RIGHT))
    )
    left = a.table("p", unbounded=True, delete="n % 4 = 0")
    right = b.table("id", unbounded=True, delete="v % 4 = 0")
    joined = left.join(right, on={"fk" if foreign else "p": "id"}, how=how)
    joined.key_by("p").process(Timed()).write("collect:", name="out")
    return job


@dataclass
class Replay:
    """Both tables, change by change: what is in the join from when, and until when."""

    how: str
    foreign: bool
    left: dict[str, tuple[str, int]] = field(default_factory=dict)  # fk, and the change's time
    right: dict[str, tuple[int, int]] = field(default_factory=dict)

    def pointed(self) -> set[str]:
        """The right keys to which left rows point."""
        return {fk if self.foreign else p for p, (fk, _) in self.left.items()}

    def results(self, visited: Set[str] = frozenset()) -> Made:
        """Each result, and the changes that made it; right rows that are `visited` are alone."""
        found: Made = {}
        for p, (fk, mine) in self.left.items():
            v, theirs = self.right.get(fk if self.foreign else p, (None, None))
            if self.how in ("semi", "anti"):
                if (v is None) == (self.how == "anti"):
                    found[p, fk, None] = mine, None
            elif v is not None or self.how in ("left", "full"):
                found[p, fk, v] = mine, theirs
        if self.how in ("right", "full"):
            for x in self.right.keys() - (self.pointed() - visited):
                alone = (None, x) if self.foreign else (x, None)
                found[*alone, self.right[x][0]] = None, self.right[x][1]
        return found

    def visited(self, left: list[Any]) -> set[str]:
        """Foreign keys to which some of these rows point, but nobody before and after them."""
        after = {p: fk for p, (fk, _) in self.left.items()}
        for p, fk, n, _ in sorted(left, key=lambda row: row[-1]):
            after[p] = fk if n % 4 else ""
        return {fk for _, fk, _, _ in left} - self.pointed() - set(after.values())

    def batch(self, left: list[Any], right: list[Any]) -> list[Result]:
        """What is told of a batch: what was true and ended, what is true and began.

        Two exceptions are documented. What is made by the same changes before and after is not
        told, though it was not true in between. And by foreign key left rows that come and go do
        not interrupt a right row that is alone.
        """
        before = known = self.results()
        visited = self.visited(left) if self.foreign else set()
        ends: dict[Result, int] = {}
        begins: dict[Result, int] = {}
        changes = [(at, self.left, p, fk, n) for p, fk, n, at in left]
        changes += [(at, self.right, x, v, v) for x, v, at in right]  # type: ignore[misc]
        for at, table, key, value, n in sorted(changes, key=lambda c: c[0]):
            table.pop(key, None)
            if n % 4:
                table[key] = value, at
            now = self.results(visited)
            for result in [r for r in before if now.get(r) != before[r]]:
                ends.setdefault(result, at)
            begins |= {r: at for r, by in now.items() if known.get(r) != by}
            known = now
        told = [(*r, "-", ends[r]) for r, by in before.items() if known.get(r) != by]
        return told + [(*r, "+", begins[r]) for r, by in known.items() if before.get(r) != by]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("foreign", [False, True], ids=["by key", "by foreign key"])
@pytest.mark.parametrize("how", HOWS)
def test_every_change_has_the_time_at_which_it_became_true(
    how: str, foreign: bool, seed: int
) -> None:
    rand, model = random.Random(seed), Replay(how, foreign)
    with Harness(timed(how, foreign)) as test:
        for turn in range(1, 7):
            many = rand.choice(
                (8, 16, 32)
            )  # of 16 keys: some batches say much of a key, some little
            times = iter(rand.sample(range(turn * 100_000, turn * 100_000 + 50_000), 2 * many))
            left = [(_key(rand), _key(rand), rand.randrange(12), next(times)) for _ in range(many)]
            right = [(_key(rand), rand.randrange(12), next(times)) for _ in range(many)]
            found = _batch(test, left, right, turn * 100_000 + 60_000)
            assert Counter(found) == Counter(model.batch(left, right))


def _key(rand: random.Random) -> str:
    return f"x{rand.randrange(16)}"


def _batch(test: Harness, left: list[Any], right: list[Any], until: int) -> list[Result]:
    test.send("b", right)
    test.send("a", left)
    for name in "ab":
        test.watermark(name, until)
    return [tuple(row.values()) for row in test.output()]


PERSON, PLACE = [("p", "x", 1, 1_000)], [("x", 1, 1_000)]
GONE = 4  # a value that deletes


@pytest.mark.parametrize(
    ("how", "before", "left", "right", "told"),
    [
        # a value that nobody sees does not count, before the left row changes or after
        ("semi", (PERSON, PLACE), [("p", "x", 1, 10_000)], [("x", 2, 3_000)],
         [("p", "x", None, "-", 10_000), ("p", "x", None, "+", 10_000)]),
        ("semi", (PERSON, PLACE), [("p", "x", 1, 10_000)], [("x", 2, 12_000)],
         [("p", "x", None, "-", 10_000), ("p", "x", None, "+", 10_000)]),
        # nor does the deletion of what is not there: not the first one, not a second one
        ("left", (PERSON, []), [], [("x", GONE, 3_000), ("x", 2, 10_000)],
         [("p", "x", None, "-", 10_000), ("p", "x", 2, "+", 10_000)]),
        ("anti", (PERSON, PLACE), [], [("x", GONE, 3_000), ("x", GONE, 10_000)],
         [("p", "x", None, "+", 3_000)]),
        # who comes and goes is not told, and does not interrupt a right row that is alone
        ("right", ([], PLACE), [("p", "x", 1, 3_000), ("p", "x", GONE, 5_000)],
         [("x", 2, 10_000)], [(None, "x", 1, "-", 10_000), (None, "x", 2, "+", 10_000)]),
        ("right", ([], PLACE), [("p", "x", 1, 3_000), ("p", "x", GONE, 5_000)], [], []),
        # who goes and comes back neither, if the result is made of the same rows again
        ("semi", (PERSON, PLACE), [], [("x", GONE, 3_000), ("x", 1, 5_000)], []),
        ("anti", (PERSON, []), [], [("x", 1, 3_000), ("x", GONE, 5_000)], []),
        ("left", (PERSON, []), [], [("x", 1, 3_000), ("x", GONE, 5_000)], []),
    ],
)  # fmt: skip
def test_what_nobody_can_see_has_no_time(
    how: str, before: tuple[list[Any], list[Any]], left: list[Any], right: list[Any],
    told: list[Result],
) -> None:  # fmt: skip
    with Harness(timed(how, foreign=True)) as test:
        _batch(test, *before, 2_000)
        assert Counter(_batch(test, left, right, 50_000)) == Counter(told)
