"""The order of changes: a row that points elsewhere now is taken back before it is given."""

from __future__ import annotations

import random
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness

LEFT, RIGHT = "p string, fk string, at bigint", "id string, v bigint, at bigint"
Change = tuple[str, str, str, int]


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


def _new(test: Harness, name: str) -> list[Change]:
    return [tuple(row.values()) for row in test.output(name)]


class Timed(hr.KeyedProcess):
    """Gives the rows of each key with their event time."""

    output = "p string, fk string, v bigint, change string, at bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (row.p, row.fk, row.v, row.change, ctx.time)


class Replay:
    """Both tables, change by change: who is in the join from when, and until when."""

    def __init__(self) -> None:
        self.left: dict[str, tuple[str, int]] = {}  # where each points to, and by which change
        self.right: dict[str, tuple[int, int]] = {}

    def pairs(self) -> dict[tuple[Any, ...], tuple[int, int]]:
        """Each result, and the changes that made it."""
        return {
            (p, fk, self.right[fk][0]): (mine, self.right[fk][1])
            for p, (fk, mine) in self.left.items()
            if fk in self.right
        }

    def batch(self, changes: list[tuple[int, str, str, Any]]) -> list[tuple[Any, ...]]:
        """What is told of a batch: what was true and ended, what is true and began."""
        before = self.pairs()
        ends: dict[tuple[Any, ...], int] = {}
        begins: dict[tuple[Any, ...], int] = {}
        known = dict(before)
        for at, table, key, value in sorted(changes):
            one = self.left if table == "a" else self.right
            one[key] = value, at  # type: ignore[index]
            now = self.pairs()
            for result in {k for k in known if now.get(k) != known[k]}:
                ends.setdefault((result, known[result]), at)  # type: ignore[call-overload]
            begins |= {(r, by): at for r, by in now.items() if known.get(r) != by}
            known = now
        told = [(*r, "-", ends[r, by]) for r, by in before.items() if (r, by) in ends]
        return told + [(*r, "+", begins[r, by]) for r, by in known.items() if (r, by) in begins]


@pytest.mark.parametrize("foreign", [False, True], ids=["by key", "by foreign key"])
def test_what_is_taken_back_has_the_time_of_the_first_change(foreign: bool) -> None:
    rand = random.Random(3)
    made = hr.Job("times")
    a, b = (
        made.read(f"log:{n}", schema=schema, time="at", delay="1h", name=n)
        for n, schema in (("a", LEFT), ("b", RIGHT))
    )
    left, right = a.table("p", unbounded=True), b.table("id", unbounded=True)
    joined = left.join(right, on={"fk" if foreign else "p": "id"})
    joined.key_by("p").process(Timed()).write("collect:", name="out")
    model, people = Replay(), ["x0", "x1", "x2"]
    with Harness(made) as test:
        for turn in range(1, 15):
            times = iter(rand.sample(range(turn * 100_000, turn * 100_000 + 50_000), 12))
            moved = [(rand.choice(people), rand.choice(people), next(times)) for _ in range(4)]
            if not foreign:
                moved = [(p, p, at) for p, _, at in moved]
            changed = [(rand.choice(people), rand.randrange(99), next(times)) for _ in range(5)]
            test.send("b", changed)
            test.send("a", moved)
            for name in "ab":
                test.watermark(name, turn * 100_000 + 60_000)
            wanted = model.batch(
                [(at, "a", p, fk) for p, fk, at in moved]
                + [(at, "b", x, v) for x, v, at in changed]
            )
            found = [tuple(row.values()) for row in test.output()]
            assert sorted(found) == sorted(wanted)
