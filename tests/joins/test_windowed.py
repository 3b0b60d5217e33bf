"""Window joins and cogroup against a plain model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from tests.joins.driving import NEVER, OPTIONS, Driven, Row, examples, in_windows, turns

HOWS = ("inner", "left", "right", "full", "semi", "anti", "cogroup")
SIZES = [(5_000, 5_000), (6_000, 2_000), (1_000, 1_000)]


@dataclass
class Model:
    how: str
    size: int
    slide: int
    lateness: int
    a: list[Row] = field(default_factory=list)
    b: list[Row] = field(default_factory=list)

    def starts(self, time: int) -> list[int]:
        last = time // self.slide * self.slide
        return [s for s in range(last - self.size, last + 1, self.slide) if s + self.size > time]

    def late(self, time: int, floor: int) -> bool:
        return floor > NEVER and self.starts(time)[-1] + self.size <= floor

    def step(self, new: dict[str, list[Row]], before: int, after: int) -> list[Any]:
        self.a += new["a"]
        self.b += new["b"]
        low, high = before - self.lateness, after - self.lateness
        starts = {s for r in (*self.a, *self.b) for s in self.starts(r.time)}
        found: list[Any] = []
        for start in starts:
            end = start + self.size
            if low < end <= high:
                a, b = ([r for r in rows if start <= r.time < end] for rows in (self.a, self.b))
                rows = self.grouped(a, b) if self.how == "cogroup" else self.joined(a, b)
                bounds = (start, end)
                found += [(end - 1 + self.lateness, self.row(row, bounds)) for row in rows]
        return found

    def row(self, row: tuple[Any, ...], bounds: tuple[int, int]) -> tuple[Any, ...]:
        return (row[0], *bounds, *row[1:]) if self.how == "cogroup" else (*row, *bounds)

    def joined(self, a: list[Row], b: list[Row]) -> list[tuple[Any, ...]]:
        def met(row: Row, others: list[Row]) -> list[Row]:
            return [o for o in others if o.key is not None and o.key == row.key]

        if self.how in ("semi", "anti"):
            return [tuple(r) for r in a if bool(met(r, b)) == (self.how == "semi")]
        found = [(*r, *o[1:]) for r in a for o in met(r, b)]
        if self.how in ("left", "full"):
            found += [(*r, None, None) for r in a if not met(r, b)]
        if self.how in ("right", "full"):
            found += [(r.key, None, None, *r[1:]) for r in b if not met(r, a)]
        return found

    def grouped(self, a: list[Row], b: list[Row]) -> list[tuple[Any, ...]]:
        found = []
        for key in {r.key for r in (*a, *b)}:
            mine, theirs = ([r.value for r in rows if r.key == key] for rows in (a, b))
            found.append((key, sum(mine), sum(theirs)))
        return found


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(2), **OPTIONS)
@given(data=st.data())
def test_every_kind_gives_what_the_model_says(how: str, data: Any) -> None:
    model = Model(how, *data.draw(st.sampled_from(SIZES)), data.draw(st.sampled_from([0, 3_000])))
    window = hr.sliding(f"{model.size}ms", every=f"{model.slide}ms")
    wait = f"{model.lateness}ms"

    Driven(in_windows(how, window, wait), model, data.draw(turns()), lateness=model.lateness).run()
