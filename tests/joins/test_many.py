"""Joins of three streams against a plain model that tries every combination."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.joins.driving import OPTIONS, SCHEMA, Driven, Row, examples, plain, send, turns

NAMES = ("a", "b", "c")
HOWS = ("inner", "left", "full")
Combination = tuple[Row | None, ...]


@dataclass
class Model:
    how: str
    within: int
    lateness: int
    names: tuple[str, ...] = NAMES
    rows: dict[str, list[Row]] = field(default_factory=dict)

    def step(self, new: dict[str, list[Row]], before: int, after: int) -> list[Any]:
        fresh = {r.value for side in new.values() for r in side}
        for name in self.names:
            self.rows.setdefault(name, []).extend(new[name])
        keys = {r.key for side in self.rows.values() for r in side} - {None}
        found = [result for key in keys for result in self.of_key(key, fresh, before, after)]
        for port, name in enumerate(self.names):
            outer = self.how == "full" or (self.how == "left" and port == 0)
            for row in self.rows[name] if outer else ():
                due = row.time + self.within
                if row.key is None and before - self.lateness <= due < after - self.lateness:
                    alone = tuple(row if p == port else None for p in range(len(self.names)))
                    found.append((due, alone))
        return [(time + self.lateness, values_of(rows)) for time, rows in found]

    def of_key(self, key: str, fresh: set[Any], before: int, after: int) -> list[Any]:
        mine = [[r for r in self.rows[n] if r.key == key] for n in self.names]
        found: list[tuple[int, Combination]] = []
        for rows in product(*([None, *side] for side in mine)):
            there = [r for r in rows if r is not None]
            if not there or not self.near(there):
                continue
            if len(there) == len(rows):
                if {r.value for r in there} & fresh:
                    found.append((max(r.time for r in there), rows))
                continue
            due = min(r.time for r in there) + self.within
            wanted = self.how == "full" or (self.how == "left" and rows[0] is not None)
            now = before - self.lateness <= due < after - self.lateness
            more = [r for side, row in zip(mine, rows, strict=True) if row is None for r in side]
            if wanted and now and not any(self.near([*there, r]) for r in more):
                found.append((due, rows))
        return found

    def near(self, rows: list[Row]) -> bool:
        return all(abs(r.time - s.time) <= self.within for r in rows for s in rows)


def values_of(rows: Combination) -> tuple[Any, ...]:
    key = next(r.key for r in rows if r is not None)
    return key, *(v for r in rows for v in ((None, None) if r is None else r[1:]))


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(6), **OPTIONS)
@given(data=st.data())
def test_three_streams_give_what_the_model_says(how: str, data: Any) -> None:
    within = data.draw(st.sampled_from([0, 2_000, 6_000]))
    model = Model(how, within, data.draw(st.sampled_from([0, 2_000])))

    def build(a: Any, b: Any, c: Any) -> Any:
        within, wait = f"{model.within}ms", f"{model.lateness}ms"
        return hr.join_all(on="k", how=how, within=within, lateness=wait, a=a, b=b, c=c)

    drawn, tasks = data.draw(turns(NAMES)), data.draw(st.integers(1, 3))
    Driven(build, model, drawn, inputs=NAMES, lateness=model.lateness, tasks=tasks).run()


@pytest.mark.parametrize("how", ["left", "full"])
@settings(max_examples=examples(2), **OPTIONS)
@given(data=st.data())
def test_four_streams_give_what_the_model_says(how: str, data: Any) -> None:
    names = (*NAMES, "d")
    model = Model(how, data.draw(st.sampled_from([1_000, 4_000])), 0, names)

    def build(*streams: Any) -> Any:
        named = dict(zip(names, streams, strict=True))
        return hr.join_all(on="k", how=how, within=f"{model.within}ms", **named)

    Driven(build, model, data.draw(turns(names)), inputs=names).run()


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(2), **OPTIONS)
@given(data=st.data())
def test_two_streams_are_joined_as_join_does(how: str, data: Any) -> None:
    said = {
        "on": "k", "how": how, "within": data.draw(st.sampled_from(["0s", "2s", "6s"])),
        "lateness": data.draw(st.sampled_from(["0s", "2s"])),
    }  # fmt: skip
    job = hr.Job("pairs")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="4s", name=n) for n in "ab")
    for name, joined in (("two", a.join(b, **said)), ("all", hr.join_all(a=a, b=b, **said))):
        joined.write("console:", name=name)
        counts = joined.window(hr.tumbling("1s")).agg(n=hr.count())
        counts.write("console:", name=f"{name} by time")

    def same(*names: str) -> None:
        one, other = (
            Counter(tuple(map(plain, row.values())) for row in test.output(name)) for name in names
        )
        assert one == other

    with Harness(job, tasks=2) as test:
        for turn in data.draw(turns()):
            if turn.event:
                getattr(test, turn.event)()
            send(test, turn.rows)
            same("two", "all")
        test.end()
        same("two", "all")
        same("two by time", "all by time")


@pytest.mark.parametrize(("before", "after"), [("inner", "full"), ("left", "inner"),
                                               ("full", "left")])  # fmt: skip
def test_how_cannot_be_changed_under_the_state(before: str, after: str) -> None:
    """What was not noted before could not be told now."""

    def made(how: str) -> hr.Job:
        job = hr.Job("many")
        streams = {n: job.read(f"log:{n}", schema=SCHEMA, time="at", delay="4s", name=n)
                   for n in NAMES}  # fmt: skip
        hr.join_all(on="k", how=how, within="1m", **streams).write("console:", name="out")
        return job

    with Harness(made(before)) as test:
        send(test, {("a", 0): [Row("x", 1, 10_000)]})
        with pytest.raises(hr.StateError, match=rf"HR-EVOLVE-001.*was {before} and is {after}"):
            test.restart(made(after))
