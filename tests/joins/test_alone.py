"""Right rows to which no left row points, in right and full joins by foreign key."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import headrace as hr
from headrace.testing import Harness

LEFT, RIGHT = "p string, fk string, at bigint", "id string, v bigint, at bigint"
Told = tuple[str | None, str | None, int | None, str, int]


class InTurn(hr.KeyedProcess):
    """Gives the rows of each foreign key as they come to it, with their time."""

    output = "p string, fk string, v bigint, change string, time bigint"

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (row.p, row.fk, row.v, row.change, ctx.time // 1_000)


def job(how: str, time: str = "event") -> hr.Job:
    job = hr.Job("alone")
    a, b = (
        job.read(f"log:{n}", schema=schema, time="at", delay="1s", name=n)
        for n, schema in (("a", LEFT), ("b", RIGHT))
    )
    left = a.table("p", delete="fk = 'gone'", unbounded=True)
    right = b.table("id", delete="v < 0", unbounded=True)
    joined = left.join(right, on={"fk": "id"}, how=how, time=time, name="join")
    told = joined.select("p", "fk", "v", "change")
    told.write("collect:", name="plain")
    told.key_by("fk").process(InTurn()).write("collect:", name="keyed")
    return job


def batch(
    test: Harness, until: int, left: Sequence[Any] = (), right: Sequence[Any] = ()
) -> list[Told]:
    """What is told by foreign key when the watermark has come to this second."""
    test.send("a", [(*row, 1_000 * s) for *row, s in left])
    test.send("b", [(*row, 1_000 * s) for *row, s in right])
    for name in "ab":
        test.watermark(name, f"{until}s")
    return [tuple(row.values()) for row in test.output("keyed")]


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_row_is_alone_until_the_first_points_to_it_and_after_the_last_has_gone(how: str) -> None:
    with Harness(job(how)) as test:
        assert batch(test, 10, right=[("x", 1, 1)]) == [(None, "x", 1, "+", 1)]
        assert batch(test, 20, left=[("p", "x", 11), ("q", "x", 12)]) == [
            (None, "x", 1, "-", 11), ("p", "x", 1, "+", 11), ("q", "x", 1, "+", 12),
        ]  # fmt: skip
        test.crash()
        assert batch(test, 30, left=[("p", "gone", 21)]) == [("p", "x", 1, "-", 21)]
        assert batch(test, 40, left=[("q", None, 31)]) == [
            *([("q", None, None, "+", 31)] if how == "full" else []),
            ("q", "x", 1, "-", 31), (None, "x", 1, "+", 31),
        ]  # fmt: skip
        test.restart()
        assert batch(test, 50, right=[("x", 2, 41)]) == [
            (None, "x", 1, "-", 41), (None, "x", 2, "+", 41),
        ]  # fmt: skip
        assert batch(test, 60, right=[("x", -1, 51)]) == [(None, "x", 2, "-", 51)]


def test_of_one_batch_the_first_who_comes_and_the_last_who_goes_say_when() -> None:
    with Harness(job("right")) as test:
        batch(test, 10, right=[("x", 1, 1), ("y", 2, 1)])
        moves = [("p", "x", 11), ("p", "gone", 12), ("p", "x", 13), ("q", "x", 14)]
        assert batch(test, 20, left=moves) == [
            (None, "x", 1, "-", 11), ("p", "x", 1, "+", 13), ("q", "x", 1, "+", 14),
        ]  # fmt: skip
        moves = [("p", "gone", 21), ("q", "gone", 22), ("r", "x", 23), ("r", "gone", 24)]
        assert batch(test, 30, left=moves) == [
            ("p", "x", 1, "-", 21), ("q", "x", 1, "-", 22), (None, "x", 1, "+", 24),
        ]  # fmt: skip
        visit = [("p", "x", 31), ("p", "gone", 33), ("q", "y", 31), ("q", "gone", 33)]
        assert batch(test, 40, left=visit, right=[("y", 3, 32)]) == [
            (None, "y", 2, "-", 32), (None, "y", 3, "+", 32),
        ]  # fmt: skip


@pytest.mark.parametrize("time", ["event", "processing"])
def test_no_row_is_ever_told_alone_beside_one_that_points_to_it(time: str) -> None:
    rand, seen = random.Random(5), {name: set[tuple[Any, ...]]() for name in ("plain", "keyed")}
    people, places = [f"p{i}" for i in range(4)], [f"x{i}" for i in range(6)]
    left: dict[str, str] = {}
    right: dict[str, int] = {}
    with Harness(job("full", time), tasks=3) as test:
        for turn in range(1, 9):
            start = 100 * turn
            moved = [(p, rand.choice([*places, "gone"]), start + rand.randrange(50))
                     for p in people if rand.random() < 0.7]  # fmt: skip
            changed = [(x, rand.randrange(-20, 99), start + rand.randrange(50))
                       for x in places if rand.random() < 0.4]  # fmt: skip
            left |= {p: fk for p, fk, _ in moved}
            right |= {x: v for x, v, _ in changed}
            told = {"keyed": batch(test, start + 60, moved, changed)}
            told["plain"] = [tuple(row.values()) for row in test.output("plain")]
            for name, rows in seen.items():
                for p, fk, v, change, *_ in told[name]:
                    (rows.add if change == "+" else rows.remove)((p, fk, v))
                    pointed = {fk for p, fk, _ in rows if p is not None}
                    assert not any(p is None and fk in pointed for p, fk, _ in rows)
            there = {x: v for x, v in right.items() if v >= 0}
            pointing = {p: fk for p, fk in left.items() if fk != "gone"}
            alone = {(None, x, v) for x, v in there.items() if x not in pointing.values()}
            joined = alone | {(p, fk, there.get(fk)) for p, fk in pointing.items()}
            assert seen == {"plain": joined, "keyed": joined}


@pytest.mark.parametrize("how", ["left", "full"])
def test_a_foreign_key_may_be_a_part_of_the_own_key(how: str) -> None:
    job = hr.Job("lines")
    lines, orders = (
        job.read(f"log:{n}", schema=f"order string, {n} bigint, at bigint", time="at",
                 in_order=True, name=n)
        for n in ("line", "paid")
    )  # fmt: skip
    left = lines.drop("at").table("order", "line", unbounded=True)
    joined = left.join(orders.drop("at").table("order", unbounded=True), on="order", how=how)
    joined.write("collect:", name="out")
    with Harness(job) as test:
        test.send("line", [("a", 1, 0), ("a", 2, 0), ("b", 1, 0)])
        test.send("paid", [("a", 5, 0), ("c", 7, 0)])
        test.end()
        told = {tuple(row.values()) for row in test.output()}
    alone = {("c", None, 7, "+")} if how == "full" else set()
    assert told == {("a", 1, 5, "+"), ("a", 2, 5, "+"), ("b", 1, None, "+")} | alone


@pytest.mark.parametrize(("before", "after"), [("inner", "right"), ("full", "left"),
                                               ("right", "full"), ("left", "inner")])  # fmt: skip
def test_how_cannot_be_changed_under_the_state(before: str, after: str) -> None:
    """What was told before could not be taken back."""
    with Harness(job(before)) as test:
        batch(test, 10, [("p", "x", 1)], [("x", 1, 1)])
        with pytest.raises(hr.StateError, match=rf"HR-EVOLVE-001.*was {before} and is {after}"):
            test.restart(job(after))
