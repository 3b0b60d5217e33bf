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
